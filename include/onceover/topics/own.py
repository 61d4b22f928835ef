"""The topics that a flow keeps for itself on its target (docs/architecture.md): state, map, what it owns."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from onceover.acls.kept import unread_acls
from onceover.errors import NeedsOperator, OnceoverError, UsageError
from onceover.kafka.admin.topics import ANY_TIME, Admin, TopicSpec
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.kafka.produce.notes import NoteWriter
from onceover.model import TopicPartition
from onceover.planning.plan import Refusal
from onceover.state import names
from onceover.state.log import StateLog
from onceover.state.records.managed import unread_managed
from onceover.stops.codes import WaitCode

log = logging.getLogger(__name__)

# Nothing is compacted in the segment that is being written, and every session reads the state from its
# beginning: with Kafka's own 7 days and half a log of garbage it would read a week of heartbeats.
_POLICY: Final = "cleanup.policy"
_MAP_POLICY: Final = "compact,delete"
STATE_CONFIG: Final = {
    _POLICY: "compact",
    "segment.ms": str(3600_000),
    "min.cleanable.dirty.ratio": "0.1",
    **ANY_TIME,
}
_SEGMENT_MS: Final = 6 * 3600_000
_TOMBSTONES_MS: Final = 3600_000


@dataclass(frozen=True)
class StateSettings:
    """How the flow's own topics are created; ``dead_letter`` holds the topic of its bad records, if any.

    A ``replication_factor`` of -1 is the target's own default.
    """

    replication_factor: int
    map_retention_ms: int
    dead_letter: tuple[TopicSpec, ...] = ()


def create_flow_topics(admin: Admin, flow: str, settings: StateSettings, *, is_known: bool = False) -> None:
    """Create the flow's own topics where they are missing, and wait until they have leaders.

    Those that are there already are brought in line: they get the partitions that they lack, and as far as
    the principal may their configuration, the offset map's only what it cannot do without.

    Args:
        admin: of the target; ``flow`` its name.
        settings: how they are made.
        is_known: the flow has run before. Partitions that its offset map lacks, and may not be given, keep no
            run from beginning: it tells of them, and tries again (``MapKeeper``).

    Raises:
        Retriable: the target is away, or they have no leaders in time.
        UsageError, NeedsOperator: not authorized, or one of them cannot be given its partitions.
    """
    factor = settings.replication_factor
    state, offsets = _state_spec(flow, factor), _map_spec(flow, settings)
    owned = _owned_spec(names.owned_topic(flow), factor)
    found = admin.make_topics([state, offsets, owned, *settings.dead_letter])
    short = [spec for spec in (state, offsets) if _is_short(found[spec.name], spec)]
    grown = []
    for spec in short:
        try:
            _complete(admin, found[spec.name], spec)
        except (UsageError, NeedsOperator) as error:
            if spec is not offsets or not is_known:
                raise
            log.error("%s", error)  # noqa: TRY400 - expected errors come without a traceback
        else:
            grown.append(spec)
    admin.await_partitions(grown)
    _bring_in_line(admin, [state, offsets, owned])


class OwnedLog:
    """What a flow looks after, as its driver reads and writes it. Not thread-safe.

    Where somebody has deleted the topic it is made anew, and nothing is the flow's any more: topics are told
    as NOT_MANAGED until ``topics apply`` adopts them, ACLs stay as they are.

    Args:
        admin: of the target; ``target`` belongs to the caller.
        flow: its name.
        settings: how the topic is made.

    Attributes:
        notes: writes into it.
    """

    def __init__(self, admin: Admin, target: Cluster, flow: str, settings: StateSettings) -> None:
        self._admin = admin
        self._target = target
        self._tp = TopicPartition(names.owned_topic(flow), 0)
        self._settings = settings
        self._log = StateLog(target, *self._tp)
        self._topic_id: UUID | None = None
        self._unread: list[Refusal] = []
        self.notes = NoteWriter(target, self._tp)

    def catch_up(self) -> Mapping[str, Any]:
        """Return the latest values; of those that cannot be read it is said once.

        Raises:
            Retriable: the target is away.
            OnceoverError: it is gone and cannot be made.
        """
        info = self._target.topics([self._tp.topic]).get(self._tp.topic)
        if info is None:
            self._make()
            return {}
        if info.topic_id != self._topic_id:
            self._log.close()
            self._log = StateLog(self._target, *self._tp)
            self._topic_id = info.topic_id
        values = self._log.catch_up()
        unread = unread_owned(self._tp.topic, values)
        for refusal in unread if unread != self._unread else ():
            log.error("%s: %s; %s", refusal.object, refusal.message, refusal.resolve)
        self._unread = unread
        return values

    def close(self) -> None:
        """Close all connections."""
        self._log.close()
        self.notes.close()

    def _make(self) -> None:
        self._admin.make_topics([_owned_spec(self._tp.topic, self._settings.replication_factor)])
        log.warning(
            "%s was deleted: made anew; the flow looks after nothing that it has created before",
            self._tp.topic,
        )


def unread_owned(topic: str, values: Mapping[str, Any]) -> list[Refusal]:
    """Return why records of what a flow looks after cannot be read.

    Args:
        topic: where they are, with these latest ``values``.
    """
    found = {**unread_managed(values), **unread_acls(values)}
    return [
        Refusal(
            key,
            error.code,
            f"its value in {topic} cannot be read ({error.seen or error.message}); what it is about is not "
            "looked after: neither changed nor removed",
            "if a newer Onceover wrote it, use that one; otherwise find who else writes there: a record "
            "without a value for that key removes it",
            blocks=False,
        )
        for key, error in sorted(found.items())
    ]


class MapKeeper:
    """Makes the offset map's topic anew where somebody has deleted it. Not thread-safe.

    The copy waits for it, because where its records come to lie is committed together with them. What the
    topic held is not covered any more. Where somebody else was faster, or brokers that make whatever is asked
    for, it has the partitions of any topic: it gets the others. Whatever keeps it from being made ends no
    run: it is tried again, and told.

    Args:
        admin: of the target; ``target`` belongs to the caller.
        flow: its name.
        settings: how the topic is made.

    Attributes:
        refused: why it cannot be made at the moment, for ``status``.
    """

    def __init__(self, admin: Admin, target: Cluster, flow: str, settings: StateSettings) -> None:
        self.refused: list[Refusal] = []
        self._admin = admin
        self._target = target
        self._spec = _map_spec(flow, settings)

    def tick(self) -> None:
        """Look for the topic, and make it, or its partitions, where they are missing."""
        topic = self._spec.name
        try:
            info = self._target.topics([topic]).get(topic)
            if info is None:
                self._make()
            elif _is_short(info, self._spec):
                _complete(self._admin, info, self._spec)
                _bring_in_line(self._admin, [self._spec])
        except OnceoverError as error:
            self._report([_not_made(topic, error)])
        else:
            self._report([])

    def _make(self) -> None:
        self._admin.create_topics([self._spec])
        log.warning(
            "%s was deleted: made anew; offsets copied before can no longer be translated", self._spec.name
        )

    def _report(self, refused: list[Refusal]) -> None:
        if refused != self.refused:
            for refusal in refused:
                log.error("%s: %s; %s", refusal.object, refusal.message, refusal.resolve)
        self.refused = refused


def _not_made(topic: str, error: OnceoverError) -> Refusal:
    return Refusal(
        topic,
        WaitCode.MAP_MISSING,
        "the offset map's topic, or a partition of it, is missing or cannot be looked at; nothing is copied "
        "that needs it: " + error.message,
        f"{error.resolve or 'bring back brokers that are away'}; it is tried again every few seconds",
        blocks=False,
    )


def _is_short(found: TopicInfo, spec: TopicSpec) -> bool:
    return len(found.partitions) < spec.partitions


def _complete(admin: Admin, found: TopicInfo, spec: TopicSpec) -> None:
    """Add the partitions that a topic lacks: nobody could write to them yet, so nothing moves by that.

    Raises:
        UsageError, NeedsOperator: the target does not.
    """
    seen = f"{spec.name} has {len(found.partitions)} partitions and needs {spec.partitions}"
    try:
        admin.grow_topic(spec.name, spec.partitions)
    except (UsageError, NeedsOperator) as error:
        error.message = f"{seen}: somebody else has made it; {error.message}"
        error.resolve = (
            f"add the others by hand (kafka-topics.sh --alter --partitions {spec.partitions}), or grant the"
            " principal ALTER on it; or delete the topic, if it is empty: the flow makes it as it needs it"
        )
        raise
    log.warning("%s: somebody else has made it; the others were added", seen)


def _bring_in_line(admin: Admin, wanted: Sequence[TopicSpec]) -> None:
    """Give topics that are there the configuration of new ones, where that is allowed.

    One that compacts nothing may forget what is not written again, and then nobody knows what is whose.
    """
    found = admin.topic_configs(spec.name for spec in wanted)
    missing = {
        spec.name: {
            key: value
            for key, value in _kept_to(spec, found.overrides[spec.name]).items()
            # An older broker would refuse all of it for one key that it does not know.
            if found.overrides[spec.name].get(key) != value and (key in found.keys or key not in ANY_TIME)
        }
        for spec in wanted
        if spec.name in found.overrides
    }
    failures = {**found.failures, **admin.alter_configs(missing)}
    for topic, failure in failures.items():
        # It works as it is; sessions take longer to begin, and clocks have to be right.
        log.warning("%s keeps its configuration: %s", topic, failure.message)


def _kept_to(spec: TopicSpec, own: Mapping[str, str]) -> Mapping[str, str]:
    """Return what an existing topic has to have of its configuration.

    The offset map's policy and lengths are the operator's once a flow has made it, which always sets them.
    """
    is_map = spec.config[_POLICY] == _MAP_POLICY
    return ANY_TIME if is_map and _POLICY in own else spec.config


def _map_config(retention_ms: int) -> dict[str, str]:
    """Return the offset map's configuration: what expires, and how soon merged records make room."""
    return {
        _POLICY: _MAP_POLICY,
        "retention.ms": str(retention_ms),
        # Nothing is compacted in the segment that is being written: with Kafka's own 7 days,
        # merging would free nothing for a week.
        "segment.ms": str(min(_SEGMENT_MS, retention_ms // 4)),
        # Readers do without tombstones: a merged record tells which ones it replaces.
        "delete.retention.ms": str(_TOMBSTONES_MS),
        **ANY_TIME,
    }


def _state_spec(flow: str, factor: int) -> TopicSpec:
    return TopicSpec(names.state_topic(flow), names.STATE_PARTITIONS, factor, STATE_CONFIG)


def _map_spec(flow: str, settings: StateSettings) -> TopicSpec:
    config = _map_config(settings.map_retention_ms)
    return TopicSpec(names.map_topic(flow), names.MAP_PARTITIONS, settings.replication_factor, config)


def _owned_spec(topic: str, factor: int) -> TopicSpec:
    return TopicSpec(topic, 1, factor, STATE_CONFIG)
