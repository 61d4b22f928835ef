"""The topics that a flow keeps for itself on its target (docs/architecture.md): state, map, what it owns."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from onceover.acls.kept import unread_acls
from onceover.errors import OnceoverError
from onceover.kafka.admin.topics import ANY_TIME, Admin, TopicSpec
from onceover.kafka.ports import Cluster
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
STATE_CONFIG: Final = {
    "cleanup.policy": "compact",
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


def create_flow_topics(admin: Admin, flow: str, settings: StateSettings) -> None:
    """Create the flow's own topics where they are missing, and wait until they have leaders.

    Those that are there already are brought in line, as far as the principal may: the state topic, and all of
    them in that they take records of a machine whose clock is wrong.

    Raises:
        Retriable: the target is away, or they have no leaders in time.
        UsageError: not authorized.
    """
    factor = settings.replication_factor
    state, offsets, owned = names.state_topic(flow), names.map_topic(flow), names.owned_topic(flow)
    map_config = _map_config(settings.map_retention_ms)
    admin.make_topics(
        [
            TopicSpec(state, names.STATE_PARTITIONS, factor, STATE_CONFIG),
            TopicSpec(offsets, names.MAP_PARTITIONS, factor, map_config),
            _owned_spec(owned, factor),
            *settings.dead_letter,
        ]
    )
    _bring_in_line(admin, {state: STATE_CONFIG, offsets: ANY_TIME, owned: ANY_TIME})


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
    topic held is not covered any more. Whatever keeps it from being made ends no run: it is tried again, and
    told.

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
        self._topic = names.map_topic(flow)
        self._settings = settings

    def tick(self) -> None:
        """Look for the topic, and make it where it is missing."""
        try:
            if self._topic not in self._target.topics([self._topic]):
                self._make()
        except OnceoverError as error:
            self._report([_not_made(self._topic, error)])
        else:
            self._report([])

    def _make(self) -> None:
        config = _map_config(self._settings.map_retention_ms)
        factor = self._settings.replication_factor
        self._admin.create_topics([TopicSpec(self._topic, names.MAP_PARTITIONS, factor, config)])
        log.warning(
            "%s was deleted: made anew; offsets copied before can no longer be translated", self._topic
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
        "the offset map's topic is missing, or cannot be looked at; nothing is copied while it is missing: "
        + error.message,
        f"{error.resolve or 'bring back brokers that are away'}; it is tried again every few seconds",
        blocks=False,
    )


def _bring_in_line(admin: Admin, wanted: Mapping[str, Mapping[str, str]]) -> None:
    """Give topics of an earlier version the configuration of new ones, where that is allowed."""
    found = admin.topic_configs(wanted)
    missing = {
        topic: {
            key: value
            for key, value in wanted[topic].items()
            # An older broker would refuse all of it for one key that it does not know.
            if own.get(key) != value and (key in found.keys or key not in ANY_TIME)
        }
        for topic, own in found.overrides.items()
    }
    failures = {**found.failures, **admin.alter_configs(missing)}
    for topic, failure in failures.items():
        # It works as it is; sessions take longer to begin, and clocks have to be right.
        log.warning("%s keeps its configuration: %s", topic, failure.message)


def _map_config(retention_ms: int) -> dict[str, str]:
    """Return the offset map's configuration: what expires, and how soon merged records make room."""
    return {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(retention_ms),
        # Nothing is compacted in the segment that is being written: with Kafka's own 7 days,
        # merging would free nothing for a week.
        "segment.ms": str(min(_SEGMENT_MS, retention_ms // 4)),
        # Readers do without tombstones: a merged record tells which ones it replaces.
        "delete.retention.ms": str(_TOMBSTONES_MS),
        **ANY_TIME,
    }


def _owned_spec(topic: str, factor: int) -> TopicSpec:
    return TopicSpec(topic, 1, factor, STATE_CONFIG)
