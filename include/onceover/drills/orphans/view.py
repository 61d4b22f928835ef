"""Looking at an old source behind a switchover: what stands behind the cut of each promoted partition.

Invariant: reads only, and no further back than ``_BACK_OFFSETS`` before a cut. What cannot be told apart
there is named, never left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from onceover.drills.codes import DrillCode
from onceover.drills.orphans.looks import OrphanLook, OrphanView
from onceover.drills.orphans.promoted import PromotedTopics, gone, unread_partition
from onceover.drills.orphans.tally import MetBatch, OrphanTally, SpanReader
from onceover.drills.orphans.torn import (
    PartitionSpans,
    SpanState,
    TornTransaction,
    TransactionSpan,
    named,
    torn,
)
from onceover.errors import NeedsOperator, Retriable, UsageError
from onceover.kafka.logs.between import batches_between
from onceover.kafka.logs.usage import active_producers, transactions
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.planning.plan import Refusal
from onceover.wire.batches.records import decode
from onceover.wire.batches.visibility import Visible

# Transactions that are compared, of all partitions together: a few hundred bytes each.
_MOST_SPANS: Final = 400_000
_LEAST_SPANS: Final = 1_000
# How far before a cut is looked for the other part of a transaction: headers only, a few MB of a log.
_BACK_OFFSETS: Final = 20_000
_FIRST_BACK: Final = 500
_BACK_GROWS: Final = 6
# transaction.max.timeout.ms of a broker, unless somebody has set it: no transaction is open for longer.
_LONGEST_TRANSACTION_MS: Final = 15 * 60_000


@dataclass(frozen=True)
class OrphanReader:
    """Looks at the old source of one flow. The cluster belongs to the caller.

    Args:
        source: the old source.
        topics: what was promoted of it.
    """

    source: Cluster
    topics: PromotedTopics

    def read(self) -> OrphanView:
        """Return what stands behind the cuts now. Changes nothing.

        Raises:
            UsageError: NOT_STARTED, NOTHING_CHOSEN; a right is missing on more than the topics themselves.
            NeedsOperator: FOREIGN_CLUSTER, another cluster answers than the one that was copied from.
            Retriable: a cluster is away.
        """
        enrolled = self.topics.enrolled()
        promoted = sorted((e for e in enrolled if e.is_promoted), key=lambda e: e.source)
        chosen = self.topics.chosen(promoted)
        if not chosen:
            text = "no switchover has promoted a topic of it: it copies on, and has left nothing behind"
            note = Refusal(
                f"flow {self.topics.flow}", DrillCode.NOTHING_CHOSEN, text, "nothing", blocks=False
            )
            return OrphanView((), (), (), {}, (note,))
        judged = self.topics.judged(chosen)
        most = max(_LEAST_SPANS, _MOST_SPANS // max(1, 2 * len(judged.looks)))
        scanned, unread = self._all_scanned(judged.looks, most)
        ids = self._ids()
        several, short = self._torn(scanned, ids, most)
        looks = tuple(look for look, _ in scanned)
        seen = {look.source.topic for look in looks}
        return OrphanView(
            looks,
            tuple(several),
            short,
            ids,
            (*judged.refused, *judged.remarks, *unread, *self.topics.never_copied(enrolled, judged.others)),
            holding=judged.holding,
            copies={e.source: e.target for e in chosen},
            gone=frozenset(t for t, reason in judged.reasons.items() if reason.message == gone(self.source)),
            unseen=tuple(e.source for e in promoted if e.source not in seen) if seen else (),
        )

    # ---- what stands behind the cuts

    def _all_scanned(
        self, looks: Sequence[OrphanLook], most: int
    ) -> tuple[list[tuple[OrphanLook, SpanReader]], list[Refusal]]:
        """Return looks with what stands behind their cuts, and the partitions that could not be read."""
        scanned, unread = [], []
        for look in looks:
            try:
                scanned.append(self._scanned(look, most))
            except (Retriable, NeedsOperator, UsageError) as error:
                # Where it is the whole cluster, nothing is worth being tried any more.
                self.source.each_topic([look.source.topic])
                unread.append(unread_partition(look.source, self.source.alias, error))
        return scanned, unread

    def _scanned(self, look: OrphanLook, most: int) -> tuple[OrphanLook, SpanReader]:
        """Return a look with what stands behind its cut, and the transactions there."""
        reader, tally = SpanReader(most), OrphanTally()
        first, tp = look.first_wanted, look.source
        if first < look.stable:
            met = batches_between(self.source, tp, first, look.stable)
            for each in met:
                if each.header.is_control or each.header.is_transactional:
                    reader.feed(_met(each))
                if each.batch is not None:
                    for record in decode(each.header, each.batch):
                        if first <= record.offset < look.stable:
                            tally.add(record)
        aborted = sum(1 for s in reader.spans() if s.state is SpanState.ABORTED and s.last >= first)
        opened = self._opened(look)
        return replace(look, tally=tally, aborted=aborted, opened=opened), reader

    def _opened(self, look: OrphanLook) -> tuple[TransactionSpan, ...]:
        if look.stable >= look.end:
            return ()
        each = self.source.retry(lambda: active_producers(self.source, [look.source]))
        return tuple(
            # When it has begun nobody tells; what it has written last is no longer ago.
            TransactionSpan(
                one.producer_id,
                one.epoch,
                one.transaction_start,
                look.end - 1,
                SpanState.OPEN,
                first_ms=one.last_ms,
            )
            for one in each.whole().get(look.source, ())
            if one.transaction_start >= 0
        )

    def _ids(self) -> dict[int, str]:
        listed, _ = self.source.retry(lambda: transactions(self.source))
        return {one.producer_id: one.transactional_id for one in listed}

    # ---- torn transactions

    def _torn(
        self, scanned: Sequence[tuple[OrphanLook, SpanReader]], ids: Mapping[int, str], most: int
    ) -> tuple[list[TornTransaction], tuple[TopicPartition, ...]]:
        """Return what was torn, and where not as far back was looked as it may reach."""
        left = [
            span
            for look, reader in scanned
            for span in (*reader.spans(), *look.opened)
            if span.state is not SpanState.ABORTED and span.last >= look.cut
        ]
        short = [look.source for look, reader in scanned if reader.is_short]
        if not left:
            return [], tuple(short)
        since_ms = min(min(s.first_ms, s.ended_ms) for s in left) - _LONGEST_TRANSACTION_MS
        parts = []
        for look, reader in scanned:
            before, is_enough = self._looked_back(look, since_ms, most)
            if not is_enough and look.source not in short:
                short.append(look.source)
            parts.append(PartitionSpans(look.source, look.cut, [*reader.behind(before), *look.opened]))
        return named(torn(parts), ids), tuple(sorted(short))

    def _looked_back(self, look: OrphanLook, since_ms: int, most: int) -> tuple[SpanReader, bool]:
        """Return the transactions before a cut, and whether everything since then was met."""
        met: list[MetBatch] = []
        begins, window = look.cut, _FIRST_BACK
        lowest = max(look.start, look.cut - _BACK_OFFSETS)
        is_enough = begins <= look.start
        while not is_enough and begins > lowest:
            first = max(lowest, begins - window)
            try:
                earlier = self._headers(look.source, first, begins)
            except (Retriable, UsageError):
                # It has expired, or cannot or may not be read: not as far back as needed.
                break
            met = [*earlier, *met]
            begins, window = first, window * _BACK_GROWS
            # Markers are stamped by the broker; records by whoever has written them.
            marks = [each.header.max_timestamp for each in earlier if each.header.is_control]
            is_enough = begins <= look.start or any(at_ms < since_ms for at_ms in marks)
        reader = SpanReader(most, newest=True)
        for one in met:
            reader.feed(one)
        return reader, is_enough and not reader.is_short

    def _headers(self, tp: TopicPartition, first: int, end: int) -> list[MetBatch]:
        met = batches_between(self.source, tp, first, end)
        return [
            _met(each)
            for each in met
            if (each.header.is_control or each.header.is_transactional) and each.header.base_offset >= first
        ]


def _met(each: Visible) -> MetBatch:
    return MetBatch(each.header, each.batch is None and not each.header.is_control)
