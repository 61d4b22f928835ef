"""A stop as the flow keeps it in its state: code, what was expected and seen, what resolves it (G5). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from onceover.errors import NeedsOperator
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.records.value import mapping, record

VERSION = 1


@dataclass(frozen=True)
class Stop:
    """A stopped partition, as written under ``stop/<topic>/<partition>`` and shown by ``status``."""

    code: str
    message: str
    expected: str
    seen: str
    resolve: str
    position: int | None
    at_ms: int = 0
    generation: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the state value."""
        return {"v": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Stop:
        """Read what ``to_json`` wrote; unknown fields of later versions are ignored.

        Raises:
            NeedsOperator: it is no stop.
        """
        return record(cls, mapping(value, "stop"), "stop")

    @property
    def name(self) -> dict[str, int | None]:
        """What tells it from any other stop of the partition: compared for equality, never by time, since
        the clocks of workers and of people differ."""
        return {"generation": self.generation, "at_ms": self.at_ms, "position": self.position}

    def is_meant_by(self, request: object) -> bool:
        """Tell whether a request to look again speaks of this very stop."""
        return isinstance(request, Mapping) and request.get("stop") == self.name


def stop_in(others: Mapping[str, Any], target: TopicPartition) -> Stop | None:
    """Return why a target partition is stopped, None where it is not.

    Args:
        others: values of the state's second partition.

    Raises:
        NeedsOperator: what stands there is no stop.
    """
    value = others.get(names.stop_key(*target))
    return None if value is None else Stop.from_json(value)


def readable_stop(others: Mapping[str, Any], target: TopicPartition) -> Stop | None:
    """Return why a target partition is stopped; None where it is not, or what stands there says nothing."""
    with suppress(NeedsOperator):
        return stop_in(others, target)
    return None


def stopped_in(others: Mapping[str, Any]) -> set[TopicPartition]:
    """Return the target partitions that are stopped, whether anybody can read why or not.

    A key that names no partition stops none; ``status`` tells of it.
    """
    found = set()
    for key in others:
        if key.startswith(names.STOP_PREFIX):
            with suppress(ValueError):
                found.add(TopicPartition(*names.split_partition_key(key)))
    return found
