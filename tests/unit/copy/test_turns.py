"""With a handler, an answer that takes long is given back, so that nobody waits for its end."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.handling import pace as pace_module
from onceover.handling.pace import AnswerBudget
from onceover.wire.batches.unpack import Ceiling
from tests.unit.copy.batches import stored
from tests.unit.copy.loop import A, B, LogSource, Setting
from tests.unit.handling.test_handled_partition import handled
from tests.unit.handling.test_open_too_long import _ALWAYS, Judge, batches
from tests.unit.stops.test_aside import Clock


def lane(left: list[int], right: list[int]) -> Setting:
    """Return a loop over logs with batches of so many records, which commits behind every record."""
    made = Setting(LogSource({A: batches(left), B: batches(right)}), Judge(), settings=_ALWAYS)
    for copy in made.partitions.values():
        copy.ceiling = Ceiling(1, 1 << 20)
        copy.handling = handled(copy.source, "same", group_bytes=1).handling
    made.loop.__post_init__()
    return made


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over with the first commit."""
    monkeypatch.setattr(pace_module, "_TURN_S", 0.0)
    monkeypatch.setattr(pace_module, "_TURN_TIMES", 0)


def test_records_that_came_later_do_not_wait_for_the_end_of_anothers_batch() -> None:
    """Its 22 kB may be an hour of a slow handler; before, nobody looked for as long."""
    made = lane([60], [])
    source = made.source
    assert isinstance(source, LogSource)

    def look() -> None:
        if made.producer.committed and not source.logs[B]:
            source.logs[B].append(stored(0, 2))

    made.look_around = look
    made.run({A: 60, B: 2})
    [when] = [
        n for n, offsets in enumerate(made.producer.committed) if B in offsets and offsets[B].offset == 2
    ]
    assert when < 10 and made.producer.committed[-1][A].offset == 60


def test_nobody_in_the_same_answer_waits_for_the_end_of_anothers_batch() -> None:
    """Who has had its turn is asked for last."""
    made = lane([40], [40])
    made.run({A: 40, B: 40})
    order = ["A" if A in offsets else "B" for offsets in made.producer.committed if offsets]
    assert max(len(run) for run in "".join(order).replace("AB", "A B").replace("BA", "B A").split()) <= 3


_SIZES = st.lists(st.integers(1, 9), max_size=8)


@given(_SIZES, _SIZES, st.integers(1, 4))
def test_positions_are_exact_wherever_an_answer_is_given_back(
    left: list[int], right: list[int], most: int
) -> None:
    """An answer under way begins behind what was given back: what lies in between must not be lost."""
    made = lane(left, right)
    assert isinstance(made.source, LogSource)
    made.source.most = most
    ends = {A: sum(left), B: sum(right)}
    records = made.run(ends)
    for tp, end in ends.items():
        own = [r for r in records if r.source == tp]
        assert all(a.source_end == b.source_start for a, b in pairwise(own))
        assert sum(r.records for r in own) == end
        assert made.partitions[tp].committed == end


def test_what_was_handled_is_not_handed_over_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it look like a fast handler: the batch is only expanded once more."""
    made = lane([30], [])
    handling = made.partitions[A].handling
    assert handling is not None
    asked: list[int] = []
    process = handling.process

    def spy(group, request):  # pyrefly: ignore[implicit-any-parameter,unannotated-return]
        asked.append(group.end)
        return process(group, request)

    monkeypatch.setattr(handling, "process", spy)
    made.run({A: 30, B: 0})
    assert [end for end in asked if end > 0] == list(range(1, 31))


def test_less_is_asked_for_where_it_would_be_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read in vain costs the source and the line; more again once it is worked off quickly."""
    monkeypatch.undo()
    clock = Clock()
    turn = AnswerBudget(clock=clock)
    asked = []
    for _ in range(9):
        turn.begin()
        clock.now_s += 9.0
        turn.given_back(16 << 20)
        asked.append(turn.most_bytes)
    assert asked == [8 << 20, 4 << 20, 2 << 20, 1 << 20, 1 << 19, 1 << 18, 1 << 17, 1 << 16, 1 << 16]
    turn.begin()
    turn.worked_off(1000)
    assert turn.most_bytes == 1 << 16, "a small answer says nothing"
    for _ in range(10):
        turn.begin()
        turn.worked_off(turn.most_bytes or 1 << 30)
    assert turn.most_bytes is None


def test_a_turn_is_longer_where_it_begins_with_expanding_what_was_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At least half of it is of use, however deep in a batch it begins."""
    monkeypatch.undo()
    clock = Clock()
    turn = AnswerBudget(clock=clock)
    turn.begin()
    clock.now_s += 1.5
    assert not turn.is_over()
    clock.now_s += 1.0
    assert not turn.is_over()
    clock.now_s += 0.5
    assert turn.is_over()
    turn.begin()
    assert not turn.is_over()
    clock.now_s += 2.0
    assert turn.is_over()
