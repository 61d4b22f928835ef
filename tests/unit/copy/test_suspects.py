"""Who makes transactions fail is found, innocents never are, and an outage is nobody's fault."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.copy.known import Known
from onceover.copy.suspects import FailedTransaction, Suspects
from onceover.copy.waits import Waits
from onceover.errors import MustReset, Unanswered
from onceover.model import TopicPartition
from onceover.state import names
from onceover.stops.aside import FAILING, Troubles, TroubleSide
from tests.unit.stops.test_aside import Clock

PARTITIONS = [TopicPartition("t", number) for number in range(6)]
A, B, C = PARTITIONS[:3]
LOST = MustReset("error 47")
_SOME = st.sets(st.sampled_from(PARTITIONS))


def session(
    suspects: Suspects, answer: Sequence[TopicPartition], bad: set[TopicPartition]
) -> list[FailedTransaction]:
    """Copy an answer until a transaction with a bad one fails; return what is found out, if anything is."""
    for portion, alone in suspects.apart([(tp, tp) for tp in answer]):
        assert len(portion) == 1 or not alone
        if bad & set(portion):
            return [suspects.failed(portion)]
        suspects.passed(portion)
    return []


@given(st.lists(st.permutations(PARTITIONS), min_size=20, max_size=20), _SOME)
def test_the_bad_are_found_and_the_good_get_through(
    answers: list[list[TopicPartition]], bad: set[TopicPartition]
) -> None:
    """In whatever order they come; each session ends with its first failure."""
    suspects = Suspects()
    verdicts: list[FailedTransaction] = []
    for number, answer in enumerate(answers):
        verdicts += session(suspects, answer, bad)
        if number == 0:
            assert bool(suspects) == bool(bad)
    found = {v.alone for v in verdicts if v.alone}
    blamed = {v.alone for v in verdicts if v.compared}
    assert found <= bad and blamed <= bad
    if len(bad) < len(PARTITIONS):
        assert blamed == bad
    else:
        assert not blamed, "nothing gets through for anybody"


@given(st.lists(_SOME.filter(lambda some: len(some) != 1), max_size=30))
def test_a_failure_that_was_shared_blames_nobody(shared: list[set[TopicPartition]]) -> None:
    """However often."""
    suspects = Suspects()
    assert all(suspects.failed(some) == (None, False) for some in shared)


@given(st.lists(st.tuples(st.booleans(), _SOME), max_size=40))
def test_whoever_got_through_is_suspected_no_longer(events: list[tuple[bool, set[TopicPartition]]]) -> None:
    """What is kept is exactly who has failed since."""
    suspects, model = Suspects(), set[TopicPartition]()
    for passes, some in events:
        if passes:
            suspects.passed(some)
            model -= some
        else:
            suspects.failed(some)
            model |= some
        alone = {portion[0] for portion, apart in suspects.apart([(t, t) for t in PARTITIONS]) if apart}
        assert alone == model and bool(suspects) == bool(model)


def test_two_that_fail_by_turns_are_an_outage_until_somebody_gets_through() -> None:
    """One of them may be innocent of both."""
    suspects = Suspects()
    suspects.failed([A, B])
    assert [suspects.failed([tp]).compared for tp in (A, B, A, B)] == [False] * 4
    suspects.passed([C])
    assert [suspects.failed([tp]).compared for tp in (A, B, A, B)] == [True] * 4, "however seldom"
    suspects.failed([C])
    assert [suspects.failed([tp]).compared for tp in (A, B, C)] == [False] * 3, "an outage has begun"


def test_the_only_one_that_fails_is_to_blame_where_the_target_says_so() -> None:
    """The lane's own transactions get through: a session begins with one."""
    suspects = Suspects()
    assert suspects.failed([A]) == (A, True)


@given(st.lists(st.sampled_from([(A,), (B,), (A, B), (A, C)]), max_size=30))
def test_silence_proves_nothing_while_nobody_gets_through(failures: list[tuple[TopicPartition, ...]]) -> None:
    """The lane's own records are small; a line may carry those, and no data."""
    suspects = Suspects()
    assert not any(suspects.failed(some, answered=False).compared for some in failures)


def test_silence_counts_beside_others_that_get_through() -> None:
    """Also where they have something to copy only now and then."""
    suspects = Suspects()
    assert suspects.failed([A], answered=False) == (A, False)
    suspects.passed([B])
    assert suspects.failed([A], answered=False) == (A, True)


@pytest.mark.parametrize("error", [LOST, Unanswered("timed out")])
def test_the_only_busy_partition_is_stopped_by_answers_and_never_by_silence(error: MustReset) -> None:
    """Either way it is noted: a person may know more."""
    clock = Clock()
    known, notes = Known(troubles=Troubles(clock=clock)), Waits(1)
    for _ in range(100):
        known.failed([A], error)
        clock.now_s += 10
    assert (known.troubles.lasting(A, TroubleSide.COPY) is error) == (error is LOST)
    known.passed([A])
    assert not known.troubles.has(A, TroubleSide.COPY)
    known.failed([A], error)
    known.failed([A], error)
    assert list(notes.changes(known.troubles, {A: A})) == [names.wait_key(*A)]


def test_the_stopped_say_nothing_about_the_others() -> None:
    """They do not fail any more."""
    suspects = Suspects()
    suspects.failed([A, B])
    suspects.keep([B, C])
    assert suspects.failed([B]) == (B, True)


@pytest.mark.parametrize(("others", "lasting"), [(True, LOST), (False, None)])
def test_a_partition_is_given_up_only_while_others_get_through(
    others: bool, lasting: MustReset | None
) -> None:
    """Beside an outage it waits as long as that takes."""
    clock = Clock()
    known = Known(troubles=Troubles(clock=clock))
    known.failed([A, B], LOST)
    for _ in range(40):
        if others:
            known.passed([B])
        assert known.failed([A], LOST) == others
        if not others:
            known.failed([B], LOST)
        if clock.now_s < 1000 + FAILING.patience_s:
            assert known.troubles.lasting(A, TroubleSide.COPY) is None
        clock.now_s += 10
    assert known.troubles.lasting(A, TroubleSide.COPY) is lasting
    assert known.troubles.will_end(A), "a run waits for it"
    known.passed([A])
    assert not known.troubles.has(A, TroubleSide.COPY)


@pytest.mark.parametrize("cost_s", [0.5, 5.0, 15.0])
@pytest.mark.parametrize("quiet_s", [1.0, 5.0, 20.0, 60.0, 300.0])
def test_two_bad_partitions_are_noted_then_stopped_however_quiet_the_third_is(
    cost_s: float, quiet_s: float
) -> None:
    """Before, a neighbour that got through more seldom than they failed had each failure begin anew."""
    clock = Clock()
    known, notes = Known(troubles=Troubles(clock=clock)), Waits(1)
    targets = {tp: tp for tp in (A, B, C)}
    known.failed([A, B, C], LOST)
    stopped: set[TopicPartition] = set()
    told: list[str] = []
    due_s = clock.now_s
    while len(stopped) < 2:
        for tp in {A, B} - stopped:
            if clock.now_s >= due_s:
                known.passed([C])
                due_s = clock.now_s + quiet_s
            if known.troubles.is_due(tp):
                clock.now_s += cost_s
                known.failed([tp], LOST)
                told += [key for key, note in notes.changes(known.troubles, targets).items() if note]
                if known.troubles.lasting(tp, TroubleSide.COPY):
                    stopped.add(tp)
                    known.suspects.keep(set(targets) - stopped)
        clock.now_s += 0.1
        assert clock.now_s - 1000 < quiet_s + 3 * FAILING.patience_s
    assert clock.now_s - 1000 >= FAILING.patience_s
    assert sorted(told) == [names.wait_key(*tp) for tp in (A, B)], "written once each"


def test_an_outage_behind_one_bad_moment_stops_nobody() -> None:
    """Somebody got through since that moment, and fails like the others now."""
    clock = Clock()
    known = Known(troubles=Troubles(clock=clock))
    known.failed([A, B], LOST)
    assert not known.failed([A], LOST)
    known.passed([B])
    for _ in range(1000):
        known.failed([B], LOST)
        known.failed([A], LOST)
        clock.now_s += 5
        assert not known.troubles.lasting(A, TroubleSide.COPY) and not known.troubles.lasting(
            B, TroubleSide.COPY
        )
    assert known.troubles.of(A)[TroubleSide.COPY].tries > 100, "which is noted"
