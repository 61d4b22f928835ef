"""What a transaction that was left open was to be: the progress knows, or nobody does."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.kafka.each import Each
from onceover.resume import resume
from onceover.resume.resume import LaneWriter
from onceover.stops.codes import StopCode
from onceover.stops.judge import judge
from onceover.stops.undecided import OpenTransaction, TransactionOutcome
from onceover.wire.progress import NOBODY, ProgressMeta
from tests.unit.copy.test_review import A, evidence

LANE = (1, 1)
offsets = st.integers(0, 50)


def meta(known_end: int, instance: tuple[int, int] = LANE) -> ProgressMeta:
    """Return what a lane writes beside a position."""
    return ProgressMeta(
        str(evidence(A).enrolled_source_id), str(evidence(A).enrolled_target_id), -1, known_end, 1, instance
    )


@given(first=offsets, known_end=offsets, later=st.none() | offsets, mixed=st.booleans())
def test_it_is_ended_only_where_all_of_it_ended_alike(
    first: int, known_end: int, later: int | None, mixed: bool
) -> None:
    """Committed is what lies before the known end, aborted what lies behind it."""
    later = None if later is None else max(later, first, known_end)
    outcome = OpenTransaction(first, later).outcome(meta(known_end), mixed=mixed)
    holds_committed = first < known_end
    holds_aborted = not holds_committed or later is not None
    if outcome is TransactionOutcome.COMMITTED:
        assert holds_committed and not holds_aborted
    elif outcome is TransactionOutcome.ABORTED:
        assert holds_aborted and not holds_committed and not mixed
    else:
        assert mixed or (holds_committed and holds_aborted)


def test_an_end_that_an_operator_has_set_says_nothing_about_what_was_copied() -> None:
    """A skip takes the end of the log, whatever is open there."""
    opened = OpenTransaction(3, None)
    assert opened.outcome(meta(9), mixed=False) is TransactionOutcome.COMMITTED
    assert opened.outcome(meta(9, NOBODY), mixed=False) is TransactionOutcome.UNKNOWN
    assert opened.outcome(meta(3, NOBODY), mixed=False) is TransactionOutcome.ABORTED


@pytest.mark.parametrize(
    ("opened", "mixed", "way"),
    [
        (OpenTransaction(3, 9), False, "reseed"),
        (OpenTransaction(9, None), True, "reseed"),
        (OpenTransaction(3, None, is_ours=False), False, "reseed"),
        (OpenTransaction(9, None, is_ours=False), False, "resume"),
    ],
    ids=["both", "of a handler", "committed under another id", "aborted under another id"],
)
def test_what_cannot_be_told_stops_the_partition(opened: OpenTransaction, mixed: bool, way: str) -> None:
    """With Kafka's own tool and what to do behind it."""
    stop = judge(evidence(A, meta=meta(9), target_end=12, left_open=opened, mixed=mixed))
    assert stop is not None and stop.code == StopCode.TARGET_UNDECIDED
    assert f"--start-offset {opened.first}" in stop.resolve and f"partition {way}" in stop.resolve


@pytest.mark.parametrize(
    ("producer", "instance", "outcome"),
    [
        (None, LANE, TransactionOutcome.UNKNOWN),
        (7, LANE, TransactionOutcome.ABORTED),
        (None, NOBODY, TransactionOutcome.ABORTED),
    ],
    ids=["of a handler's time", "of a lane that wrote alone", "of nobody"],
)
def test_what_a_handler_of_before_left_open_is_not_told_by_one_position(
    monkeypatch: pytest.MonkeyPatch,
    producer: int | None,
    instance: tuple[int, int],
    outcome: TransactionOutcome,
) -> None:
    """What is open may be records of another partition, whose position tells them committed."""
    monkeypatch.setattr(resume, "batch_behind", lambda *_: None)
    target: Any = SimpleNamespace(each_open=lambda ids: Each(dict.fromkeys(ids, (9, 7))))
    seen = {A: evidence(A, meta=replace(meta(9, instance), producer=producer), target_end=12)}
    resume._with_what_is_open(target, LaneWriter(7, alone=True, mixed=False), seen, {})
    assert seen[A].outcome is outcome


def test_what_can_be_told_is_no_stop() -> None:
    """It is ended, and looked at again."""
    for first in (3, 9):
        assert judge(evidence(A, meta=meta(9), target_end=12, left_open=OpenTransaction(first, None))) is None


def test_a_dropped_record_stops_the_partition() -> None:
    """Whatever else is well."""
    stop = judge(evidence(A, meta=meta(9), target_end=12, is_dropped=True))
    assert stop is not None and stop.code == StopCode.TARGET_DROPPED
