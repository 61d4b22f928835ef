"""What an approval covers: what was shown, as it was shown, one time."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.errors import NeedsOperator
from onceover.planning.approval import NOTHING, Approval, Item, ObjectState, fenced_so_far, items_of
from onceover.planning.plan import Change

SHOWN = Item("position orders:3", "repeat", 10, ObjectState("SOURCE_RECREATED", "a1"))
GIVEN = Approval("b2", {SHOWN.what: SHOWN})


@pytest.mark.parametrize(
    "now",
    [
        SHOWN,
        replace(SHOWN, records=9_000),
        replace(SHOWN, records=0, risk="none"),
    ],
    ids=["the same", "the flow went on", "nothing to repeat any more"],
)
def test_what_was_shown_is_covered(now: Item) -> None:
    assert GIVEN.covers(now)
    GIVEN.check([now], "orders:3")


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (replace(SHOWN, what="position orders:4"), "position orders:4 (repeat), which was not shown"),
        (replace(SHOWN, risk="skip"), "position orders:3 (skip), which was not shown"),
        (replace(SHOWN, records=1_000_000), "of 1000000 offsets, not 10"),
        (replace(SHOWN, records=None), "of an unknown number offsets, not 10"),
        (replace(SHOWN, standing=ObjectState("SOURCE_RECREATED", "c3")), "which somebody has changed since"),
        (
            replace(SHOWN, standing=ObjectState("SOURCE_RECREATED", "b2")),
            "which an earlier try of this has changed since",
        ),
        (replace(SHOWN, standing=ObjectState("not stopped", "a1")), "not stopped, not SOURCE_RECREATED"),
    ],
    ids=["other object", "other risk", "far more", "unknown", "changed by hand", "done", "other state"],
)
def test_everything_else_is_refused_and_says_why(now: Item, text: str) -> None:
    assert not GIVEN.covers(now)
    with pytest.raises(NeedsOperator) as refusal:
        GIVEN.check([SHOWN, now], "orders:3")
    assert (refusal.value.code, refusal.value.where) == ("PLAN_CHANGED", "orders:3")
    assert text in str(refusal.value.seen)


def test_a_moment_later_more_offsets_are_the_same_change() -> None:
    """With everybody fenced: what came since the plan was shown came because the flow ran."""
    GIVEN.check([replace(SHOWN, records=1_000_000)], "orders:3", done=fenced_so_far("f"))
    with pytest.raises(NeedsOperator, match=r"running copy is fenced \(`onceover replicate f` starts"):
        GIVEN.check([replace(SHOWN, risk="skip")], "orders:3", done=fenced_so_far("f"))


@pytest.mark.parametrize(("changed", "own"), [("b2", True), ("a1", False), ("", False), (None, False)])
def test_what_was_written_under_it_is_told_from_all_else(changed: str | None, *, own: bool) -> None:
    """Whoever goes on leaves it out; another's is another matter, and so is what nobody has changed."""
    standing = ObjectState("SOURCE_RECREATED", changed)
    assert GIVEN.has_changed(standing) is own
    assert not NOTHING.has_changed(standing)


def test_nothing_approved_covers_nothing() -> None:
    assert not NOTHING.covers(replace(SHOWN, risk="none"))
    NOTHING.check([], "orders:3")


def test_two_approvals_of_the_same_are_two() -> None:
    """Two tabs with the same question: what one does, the other has not done."""
    assert Approval.of([SHOWN]).id != Approval.of([SHOWN]).id


def test_where_a_change_leads_to_counts_where_it_is_asked_for() -> None:
    change = Change("position", "orders:3", 5, 8, "asked for", "skip", 3)
    assert [item.what for item in items_of([change], exact=True)] == ["position orders:3 -> 8"]
    assert items_of([change]) == items_of([replace(change, to=9)])


_TEXT = st.text(max_size=8)
_STANDING = st.builds(ObjectState, _TEXT, st.none() | _TEXT)
_ITEMS = st.lists(st.builds(Item, _TEXT, _TEXT, st.none() | st.integers(0), _STANDING))


@given(_ITEMS)
def test_it_is_kept_between_question_and_answer(items: list[Item]) -> None:
    """Through JSON, as Airflow keeps it."""
    approval = Approval.of(items)
    assert Approval.from_json(json.loads(json.dumps(approval.to_json()))) == approval
    assert all(approval.covers(item) for item in approval.items.values())
