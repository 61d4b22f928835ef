"""What the settings of MirrorMaker 2 (Kafka 4.x) are called in a flow file, and which are not there."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NamedTuple

from onceover.config import values
from onceover.config.faults import Invalid


class ToldTo(Enum):
    """Who in MirrorMaker reads a setting; each value holds the prefixes of its key, the first wins."""

    CONNECTOR = ("{source}->{target}.", "")
    CONSUMER = (
        "{source}->{target}.source.consumer.",
        "{source}.consumer.",
        "{source}->{target}.consumer.",
    )
    # By all clusters' nothing is switched on there; whoever wrote it meant it.
    WORKER = ("{target}.", "")

    def keys(self, key: str, source: str, target: str) -> list[str]:
        """Return where ``key`` of a pair of clusters may stand, what counts most first."""
        return [f"{prefix.format(source=source, target=target)}{key}" for prefix in self.value]


class Setting(NamedTuple):
    """Where a setting goes in the flow file, and how its value is written there.

    ``told_to`` is whom MirrorMaker (4.3, tried) hands it to, which says where in its file it is looked for.
    ``as_it_is`` writes one that cannot be translated, where leaving it out would mean something else: all
    topics instead of some, or other names. No flow file is in order with it until somebody has decided.
    """

    path: tuple[str, ...]
    convert: Callable[[str], Any]
    as_it_is: Callable[[str], Any] | None = None
    told_to: ToldTo = ToldTo.CONNECTOR


def _entries(value: str) -> list[str]:
    return [entry.strip() for entry in value.split(",") if entry.strip()]


def _patterns(value: str) -> list[str]:
    """MirrorMaker separates regular expressions by commas and matches whole names, as we do."""
    return list(values.patterns(_entries(value)))


def _some_patterns(value: str) -> list[str]:
    return list(values.some_patterns(_patterns(value)))


def _naming(value: str) -> str:
    policies = {"IdentityReplicationPolicy": "identity", "DefaultReplicationPolicy": "prefix"}
    short = value.rpartition(".")[2]
    if short not in policies:
        raise Invalid(
            "a replication policy of one's own cannot be translated", "choose topics.naming by hand"
        )
    return policies[short]


def _boolean(value: str) -> bool:
    return values.boolean(value)


def _seconds_of(key: str) -> Callable[[str], str]:
    def convert(value: str) -> str:
        if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= 3600:
            raise Invalid("the interval is switched off or over an hour", f"{key} takes 1s to 1h")
        return f"{int(value)}s"

    return convert


def _start(value: str) -> str:
    return str(values.choice("earliest", "latest")(value.lower()))


def _lanes(value: str) -> int:
    return int(values.whole(1, 64)(value))


def _replication_factor(value: str) -> int:
    return values.replication_factor(value)


def _support(value: str) -> str:
    """KIP-618's switch: disabled, preparing or enabled; until it is enabled, tasks repeat after a crash."""
    support = values.choice("disabled", "preparing", "enabled")(value.lower())
    return "exactly_once" if support == "enabled" else "at_least_once"


def _transactional(value: str) -> str:
    """KIP-656's switch, in distributions that have it."""
    return "exactly_once" if values.boolean(value) else "at_least_once"


FLOW_SETTINGS: Final[dict[str, Setting]] = {
    "topics": Setting(("topics", "include"), _some_patterns, _entries),
    "topics.blacklist": Setting(("topics", "exclude"), _patterns, _entries),
    "topics.exclude": Setting(("topics", "exclude"), _patterns, _entries),
    "replication.policy.class": Setting(("topics", "naming"), _naming, str),
    "auto.offset.reset": Setting(("topics", "start"), _start, told_to=ToldTo.CONSUMER),
    "refresh.topics.interval.seconds": Setting(
        ("topics", "discovery_interval"), _seconds_of("topics.discovery_interval")
    ),
    "sync.topic.configs.enabled": Setting(("topics", "sync_configs"), _boolean),
    "sync.topic.acls.enabled": Setting(("topics", "sync_acls"), _boolean),
    "tasks.max": Setting(("lanes",), _lanes),
    "transaction.producer": Setting(("delivery",), _transactional),
    "exactly.once.source.support": Setting(("delivery",), _support, told_to=ToldTo.WORKER),
    "groups": Setting(("groups", "include"), _patterns, _entries),
    "groups.blacklist": Setting(("groups", "exclude"), _patterns, _entries),
    "groups.exclude": Setting(("groups", "exclude"), _patterns, _entries),
    "emit.checkpoints.enabled": Setting(("mirrormaker", "checkpoints"), _boolean),
    "emit.checkpoints.interval.seconds": Setting(
        ("mirrormaker", "checkpoint_interval"), _seconds_of("mirrormaker.checkpoint_interval")
    ),
    "emit.heartbeats.enabled": Setting(("mirrormaker", "heartbeats"), _boolean),
    "emit.heartbeats.interval.seconds": Setting(
        ("mirrormaker", "heartbeat_interval"), _seconds_of("mirrormaker.heartbeat_interval")
    ),
    "offset-syncs.topic.replication.factor": Setting(("state", "replication_factor"), _replication_factor),
}

# What MirrorMaker leaves out where `topics.exclude` is not told (4.3, `DefaultTopicFilter`).
LEFT_OUT: Final = (r"mm2.*\.internal", r".*\.replica", "__.*")
LEFT_OUT_NOTE: Final = (
    "topics.exclude is the default of MirrorMaker 2 of Kafka 4; that of Kafka 3 leaves out .*[-.]internal, "
    "too: add it where yours is one"
)

_INTERNAL: Final = "MirrorMaker 2's own internal topics do not exist in Onceover"
_CONNECT: Final = "there is no Kafka Connect worker"

# The first pattern that matches the whole key, without its prefixes, gives the reason.
NO_COUNTERPART: Final[tuple[tuple[str, str], ...]] = (
    (r"connector\.type", "not needed: one copier serves both values of delivery"),
    (r"transaction\.boundary.*", "not needed: transaction.max_interval and max_bytes set the rhythm"),
    (r"replication\.policy\.separator", "the separator of prefixed names is always a dot"),
    (r"sync\.group\.offsets\..*", "set schedules.sync_group_offsets, or run `groups apply`"),
    (r"refresh\.groups\..*", "groups are looked for whenever their positions are needed"),
    (r"sync\.topic\.configs\.interval.*|sync\.topic\.acls\.interval.*", "follows topics.discovery_interval"),
    (r"refresh\.topics\..*", "topics are looked for every topics.discovery_interval"),
    (r"(heartbeats|checkpoints)\..*", "such topics are created with state.replication_factor"),
    (
        r"emit\.offset-syncs\..*|offset-syncs\..*|offset\.lag\.max",
        "the offset map is exact and has no samples; mirrormaker.offset_syncs writes some for others",
    ),
    (
        r"replication\.factor",
        "new topics take the source's configuration and the target's default replication",
    ),
    (r"(config|offset|status)\.storage\..*", _INTERNAL),
    (r"dedicated\.mode\..*|listeners|rest\..*|admin\.listeners", f"{_CONNECT}, so it has no REST port"),
    (r"(key|value|header)\.converter.*", "records are copied as bytes, without converters"),
    (r"config\.providers.*", "values are read from ${NAME}, a Connection or a client_file"),
    (r"transforms.*|predicates.*", "transformations are handlers, see `handler`"),
    (
        r"(topic|group|config\.property)\.filter\.class",
        "filters are the regular expressions of topics and groups",
    ),
    (r"config\.properties\.(exclude|blacklist)", "broker-specific topic configs are left out by themselves"),
    (
        r"topic\.creation\..*|use\.incremental\.alter\.configs|use\.defaults\.from",
        "configs follow the source topic",
    ),
    (r"offset\.flush\..*|scheduled\.rebalance\..*|group\.id|plugin\.path|name|connector\.class", _CONNECT),
    (r"metric.*", "metrics come from `onceover status` and Spark's progress events"),
    (
        r"provenance\..*|consumer\.poll\.timeout\.millis|forwarding\.admin\.class|add\..*",
        "has no counterpart",
    ),
)
