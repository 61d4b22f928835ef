"""Views of connectors as plans are made of them, in one line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceover.connectors.model import (
    OFFSETS_TOPIC_KEY,
    RUNNING,
    ConnectorState,
    Isolation,
    RawOffset,
    TaskState,
    WorkerFacts,
)
from onceover.connectors.offsets.configtopic import ConfigRecords
from onceover.connectors.offsets.keys import partition_of
from onceover.connectors.offsets.scan import Scan
from onceover.connectors.planning.view import ConnectorView, TopicView
from onceover.kafka.admin.topics import TopicSpec

GLOBAL = "connect-offsets"
OWN = "connect-offsets-c"
PARTITIONS = 3
KEY = b'["c",{"p":0}]'
OTHER = b'["c",{"p":1}]'
Records = list[tuple[int, bytes, bytes | None]]


def facts(**changes: Any) -> WorkerFacts:
    """Return a Connect cluster; ``changes`` to one of 4.3.0 with exactly-once."""
    known: dict[str, Any] = {
        "version": "4.3.0",
        "kafka_cluster_id": "id",
        "group_id": "g",
        "offsets_topic": GLOBAL,
        "config_topic": "connect-configs",
        "exactly_once": True,
        "workers": ("http://w:8083",),
        "connect": "flights",
    }
    return WorkerFacts(**{**known, **changes})


def scan(records: Records, topic: str = GLOBAL, partitions: int = PARTITIONS) -> Scan:
    """Return what a reader finds: (partition, key, value), in the order in which they were written."""
    latest = {
        (key, partition): RawOffset(partition, number, number, key, value)
        for number, (partition, key, value) in enumerate(records)
        if key
    }
    return Scan(
        topic, Isolation.READ_COMMITTED, partitions, latest, sum(not r[1] for r in records), {0: 9}, 1
    )


def placed(values: Mapping[bytes, bytes | None], partitions: int = PARTITIONS) -> Records:
    """Return records where the workers write them."""
    return [(partition_of(key, partitions), key, value) for key, value in values.items()]


def connector(topic: str | None = None, state: str = RUNNING, **changes: Any) -> ConnectorState:
    """Return source connector ``c``, running with one task unless told otherwise."""
    config = {"name": "c", "tasks.max": "2", **({OFFSETS_TOPIC_KEY: topic} if topic else {})}
    tasks = (TaskState(0, RUNNING, "w:8083"),) if state == RUNNING else ()
    known: dict[str, Any] = {"name": "c", "type": "source", "state": state, "tasks": tasks, "config": config}
    return ConnectorState(**{**known, **changes})


def view(
    base: Records, own: Records | None = None, *, policy: str | None = "compact", **changes: Any
) -> ConnectorView:
    """Return what is seen of connector ``c``: ``base`` in the shared topic, ``own`` in its own (None: there
    is none)."""
    known: dict[str, Any] = {
        "state": connector(),
        "facts": facts(),
        "topic": OWN,
        "base": TopicView(scan(base), "compact"),
        "own": None if own is None else TopicView(scan(own, OWN), policy),
        "spec": TopicSpec(OWN, PARTITIONS, 1, {"cleanup.policy": "compact"}),
        "fence_ids": ("g-c-0", "g-c-1"),
        "records": ConfigRecords(),
        "connectors": frozenset({"c", "ab"}),
        "shown": None,
    }
    return ConnectorView(**{**known, **changes})
