"""Sequences, epochs and answers: a commit follows only when everything was answered OK."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceover.errors import MustReset
from onceover.model import TopicPartition
from onceover.txn.sequence import MAX_SEQUENCE, advance_sequence
from onceover.txn.txnstate import (
    Event,
    IllegalTransition,
    Phase,
    RequestSet,
    TxnState,
    transition,
)
from tests.support.session.examples import examples

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def ready(requests: RequestSet = RequestSet.V5, first_sequence: int = 0) -> TxnState:
    state = TxnState(requests, first_sequence=first_sequence)
    state.init_sent()
    state.init_ok(1000, 5)
    return state


def committed(state: TxnState) -> None:
    state.commit_sent()
    if state.requests is RequestSet.V5:
        state.end_ok(state.producer_id, state.producer_epoch + 1)
    else:
        state.end_ok()


@pytest.mark.parametrize(
    ("sequence", "count", "following"),
    [
        (0, 1, 1),
        (MAX_SEQUENCE - 1, 1, MAX_SEQUENCE),
        (MAX_SEQUENCE, 1, 0),
        (MAX_SEQUENCE - 2, 5, 2),
        (MAX_SEQUENCE, MAX_SEQUENCE, MAX_SEQUENCE - 1),
        (5, 0, 5),
    ],
)
def test_sequences_wrap_to_zero_as_in_kafka(sequence: int, count: int, following: int) -> None:
    assert advance_sequence(sequence, count) == following


@given(st.integers(0, MAX_SEQUENCE), st.integers(0, MAX_SEQUENCE))
def test_sequences_advance_as_in_the_java_client(sequence: int, count: int) -> None:
    """DefaultRecordBatch.incrementSequence, whose arithmetic avoids the overflow of an int."""
    java = count - (MAX_SEQUENCE - sequence) - 1 if sequence > MAX_SEQUENCE - count else sequence + count
    assert java == advance_sequence(sequence, count)


def test_batches_straddle_the_wrap() -> None:
    state = ready(first_sequence=MAX_SEQUENCE - 2)
    assert [state.produce_sent(A, 5), state.produce_sent(A, 1), state.produce_sent(B, 1)] == [
        MAX_SEQUENCE - 2,
        2,
        MAX_SEQUENCE - 2,
    ]


def test_newer_requests_begin_each_transaction_at_zero_with_a_new_epoch() -> None:
    state = ready()
    assert [state.produce_sent(A, 10), state.produce_sent(A, 5), state.produce_sent(B, 1)] == [0, 10, 0]
    state.produce_ok(A, 100, 10)
    state.produce_ok(A, 110, 5)
    state.produce_ok(B, 7, 1)
    state.commit_sent()
    state.end_ok(1001, 0)
    assert (state.producer_id, state.producer_epoch, state.phase) == (1001, 0, Phase.READY)
    assert state.produce_sent(A, 1) == 0


def test_older_requests_go_on_with_epoch_and_sequences() -> None:
    state = ready(RequestSet.V3)
    assert state.add_partitions([A, A]) == [A]
    assert state.produce_sent(A, 10) == 0
    state.produce_ok(A, 100, 10)
    committed(state)
    assert (state.producer_id, state.producer_epoch) == (1000, 5)
    assert state.add_partitions([A, B]) == [A, B]
    assert state.add_partitions([B]) == []
    assert state.produce_sent(A, 1) == 10


def test_a_refused_batch_uses_up_no_sequence_of_the_older_set() -> None:
    state = ready(RequestSet.V3)
    state.add_partitions([A])
    state.produce_sent(A, 10)
    state.produce_sent(A, 5)
    state.produce_ok(A, 100, 10)
    state.produce_refused(A)
    state.abort_sent()
    state.end_ok()
    state.add_partitions([A])
    assert state.produce_sent(A, 1) == 10


def test_an_abort_that_finds_nothing_open_keeps_epoch_and_sequences() -> None:
    state = ready()
    state.produce_sent(A, 10)
    state.produce_refused(A)
    state.abort_sent()
    state.end_ok()
    assert (state.producer_epoch, state.produce_sent(A, 1)) == (5, 0)


@pytest.mark.parametrize("second", [99, 105, 109])
@pytest.mark.parametrize("requests", RequestSet)
def test_a_base_offset_that_does_not_grow_can_never_be_committed(requests: RequestSet, second: int) -> None:
    """A repeated sequence is answered OK with the old offset, and the new data is dropped (docs/facts.md)."""
    state = ready(requests)
    if requests is RequestSet.V3:
        state.add_partitions([A])
    state.produce_sent(A, 10)
    state.produce_sent(A, 10)
    state.produce_ok(A, 100, 10)
    with pytest.raises(MustReset) as caught:
        state.produce_ok(A, second, 10)
    assert caught.value.code == "BASE_OFFSET_NOT_GROWING"
    assert state.phase is Phase.NEEDS_RESET
    with pytest.raises(IllegalTransition):
        state.commit_sent()


def test_base_offsets_must_grow_across_transactions_and_may_leave_gaps() -> None:
    state = ready()
    state.produce_sent(A, 10)
    state.produce_ok(A, 100, 10)
    committed(state)
    state.produce_sent(A, 1)
    state.produce_sent(A, 1)
    state.produce_ok(A, 111, 1)
    with pytest.raises(MustReset):
        state.produce_ok(A, 111, 1)


def open_transaction(requests: RequestSet = RequestSet.V5) -> TxnState:
    state = ready(requests)
    if requests is RequestSet.V3:
        state.add_partitions([A])
        state.add_group()
    state.produce_sent(A, 1)
    state.produce_ok(A, 0, 1)
    return state


def sent_produce(state: TxnState) -> None:
    state.produce_sent(A, 1)


def refused_produce(state: TxnState) -> None:
    state.produce_sent(A, 1)
    state.produce_refused(A)


@pytest.mark.parametrize("requests", RequestSet)
@pytest.mark.parametrize(
    "before",
    [
        sent_produce,
        TxnState.offsets_sent,
        refused_produce,
        TxnState.lost,
        committed,
        TxnState.close,
        lambda state: state.reset(RequestSet.V5),
    ],
)
def test_a_commit_is_refused_unless_everything_was_answered_ok(
    requests: RequestSet, before: Callable[[TxnState], None]
) -> None:
    state = open_transaction(requests)
    before(state)
    with pytest.raises(IllegalTransition):
        state.commit_sent()


@pytest.mark.parametrize("requests", RequestSet)
def test_a_commit_follows_answered_records_and_offsets(requests: RequestSet) -> None:
    state = open_transaction(requests)
    state.offsets_sent()
    state.offsets_ok()
    assert (state.in_transaction, state.settled) == (True, True)
    committed(state)
    assert not state.in_transaction


@pytest.mark.parametrize("end", [TxnState.commit_sent, TxnState.abort_sent])
@pytest.mark.parametrize("requests", RequestSet)
def test_a_transaction_to_which_nothing_was_added_is_not_ended(
    requests: RequestSet, end: Callable[[TxnState], None]
) -> None:
    state = ready(requests)
    if requests is RequestSet.V3:
        assert state.add_partitions([]) == []
    with pytest.raises(IllegalTransition, match="while READY"):
        end(state)


@pytest.mark.parametrize("requests", RequestSet)
def test_an_abort_waits_for_every_answer(requests: RequestSet) -> None:
    """With the older set a late batch would join the next transaction."""
    state = open_transaction(requests)
    state.produce_sent(A, 1)
    with pytest.raises(IllegalTransition, match="while parts of it are unanswered"):
        state.abort_sent()
    state.produce_refused(A)
    state.abort_sent()


def test_request_sets_are_never_mixed() -> None:
    state = ready(RequestSet.V5)
    with pytest.raises(IllegalTransition, match="must not be mixed"):
        state.add_partitions([A])
    with pytest.raises(IllegalTransition, match="must not be mixed"):
        state.add_group()


def test_the_older_set_adds_before_it_sends() -> None:
    state = ready(RequestSet.V3)
    with pytest.raises(IllegalTransition, match="outside the transaction"):
        state.produce_sent(A, 1)
    with pytest.raises(IllegalTransition, match="outside the transaction"):
        state.offsets_sent()
    state.add_partitions([A])
    state.add_group()
    state.produce_sent(A, 1)
    state.produce_ok(A, 0, 1)
    committed(state)
    with pytest.raises(IllegalTransition, match="outside the transaction"):
        state.produce_sent(A, 1)
    with pytest.raises(IllegalTransition, match="outside the transaction"):
        state.offsets_sent()


def test_the_answer_to_a_commit_must_fit_the_request_set() -> None:
    newer, older = open_transaction(RequestSet.V5), open_transaction(RequestSet.V3)
    newer.commit_sent()
    older.commit_sent()
    with pytest.raises(IllegalTransition, match="does not belong to the request set"):
        newer.end_ok()
    with pytest.raises(IllegalTransition, match="does not belong to the request set"):
        older.end_ok(1000, 6)


def test_answers_to_nothing_are_refused() -> None:
    state = open_transaction()
    answers: list[Callable[[], None]] = [
        lambda: state.produce_ok(A, 5, 1),
        lambda: state.produce_refused(B),
        state.offsets_ok,
    ]
    for answer in answers:
        with pytest.raises(IllegalTransition, match="an answer to nothing"):
            answer()


def test_a_reset_forgets_everything_and_may_change_the_request_set() -> None:
    state = open_transaction(RequestSet.V5)
    state.produce_sent(B, 3)
    state.lost()
    state.reset(RequestSet.V3)
    assert (state.producer_id, state.producer_epoch, state.settled, state.phase) == (
        -1,
        -1,
        True,
        Phase.UNINITIALIZED,
    )
    state.init_sent()
    state.init_ok(1000, 9)
    assert state.add_partitions([B]) == [B]
    assert state.produce_sent(B, 1) == 0
    state.produce_ok(B, 0, 1)


def test_an_illegal_step_changes_nothing() -> None:
    state = ready()
    with pytest.raises(IllegalTransition):
        state.init_ok(1, 1)
    assert (state.producer_id, state.producer_epoch, state.phase) == (1000, 5, Phase.READY)
    state.produce_sent(A, 1)
    state.lost()
    with pytest.raises(IllegalTransition):
        state.produce_sent(B, 1)
    with pytest.raises(IllegalTransition):
        state.produce_ok(A, 0, 1)
    assert (state.added, state.unanswered_produces) == ({A}, 1)


def test_the_error_crosses_process_borders() -> None:
    with pytest.raises(IllegalTransition) as caught:
        transition(Phase.READY, Event.COMMIT_SENT)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301 - our own bytes


STEPS = st.lists(
    st.sampled_from(["send", "ok", "refuse", "offsets", "offsets ok", "lost"]),
    max_size=12,
)


@settings(max_examples=examples(60))
@given(STEPS)
def test_whatever_happened_a_commit_needs_all_answers_ok(steps: list[str]) -> None:
    """The rule again, from the history alone: counted here, and not by the state."""
    state = ready()
    sent = answered = asked = replied = 0
    bad = False
    calls: dict[str, Callable[[], object]] = {
        "send": lambda: state.produce_sent(A, 1),
        "ok": lambda: state.produce_ok(A, answered, 1),
        "refuse": lambda: state.produce_refused(A),
        "offsets": state.offsets_sent,
        "offsets ok": state.offsets_ok,
        "lost": state.lost,
    }
    for step in steps:
        try:
            calls[step]()
        except IllegalTransition:
            continue
        sent += step == "send"
        answered += step in ("ok", "refuse")
        asked += step == "offsets"
        replied += step == "offsets ok"
        bad = bad or step in ("refuse", "lost")
    if sent + asked > 0 and (sent, asked) == (answered, replied) and not bad:
        state.commit_sent()
    else:
        with pytest.raises(IllegalTransition):
            state.commit_sent()
