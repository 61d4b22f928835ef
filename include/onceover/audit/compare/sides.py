"""Both clusters as one task of an audit reads them: a span's records, on either side.

Invariant: what is yielded is what a reader of committed records sees of exactly the span.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from onceover.audit.compare.compare import Cursor
from onceover.audit.model import Range, Side
from onceover.audit.ranges.tasks import Task
from onceover.audit.records.batches import LARGEST_RECORD_BYTES
from onceover.audit.records.reader import ReadBatch, Stretch, read_batches
from onceover.audit.records.recordhash import AuditedRecord
from onceover.audit.records.refusals import refusals
from onceover.kafka import calls
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition

if TYPE_CHECKING:
    # Arrow takes a quarter of a second to load, which flows without a handler do not pay.
    from onceover.handlers.load import Handler

# Of one stretch, so that what a worker hands back is bounded. Whoever copied more wrongly than this needs no
# longer list: the rest is counted.
MAX_FINDINGS: Final = 10_000


@dataclass(frozen=True)
class Sides:
    """Both clusters, as one task reads them.

    Args:
        handler: the flow's, loaded in this process; None where it has none.
        max_findings: that are listed of one stretch; more are counted.
        record_bytes: the largest record that is taken apart.
    """

    source: Cluster
    target: Cluster
    handler: Handler | None = None
    max_findings: int = MAX_FINDINGS
    record_bytes: int = LARGEST_RECORD_BYTES

    def cursor(self, task: Task, side: Side, span: Range) -> Cursor:
        """Return one side's records of a span."""
        return Cursor(
            self.reads(task, side, span),
            _stretch(task, side, span).start,
            timed=not task.untimed,
            record_bytes=self.record_bytes,
        )

    def records(self, task: Task, side: Side, span: Range) -> Iterator[AuditedRecord]:
        """Yield one side's visible records of a span."""
        cursor, end = self.cursor(task, side, span), _stretch(task, side, span).end
        try:
            while (rec := cursor.record(end)) is not None:
                yield rec
        finally:
            cursor.close()

    def later(self, task: Task, side: Side, span: Range) -> Iterator[AuditedRecord]:
        """Yield one side's visible records behind a span, up to the present end of its log."""
        stretch = _stretch(task, side, span)
        cluster, tp = self._cluster(side), stretch.partition
        with refusals():
            end = cluster.retry(lambda: cluster.list_offsets([tp], calls.LATEST))[tp]
        if side is Side.SOURCE:
            behind = replace(span, source_from=stretch.end, source_to=end)
        else:
            behind = replace(span, target_from=stretch.end, target_to=end)
        yield from self.records(task, side, behind)

    def whole(self, task: Task, span: Range) -> Iterator[tuple[AuditedRecord, bool]]:
        """Yield all records of a span's source partition, and whether their transactions were aborted."""
        yield from self.everything(task, self.held(span, span.source))

    def held(self, span: Range, tp: TopicPartition) -> Range:
        """Return a span with all that the log of a source partition holds."""
        cluster = self.source
        with refusals():
            begin = cluster.retry(lambda: cluster.list_offsets([tp], calls.EARLIEST))[tp]
            end = cluster.retry(lambda: cluster.list_offsets([tp], calls.LATEST))[tp]
        return replace(span, source=tp, source_from=begin, source_to=end)

    def aborted(self, task: Task, span: Range) -> Iterator[AuditedRecord]:
        """Yield the records of a span of the source whose transactions were aborted."""
        for read in self.reads(task, Side.SOURCE, span):
            if read.aborted:
                yield from self._records(task, read)

    def hidden(self, task: Task, side: Side, span: Range) -> Iterator[int]:
        """Yield the offsets at which one side's log holds what no reader sees: markers, aborted records."""
        stretch = _stretch(task, side, span)._replace(markers=True)
        for read in read_batches(self._cluster(side), stretch):
            if read.batch.is_control:
                # Its last offset stays its own when a cleaner has emptied it.
                yield read.batch.last_offset
            elif read.aborted:
                yield from (rec.offset for rec in self._records(task, read))

    def everything(self, task: Task, span: Range) -> Iterator[tuple[AuditedRecord, bool]]:
        """Yield all records of a span of the source, and whether their transactions were aborted."""
        for read in self.reads(task, Side.SOURCE, span):
            for rec in self._records(task, read):
                if span.source_from <= rec.offset < span.source_to:
                    yield rec, read.aborted

    def _records(self, task: Task, read: ReadBatch) -> Iterator[AuditedRecord]:
        return read.batch.decode(timed=not task.untimed, record_bytes=self.record_bytes)

    def reads(self, task: Task, side: Side, span: Range) -> Generator[ReadBatch]:
        """Yield one side's batches of a span."""
        return read_batches(self._cluster(side), _stretch(task, side, span))

    def _cluster(self, side: Side) -> Cluster:
        return self.source if side is Side.SOURCE else self.target


def _stretch(task: Task, side: Side, span: Range) -> Stretch:
    if side is Side.SOURCE:
        return Stretch(span.source, task.ids[0], span.source_from, span.source_to)
    return Stretch(span.target, task.ids[1], span.target_from, span.target_to)
