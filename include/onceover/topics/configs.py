"""Which of a source topic's own configuration its copy gets. Pure.

Broker defaults are never frozen into overrides: only what is set on the source topic itself is copied.
It is set before the first record arrives: records dated in the past would be deleted within minutes under
the default retention (docs/facts.md). docs/topics.md shows the table below, and a test keeps it equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_TIERED: Final = "depends on the target's tiered storage"
_SOURCE_BROKERS: Final = "names brokers of the source"

# Never copied, each with its reason. A star at the end stands for every key that begins so.
NOT_COPIED: Final[Mapping[str, str]] = {
    "message.timestamp.type": "with LogAppendTime the target would overwrite the records' timestamps",
    "message.timestamp.before.max.ms": (
        "the source took these records when they were younger: the target would refuse what is copied later"
    ),
    "message.timestamp.difference.max.ms": "the older name of the same limit",
    "min.insync.replicas": "depends on the target's number of brokers",
    "unclean.leader.election.enable": "a decision about the target's own availability",
    "leader.replication.throttled.replicas": _SOURCE_BROKERS,
    "follower.replication.throttled.replicas": _SOURCE_BROKERS,
    "remote.*": _TIERED,
    "local.retention.*": _TIERED,
    "diskless.*": "depends on the target's storage",
    "confluent.*": "a vendor's own: placement, tiering and schema settings name things of the source",
    "message.format.version": "without effect since 3.0, unknown to 4.0",
    "message.downconversion.enable": "unknown to 4.0",
}


TIMESTAMP_TYPE: Final = "message.timestamp.type"
APPEND_TIME: Final = "LogAppendTime"
# Spelled out on every copy: under a broker's default of LogAppendTime all copied timestamps would be altered,
# without an error (docs/facts.md).
OF_EVERY_COPY: Final[Mapping[str, str]] = {TIMESTAMP_TYPE: "CreateTime"}

# What a topic takes. The source's log holds what it took under wider limits, too: narrowed on the copy, the
# target would refuse that. So these are widened and never narrowed, nor left to a default that may be less.
# With Kafka's own default, for a target that does not tell its own.
ONLY_WIDENED: Final[Mapping[str, int]] = {
    "max.message.bytes": 1_048_588,
    "message.timestamp.after.max.ms": 3_600_000,
}
# The sooner a cleaner may come, the sooner tombstones and older values are gone. With Kafka's own defaults.
COMPACTION: Final[Mapping[str, int]] = {
    "delete.retention.ms": 86_400_000,
    "min.compaction.lag.ms": 0,
    "max.compaction.lag.ms": (1 << 63) - 1,
}
_BATCH_LIMIT: Final = "max.message.bytes"
# A broker refuses a batch that does not fit into a segment.
_SEGMENT: Final = "segment.bytes"


def not_copied(key: str) -> str | None:
    """Return why a configuration key is never copied, None when it is."""
    for rule, reason in NOT_COPIED.items():
        if key == rule or (rule.endswith("*") and key.startswith(rule[:-1])):
            return reason
    return None


def config_to_copy(overrides: Mapping[str, str], standing: Mapping[str, str]) -> dict[str, str]:
    """Return the part of a source topic's own configuration that is set on its copy.

    Args:
        overrides: of the source topic.
        standing: what holds for the copy as it is, or for a new topic, of the keys of ``ONLY_WIDENED``.
    """
    wanted = {key: value for key, value in sorted(overrides.items()) if not_copied(key) is None}
    holds = {key: int(standing.get(key, default)) for key, default in ONLY_WIDENED.items()}
    for key, value in holds.items():
        holds[key] = max(value, int(wanted.get(key, value)))
        if holds[key] == value:
            wanted.pop(key, None)
    if _SEGMENT in wanted:
        wanted[_SEGMENT] = str(max(int(wanted[_SEGMENT]), holds[_BATCH_LIMIT]))
    return wanted
