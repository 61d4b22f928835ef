"""One look at both clusters each, and what it says in MirrorMaker 2's topics. Never writes anything else."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from onceover.clock import now_ms
from onceover.errors import NeedsOperator, Retriable
from onceover.groups.decide import Direction
from onceover.groups.moment import GroupMap
from onceover.groups.plan import GroupView
from onceover.groups.view import GroupReader
from onceover.kafka import calls
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.mirrormaker.codes import MirrorCode
from onceover.mirrormaker.records import (
    HEARTBEATS_TOPIC,
    HeartbeatUnderWay,
    MirrorSettings,
    checkpoints_topic,
    offset_sync,
    offset_syncs_topic,
    plan_checkpoints,
    replicated_heartbeats_topic,
)
from onceover.mirrormaker.topic import MirrorTopic
from onceover.model import TopicPartition, lane_of
from onceover.positions.index import MapIndex
from onceover.positions.store import MapStore, StoreDamaged
from onceover.positions.translate import Translator
from onceover.state import names
from onceover.state.log import StateLog
from onceover.state.records.enrolment import Enrolment, read_enrolments
from onceover.state.records.layout import check_clusters, layout_in
from onceover.state.records.progress import beside, copied_between
from onceover.stops.record import stopped_in
from onceover.wire.mirroroutput import encode_heartbeat

# A heartbeat under way is looked for this often in its interval, and its age is known as exactly as that.
_LOOKS: Final = 10
_SHARE: Final = "share"
_NAMED: Final = 5


class FlowView:
    """What the flow keeps on its target, freshly read. Not thread-safe.

    Args:
        flow: its name.
        source: belongs to the caller; ``target`` likewise.
    """

    def __init__(self, flow: str, source: Cluster, target: Cluster) -> None:
        self._flow = flow
        self.source, self.target = source, target
        topic = names.state_topic(flow)
        self._state = StateLog(target, topic, names.STATE_LEADER)
        self._stops = StateLog(target, topic, names.STATE_OTHERS, prefixes=(names.STOP_PREFIX,))

    def close(self) -> None:
        """Close the connections of its own."""
        self._state.close()
        self._stops.close()

    def enrolments(self) -> dict[str, Enrolment]:
        """Return the flow's topics by target name.

        Raises:
            Retriable: a cluster is away.
            NeedsOperator: the flow belongs to other clusters.
        """
        values = self.target.retry(lambda: self._state.catch_up(wait=False))
        check_clusters(layout_in(values), self.source.cluster_id(), self.target.cluster_id())
        return read_enrolments(values)

    def progress(self) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the next source offsets by target partition; at worst those before a pending transaction."""
        group = names.progress_group(self._flow)
        return self.target.retry(lambda: self.target.committed(group, None, stable=False))

    def stopped(self) -> set[TopicPartition]:
        """Return the target partitions that are stopped, as far as that is decided.

        Raises:
            Retriable: the target is away.
        """
        return stopped_in(self.target.retry(lambda: self._stops.catch_up(wait=False)))


class CheckpointRound:
    """Checkpoints of the selected groups: where ``onceover groups`` would put them.

    Args:
        home: folder of the flow's files, for the index of the offset map.
        replication_factor: of topics that are created.
        handled: the flow has a handler.
    """

    name: Final = "checkpoints"

    def __init__(
        self, flow: str, view: FlowView, home: Path, replication_factor: int, *, handled: bool = False
    ) -> None:
        source, target = view.source, view.target
        self._settings: MirrorSettings | None = None
        self._translator = Translator(target, flow, home, handled=handled)
        self._reader = GroupReader(
            flow,
            Direction.FAILOVER,
            source,
            target,
            GroupMap(self._translator),
            self._selects,
            handled=handled,
        )
        self._topic = MirrorTopic(target, checkpoints_topic(source.alias), replication_factor)

    def wanted(self, settings: MirrorSettings) -> bool:
        """Tell whether it is switched on."""
        return settings.checkpoints

    def run(self, settings: MirrorSettings) -> float:
        """Write what has changed; return the pause until the next look, in seconds.

        Raises:
            Retriable: the source is away.
            NeedsOperator: a group, or a broker's groups, cannot be read; all others are written.
        """
        self._settings = settings
        view = self._reader.read()
        if view.away is not None:
            raise view.away
        self._topic.write(plan_checkpoints(view))
        _check_complete(view)
        return settings.checkpoint_interval_s

    def close(self) -> None:
        """Close everything."""
        self._reader.close()
        self._translator.close()
        self._topic.close()

    def _selects(self, group: str) -> bool:
        return self._settings is not None and self._settings.selects(group)


class OffsetSyncRound:
    """The last copied record of every partition, as MirrorMaker's own checkpoint task looks for it.

    Only where a source partition's records are in one target partition, which holds nothing else.
    """

    name: Final = "offset_syncs"

    def __init__(self, flow: str, view: FlowView, home: Path, replication_factor: int) -> None:
        self._view = view
        self._index = MapIndex(view.target, flow, home)
        self._topic = MirrorTopic(view.target, offset_syncs_topic(view.source.alias), replication_factor)

    def wanted(self, settings: MirrorSettings) -> bool:
        """Tell whether it is switched on."""
        return settings.offset_syncs

    def run(self, settings: MirrorSettings) -> float:
        """Write what has changed; return the pause until the next look, in seconds.

        Raises:
            Retriable: a cluster, or a part of the offset map, cannot be read; the others' are written.
            NeedsOperator: likewise, a record of the map is damaged.
        """
        enrolments, progress = self._view.enrolments(), self._view.progress()
        unread = self._index.each_refresh()
        topics = self._view.target.retry(lambda: self._view.target.topics(sorted(enrolments)))
        live = {
            source: enrolment
            for enrolment in enrolments.values()
            for source in enrolment.sources()
            if enrolment.target in topics
            and lane_of(source, names.MAP_PARTITIONS) not in unread
            and (str(enrolment.source_id), str(topics[enrolment.target].topic_id))
            == _copied_ids(enrolment, source, progress)
        }
        self._topic.write(dict(self._syncs(live)))
        for error in unread.values():
            raise error
        return settings.checkpoint_interval_s

    def close(self) -> None:
        """Close everything."""
        self._index.close()
        self._topic.close()

    def _syncs(self, live: Mapping[TopicPartition, Enrolment]) -> Iterator[tuple[bytes, bytes]]:
        store = self._index.store
        if store is None:
            return
        try:
            for source, enrolment in live.items():
                found = _last_sync(store, source, enrolment)
                if found is not None:
                    yield found
        except StoreDamaged as damage:
            self._index.discard(damage)
            raise Retriable("the index of the offset map has to be built anew") from damage


class HeartbeatRound:
    """Two signs: ``heartbeats`` says that the flow runs, ``<source>.heartbeats`` that it copies.

    A record of the second one has the time of a moment at which all that could be read on the source is on
    the target; its own timestamp says when that was so. It is written only while both topics are those that
    the flow copies between, the source has what was copied, and no partition is stopped.
    """

    name: Final = "heartbeats"

    def __init__(self, view: FlowView, replication_factor: int) -> None:
        self._view = view
        self._wave = HeartbeatUnderWay()
        self._arrived_ms: int | None = None
        self._next_s = -math.inf
        self._aliases = view.source.alias, view.target.alias
        copied = replicated_heartbeats_topic(view.source.alias)
        self._running = MirrorTopic(view.target, HEARTBEATS_TOPIC, replication_factor)
        self._copying = MirrorTopic(view.target, copied, replication_factor)

    def wanted(self, settings: MirrorSettings) -> bool:
        """Tell whether it is switched on."""
        return settings.heartbeats

    def run(self, settings: MirrorSettings) -> float:
        """Write what is due; return the pause until the next look, in seconds.

        Raises:
            NeedsOperator: the flow copies a topic of that name.
        """
        enrolments = self._view.enrolments()
        for topic in (self._running, self._copying):
            if topic.name in enrolments:
                raise _copied(topic.name)
        topics = {target: e for target, e in enrolments.items() if e.active}
        active = {source: e for e in topics.values() for source in e.sources()}
        now_s = time.monotonic()
        due = now_s >= self._next_s
        if due:
            self._running.write(dict([encode_heartbeat(*self._aliases, now_ms())]))
            # Not before: what could not be written is due at the next look, however soon that is.
            self._next_s = now_s + settings.heartbeat_interval_s
        self._wave.keep_to(topics)
        self._look(active)
        if due and not self._wave.under_way:
            self._wave.begin(now_ms(), self._ends(active), topics)
            self._look(active)
        pause_s = self._next_s - time.monotonic()
        if self._wave.under_way:
            pause_s = min(pause_s, settings.heartbeat_interval_s / _LOOKS)
        return max(0.0, pause_s)

    def close(self) -> None:
        """Close everything."""
        self._running.close()
        self._copying.close()

    def _ends(self, active: Mapping[TopicPartition, Enrolment]) -> dict[TopicPartition, int]:
        source = self._view.source
        return source.retry(lambda: source.list_offsets(active, calls.LATEST))

    def _look(self, active: Mapping[TopicPartition, Enrolment]) -> None:
        """Write the heartbeat that has arrived; kept until it is written."""
        if self._arrived_ms is None and self._wave.under_way:
            progress = self._view.progress()
            positions = {source: _position(source, e, progress) for source, e in active.items()}
            # What costs requests only where it matters: a flow that lags is looked at often.
            if self._wave.reached(positions) and self._is_so(active, positions):
                self._arrived_ms = self._wave.arrive()
        if self._arrived_ms is not None:
            self._copying.write(dict([encode_heartbeat(*self._aliases, self._arrived_ms)]))
            self._arrived_ms = None

    def _is_so(
        self, active: Mapping[TopicPartition, Enrolment], positions: Mapping[TopicPartition, int | None]
    ) -> bool:
        """Tell whether positions, read before, speak of the topics that bear the names now, as they are."""
        targets = {enrolment.target_of(source) for source, enrolment in active.items()}
        if targets & self._view.stopped() or not self._are_those(active.values()):
            return False
        return self._has_copied(positions)

    def _are_those(self, enrolments: Iterable[Enrolment]) -> bool:
        """Tell whether all topics are those that are enrolled, the source's with no partition more.

        An id does not come back: the ends of a source's log that were read before were this one's, too.
        """
        by_source = {e.source: e for e in enrolments}
        targets = {e.target: e.target_id for e in by_source.values()}
        sources = {name: e.source_id for name, e in by_source.items()}
        here, there = _found(self._view.source, sources), _found(self._view.target, targets)
        return (
            {name: info.topic_id for name, info in here.items()} == sources
            and {name: info.topic_id for name, info in there.items()} == targets
            and all(info.partitions.keys() <= by_source[name].start.keys() for name, info in here.items())
        )

    def _has_copied(self, positions: Mapping[TopicPartition, int | None]) -> bool:
        """Tell whether the source still has everything up to the positions.

        They were read before its high watermark is, and none is greater than that was then: only a log that
        has lost records ends before them. The LSO that the heartbeat waits for is an older one.
        """
        source, isolation = self._view.source, calls.READ_UNCOMMITTED
        ends = source.retry(lambda: source.each_offset(positions, calls.LATEST, isolation)).found
        return all(at is not None and at <= ends.get(tp, -1) for tp, at in positions.items())


def _position(
    source: TopicPartition, enrolment: Enrolment, progress: Mapping[TopicPartition, CommittedOffset]
) -> int | None:
    """Return the next offset to copy; None where it is not known, or is one in another topic's log."""
    committed = progress.get(enrolment.target_of(source))
    meta = beside(committed).meta
    if committed is None or meta is None:
        return None
    return committed.offset if (meta.source_topic_id, meta.target_topic_id) == enrolment.ids else None


def _found(cluster: Cluster, topics: Collection[str]) -> Mapping[str, TopicInfo]:
    """Return which topics bear these names now, as far as the cluster says."""
    return cluster.retry(lambda: cluster.each_topic(sorted(topics))).found


def _check_complete(view: GroupView) -> None:
    # A share group has no offsets that could be read.
    unread = {g.name: g.error for g in view.groups if g.error is not None and g.type != _SHARE}
    errors = [*view.errors, *unread.values()]
    if errors:
        raise NeedsOperator(
            "not every group could be read; the checkpoints of the others are written",
            code=MirrorCode.GROUPS_UNREADABLE,
            where=", ".join(sorted(unread)[:_NAMED]) or view.giving,
            seen=str(errors[0]),
            resolve=errors[0].resolve or "check that all brokers are up",
        )


def _copied_ids(
    enrolment: Enrolment, source: TopicPartition, progress: Mapping[TopicPartition, CommittedOffset]
) -> tuple[str, str]:
    """Return the ids of the topics that the offset map speaks of."""
    committed = progress.get(enrolment.target_of(source))
    return copied_between(enrolment, source.partition, beside(committed).meta)


def _last_sync(store: MapStore, source: TopicPartition, enrolment: Enrolment) -> tuple[bytes, bytes] | None:
    target = enrolment.target_of(source)
    with store.snapshot():
        pairs = store.pairs(source=source)
        # What went to the topic for dead letters is not in the copy.
        inside = [pair for pair in pairs if pair.target.topic == target.topic]
        if [pair.target for pair in inside] != [target] or len(store.pairs(target=target)) != 1:
            return None
        pair = inside[0]._replace(since=enrolment.since.get(source.partition, 0))
        span = store.span(pair)
        return None if span is None else offset_sync(source, store.around(pair, span[1] - 1, back=False))


def _copied(topic: str) -> NeedsOperator:
    return NeedsOperator(
        f"topic {topic} is one that the flow copies to",
        code=MirrorCode.MIRROR_TOPIC_COPIED,
        expected="a topic that only heartbeats are written to",
        resolve="exclude it in topics.exclude and delete the copy, or switch `mirrormaker.heartbeats` off",
    )
