"""Ending a transaction in the middle of an answer: what is committed is exactly what was sent."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.copy import partition as partition_module
from onceover.copy.loop import CopySettings, Until
from onceover.errors import MustReset
from onceover.handlers.within import LONGEST_S
from onceover.handling import pace as pace_module
from onceover.handling.obstacles import Blocked
from onceover.handling.pace import Pace
from onceover.model import TopicPartition
from onceover.state.fencing import LANE_TIMEOUT_MS
from onceover.wire.batches.unpack import Ceiling
from tests.unit.copy.batches import answer, stored
from tests.unit.copy.loop import A, B, FakeProducer, Setting, sent
from tests.unit.copy.test_partition import visible
from tests.unit.handling.test_handled_partition import handled, offsets

_ALWAYS = CopySettings(0.0, 1 << 30, None)
_NEVER = CopySettings(60.0, 1 << 30, None)


def batches(sizes: list[int], epoch: int = 0) -> list[bytes]:
    """Return batches of so many records, one behind the other."""
    offset, found = 0, []
    for size in sizes:
        found.append(stored(offset, size, epoch=epoch))
        offset += size
    return found


@dataclass
class Judge(FakeProducer):
    """At every commit, compares what was sent with the positions."""

    def commit(self) -> None:
        sent: dict[TopicPartition, set[int]] = {}
        for batch in self.sent:
            for first, count in batch.source_runs if batch.source else ():
                assert batch.source is not None
                offsets = set(range(first, first + count))
                known = sent.setdefault(batch.source, set())
                assert not offsets & known, "sent twice"
                known |= offsets
        positions = {tp: o.offset for c in [*self.committed, self._offsets] for tp, o in c.items()}
        for tp in sent.keys() | positions.keys():
            assert sent.get(tp, set()) == set(range(positions.get(tp, 0))), tp
        super().commit()


def setting(left: list[int], right: list[int], settings: CopySettings, how: str) -> Setting:
    """Return a loop over one answer with the batches of both partitions."""
    script = [
        [
            (A, answer(batches(left), lso=sum(left))),
            (B, answer(batches(right), partition=1, lso=sum(right))),
        ]
    ]
    made = Setting(script, Judge(), settings=settings)
    for copy in made.partitions.values():
        copy.ceiling = Ceiling(1, 1 << 20)
        if how == "taken apart":
            copy.obstacle.max_batch_bytes = 1
        if how == "handled":
            copy.handling = handled(copy.source, "same", group_bytes=1).handling
    made.loop.__post_init__()
    return made


_SIZES = st.lists(st.integers(1, 12), max_size=12)


@given(_SIZES, _SIZES, st.sampled_from(["passed", "taken apart", "handled"]), st.booleans())
def test_positions_are_exact_wherever_an_answer_is_cut(
    left: list[int], right: list[int], how: str, always: bool
) -> None:
    """Whatever becomes of the batches; the map's ranges join, and every record is in them once."""
    made = setting(left, right, _ALWAYS if always else _NEVER, how)
    ends = {A: sum(left), B: sum(right)}
    records = made.run(ends)
    for tp, end in ends.items():
        own = [r for r in records if r.source == tp]
        assert all(a.source_end == b.source_start for a, b in pairwise(own))
        assert sum(r.records for r in own) == end
        assert made.partitions[tp].committed == end


def test_a_long_batch_is_committed_piece_by_piece() -> None:
    """Re-encoding hundreds of thousands of records takes longer than a transaction may be open."""
    made = setting([8], [], _ALWAYS, "taken apart")
    ends = [r.source_end for r in made.run({A: 8, B: 0})]
    assert ends[0] < 8 and ends[-1] == 8 and ends == sorted(set(ends))


def test_position_inside_a_batch_goes_with_the_epoch_of_that_batch() -> None:
    """The epoch before it ends before the batch: on resume, the source would look like another history."""
    made = Setting([[(A, answer([stored(0, 2, epoch=4), stored(2, 6, epoch=5)], lso=8))]], Judge())
    made.settings = _ALWAYS
    made.partitions[A].ceiling = Ceiling(1, 1 << 20)
    made.partitions[A].obstacle.max_batch_bytes = 1
    made.run({A: 8, B: 0})
    seen = {o.offset: o.leader_epoch for c in made.producer.committed for tp, o in c.items() if tp == A}
    assert len(seen) > 3
    assert all(epoch == (4 if offset <= 2 else 5) for offset, epoch in seen.items())


def test_an_answer_that_is_worked_off_in_time_is_one_transaction() -> None:
    """Committing costs both sides."""
    made = setting([3] * 9, [2] * 9, _NEVER, "passed")
    made.run({A: 27, B: 18})
    assert len(made.producer.committed) == 1


def test_the_longest_time_counts_where_the_interval_is_longer() -> None:
    """However generous the flow file is, the target's own patience is what counts."""
    made = setting([3, 3], [], _NEVER, "taken apart")
    made.loop.longest_open_s = 0.0
    made.run({A: 6, B: 0})
    assert len(made.producer.committed) > 1


def test_stop_is_heard_in_the_middle_of_an_answer() -> None:
    """Looked for after every transaction: the rest of the answer is left to the next task."""
    made = setting([8], [], _ALWAYS, "taken apart")
    until = Until(time.monotonic() + 60)

    def look() -> None:
        until.stopped = bool(made.producer.committed)

    made.look_around = look
    records = [r for some in made.loop.run(until) for r in some]
    assert [r.source_end for r in records] == [made.partitions[A].committed]
    assert records[-1].source_end < 8


def test_pace_begins_small_and_grows_while_the_handler_is_fast() -> None:
    """Four times at most with every group, up to what fits in memory."""
    pace, shares = Pace(), []
    for _ in range(5):
        shares.append(pace.share(1 << 20))
        pace.took(0.001, shares[-1], 1)
    assert shares == [1 << 16, 1 << 18, 1 << 20, 1 << 20, 1 << 20]


def test_pace_follows_a_slow_handler_at_once() -> None:
    """A group that took 30 s is not given again in that size, also after the reset that it led to."""
    pace = Pace()
    pace.took(30.0, 60_000, 1)
    assert pace.share(1 << 20) == 2_000
    pace.took(0.0, 2_000, 2)
    assert pace.share(1 << 20) == 8_000


def test_one_record_that_takes_too_long_again_and_again_is_told() -> None:
    """Not the first time: a worker may have been paused. Not of a group: it will be smaller next time."""
    pace = Pace()
    assert [pace.too_slow(20.0, 1, 7) for _ in range(3)] == [False, False, True]
    assert not pace.too_slow(20.0, 1, 8) and not pace.too_slow(1.0, 1, 8) and not pace.too_slow(20.0, 2, 8)


def test_a_record_that_no_transaction_is_long_enough_for_stops_its_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everything before it is copied; the resets that it led to are over."""
    monkeypatch.setattr(pace_module, "TOO_LONG_S", -1.0)
    copy = handled(A, "same", group_bytes=1)
    for _ in range(2):
        next(sent(copy, visible(stored(0, 3))))
    with pytest.raises(Blocked) as blocked:
        next(sent(copy, visible(stored(0, 3))))
    stop = blocked.value.stop
    assert (stop.code, stop.position) == ("HANDLER_FAILED", 0) and "transaction" in stop.seen


def test_a_handler_is_interrupted_when_its_transaction_is_over() -> None:
    """Later, its output is of no use; before, it might still be."""
    assert LANE_TIMEOUT_MS / 1000 == LONGEST_S


def test_a_handler_that_hangs_is_interrupted_and_its_record_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time the transaction is given up; what comes before is copied, and the stop names its place."""
    monkeypatch.setattr(partition_module, "LONGEST_S", 0.05)
    monkeypatch.setattr(pace_module, "TOO_LONG_S", 0.02)
    copy = handled(A, "hanging")
    seen = visible(stored(0, 9))
    resets: list[str] = []
    out: list[int] = []

    def attempts() -> None:
        for _ in range(20):
            out.clear()
            try:
                for one in sent(copy, seen):
                    out.extend(offsets(one))
            except MustReset as error:
                resets.append(error.message)
                # Nothing of it was committed.
                copy.position = 0

    with pytest.raises(Blocked) as blocked:
        attempts()
    assert (blocked.value.stop.code, blocked.value.stop.position) == ("HANDLER_FAILED", 7)
    assert out == list(range(7)) and copy.position == 7
    assert len(resets) == 3 and all("t:0 from offset" in text for text in resets)
    assert copy.obstacle.barrier == 7, "the next attempt does not call it again"
