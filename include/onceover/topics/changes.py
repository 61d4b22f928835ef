"""The single changes of a topic plan, each with the sentence that explains it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from onceover.kafka.admin.topics import TopicSpec
from onceover.planning.plan import Change
from onceover.state.records.managed import Managed
from onceover.topics.configs import COMPACTION, ONLY_WIDENED, TIMESTAMP_TYPE, not_copied

# Lowered, or left to the broker's default, these let the target delete records.
_RETENTION: Final = ("retention.ms", "retention.bytes")
_POLICY: Final = "cleanup.policy"
_UNLIMITED: Final = -1


@dataclass(frozen=True)
class CreateTopic:
    """Create the copy of ``source``."""

    source: str
    spec: TopicSpec

    @property
    def topic(self) -> str:
        """Target topic."""
        return self.spec.name

    @property
    def change(self) -> Change:
        """What the plan shows."""
        parts = [f"{self.spec.partitions} partitions", *(f"{k}={v}" for k, v in self.spec.config.items())]
        return Change("create topic", self.topic, None, ", ".join(parts), f"copy of {self.source}")


@dataclass(frozen=True)
class AddPartitions:
    """Give the copy as many partitions as the source has."""

    source: str
    topic: str
    from_: int
    to: int

    @property
    def change(self) -> Change:
        """What the plan shows."""
        reason = f"{self.source} has {self.to} partitions"
        return Change("add partitions", self.topic, self.from_, self.to, reason)


@dataclass(frozen=True)
class Adopt:
    """Look after a topic that somebody else created: its configuration follows from now on.

    Args:
        keys: configuration keys that are the flow's from now on.
    """

    source: str
    topic: str
    keys: frozenset[str]

    @property
    def change(self) -> Change:
        """What the plan shows."""
        reason = f"its configuration follows {self.source} from now on"
        return Change("adopt topic", self.topic, "not managed", "managed", reason)


@dataclass(frozen=True)
class ConfigDiff:
    """A configuration key that differs; ``to`` None removes it.

    Args:
        default: what a topic of the target inherits that does not set it, where that is known.
    """

    key: str
    from_: str | None
    to: str | None
    default: str | None = None


@dataclass(frozen=True)
class SetConfig:
    """Set or remove one configuration key.

    Args:
        needed: the topic is not taken in without (G1).
    """

    source: str
    topic: str
    diff: ConfigDiff
    needed: bool = False

    @property
    def change(self) -> Change:
        """What the plan shows."""
        key, old, new = self.diff.key, self.diff.from_, self.diff.to
        what = "remove config" if new is None else "set config"
        reason = f"no longer set on {self.source}" if new is None else f"as on {self.source}"
        if key == TIMESTAMP_TYPE:
            reason = "records keep their timestamps"
        risk = "destructive" if may_delete(self.diff) else "none"
        return Change(what, f"{self.topic} {key}", old, new, reason, risk)


TopicStep = CreateTopic | AddPartitions | Adopt | SetConfig


def diff(
    wanted: Mapping[str, str], seen: Mapping[str, str], managed: Managed, defaults: Mapping[str, str]
) -> list[ConfigDiff]:
    """Return what has to change so that ``seen`` becomes ``wanted``; ``defaults`` are the target's.

    Removed are only keys that the flow has set itself: what an operator has set on the target beside them is
    left alone. Limits that are only ever widened stay as they are.
    """
    found = [
        ConfigDiff(k, seen.get(k), v, defaults.get(k)) for k, v in sorted(wanted.items()) if seen.get(k) != v
    ]
    ours = managed.keys & seen.keys() - ONLY_WIDENED.keys()
    stale = sorted(key for key in ours if key not in wanted and not_copied(key) is None)
    return found + [ConfigDiff(key, seen[key], None, defaults.get(key)) for key in stale]


def may_delete(one: ConfigDiff) -> bool:
    """Tell whether a change lets the target delete records that it would keep as it is."""
    if one.key == _POLICY:
        return True
    if one.key in COMPACTION:
        default = one.default or COMPACTION[one.key]
        return int(one.to or default) < int(one.from_ or default)
    if one.key not in _RETENTION:
        return False
    old, new = _limit(one.from_), _limit(one.to)
    # Without an override the broker's default decides, and that is not known here.
    return new != _UNLIMITED and (old is None or new is None or old == _UNLIMITED or new < old)


def _limit(value: str | None) -> int | None:
    return None if value is None else int(value)
