"""What the workers wrote down about a connector's tasks, in their configuration topic.

The number of tasks that may still hold a transaction is in ``tasks-fencing-<name>`` (KIP-618's text says
``tasks-count-``; the workers do not). A stop commits ``{"tasks": 0}`` and leaves it as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from onceover.connectors.model import RUNNING, ConnectorState
from onceover.connectors.offsets.keys import parsed_json
from onceover.connectors.offsets.scan import topic_in
from onceover.kafka import calls
from onceover.kafka.logs.between import records_between
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition

CONFIG: Final = "config"
TARGET: Final = "target"
STARTED: Final = "STARTED"
_TARGET: Final = "target-state-"
_FENCING: Final = "tasks-fencing-"
_COMMIT: Final = "commit-"
_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_TASKS_MAX: Final = "tasks.max"
_CONFIG: Final = "connector-"


class Order(NamedTuple):
    """A record that only a command writes.

    Args:
        offset: in the configuration topic.
        at_ms: when, by the clock of the worker that wrote it.
        asked: the state that is asked for, or the configuration; None where the connector was deleted.
    """

    offset: int
    at_ms: int
    asked: Any


@dataclass(frozen=True)
class ConfigRecords:
    """The latest records of the configuration topic, by key, with their offsets.

    Args:
        values: parsed, None where nothing could be made of it.
        offsets: where each stands: the epochs of a configuration.
        given: every order that is still in the topic, by key, in the order in which they were written.
    """

    values: Mapping[str, Any] = field(default_factory=dict, repr=False)
    offsets: Mapping[str, int] = field(default_factory=dict)
    given: Mapping[str, tuple[Order, ...]] = field(default_factory=dict, repr=False)

    def fence_count(self, connector: str, config: Mapping[str, str]) -> int:
        """Return how many transactional ids tasks of the connector may hold.

        The largest of what the leader fenced last, what was committed last, and ``tasks.max``: the second
        is 0 after a stop, the third may have been lowered since.
        """
        counts = [
            _count(self.values.get(_FENCING + connector), "task-count"),
            _count(self.values.get(_COMMIT + connector), "tasks"),
            _tasks_max(config),
        ]
        return max(counts)

    def target(self, connector: str) -> str | None:
        """Return the state that was asked for last: ``STARTED``, ``PAUSED`` or ``STOPPED``; None: never any.

        ``state`` is for workers before 3.5, which know of no STOPPED.
        """
        return _state(self.values.get(_TARGET + connector))

    def config(self, connector: str) -> dict[str, str] | None:
        """Return the configuration as the workers wrote it down; None where they have none."""
        found = _asked(_CONFIG, self.values.get(_CONFIG + connector))
        if not isinstance(found, dict):
            return None
        return {str(key): str(value) for key, value in found.items() if value is not None}

    def epochs(self, connector: str) -> dict[str, int]:
        """Return the offsets of the records that a change of the connector's configuration renews."""
        names = [_CONFIG + connector, _TARGET + connector, _COMMIT + connector]
        return {name: self.offsets[name] for name in [*names, _FENCING + connector] if name in self.offsets}

    def orders(self, connector: str) -> dict[str, int]:
        """Return the offsets of the records that only a command writes: of its configuration, and of the
        state that is asked for. Another offset means that somebody commanded it."""
        names = {what: _key(connector, what) for what in (CONFIG, TARGET)}
        return {what: self.offsets[name] for what, name in names.items() if name in self.offsets}

    def since(self, connector: str, what: str, offset: int | None) -> tuple[Order, ...]:
        """Return the orders of one kind behind an offset, None for the first one on.

        Limit: those that compaction has taken away are not among them. It spares the active segment.
        """
        given = self.given.get(_key(connector, what), ())
        return tuple(order for order in given if offset is None or order.offset > offset)

    def fenced_since_commit(self, connector: str) -> bool | None:
        """Tell whether the leader fenced tasks after it committed them last, as exactly-once demands.

        None when there is no committed task now.
        """
        if not _count(self.values.get(_COMMIT + connector), "tasks"):
            return None
        fenced = self.offsets.get(_FENCING + connector, -1)
        return fenced > self.offsets[_COMMIT + connector]

    def runs_unfenced(self, state: ConnectorState) -> bool:
        """Tell whether tasks run that the leader has not fenced since it committed the newest ones.

        On exactly-once workers that is so for a moment after each change of a configuration: those that
        run are the former ones still.
        """
        running = any(task.state == RUNNING for task in state.tasks)
        return running and self.fenced_since_commit(state.name) is False


def read_config_topic(cluster: Cluster, topic: str, isolation: int = calls.READ_UNCOMMITTED) -> ConfigRecords:
    """Read the workers' configuration topic.

    Args:
        isolation: by default also what is not committed yet, so that no task is missed. Exactly-once workers
            themselves read what is committed: what a leader left that was ended at it is in the log for good.

    Raises:
        Retriable: a broker is away.
        UsageError: not authorized.
        NeedsOperator: there is no such topic.
    """
    partitions = [TopicPartition(topic, number) for number in topic_in(cluster, topic).partitions]
    starts = cluster.retry(lambda: cluster.list_offsets(partitions, calls.EARLIEST))
    ends = cluster.retry(lambda: cluster.list_offsets(partitions, calls.LATEST, isolation))
    values: dict[str, Any] = {}
    offsets: dict[str, int] = {}
    given: dict[str, list[Order]] = {}
    for tp in partitions:
        met = records_between(cluster, tp, starts[tp], ends[tp], isolation=isolation, compacted=True)
        for record in met:
            name = (record.key or b"").decode("utf-8", "replace")
            values[name], offsets[name] = parsed_json(record.value), record.offset
            if name.startswith((_CONFIG, _TARGET)):
                order = Order(record.offset, record.timestamp, _asked(name, values[name]))
                given.setdefault(name, []).append(order)
    return ConfigRecords(values, offsets, {name: tuple(orders) for name, orders in given.items()})


def _key(connector: str, what: str) -> str:
    return (_CONFIG if what == CONFIG else _TARGET) + connector


def _asked(name: str, value: Any) -> Any:
    if name.startswith(_TARGET):
        return _state(value)
    return value.get("properties") if isinstance(value, dict) else None


def _state(value: Any) -> str | None:
    match value:
        case {"state.v2": str(state)} | {"state": str(state)}:
            return state
        case _:
            return None


def _count(value: Any, name: str) -> int:
    match value:
        case dict() as fields if type(fields.get(name)) is int:
            return int(fields[name])
        case _:
            return 0


def _tasks_max(config: Mapping[str, str]) -> int:
    text = config.get(_TASKS_MAX, "1").strip()
    # Workers take 32 bits, and Python no number of thousands of digits.
    return int(text) if _NUMBER.fullmatch(text) else 1
