"""The clients of both sides of a flow."""

from __future__ import annotations

from collections.abc import Mapping

from onceover.config.clients.resolve import ClientConfig, resolve_client
from onceover.config.clients.rules import endpoints
from onceover.config.faults import BadConfig, Fault
from onceover.config.flow.flowfile import Flow


def resolve_clients(
    flow: Flow, environ: Mapping[str, str] | None = None
) -> tuple[ClientConfig, ClientConfig]:
    """Return the clients of source and target.

    Raises:
        UsageError: as :func:`resolve_client`, both sides in one error; or both name one server.
    """
    clients: list[ClientConfig] = []
    faults: list[Fault] = []
    for side, spec in (("source", flow.source), ("target", flow.target)):
        try:
            clients.append(resolve_client(spec, where=f"{flow.path}: {side}", environ=environ))
        except BadConfig as error:
            faults += error.faults
    if not faults:
        source, target = clients
        fault = same_cluster_fault(str(flow.path), source.properties, target.properties)
        if fault is None:
            return source, target
        faults.append(fault)
    raise BadConfig(faults)


def same_cluster_fault(where: str, source: Mapping[str, str], target: Mapping[str, str]) -> Fault | None:
    """Return the fault when source and target name the same server, else ``None``."""
    if not endpoints(source["bootstrap.servers"]) & endpoints(target["bootstrap.servers"]):
        return None
    return Fault(
        where,
        "target",
        "names a bootstrap server of the source: a flow would copy a cluster onto itself",
        "give source and target different clusters",
    )
