"""Reading the flow's records of its work, and checking each against what is there.

The order carries the proof: the map is read after the survey has fixed the positions, so it reaches them;
what a group meets on the target is looked at before the same is looked up on the source.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from onceover.audit.batches import Unreadable
from onceover.audit.evidence import Examined, Looks, not_readable
from onceover.audit.groupcheck import NAME as GROUP_NAME
from onceover.audit.groupcheck import Standing, check_group
from onceover.audit.mapcheck import Scope, check_map, choose
from onceover.audit.model import Mode, Side
from onceover.audit.positions import NAME as POSITION_NAME
from onceover.audit.positions import Position, check_position
from onceover.audit.ranges import StoredPair
from onceover.audit.receiptcheck import check_receipts, ledger
from onceover.audit.result import Area, Check, PartitionResult
from onceover.audit.survey import Seen, Survey
from onceover.engine.groupmemory import GroupMemory
from onceover.engine.groups import Direction, Remembered
from onceover.engine.mapindex import MapIndex
from onceover.engine.mapstore import MapStore
from onceover.errors import Retriable
from onceover.kafka.cluster import Cluster
from onceover.model import TopicPartition

# A plot shows no more; the latest are the ones that matter.
_MAX_COMMITS: Final = 20_000


def examine(
    flow: str,
    target: Cluster,
    home: Path | None,
    survey: Survey,
    partitions: Sequence[PartitionResult],
    look: Looks,
) -> Examined:
    """Check positions, offset map, receipts and groups of the partitions that were audited.

    Args:
        flow: name of the flow.
        target: its target; belongs to the caller.
        home: folder of the flow's files, where the map's index is kept; None reads it anew.
        survey: the bounds of the audit.
        partitions: what was seen of the content, in the order of ``survey.partitions``.
        look: looks at single records.

    Raises:
        Retriable: a cluster is away.
        NeedsOperator: the flow's state cannot be read.
    """
    checks: list[Check] = []
    with MapIndex(target, flow, home) as index:
        target.retry(lambda: index.refresh(settled=True))
        work = _works(index.store, survey, partitions)
        checks += _checks(work, survey, look)
        moved = {each.seen.target: each for each in work if each.seen.is_there}
        checks += _groups(flow, target, moved, look)
    commits = sorted((c for each in work for c in each.ledger.commits), key=lambda commit: commit.commit_ms)
    return Examined(tuple(checks), tuple(commits[-_MAX_COMMITS:]))


def check_claims(
    store: MapStore | None, survey: Survey, partitions: Sequence[PartitionResult], look: Looks
) -> tuple[Check, ...]:
    """Check positions, offset map and receipts; arguments and errors are those of ``examine``."""
    return tuple(_checks(_works(store, survey, partitions), survey, look))


def _works(store: MapStore | None, survey: Survey, partitions: Sequence[PartitionResult]) -> list[_Work]:
    return [
        _Work(seen, result, StoredPair(store, seen.source, seen.target, seen.since))
        for seen, result in zip(survey.partitions, partitions, strict=True)
    ]


def _checks(work: Iterable[_Work], survey: Survey, look: Looks) -> Iterator[Check]:
    for each in work:
        yield from each.checks(look, random.Random(survey.started_ms))


class _Work:
    """One partition, with what its receipts say, gone through once."""

    def __init__(self, seen: Seen, result: PartitionResult, pair: StoredPair) -> None:
        self.seen = seen
        self.result = result
        self.pair = pair
        self.ledger = ledger(pair.records(), result.source_from, _MAX_COMMITS)

    def checks(self, look: Looks, chance: random.Random) -> Iterator[Check]:
        """Yield what is right and wrong with the flow's claims about it."""
        seen, result = self.seen, self.result
        if not seen.is_there:
            # Said so as unverifiable, too; there is nothing to check a claim against.
            yield Check(Area.POSITIONS, "topics_are_there", seen.source, "both topics", "one is gone", None)
            return
        reached = self.ledger.reached
        pair = seen.source, seen.target
        position = Position(
            *pair,
            seen.start,
            seen.position,
            seen.target_end,
            reached,
            result.mode,
            self.ledger.copied,
            _hides(seen),
        )
        try:
            yield check_position(position, look)
        except Unreadable as error:
            yield not_readable(Area.POSITIONS, POSITION_NAME, seen.source, error, offset=seen.position)
        yield from check_receipts(result, self.pair.records())
        if result.mode is not Mode.HANDLER:
            # A handler may change a record: that it was applied rightly is what comparing the content shows.
            scope = Scope(result.source_from, result.source_to, result.target_from, result.target_to)
            claims = choose(self.pair.records(), scope, chance)
            yield from check_map(*pair, claims, look, compacted=result.mode is Mode.COMPACTED)

    def standing(self, group: str, entry: Remembered, current: int, look: Looks) -> Standing:
        """Return where a group stands; the target is looked at first."""
        source, target = self.seen.source, self.seen.target
        translated = self.pair.to_target(entry.given)
        return Standing(
            group=group,
            source=source,
            target=target,
            given=entry.given,
            current=current,
            translated=translated,
            meets=look.first(Side.TARGET, target, current),
            ought=None if translated is None else look.first(Side.TARGET, target, translated),
            next=look.first(Side.SOURCE, source, entry.given),
            comparable=self.result.mode is Mode.RECORDS,
            came_later=self.ledger.committed_after(current) > entry.at_ms,
        )


def _hides(seen: Seen) -> bool:
    log = seen.target_log
    return log is not None and seen.target_end is not None and log.stable < min(seen.target_end, log.end)


def _groups(flow: str, target: Cluster, work: Mapping[TopicPartition, _Work], look: Looks) -> Iterator[Check]:
    memory = GroupMemory(target, flow)
    try:
        target.retry(memory.read)
        for group in sorted(memory.groups(Direction.FAILOVER)):
            moved = memory.of(Direction.FAILOVER, group)
            mine = {tp: entry for tp, entry in sorted(moved.items()) if tp in work}
            for tp, current in _committed(target, group, list(mine)).items():
                if isinstance(current, str):
                    yield _unread(group, work[tp].seen.source, current)
                elif current in mine[tp].known:
                    yield _stands(work[tp], group, mine[tp], current, look)
    finally:
        memory.close()


def _stands(work: _Work, group: str, entry: Remembered, current: int, look: Looks) -> Check:
    try:
        return check_group(work.standing(group, entry, current, look))
    except Unreadable as error:
        return not_readable(Area.GROUPS, GROUP_NAME, work.seen.source, error, group=group, offset=entry.given)


def _committed(target: Cluster, group: str, tps: list[TopicPartition]) -> dict[TopicPartition, int | str]:
    """Return what a group has committed; instead of a number, why it cannot be read."""
    if not tps:
        return {}
    try:
        found = target.retry(lambda: target.committed(group, tps))
    except Retriable as error:
        return dict.fromkeys(tps, error.message)
    return {tp: committed.offset for tp, committed in found.items()}


def _unread(group: str, source: TopicPartition, why: str) -> Check:
    return Check(Area.GROUPS, GROUP_NAME, source, "a position", "not readable", None, group=group, detail=why)
