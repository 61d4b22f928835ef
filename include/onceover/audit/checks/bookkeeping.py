"""Reading the flow's records of its work, and checking each against what is there.

The order carries the proof: the map is read after the snapshot has fixed the positions, so it reaches them;
what a group meets on the target is looked at before the same is looked up on the source.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from onceover.advice import advised
from onceover.audit.checks.evidence import BookkeepingChecks, RecordLooks, not_readable
from onceover.audit.checks.groups import NAME as GROUP_NAME
from onceover.audit.checks.groups import GroupPosition, check_group
from onceover.audit.checks.offsetmap import SharedOffsets, check_map, choose
from onceover.audit.checks.positions import NAME as POSITION_NAME
from onceover.audit.checks.positions import CheckedPosition, check_position
from onceover.audit.checks.receipts import check_receipts, ledger
from onceover.audit.checks.result import Area, Check, PartitionResult
from onceover.audit.model import Mode, Side
from onceover.audit.ranges.logs import PartitionLog
from onceover.audit.ranges.snapshot import AuditSnapshot, PartitionSnapshot
from onceover.audit.ranges.tiling import StoredPair
from onceover.audit.records.batches import Unreadable
from onceover.audit.records.recordhash import AuditedRecord
from onceover.errors import NeedsOperator, OnceoverError
from onceover.groups.decide import Direction, Remembered
from onceover.groups.memory import GroupMemory
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.positions.index import MapIndex
from onceover.positions.store import MapStore

# A plot shows no more; the latest are the ones that matter.
_MAX_COMMITS: Final = 20_000


def check_bookkeeping(
    flow: str,
    target: Cluster,
    home: Path | None,
    snapshot: AuditSnapshot,
    partitions: Sequence[PartitionResult],
    look: RecordLooks,
) -> BookkeepingChecks:
    """Check positions, offset map, receipts and groups of the partitions that were audited.

    Args:
        flow: name of the flow.
        target: its target; belongs to the caller.
        home: folder of the flow's files, where the map's index is kept; None reads it anew.
        snapshot: the bounds of the audit.
        partitions: what was seen of the content, in the order of ``snapshot.partitions``.
        look: looks at single records.

    Raises:
        Retriable: a cluster is away.
        NeedsOperator: the flow's state cannot be read.
    """
    checks: list[Check] = []
    with MapIndex(target, flow, home) as index:
        target.retry(lambda: index.refresh(settled=True))
        work = claims_of(index.store, snapshot, partitions)
        checks += check_claims(work, snapshot, look)
        moved = {each.seen.target: each for each in work if each.seen.is_there}
        checks += _groups(flow, target, moved, look)
    commits = sorted((c for each in work for c in each.ledger.commits), key=lambda commit: commit.commit_ms)
    return BookkeepingChecks(tuple(checks), tuple(commits[-_MAX_COMMITS:]))


def claims_of(
    store: MapStore | None, snapshot: AuditSnapshot, partitions: Sequence[PartitionResult]
) -> list[PartitionClaims]:
    """Return each partition with what its receipts say; arguments are those of ``check_bookkeeping``."""
    return [
        PartitionClaims(
            seen, result, StoredPair(store, seen.source, seen.target, seen.since), repeats=snapshot.repeats
        )
        for seen, result in zip(snapshot.partitions, partitions, strict=True)
    ]


def check_claims(
    work: Iterable[PartitionClaims], snapshot: AuditSnapshot, look: RecordLooks
) -> Iterator[Check]:
    """Yield what is right and wrong of positions, offset map and receipts: all but the groups."""
    for each in work:
        yield from each.checks(look, random.Random(snapshot.started_ms))


class PartitionClaims:
    """One partition, with what its receipts say, gone through once."""

    def __init__(
        self, seen: PartitionSnapshot, result: PartitionResult, pair: StoredPair, *, repeats: bool
    ) -> None:
        self.seen = seen
        self.repeats = repeats
        self.result = result
        self.pair = pair
        self.ledger = ledger(pair.records(), result.source_from, _MAX_COMMITS)

    def checks(self, look: RecordLooks, chance: random.Random) -> Iterator[Check]:
        """Yield what is right and wrong with the flow's claims about it."""
        seen, result = self.seen, self.result
        if not seen.is_there:
            # Said so as unverifiable, too; there is nothing to check a claim against.
            seen_there, why = ("one is gone", "") if seen.away is None else ("nobody tells", seen.away.why)
            both = Area.POSITIONS, "topics_are_there", seen.source, "both topics"
            yield Check(*both, seen_there, None, detail=why)
            return
        reached = self.ledger.reached
        pair = seen.source, seen.target
        position = CheckedPosition(
            *pair,
            seen.start,
            seen.position,
            seen.target_end,
            reached,
            result.mode,
            self.ledger.copied,
            _hides(seen),
            _is_put_back(seen, reached),
        )
        try:
            yield check_position(position, look)
        except Unreadable as error:
            yield not_readable(Area.POSITIONS, POSITION_NAME, seen.source, error, offset=seen.position)
        yield from check_receipts(result, self.pair.records(), sent_ahead=self.repeats and seen.by_hand)
        if result.mode is not Mode.HANDLER:
            # A handler may change a record: that it was applied rightly is what comparing the content shows.
            scope = SharedOffsets(result.source_from, result.source_to, result.target_from, result.target_to)
            claims = choose(self.pair.records(), scope, chance)
            yield from check_map(*pair, claims, look, compacted=result.mode is Mode.COMPACTED)

    def standing(self, group: str, entry: Remembered, current: int, look: RecordLooks) -> GroupPosition:
        """Return where a group stands; the target is looked at first."""
        source, target = self.seen.source, self.seen.target
        translated = self.pair.to_target(entry.given)
        meets = look.first(Side.TARGET, target, current)
        return GroupPosition(
            group=group,
            source=source,
            target=target,
            given=entry.given,
            current=current,
            translated=translated,
            meets=meets,
            ought=None if translated is None else look.first(Side.TARGET, target, translated),
            next=look.first(Side.SOURCE, source, entry.given),
            comparable=self.result.mode is Mode.RECORDS and not _is_its_clients(self.seen, meets),
            at_ends=_is_end(self.seen.source_log, entry.given) and _is_end(self.seen.target_log, current),
            came_later=self.ledger.committed_after(current) > entry.at_ms,
        )


def _is_end(log: PartitionLog | None, offset: int) -> bool:
    """Tell whether a reader at an offset waits for what comes: neither before the log, nor behind it."""
    return log is not None and offset == log.stable == log.end


def _is_put_back(seen: PartitionSnapshot, reached: int | None) -> bool:
    at = seen.position
    return seen.placed is not None and at == seen.placed.offset and (at or 0) < (reached or 0)


def _is_its_clients(seen: PartitionSnapshot, record: AuditedRecord | None) -> bool:
    """Tell whether a record of the target was written by clients, behind where the copy was promoted."""
    log = seen.target_log
    return seen.promoted and log is not None and record is not None and record.offset >= log.end


def _hides(seen: PartitionSnapshot) -> bool:
    log = seen.target_log
    return log is not None and seen.target_end is not None and log.stable < min(seen.target_end, log.end)


def _groups(
    flow: str, target: Cluster, work: Mapping[TopicPartition, PartitionClaims], look: RecordLooks
) -> Iterator[Check]:
    memory = GroupMemory(target, flow)
    try:
        target.retry(memory.read)
        for group in sorted(memory.groups(Direction.FAILOVER)):
            try:
                moved = memory.of(Direction.FAILOVER, group)
            except NeedsOperator as error:
                yield from (_unread(group, one.seen.source, error.message) for one in work.values())
                continue
            mine = {tp: entry for tp, entry in sorted(moved.items()) if tp in work}
            for tp, current in positions_or_why(target, group, list(mine)).items():
                if isinstance(current, str):
                    yield _unread(group, work[tp].seen.source, current)
                elif current in mine[tp].known:
                    check = _stands(work[tp], group, mine[tp], current, look)
                    if not is_cut_off(check, mine[tp], current):
                        yield check
    finally:
        memory.close()


def is_cut_off(check: Check, entry: Remembered, current: int) -> bool:
    """Tell whether a group stands where it stood before a move that was remembered, and not written.

    Nobody claims that it is further; one that stands too far is told of in any case. So is one that has gone
    on from there since: what was once cut off stays remembered.
    """
    return check.repeated > 0 and current not in entry.meant and any(to > current for to in entry.meant)


def _stands(work: PartitionClaims, group: str, entry: Remembered, current: int, look: RecordLooks) -> Check:
    try:
        return check_group(work.standing(group, entry, current, look))
    except Unreadable as error:
        return not_readable(Area.GROUPS, GROUP_NAME, work.seen.source, error, group=group, offset=entry.given)


def positions_or_why(
    target: Cluster, group: str, tps: list[TopicPartition]
) -> dict[TopicPartition, int | str]:
    """Return what a group has committed; instead of a number, why it cannot be read.

    Whatever the reason: one group of many takes the verdict from nothing else.
    """
    if not tps:
        return {}
    try:
        each = target.retry(lambda: target.each_committed(group, tps))
    except OnceoverError as error:
        return dict.fromkeys(tps, advised(error.as_dict()))
    told: dict[TopicPartition, int | str] = {tp: found.offset for tp, found in each.found.items()}
    return told | {tp: advised(error.as_dict()) for tp, error in each.failed.items()}


def _unread(group: str, source: TopicPartition, why: str) -> Check:
    return Check(Area.GROUPS, GROUP_NAME, source, "a position", "not readable", None, group=group, detail=why)
