"""Does the offset map agree with the records? Pure, but for looking at records.

Invariant: a claim of the map is "this source offset became that target offset"; it is right only when both
offsets hold a record and the two are the same. Claims are taken at the first and last record of every map
record in scope, where an error by one shows, and at random places inside.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from onceover.audit.checks.evidence import RecordLooks, not_readable
from onceover.audit.checks.result import Area, Check
from onceover.audit.model import Side
from onceover.audit.records.batches import Unreadable
from onceover.audit.records.recordhash import AuditedRecord
from onceover.audit.records.refusals import MayNotRead
from onceover.model import TopicPartition
from onceover.wire.offsetmap import MapRecord, Segment

NAME: Final = "offsets_hold_the_same_record"
# Of a partition: they find an error that touches one offset in thirty nine times out of ten.
SAMPLES: Final = 64
# More wrong claims of one partition say nothing new.
MAX_WRONG: Final = 20


class MappedOffsets(NamedTuple):
    """What the map says: the record at ``source`` is the record at ``target``."""

    source: int
    target: int


class SharedOffsets(NamedTuple):
    """Offsets that both sides hold; the ends are exclusive."""

    source_from: int
    source_to: int
    target_from: int
    target_to: int

    def holds(self, claim: MappedOffsets) -> bool:
        """Tell whether a claim is about offsets inside of it."""
        return (
            self.source_from <= claim.source < self.source_to
            and self.target_from <= claim.target < self.target_to
        )


def choose(
    records: Iterable[MapRecord], scope: SharedOffsets, chance: random.Random, samples: int = SAMPLES
) -> list[MappedOffsets]:
    """Return the claims to look at, in the source's order: all edges, and random ones between them.

    Args:
        records: of one pair of partitions, in order.
        scope: claims outside of it are left out.
        chance: chooses; the same seed chooses the same.
        samples: how many between the edges.
    """
    edges: set[MappedOffsets] = set()
    inside: list[Segment] = []
    seen = 0
    for record in records:
        if not record.segments or record.source_end <= scope.source_from:
            continue
        if record.source_start >= scope.source_to:
            break
        first, last = record.segments[0], record.segments[-1]
        edges |= {
            MappedOffsets(first.source, first.target),
            MappedOffsets(last.source_end - 1, last.target_end - 1),
        }
        for segment in record.segments:
            seen += 1
            # A reservoir: every segment has the same chance, however many there are.
            if len(inside) < samples:
                inside.append(segment)
            elif (place := chance.randrange(seen)) < samples:
                inside[place] = segment
    between = {
        _within(segment, chance) for _ in range(-(-samples // max(1, len(inside)))) for segment in inside
    }
    return sorted(claim for claim in edges | between if scope.holds(claim))


def _within(segment: Segment, chance: random.Random) -> MappedOffsets:
    step = chance.randrange(segment.count)
    return MappedOffsets(segment.source + step, segment.target + step)


def check_map(
    source: TopicPartition,
    target: TopicPartition,
    claims: Sequence[MappedOffsets],
    look: RecordLooks,
    *,
    compacted: bool,
) -> list[Check]:
    """Return one check for all claims that are right, and one for each that is wrong.

    Args:
        claims: in the source's order.
        compacted: one side may have removed records for good: claims about those are left out. So are those
            about records that have expired since the audit began.

    Raises:
        Retriable: a cluster is away.
    """
    wrong: list[Check] = []
    unread: list[Check] = []
    looked = 0
    for claim in claims:
        try:
            here = look.first(Side.SOURCE, source, claim.source)
            there = look.first(Side.TARGET, target, claim.target)
            gone = not (_at(here, claim.source) and _at(there, claim.target))
            if gone and (compacted or _has_expired(look, source, target, claim)):
                continue
        except MayNotRead as error:
            # Nor may any other of its records be.
            unread.append(not_readable(Area.MAP, NAME, source, error, offset=claim.source))
            break
        except Unreadable as error:
            unread.append(not_readable(Area.MAP, NAME, source, error, offset=claim.source))
            continue
        looked += 1
        if gone or here is None or there is None or here.hash != there.hash:
            wrong.append(_wrong(source, target, claim, here, there))
    right = f"{looked - len(wrong)} of {looked}"
    all_ = Check(
        Area.MAP, NAME, source, f"{looked} of {looked}", right, not wrong, detail="edges, and random offsets"
    )
    return [all_, *wrong[:MAX_WRONG], *unread[:MAX_WRONG]]


def _has_expired(
    look: RecordLooks, source: TopicPartition, target: TopicPartition, claim: MappedOffsets
) -> bool:
    """Tell whether one of the logs begins behind what is claimed by now."""
    return claim.source < look.begins(Side.SOURCE, source) or claim.target < look.begins(Side.TARGET, target)


def _at(record: AuditedRecord | None, offset: int) -> bool:
    return record is not None and record.offset == offset


def _wrong(
    source: TopicPartition,
    target: TopicPartition,
    claim: MappedOffsets,
    here: AuditedRecord | None,
    there: AuditedRecord | None,
) -> Check:
    if not _at(here, claim.source):
        detail = f"{source} holds no record at {claim.source}"
    elif not _at(there, claim.target):
        detail = f"{target} holds no record at {claim.target}"
    else:
        detail = f"{source} offset {claim.source} and {target} offset {claim.target} hold different records"
    return Check(
        area=Area.MAP,
        name=NAME,
        source=source,
        expected=f"the same record at {target} offset {claim.target}",
        seen="another" if _at(here, claim.source) and _at(there, claim.target) else "none",
        ok=False,
        offset=claim.source,
        detail=detail,
    )
