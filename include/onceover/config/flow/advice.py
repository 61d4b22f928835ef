"""What is allowed in a flow, and yet worth a second look before it runs in earnest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple

from onceover.config import values
from onceover.config.clients.clusterspec import ClusterSpec
from onceover.config.clients.resolve import ClientConfig, resolve_client
from onceover.config.clients.rules import endpoints
from onceover.config.document import REFERENCE
from onceover.config.faults import shown_key
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import find_flow_files, load_flow, read_keys
from onceover.errors import UsageError

_SECRET_NAME: Final = re.compile(r"pass|secret|token|credential|private|api_?key", re.IGNORECASE)
# So far apart that a run would find its positions gone, by the brokers' default.
_RETENTION: Final = timedelta(days=7)
_LOOPBACK: Final = ("127.", "[::1]", "localhost")
_FILES: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")


def advise(
    flow: Flow, source: ClientConfig, target: ClientConfig, environ: Mapping[str, str] | None = None
) -> list[str]:
    """Return one sentence for each setting of ``flow`` that a careful operator would question."""
    unread: list[str] = []
    try:
        others = find_flow_files(environ)
    except UsageError as error:
        # A flow that is named by its path needs no directory.
        others, unread = [], [f"it is compared with no other flow file: {error.message}"]
    return [
        *unread,
        *_cluster("source", flow, flow.source, source),
        *_cluster("target", flow, flow.target, target),
        *_state(flow, target),
        *_handler_args(flow),
        *_seldom(flow),
        *_same_name(flow, others),
        *_other_aliases(flow, (source, target), others, environ),
        *_round(flow, others),
    ]


def _cluster(side: str, flow: Flow, spec: ClusterSpec, client: ClientConfig) -> Iterator[str]:
    properties = client.properties
    if properties.get("security.protocol") == "SASL_PLAINTEXT" and not _is_loopback(properties):
        yield f"{side}: SASL_PLAINTEXT sends records, and with PLAIN the password, unencrypted; use SASL_SSL"
    if properties.get("ssl.endpoint.identification.algorithm") == "none":
        yield f"{side}: ssl.endpoint.identification.algorithm none accepts every trusted host"
    for key in _FILES:
        if key in properties and not Path(properties[key]).is_file():
            yield f"{side}: {key} names {properties[key]}, which is no file on this machine"
    if not flow.spark.master.startswith("local") and spec.origin != "client_file":
        yield (
            f"{side}: executors of {flow.spark.master} do not have this environment; "
            f"use client_file, with the file at the same path on every executor"
        )


def _state(flow: Flow, target: ClientConfig) -> Iterator[str]:
    brokers = len(target.properties["bootstrap.servers"].split(","))
    if flow.state.replication_factor == 1 and brokers > 1:
        yield (
            "state.replication_factor is 1: the flow stops while the one broker with its state is away; "
            "leave it out (the target's own default), or write 3 where the target has three brokers"
        )


def _handler_args(flow: Flow) -> Iterator[str]:
    for key, value in flow.handler_args.items():
        if _SECRET_NAME.search(key) and isinstance(value, str) and not REFERENCE.search(value):
            yield (
                f"handler_args.{shown_key(key)} looks like a secret and stands in the flow file, and Spark's "
                'workers get it as an option; write "${NAME}" and set the variable'
            )


def _seldom(flow: Flow) -> Iterator[str]:
    wait = values.longest_wait(flow.schedules.replicate)
    if wait is not None and wait >= _RETENTION:
        yield (
            f"schedules.replicate is {flow.schedules.replicate}: brokers forget positions that were not "
            "committed for offsets.retention.minutes, seven days by default, and a run that finds none stops "
            "every partition (PROGRESS_MISSING); let it run more often, or have that raised on the target"
        )


def _same_name(flow: Flow, others: Sequence[Path]) -> Iterator[str]:
    for path in others:
        if path.resolve() != flow.path.resolve() and _read(path).get("flow") == flow.flow:
            yield f"{path} is called {flow.flow}, too: whichever starts later fences the other; rename one"


def _other_aliases(
    flow: Flow,
    clients: Sequence[ClientConfig],
    others: Sequence[Path],
    environ: Mapping[str, str] | None,
) -> Iterator[str]:
    """Name flow files that call one of the clusters differently; by the servers that both name."""
    for path in others:
        if path.resolve() == flow.path.resolve():
            continue
        for other in _clients(path, environ):
            for client in clients:
                both = (endpoints(c.properties["bootstrap.servers"]) for c in (client, other))
                shared = set.intersection(*both)
                if shared and client.alias != other.alias:
                    yield (
                        f"{path} calls the cluster at {min(shared)} {other.alias}, this file calls it "
                        f"{client.alias}: names of copies are made of aliases, and hops found by them; write "
                        "the same alias in all flow files"
                    )


def _clients(path: Path, environ: Mapping[str, str] | None) -> Iterator[ClientConfig]:
    """Yield the clients of another flow file that are in order; the file's own check answers for it."""
    try:
        other = load_flow(path, environ=environ)
    except UsageError:
        return
    for spec in (other.source, other.target):
        try:
            yield resolve_client(spec, where=str(path), environ=environ)
        except UsageError:
            continue


def _round(flow: Flow, others: Sequence[Path]) -> Iterator[str]:
    """Name flow files that would copy back what this one copies, alone or in a ring; by cluster names."""
    if flow.topics.naming != "identity":
        return
    edges = [edge for path in others if (edge := _identity(path)) is not None]
    alone = [edge for edge in edges if (edge.source, edge.target) == (flow.target.alias, flow.source.alias)]
    for edge in alone:
        yield (
            f"{edge.path} copies in the other direction, both with naming: identity: topics that both "
            "include are refused, or records would go round for ever; write naming: prefix in both"
        )
    ring = [] if alone else _way(edges, flow.target.alias, flow.source.alias)
    if ring:
        yield (
            f"{', '.join(str(edge.path) for edge in ring)} copy back what this flow copies, in a ring, all "
            "with naming: identity: topics that all include are refused in one of them, or records would go "
            "round for ever; write naming: prefix in all"
        )


class _Edge(NamedTuple):
    """A flow file, and between which clusters it copies."""

    path: Path
    source: object
    target: object


def _identity(path: Path) -> _Edge | None:
    """Return a flow file that copies under the same names; None for another."""
    other = _read(path)
    if (_get(other, "topics", "naming") or "identity") != "identity":
        return None
    return _Edge(path, _get(other, "source", "alias"), _get(other, "target", "alias"))


def _way(edges: Sequence[_Edge], start: object, end: object) -> list[_Edge]:
    """Return the shortest way from one cluster to another; empty without one."""
    ways: dict[object, list[_Edge]] = {start: []}
    reached = [start]
    for place in reached:
        for edge in edges:
            if edge.source == place and edge.target not in ways:
                ways[edge.target] = [*ways[place], edge]
                reached.append(edge.target)
    return ways.get(end, [])


def _get(data: Mapping[str, object], section: str, key: str) -> object:
    found = data.get(section)
    return found.get(key) if isinstance(found, dict) else None


def _read(path: Path) -> Mapping[str, object]:
    try:
        return read_keys(path)
    except UsageError:
        # That file is answered for by its own check; here it says nothing.
        return {}


def _is_loopback(properties: Mapping[str, str]) -> bool:
    return all(server.startswith(_LOOPBACK) for server in endpoints(properties["bootstrap.servers"]))
