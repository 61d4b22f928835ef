"""The idempotent producer's state: sequences, and what makes progress impossible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.errors import MustReset
from onceover.model import TopicPartition
from onceover.txn.idempotent import IdempotentState
from onceover.txn.txnstate import IllegalTransition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def ready() -> IdempotentState:
    """Return a state with an identity."""
    state = IdempotentState()
    state.init_ok(7, 0)
    return state


@given(st.lists(st.tuples(st.sampled_from([P0, P1]), st.integers(1, 50)), max_size=30))
def test_sequences_of_a_partition_follow_each_other_without_gap(
    sends: list[tuple[TopicPartition, int]],
) -> None:
    """Whatever the other partition does."""
    state, expected = ready(), {P0: 0, P1: 0}
    for target, count in sends:
        assert state.produce_sent(target, count) == expected[target]
        expected[target] += count
    assert state.unanswered == len(sends)


def test_progress_waits_for_every_answer() -> None:
    """One batch on its way is enough to refuse it."""
    state = ready()
    state.produce_sent(P0, 1)
    state.produce_sent(P1, 1)
    state.produce_ok(P0, 10, 1)
    with pytest.raises(IllegalTransition, match="not acknowledged"):
        state.check_settled()
    state.produce_ok(P1, 10, 1)
    state.check_settled()


def test_nothing_is_sent_and_no_progress_made_after_a_refusal() -> None:
    """The answers behind it may still be taken."""
    state = ready()
    state.produce_sent(P0, 1)
    state.produce_sent(P1, 1)
    state.produce_refused(P0)
    state.produce_ok(P1, 3, 1)
    with pytest.raises(IllegalTransition, match="LOST"):
        state.produce_sent(P1, 1)
    with pytest.raises(IllegalTransition, match="LOST"):
        state.check_settled()


def test_an_offset_that_does_not_grow_loses_the_identity() -> None:
    """The broker took the batch for a repetition and appended nothing."""
    state = ready()
    for _ in range(2):
        state.produce_sent(P0, 2)
    state.produce_ok(P0, 10, 2)
    with pytest.raises(MustReset, match="did not append"):
        state.produce_ok(P0, 11, 2)
    with pytest.raises(IllegalTransition, match="LOST"):
        state.check_settled()


def test_a_new_identity_begins_at_zero_and_owes_nothing() -> None:
    """What the old one left unanswered is copied again from the progress."""
    state = ready()
    state.produce_sent(P0, 5)
    state.lost()
    state.init_ok(8, 0)
    assert not state.knows(P0)
    assert state.produce_sent(P0, 5) == 0
    assert state.unanswered == 1


@pytest.mark.parametrize("begun", [False, True])
def test_nothing_is_sent_before_an_identity_and_after_the_end(begun: bool) -> None:
    """The end is final: no later loss or identity opens it again."""
    state = ready() if begun else IdempotentState()
    if begun:
        state.close()
        state.lost()
        with pytest.raises(IllegalTransition, match="CLOSED"):
            state.init_ok(8, 0)
    with pytest.raises(IllegalTransition):
        state.produce_sent(P0, 1)


def test_an_answer_to_nothing_is_a_bug() -> None:
    """Accounts that do not add up must not end in progress."""
    state = ready()
    with pytest.raises(IllegalTransition, match="answer to nothing"):
        state.produce_ok(P0, 0, 1)
