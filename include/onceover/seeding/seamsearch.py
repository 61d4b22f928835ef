"""Finding a partition's seam on real clusters: which stretches to read, and when the answer is proven.

The target's last records are compared with the stretch of the source that begins where records are as old.
Proven means: one reading only; the source was read far enough behind the seam to meet another one; and the
record after the seam is nowhere on the target, which its time tells: no record of the target from before the
compared ones is as young. Otherwise more of the target is read, up to a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from onceover.kafka import calls
from onceover.kafka.logs.between import records_between
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.seeding.codes import SeedingCode
from onceover.seeding.plan import Seat
from onceover.seeding.seam import Finding, NoSeam, RecordPrint, Seam, find_seam
from onceover.wire.batches.records import DecodedRecord

# Of the target's end: covers what one poll or two of MirrorMaker wrote; longer where that is not enough.
FIRST_WINDOW: Final = 256
DEFAULT_LIMIT: Final = 200_000
_GROWTH: Final = 8

Anchors = Callable[[TopicPartition], Mapping[int, int]]


@dataclass
class _Stretch:
    """Records of a source partition from one offset on, read as far as needed; ``left`` are the others."""

    start: int
    left: Iterator[DecodedRecord]
    records: list[RecordPrint] = field(default_factory=list)
    complete: bool = False

    def extend_to(self, count: int) -> None:
        """Read until there are ``count`` records, or all."""
        wanted = count - len(self.records)
        if wanted > 0 and not self.complete:
            more = [RecordPrint.of(record) for record in islice(self.left, wanted)]
            self.records += more
            self.complete = len(more) < wanted


@dataclass(frozen=True)
class SeamSearch:
    """Looks for seams. Reads only.

    Args:
        source: source cluster; ``target`` likewise.
        anchors: pairs (target offset, source offset) of a source partition that are known from elsewhere;
            asked only when content alone is ambiguous.
        limit: records of a partition that are read at most, on each side.
    """

    source: Cluster
    target: Cluster
    anchors: Anchors
    limit: int = DEFAULT_LIMIT

    def find(self, seat: Seat) -> Finding:
        """Return the seam of one partition whose target log is not empty.

        What MirrorMaker copied is compared with what a read_committed reader sees first, and with all that
        was written if that does not fit: its consumer reads uncommitted records unless told otherwise.

        Raises:
            Retriable: a broker is away.
        """
        finding = self._find(seat, calls.READ_COMMITTED, seat.lso)
        if isinstance(finding, NoSeam) and finding.code in (SeedingCode.FOREIGN_RECORD, SeedingCode.GAP):
            uncommitted = self._find(seat, calls.READ_UNCOMMITTED, seat.end)
            return finding if isinstance(uncommitted, NoSeam) else uncommitted
        return finding

    def _find(self, seat: Seat, isolation: int, end: int) -> Finding:
        count = FIRST_WINDOW
        while True:
            copied = self._tail(seat, count)
            if not copied:
                return _emptied(seat)
            finding, needed = self._compare(seat, copied, isolation, end)
            whole = len(copied) < count
            if needed == 0 or whole:
                return finding
            if count >= self.limit:
                return finding if isinstance(finding, NoSeam) else _too_far(seat, finding, self.limit)
            count = min(self.limit, max(count * _GROWTH, needed))

    def _compare(
        self, seat: Seat, copied: list[RecordPrint], isolation: int, end: int
    ) -> tuple[Finding, int]:
        """Return what these records tell, and how many more are needed to be sure (0: none)."""
        oldest_ms = min(record.timestamp_ms for record in copied)
        start = self.source.list_offsets([seat.source], oldest_ms, isolation)[seat.source]
        if start < 0:
            message = f"no source record is as young as the target's last {len(copied)} ({oldest_ms} ms)"
            return NoSeam(SeedingCode.FOREIGN_RECORD, message), 0
        with closing(records_between(self.source, seat.source, start, end, isolation=isolation)) as left:
            stretch = _Stretch(start, left)
            finding = self._along(seat, copied, stretch)
            if isinstance(finding, NoSeam):
                return finding, len(copied) * _GROWTH if finding.code == SeedingCode.AMBIGUOUS else 0
            stretch.extend_to(finding.index + 2)
            following = stretch.records[finding.index + 1 : finding.index + 2]
        return finding, self._hidden(seat, copied, following[0]) if following else 0

    def _along(self, seat: Seat, copied: list[RecordPrint], stretch: _Stretch) -> Finding:
        """Compare with more and more of the source, until another reading would have been met."""
        wanted = 2 * len(copied) + FIRST_WINDOW
        while True:
            stretch.extend_to(wanted)
            held = _within(stretch, copied, seat)
            if isinstance(held, NoSeam):
                return held
            finding = find_seam(stretch.records, held, from_start=self._from_start(seat, copied, stretch))
            if isinstance(finding, NoSeam) and finding.code == SeedingCode.AMBIGUOUS:
                finding = find_seam(stretch.records, held, anchors=self.anchors(seat.source))
            if _is_final(finding, len(stretch.records), len(held)):
                return finding
            if stretch.complete or wanted >= 2 * self.limit:
                return finding
            wanted = min(2 * self.limit, wanted * _GROWTH)

    @staticmethod
    def _from_start(seat: Seat, copied: list[RecordPrint], stretch: _Stretch) -> bool:
        """Tell whether both stretches begin with the very first records of logs that lost none."""
        return stretch.start == seat.start == seat.target_start == 0 and copied[0].offset == 0

    def _hidden(self, seat: Seat, copied: list[RecordPrint], following: RecordPrint) -> int:
        """Return how many records at the target's end may hold the one that follows the seam; 0: none do.

        A copy that went back may end with records that were copied before, its furthest ones further back.
        """
        at = self.target.list_offsets([seat.target], following.timestamp_ms)[seat.target]
        if at < 0 or at >= copied[0].offset:
            return 0
        # Offsets are at least as many as records.
        return seat.target_end - at

    def _tail(self, seat: Seat, count: int) -> list[RecordPrint]:
        """Return the last ``count`` records of the target, fewer where it holds fewer."""
        span = count
        while True:
            start = max(seat.target_start, seat.target_end - span)
            met = records_between(self.target, seat.target, start, seat.target_end)
            found = [RecordPrint.of(record) for record in met]
            if len(found) >= count or start == seat.target_start:
                return found[-count:]
            span *= _GROWTH


def _is_final(finding: Finding, read: int, compared: int) -> bool:
    """Tell whether more of the source cannot change the answer."""
    if isinstance(finding, NoSeam):
        return finding.code != SeedingCode.FOREIGN_RECORD
    return read > finding.index + compared


def _within(stretch: _Stretch, copied: list[RecordPrint], seat: Seat) -> list[RecordPrint] | NoSeam:
    """Leave out the target's oldest records where the source has deleted theirs already."""
    if seat.start == 0 or stretch.start > seat.start:
        return copied
    known = {record.digest for record in stretch.records}
    begin = next((number for number, record in enumerate(copied) if record.digest in known), None)
    if begin is None:
        return NoSeam(
            SeedingCode.FOREIGN_RECORD,
            f"none of the target's last {len(copied)} records is on the source any more, which starts at "
            f"offset {seat.start}",
        )
    if begin and copied[begin].digest != stretch.records[0].digest:
        return NoSeam(
            SeedingCode.GAP,
            f"the source's first record, at offset {stretch.records[0].offset}, is missing on the target: at "
            f"its offset {copied[begin].offset} another one follows what the source has deleted",
        )
    return copied[begin:]


def _emptied(seat: Seat) -> NoSeam:
    return NoSeam(
        SeedingCode.TARGET_EMPTIED,
        f"the target's log has come to offset {seat.target_end} and holds no record any more: there is "
        "nothing to compare with",
    )


def _too_far(seat: Seat, seam: Seam, limit: int) -> NoSeam:
    return NoSeam(
        SeedingCode.TOO_FAR,
        f"the last {limit} target records end at source offset {seam.offset - 1}, but older ones could hold "
        f"what follows: the times in {seat.target} do not rule it out",
    )
