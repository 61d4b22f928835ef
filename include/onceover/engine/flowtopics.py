"""The topics that a flow keeps for itself on its target (DESIGN 4): state and offset map."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from onceover.engine import names
from onceover.engine.aside import MAP_MISSING
from onceover.engine.plan import Refusal
from onceover.errors import OnceoverError, Retriable
from onceover.kafka.admin import Admin, TopicSpec
from onceover.kafka.cluster import Cluster

log = logging.getLogger(__name__)

# Nothing is compacted in the segment that is being written, and every session reads the state from its
# beginning: with Kafka's own 7 days and half a log of garbage it would read a week of heartbeats.
STATE_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.ms": str(3600_000),
    "min.cleanable.dirty.ratio": "0.1",
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


def create_flow_topics(admin: Admin, target: Cluster, flow: str, settings: StateSettings) -> None:
    """Create the flow's own topics where they are missing, and wait until they have leaders.

    A state topic that is there already is brought in line, as far as the principal may.

    Raises:
        Retriable: the target is away, or they have no leaders in time.
        UsageError: not authorized.
    """
    factor = settings.replication_factor
    state, offsets = names.state_topic(flow), names.map_topic(flow)
    map_config = _map_config(settings.map_retention_ms)
    admin.create_topics(
        [
            TopicSpec(state, names.STATE_PARTITIONS, factor, STATE_CONFIG),
            TopicSpec(offsets, names.MAP_PARTITIONS, factor, map_config),
            *settings.dead_letter,
        ]
    )
    wanted = [state, offsets, *(spec.name for spec in settings.dead_letter)]
    target.retry(lambda: _check_ready(target, wanted))
    _bring_in_line(admin, state)


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
        MAP_MISSING,
        "the offset map's topic is missing, or cannot be looked at; nothing is copied while it is missing: "
        + error.message,
        f"{error.resolve or 'bring back brokers that are away'}; it is tried again every few seconds",
        blocks=False,
    )


def _bring_in_line(admin: Admin, state: str) -> None:
    """Give a state topic of an earlier version the configuration of new ones, where that is allowed."""
    found = admin.topic_configs([state])
    failures = dict(found.failures)
    if state in found.overrides:
        own = found.overrides[state]
        missing = {key: value for key, value in STATE_CONFIG.items() if own.get(key) != value}
        if missing:
            failures |= admin.alter_configs({state: missing})
    for failure in failures.values():
        # It works as it is; sessions only take longer to begin.
        log.warning("%s keeps its configuration: %s", state, failure.message)


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
    }


def _check_ready(target: Cluster, wanted: list[str]) -> None:
    found = target.topics(wanted)
    leaders = [p.leader for topic in found.values() for p in topic.partitions.values()]
    if len(found) < len(wanted) or min(leaders) < 0:
        raise Retriable("the flow's own topics have no leaders yet")
