"""How topics are called where others meet them: in a catalogue of lineage, and as Airflow's assets. Pure.

Invariant: a topic has the name that OpenLineage's integrations of Spark and Flink give it: ``kafka://host:port``
of the first bootstrap server, as it is written, and the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onceover.config.flow.flowfile import Flow


@dataclass(frozen=True, slots=True)
class FlowEnds:
    """A flow as a catalogue knows it.

    Args:
        flow: its name.
        source: namespaces of the source cluster's topics, the one that names them first; ``target`` likewise.
        handled: a handler may change what is copied.
        dead_letters: topic on the target for records that cannot be copied; None without one.
    """

    flow: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    handled: bool = False
    dead_letters: str | None = None


def ends_of(flow: Flow, environ: Mapping[str, str]) -> FlowEnds:
    """Return a flow's ends; nothing of its clients is in them but the servers.

    Args:
        environ: where its Connections are.

    Raises:
        UsageError: a client of the flow is not in order.
    """
    from onceover.config.flow.sides import resolve_clients
    from onceover.wiring.handlers import dead_letter_of

    source, target = (
        namespaces(each.properties["bootstrap.servers"]) for each in resolve_clients(flow, environ)
    )
    return FlowEnds(flow.flow, source, target, flow.handler is not None, dead_letter_of(flow.on_bad_record))


def namespaces(bootstrap: str) -> tuple[str, ...]:
    """Return the namespaces of a checked ``bootstrap.servers``, in its order."""
    return tuple(dict.fromkeys(f"kafka://{server}" for server in bootstrap.split(",")))


def topic_uri(namespace: str, topic: str) -> str:
    """Return the asset of a topic, of which Airflow's Kafka provider makes the same dataset again."""
    return f"{namespace}/{topic}"
