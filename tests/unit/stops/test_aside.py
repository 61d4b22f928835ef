"""How long a partition in trouble is waited for: pauses that grow, a patience for each kind, an end."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.errors import Fatal, MustReset, NeedsOperator, NotNow, OnceoverError, Retriable, UsageError
from onceover.kafka.codes import KafkaCode
from onceover.model import TopicPartition
from onceover.stops.aside import (
    CHANGED,
    FAILING,
    TOO_SHORT,
    Trouble,
    Troubles,
    TroubleSide,
    WaitPolicy,
    policy_of,
)

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
DENIED = UsageError("no right", code="NOT_AUTHORIZED")
MOVES = NotNow("error 6")
LEADERLESS = Retriable("nobody leads it", code=KafkaCode.NO_LEADER)


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def persist(troubles: Troubles, clock: Clock, side: TroubleSide, error: OnceoverError, seconds: float) -> int:
    """Try a partition whenever it is due, in vain; return how often that was."""
    end_s, tries = clock.now_s + seconds, 0
    while clock.now_s < end_s:
        if troubles.is_due(A):
            troubles.note(A, side, error)
            tries += 1
        clock.now_s += 0.05
    return tries


@pytest.mark.parametrize(
    ("side", "error", "patience_s"),
    [
        (TroubleSide.SOURCE, DENIED, 3),
        (TroubleSide.TARGET, DENIED, 3),
        (TroubleSide.SOURCE, MOVES, 60),
        (TroubleSide.TARGET, MOVES, 60),
        (TroubleSide.TARGET, MustReset("error 6"), 60),
        (TroubleSide.SOURCE, Retriable("silent"), 600),
        (TroubleSide.TARGET, Retriable("silent"), 600),
        (TroubleSide.SOURCE, NeedsOperator("error 2"), 10),
        (TroubleSide.TARGET, Fatal("unheard of"), 10),
    ],
)
def test_trouble_lasts_when_its_patience_is_over_and_not_before(
    side: TroubleSide, error: OnceoverError, patience_s: float
) -> None:
    """Seen again and again until then; the error that was seen last is what a person gets to read."""
    clock = Clock()
    troubles = Troubles(clock=clock)
    persist(troubles, clock, side, error, patience_s - 1)
    assert troubles.lasting(A, side) is None
    persist(troubles, clock, side, error, max(8.0, patience_s))
    assert troubles.lasting(A, side) is error


def test_a_partition_that_nobody_leads_is_waited_for_without_end() -> None:
    """It comes back by itself, and `status` tells; its pauses stay short."""
    clock = Clock()
    troubles = Troubles(clock=clock)
    tries = persist(troubles, clock, TroubleSide.SOURCE, LEADERLESS, 3600)
    assert troubles.lasting(A, TroubleSide.SOURCE) is None
    assert 700 < tries < 800


def test_one_bad_moment_proves_nothing_however_long_ago_the_other_was() -> None:
    """Two leader changes within a minute are two, not one that lasted."""
    clock = Clock()
    troubles = Troubles(clock=clock)
    for pause_s in (0, 59, 50):
        assert troubles.lasting(A, TroubleSide.TARGET) is None, "two prove nothing"
        clock.now_s += pause_s
        troubles.note(A, TroubleSide.TARGET, MOVES)
    assert troubles.lasting(A, TroubleSide.TARGET) is MOVES, "three in a row"
    clock.now_s += 100
    troubles.note(A, TroubleSide.TARGET, MOVES)
    assert troubles.lasting(A, TroubleSide.TARGET) is None, "it had worked in between"


def test_another_kind_of_trouble_has_its_own_patience() -> None:
    """A right that is missing after a minute of leader changes has its three seconds."""
    clock = Clock()
    troubles = Troubles(clock=clock)
    persist(troubles, clock, TroubleSide.SOURCE, MOVES, 59)
    troubles.note(A, TroubleSide.SOURCE, DENIED)
    persist(troubles, clock, TroubleSide.SOURCE, DENIED, 2.9)
    assert troubles.of(A)[TroubleSide.SOURCE].waited_s > 60
    assert troubles.lasting(A, TroubleSide.SOURCE) is None
    persist(troubles, clock, TroubleSide.SOURCE, DENIED, 8)
    assert troubles.lasting(A, TroubleSide.SOURCE) is DENIED


def test_an_hour_without_a_leader_counts_for_nothing_else() -> None:
    """Behind it comes what always comes behind an election."""
    clock = Clock()
    troubles = Troubles(clock=clock)
    persist(troubles, clock, TroubleSide.SOURCE, LEADERLESS, 3600)
    persist(troubles, clock, TroubleSide.SOURCE, MOVES, 50)
    assert troubles.lasting(A, TroubleSide.SOURCE) is None
    persist(troubles, clock, TroubleSide.SOURCE, MOVES, 20)
    assert troubles.lasting(A, TroubleSide.SOURCE) is MOVES


_KINDS = [
    (DENIED, None),
    (MOVES, None),
    (Retriable("silent"), None),
    (NeedsOperator("error 2"), None),
    (MOVES, CHANGED),
    (MOVES, TOO_SHORT),
    (MustReset("error 47"), FAILING),
]


@given(st.lists(st.sampled_from(_KINDS), min_size=1, max_size=7), st.sampled_from(TroubleSide))
def test_kinds_that_take_turns_are_told_and_end(
    kinds: list[tuple[OnceoverError, WaitPolicy | None]], side: TroubleSide
) -> None:
    """Noted from the second sighting on; stopped within the longest patience and the newest kind's own."""
    clock = Clock()
    troubles = Troubles(clock=clock)
    policies = [policy or policy_of(side, error) for error, policy in kinds]
    longest_s = max(policy.patience_s for policy in policies)
    # A kind may be met for the first time at the end of the list, each pause be as long as there are.
    end_s = clock.now_s + 2 * longest_s + (len(kinds) + 3) * max(policy.cap_s for policy in policies)
    met_s = 0.0
    for error, policy in itertools.cycle(kinds):
        met_s = max(met_s, (policy or policy_of(side, error)).patience_s)
        troubles.note(A, side, error, policy)
        if troubles.lasting(A, side):
            break
        assert clock.now_s < end_s
        clock.now_s = max(clock.now_s + 0.05, troubles.of(A)[side].next_s)
        assert clock.now_s <= 1000.05 or troubles.has(A, side)
    assert clock.now_s - 1000 >= met_s


def test_too_few_replicas_are_waited_for_as_long_as_a_rolling_restart_takes() -> None:
    """A minute stopped partitions that a restart of one broker would have brought back."""
    for error in (
        NotNow("error 19", code=KafkaCode.FEW_REPLICAS),
        MustReset("error 20", code=KafkaCode.FEW_REPLICAS),
    ):
        clock = Clock()
        troubles = Troubles(clock=clock)
        tries = persist(troubles, clock, TroubleSide.TARGET, error, 590)
        assert troubles.lasting(A, TroubleSide.TARGET) is None and tries < 20
        persist(troubles, clock, TroubleSide.TARGET, error, 100)
        assert troubles.lasting(A, TroubleSide.TARGET) is error


def test_what_works_again_is_forgotten_side_by_side() -> None:
    """Reading well says nothing about writing."""
    troubles = Troubles(clock=Clock())
    for side in TroubleSide:
        troubles.note(A, side, DENIED)
    troubles.passed(A, TroubleSide.SOURCE)
    assert troubles.has(A, TroubleSide.TARGET) and not troubles.has(A, TroubleSide.SOURCE)
    assert not troubles.is_due(A) and troubles.is_due(B)
    troubles.forget(A)
    assert not troubles and troubles.is_due(A)


def test_a_failed_write_costs_the_others_their_transaction_so_pauses_are_longer() -> None:
    """Leaders move within a second: two tries are free."""
    clock = Clock()
    troubles = Troubles(clock=clock)
    for _ in range(2):
        troubles.note(A, TroubleSide.TARGET, MOVES)
        assert troubles.is_due(A)
    troubles.note(A, TroubleSide.TARGET, MOVES)
    clock.now_s += 4.9
    assert not troubles.is_due(A)
    clock.now_s += 0.2
    assert troubles.is_due(A)


def test_a_changed_log_is_looked_at_at_once() -> None:
    """The evidence mostly says what happened."""
    assert Trouble(MOVES, CHANGED, 5.0, 1, 1).next_s == 5.0
    assert policy_of(TroubleSide.SOURCE, MOVES).pause_s(1) > 0


@pytest.mark.parametrize("tries", [1, 10, 2000])
@pytest.mark.parametrize("policy", [TOO_SHORT, CHANGED, WaitPolicy(1.0, 0.1, 5.0)])
def test_pauses_have_an_upper_end(policy: WaitPolicy, tries: int) -> None:
    """Also after a night."""
    assert 0 <= policy.pause_s(tries) <= policy.cap_s
