"""Broker configuration as text: pure, no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onceover.errors import UsageError
from onceover_lab.embed.ports import LOOPBACK

_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
CLIENT_LISTENER: Final = "CLIENT"
INTERNAL_LISTENER: Final = "INTERNAL"
CONTROLLER_LISTENER: Final = "CONTROLLER"


@dataclass(frozen=True, slots=True)
class NodePorts:
    """Loopback ports of one combined broker and controller.

    ``advertised`` is where clients are sent, when something stands between them and ``client``.
    """

    client: int
    internal: int
    controller: int
    advertised: int | None = None


def render_server_properties(
    *,
    node_id: int,
    nodes: Sequence[NodePorts],
    data: Path,
    security: Mapping[str, str],
    overrides: Mapping[str, str],
) -> str:
    """Return ``server.properties`` of node ``node_id`` (1-based) in a cluster of ``nodes``.

    ``security`` configures the client listener (empty: plain text); ``overrides`` win over
    everything else.

    Raises:
        UsageError: Kafka would take the folder for two.
    """
    if "," in str(data):
        raise UsageError(
            "Kafka takes a folder with a comma in its name for two",
            where=str(data),
            resolve="use one without: ONCEOVER_HOME says where, or TMPDIR",
        )
    settings = {
        **_topology(node_id, nodes, data),
        **_durability(len(nodes)),
        **_PACE,
        **security,
        **overrides,
    }
    return "".join(f"{key}={_escape(value)}\n" for key, value in settings.items())


def _topology(node_id: int, nodes: Sequence[NodePorts], data: Path) -> dict[str, str]:
    own = nodes[node_id - 1]
    listeners = _addresses(own.client, own.internal)
    voters = (f"{index}@{LOOPBACK}:{node.controller}" for index, node in enumerate(nodes, start=1))
    return {
        "node.id": str(node_id),
        "process.roles": "broker,controller",
        "controller.quorum.voters": ",".join(voters),
        "listeners": f"{listeners},{CONTROLLER_LISTENER}://{LOOPBACK}:{own.controller}",
        "advertised.listeners": _addresses(own.advertised or own.client, own.internal),
        # Brokers talk to each other, and the fixture to the brokers, in plain text on loopback: the
        # security of the client listener can then be anything, and a broken one is still diagnosable.
        "listener.security.protocol.map": (
            f"{CLIENT_LISTENER}:PLAINTEXT,{INTERNAL_LISTENER}:PLAINTEXT,{CONTROLLER_LISTENER}:PLAINTEXT"
        ),
        "inter.broker.listener.name": INTERNAL_LISTENER,
        "controller.listener.names": CONTROLLER_LISTENER,
        "log.dirs": str(data),
    }


def _addresses(client: int, internal: int) -> str:
    return f"{CLIENT_LISTENER}://{LOOPBACK}:{client},{INTERNAL_LISTENER}://{LOOPBACK}:{internal}"


def _durability(brokers: int) -> dict[str, str]:
    """Replicate internal topics on up to three nodes; more than one node survives the loss of one."""
    replicas = str(min(brokers, 3))
    min_isr = "2" if brokers >= 3 else "1"
    return {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min_isr,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": min_isr,
        "default.replication.factor": replicas,
        "min.insync.replicas": min_isr,
    }


# Each is about start-up time, memory or waiting; none changes what a broker guarantees.
_PACE: Final[Mapping[str, str]] = {
    # 50 partitions each by default: slow to create, to load and to clean on a small machine.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "num.partitions": "1",
    "auto.create.topics.enable": "false",
    # A group's first member would otherwise wait 3 s for company.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # 128 MiB by default, taken from the heap at start.
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.backoff.ms": "500",
    # An expired transaction is noticed at this interval (10 s by default), as its producer expects.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    # Twice a second by default a record that says nothing: a quarter of what a broker at rest costs.
    "metadata.max.idle.interval.ms": "0",
    "num.network.threads": "2",
    "num.io.threads": "4",
}


def _escape(value: str) -> str:
    """Escape what ``java.util.Properties`` would read as something else: it takes the file for Latin-1."""
    plain = value.replace("\\", "\\\\").replace("\n", "\\n")
    return _NOT_ASCII.sub(lambda found: _as_utf16(found.group()), plain)


def _as_utf16(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


# Everything goes to stdout, which is the process's log file. `kafka` and `org.apache.kafka` at INFO
# tell a start, a stop and leader changes; DEBUG would print payloads and is never used.
LOG4J2_PROPERTIES: Final = """\
status = warn
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
logger.config.name = org.apache.kafka.common.config.AbstractConfig
logger.config.level = warn
"""

LOG4J1_PROPERTIES: Final = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
