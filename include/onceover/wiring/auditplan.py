"""From a survey to the plans of an audit: bounds, ranges, and for a flow with a handler who claims what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from onceover.audit.bounds import Bounds, bound, surplus
from onceover.audit.claims import spread, union
from onceover.audit.conduct import Plan
from onceover.audit.model import Mode
from onceover.audit.ranges import StoredPair, borders, cut, holes
from onceover.audit.survey import Log, Seen, Survey
from onceover.audit.work import Task
from onceover.engine.mapstore import MapStore
from onceover.model import TopicPartition
from onceover.wire.offsetmap import MapRecord


class Planning(NamedTuple):
    """What plans are made from.

    Args:
        survey: what was seen of both sides.
        store: the offset map; None when the flow has none.
        diverted: source offsets that are in the dead-letter topic, by partition.
        from_watermark: go on where earlier audits ended.
        range_bytes: of a range, about.
        handled: the flow has a handler.
        handler_changed: the flow file is not the one that the flow was started with.
    """

    survey: Survey
    store: MapStore | None
    diverted: dict[TopicPartition, frozenset[int]]
    from_watermark: bool
    range_bytes: int
    handled: bool
    handler_changed: bool

    def plans(self) -> list[Plan]:
        """Return one plan for each partition of the survey, in its order."""
        return [self._handled(each) if self.handled else self._plain(each) for each in self.survey.partitions]

    def strange(self) -> Iterator[Plan]:
        """Yield plans for what is on the target and claimed by nobody."""
        if self.handled:
            yield from self._unclaimed()
            return
        for target, (log, source) in self.survey.surplus.items():
            bounds = surplus(source, log.topic_id, target, log)
            if not bounds.empty:
                yield Plan(bounds, tuple(cut(bounds, ())))

    # ---- one to one

    def _plain(self, seen: Seen) -> Plan:
        pair = self._pair(seen, seen.target)
        bounds = self._bounds(seen, pair)
        # The latest value of a key may be anywhere: a compacted partition is one range.
        proposed = borders(pair.records()) if bounds.mode is Mode.RECORDS else ()
        return Plan(
            bounds,
            tuple(cut(bounds, proposed, self.range_bytes)),
            holes=tuple(holes(pair.records())),
            untimed=seen.untimed,
            dead_letter=self.diverted.get(seen.source, frozenset()),
            log_start=seen.source_log.start if seen.source_log is not None else bounds.source_from,
        )

    def _bounds(self, seen: Seen, pair: StoredPair) -> Bounds:
        return bound(seen, pair, from_watermark=self.from_watermark, handled=self.handled)

    def _pair(self, seen: Seen, target: TopicPartition) -> StoredPair:
        return StoredPair(self.store, seen.source, target, seen.since)

    # ---- through a handler

    def _handled(self, seen: Seen) -> Plan:
        bounds = self._bounds(seen, self._pair(seen, seen.target))
        logs = self._target_logs(seen.target.topic)
        if bounds.mode is not Mode.HANDLER:
            return Plan(bounds, ())
        claimed = {target: list(self._pair(seen, target).records()) for target in logs}
        spreading = spread(bounds, claimed, {target: log.start for target, log in logs.items()})
        ranges = spreading.ranges if spreading.bounds.source_from < spreading.bounds.source_to else ()
        return Plan(
            spreading.bounds,
            ranges,
            spreading=self._task(seen, len(logs)),
            claims=spreading.claims if ranges else (),
        )

    def _unclaimed(self) -> Iterator[Plan]:
        by_topic: dict[str, list[Seen]] = {}
        for seen in self.survey.partitions:
            by_topic.setdefault(seen.target.topic, []).append(seen)
        for topic, group in by_topic.items():
            logs = self._target_logs(topic)
            for target, log in logs.items():
                records = [list(self._pair(seen, target).records()) for seen in group]
                bounds = _strange_bounds(group, target, log, records, full=not self.from_watermark)
                if not bounds.empty:
                    task = self._task(group[0], len(logs), unclaimed=True)
                    ranges = tuple(cut(bounds, ()))
                    yield Plan(bounds, ranges, spreading=task, claims=(union(records),))

    def _task(self, seen: Seen, target_partitions: int, *, unclaimed: bool = False) -> Task:
        return Task(
            seen.enrolled,
            (),
            untimed=seen.untimed,
            dead_letter=self.diverted.get(seen.source, frozenset()),
            unclaimed=unclaimed,
            target_partitions=target_partitions,
            handler_changed=self.handler_changed,
        )

    def _target_logs(self, topic: str) -> dict[TopicPartition, Log]:
        found = {tp: log for tp, (log, _) in self.survey.surplus.items() if tp.topic == topic}
        for seen in self.survey.partitions:
            if seen.target.topic == topic and seen.target_log is not None:
                found[seen.target] = seen.target_log
        return dict(sorted(found.items()))


def _strange_bounds(
    group: Sequence[Seen],
    target: TopicPartition,
    log: Log,
    records: Sequence[Sequence[MapRecord]],
    *,
    full: bool,
) -> Bounds:
    """Return where a target partition is looked through for what nobody claims."""
    source = TopicPartition(group[0].source.topic, target.partition)
    end = log.stable
    if any(seen.moved for seen in group):
        # What was copied while the ends were read may not be in the map that was read.
        end = min([end, *(each[-1].target_end for each in records if each)])
    begin = log.start if full and not any(seen.start or seen.since for seen in group) else end
    if begin == end:
        begin = max(log.start, min((each[0].target_start for each in records if each), default=end))
    ids = group[0].enrolled[0], log.topic_id
    return Bounds(source, target, ids, Mode.HANDLER, 0, 0, min(begin, end), end)
