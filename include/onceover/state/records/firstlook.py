"""Which topics a flow's first discovery saw: ``topics.start`` says where these begin. Pure.

It is written down before any of them is enrolled. A run that is killed in between, or a topic that cannot be
taken in at once, changes nothing then: what was there begins where the flow file says, and what was created
later at its first record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from onceover.kafka.ports import TopicInfo
from onceover.state import names

# ``topics.start`` by default, and where all begin that were not there then.
EARLIEST: Final = "earliest"
_VERSION = 1
_TOPIC_ID = "topic_id"


@dataclass(frozen=True)
class FirstLook:
    """What the flow's state says of it.

    Args:
        is_over: whether there was one; until then it is the next one.
        seen: ids of the topics that it saw and that are not enrolled yet, by name. None of a flow that begins
            at the earliest record, where it makes no difference.
    """

    is_over: bool = False
    seen: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, leader: Mapping[str, Any]) -> FirstLook:
        """Read it from the latest values of the leader's partition of the state."""
        seen = {
            key.removeprefix(names.FIRST_PREFIX): str(value[_TOPIC_ID])
            for key, value in leader.items()
            if key.startswith(names.FIRST_PREFIX) and isinstance(value, Mapping) and _TOPIC_ID in value
        }
        return cls(names.DISCOVERED in leader, seen)

    def saw(self, topic: TopicInfo) -> bool:
        """Tell whether a topic that is not enrolled yet begins where the flow file says."""
        return not self.is_over or self.seen.get(topic.name) == str(topic.topic_id)


def remembered(topics: Iterable[TopicInfo]) -> dict[str, dict[str, Any]]:
    """Return the records that keep topics as seen; ``over`` is to be written behind them."""
    return {names.first_key(t.name): {"v": _VERSION, _TOPIC_ID: str(t.topic_id)} for t in topics}


def over(at_ms: int) -> dict[str, dict[str, Any]]:
    """Return the record that says that there was a first look, in ms since 1970."""
    return {names.DISCOVERED: {"v": _VERSION, "at_ms": at_ms}}
