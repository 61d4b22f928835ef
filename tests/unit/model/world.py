"""What the model's processes act upon: a target cluster with its coordinators, logs, progress and layout.

Requests are atomic; what a transaction has written becomes visible target by target, when the coordinator's
marker arrives there, in any order: the group may tell the new progress while a data partition does not show
the records yet. A commit may be delayed in the network and arrive when its sender has given up.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

LANE_IDS: Final = 2
LEADER: Final = 2
IDS: Final = (0, 1, LEADER)
PARTITIONS: Final = (0, 1)
# Targets of a transaction: data of each partition, the progress group, and the state topic.
DATA: Final = (1, 2)
GROUP: Final = 4
STATE: Final = 8
TARGETS: Final = (*DATA, GROUP, STATE)
NOBODY: Final = -1
_COMMITTED: Final = -1
_NEWEST: Final = 9

_T = TypeVar("_T")


class Violation(Exception):
    """A guarantee does not hold in a state that can be reached."""


class Phase(IntEnum):
    """Where the coordinator of a transactional.id is."""

    EMPTY = 0
    OPEN = 1
    COMMITTING = 2
    ABORTING = 3


class Answer(IntEnum):
    """What a request on a transactional.id is answered."""

    FENCED = 0
    CONCURRENT = 1
    OK = 2


class Txn(NamedTuple):
    """One transactional.id.

    Args:
        phase: of its transaction.
        owner: the process that holds its newest epoch.
        targets: bits of what is part of the transaction, and waits for its marker once it is ended.
        delayed: a commit is on its way, of a sender of this generation; 0 without.
    """

    phase: Phase = Phase.EMPTY
    owner: int = NOBODY
    targets: int = 0
    delayed: int = 0


class Written(NamedTuple):
    """An offset in the progress group. ``order``: of the records in the coordinator's log."""

    offset: int
    generation: int = 0
    instance: int = 0
    order: int = 0
    seeded: bool = False


class Layout(NamedTuple):
    """The layout record: who may copy."""

    generation: int
    run: int
    lanes: int
    fence_up_to: int
    ready: bool


class World(NamedTuple):
    """The target cluster, and what the guarantees are judged by.

    Args:
        txns: by transactional.id.
        logs: records of each partition that are not visible yet: number, and who wrote it (-1: committed).
        visible: how many records a read_committed reader of each partition sees.
        progress: of each partition; None where there is none.
        pending: of each partition, offsets in open transactions, with their ids.
        layout: as committed.
        pending_layout, pending_enrolment: what the leader's open transaction holds.
        enrolled: bits of the partitions.
        stops_open: lane ids with a stop in an open transaction, where stops lie beside the layout.
        ready_generation: the newest generation that was ever ready.
        fenced_below: of each lane id, the generation by which it was fenced.
        timed_out: how many transactions were ended by their timeout, where that is bounded.
        told: layout and enrolled partitions as a broker tells them that led the state until then, if any.
        disturbed: how often an older lane has ended what a newer one had open, where that is counted.
    """

    txns: tuple[Txn, ...] = (Txn(),) * len(IDS)
    logs: tuple[tuple[tuple[int, int], ...], ...] = ((), ())
    visible: tuple[int, ...] = (0, 0)
    progress: tuple[Written | None, ...] = (None, None)
    pending: tuple[tuple[tuple[int, Written], ...], ...] = ((), ())
    layout: Layout = Layout(1, 0, 1, 0, ready=True)
    pending_layout: Layout | None = None
    pending_enrolment: int = 0
    enrolled: int = 0
    stops_open: int = 0
    ready_generation: int = 1
    fenced_below: tuple[int, ...] = (0,) * LANE_IDS
    timed_out: int = 0
    told: tuple[Layout, int] | None = None
    disturbed: int = 0

    # ---- the coordinator's requests

    def with_txn(self, txn_id: int, txn: Txn) -> World:
        """Return the world with another state of a transactional.id."""
        if txn.phase in (Phase.COMMITTING, Phase.ABORTING) and not txn.targets:
            txn = txn._replace(phase=Phase.EMPTY)
        return self._replace(txns=put(self.txns, txn_id, txn))

    def init(self, txn_id: int, process: int) -> tuple[World, Answer]:
        """InitProducerId: ends what is open first, and bumps the epoch only when nothing is left of it."""
        txn = self.txns[txn_id]
        if txn.phase is Phase.OPEN:
            return self.time_out(txn_id), Answer.CONCURRENT
        if txn.phase is not Phase.EMPTY:
            return self, Answer.CONCURRENT
        return self.with_txn(txn_id, Txn(Phase.EMPTY, process)), Answer.OK

    def may_write(self, txn_id: int, process: int) -> Answer:
        """Tell what any request inside a transaction would be answered."""
        txn = self.txns[txn_id]
        if txn.owner != process:
            return Answer.FENCED
        return Answer.OK if txn.phase in (Phase.EMPTY, Phase.OPEN) else Answer.CONCURRENT

    def add(self, txn_id: int, target: int) -> World:
        """Make a target part of the transaction, which begins with the first one."""
        txn = self.txns[txn_id]
        return self.with_txn(txn_id, txn._replace(phase=Phase.OPEN, targets=txn.targets | target))

    def commit(self, txn_id: int, generation: int) -> World:
        """EndTxn(commit) is taken; ``generation`` is that of the sender."""
        if txn_id != LEADER and generation < max(self.ready_generation, self.fenced_below[txn_id]):
            raise Violation("an older generation commits although it was fenced")
        txn = self.txns[txn_id]._replace(phase=Phase.COMMITTING, delayed=0)
        after, wanted = self.with_txn(txn_id, txn), self.pending_layout
        if txn_id == LEADER and wanted is not None and wanted.ready:
            after = after._replace(ready_generation=max(self.ready_generation, wanted.generation))
        return after

    def time_out(self, txn_id: int) -> World:
        """The coordinator ends what is open, and bumps the epoch."""
        txn = self.txns[txn_id]._replace(phase=Phase.ABORTING, owner=NOBODY, delayed=0)
        return self.with_txn(txn_id, txn)

    # ---- what is written

    def produce(self, txn_id: int, partition: int, record: int) -> World:
        """Append one record."""
        log = (*self.logs[partition], (record, txn_id))
        return self._replace(logs=put(self.logs, partition, log)).add(txn_id, DATA[partition])

    def commit_offset(self, txn_id: int, partition: int, written: Written) -> World:
        """TxnOffsetCommit: pending until the marker is there."""
        others = [each for each in self.pending[partition] if each[0] != txn_id]
        pending = (*others, (txn_id, written._replace(order=_NEWEST)))
        return self._ordered(partition, self.progress[partition], pending).add(txn_id, GROUP)

    def _ordered(
        self, partition: int, settled: Written | None, pending: tuple[tuple[int, Written], ...]
    ) -> World:
        """Keep only the order of the records: absolute numbers would make equal states differ."""
        known = sorted([each.order for _, each in pending] + ([] if settled is None else [settled.order]))
        if settled is not None:
            settled = settled._replace(order=known.index(settled.order))
        each = tuple(
            sorted((by, written._replace(order=known.index(written.order))) for by, written in pending)
        )
        return self._replace(
            progress=put(self.progress, partition, settled), pending=put(self.pending, partition, each)
        )

    # ---- markers

    def marker(self, txn_id: int, target: int) -> World:
        """The end of a transaction arrives at one of its targets."""
        txn = self.txns[txn_id]
        committed = txn.phase is Phase.COMMITTING
        after = self.with_txn(txn_id, txn._replace(targets=txn.targets & ~target))
        if target in DATA:
            return after._end_data(txn_id, DATA.index(target), committed)
        if target == GROUP:
            for partition in PARTITIONS:
                after = after._end_offset(txn_id, partition, committed)
            return after
        if txn_id == LEADER:
            return after._end_state(committed)
        return after._replace(stops_open=self.stops_open & ~(1 << txn_id))

    def _end_data(self, txn_id: int, partition: int, committed: bool) -> World:
        log, visible = self.logs[partition], self.visible[partition]
        if committed:
            log = tuple((record, _COMMITTED if by == txn_id else by) for record, by in log)
        else:
            log = tuple((record, by) for record, by in log if by != txn_id)
        while log and log[0][1] == _COMMITTED:
            if log[0][0] != visible:
                raise Violation(
                    "a record is visible twice" if log[0][0] < visible else "a record was skipped"
                )
            visible, log = visible + 1, log[1:]
        return self._replace(
            logs=put(self.logs, partition, log), visible=put(self.visible, partition, visible)
        )

    def _end_offset(self, txn_id: int, partition: int, committed: bool) -> World:
        written = dict(self.pending[partition]).get(txn_id)
        if written is None:
            return self
        before, visible = self.progress[partition], self.visible
        pending = tuple(each for each in self.pending[partition] if each[0] != txn_id)
        if committed and (before is None or written.order > before.order):
            if before is not None and written.offset < before.offset and not written.seeded:
                raise Violation("progress goes backwards")
            if written.seeded:
                visible = put(visible, partition, written.offset)
            before = written
        return self._replace(visible=visible)._ordered(partition, before, pending)

    def _end_state(self, committed: bool) -> World:
        after = self._replace(pending_layout=None, pending_enrolment=0)
        if not committed:
            return after
        layout = self.layout if self.pending_layout is None else self.pending_layout
        return after._replace(layout=layout, enrolled=self.enrolled | self.pending_enrolment)

    # ---- readers

    def layout_is_settled(self) -> bool:
        """Tell whether a reader that reads to the high watermark needs not wait."""
        return self.pending_layout is None and not self.pending_enrolment and not self.stops_open

    def is_quiet(self) -> bool:
        """Tell whether no transaction is open or being ended."""
        return all(txn.phase is Phase.EMPTY for txn in self.txns)

    def offset(self, partition: int) -> int | None:
        """Return the progress of a partition."""
        written = self.progress[partition]
        return None if written is None else written.offset


def put(values: tuple[_T, ...], index: int, value: _T) -> tuple[_T, ...]:
    """Return ``values`` with another one at ``index``."""
    return (*values[:index], value, *values[index + 1 :])
