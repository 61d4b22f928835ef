"""The layout record's rules; the model's mutations that they answer are named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.errors import Fatal, Fenced, NeedsOperator, Retriable
from onceover.state.records.layout import (
    ASKED,
    DONE,
    FAILED,
    Layout,
    check_clusters,
    check_mine,
    ever_handled,
    fence_bound,
    leaves_unfinished,
    letters_with,
    restarts_with,
)

LAYOUT = Layout(
    generation=7,
    run="a" * 16,
    lanes=2,
    fence_up_to=3,
    ready=True,
    source_cluster_id="S",
    target_cluster_id="T",
    flow_sha256="0" * 64,
    started_at_ms=1,
    host="h",
)


def test_bound_of_a_first_start_is_zero() -> None:
    """Nobody ran before."""
    assert fence_bound(None) == 0


def test_bound_after_a_ready_generation_is_its_lanes() -> None:
    """Its own bound is spent: everything below was fenced before it became ready."""
    assert fence_bound(LAYOUT) == 2


def test_bound_after_an_unready_generation_is_carried_over() -> None:
    """FENCE_WHAT_AN_UNREADY_START_LEFT: its lanes never ran, those of the generation before it may still."""
    assert fence_bound(replace(LAYOUT, ready=False)) == 3


@pytest.mark.parametrize(("lanes", "bound", "ids"), [(1, 2, 2), (2, 1, 2), (2, 2, 2), (3, 0, 3)])
def test_ids_to_fence_are_the_larger_of_old_and_new_lanes(lanes: int, bound: int, ids: int) -> None:
    """Own ids too: a dead starter with this count may have let a lane run under them."""
    assert replace(LAYOUT, lanes=lanes, fence_up_to=bound).ids_to_fence == ids


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=8))
def test_every_id_that_may_have_run_is_fenced_before_a_generation_is_ready(
    starts: list[tuple[int, bool]],
) -> None:
    """Over any history of ready and dead starts with any lane counts."""
    previous: Layout | None = None
    unfenced: set[int] = set()
    for lanes, becomes_ready in starts:
        wanted = replace(LAYOUT, lanes=lanes, fence_up_to=fence_bound(previous), ready=False)
        if becomes_ready:
            assert unfenced <= set(range(wanted.ids_to_fence))
            unfenced = set(range(lanes))
        previous = replace(wanted, ready=becomes_ready)


SEIZED = replace(LAYOUT, ready=False, seized=True)


@pytest.mark.parametrize(
    ("previous", "unfinished"),
    [
        (None, False),
        (LAYOUT, True),
        (replace(LAYOUT, ready=False), True),
        (LAYOUT.as_ended(9, DONE), False),
        (LAYOUT.as_ended(9, ASKED), False),
        (replace(LAYOUT, ended_at_ms=9), False),
        (LAYOUT.as_ended(9, FAILED, Fatal("boom")), True),
        (SEIZED, False),
        (replace(SEIZED, interrupted=True), True),
    ],
    ids=["never", "runs", "starts", "done", "asked", "ended", "failed", "seized", "seized a running one"],
)
def test_change_by_hand_leaves_a_copy_to_be_started_unless_it_had_ended_in_order(
    previous: Layout | None, unfinished: bool
) -> None:
    """Running, gone and failed ones have to be started again, however many changes come after each other."""
    assert leaves_unfinished(previous) is unfinished
    for _ in range(3):
        previous = replace(SEIZED, interrupted=leaves_unfinished(previous))
        assert leaves_unfinished(previous) is unfinished


def test_own_ready_layout_is_mine() -> None:
    """The near miss of every refusal below."""
    assert check_mine(LAYOUT, 7, "a" * 16) is LAYOUT
    assert check_mine(replace(LAYOUT, ended_at_ms=5), 7, "a" * 16).ended_at_ms == 5


@pytest.mark.parametrize(
    "seen",
    [
        None,
        replace(LAYOUT, generation=8),
        replace(LAYOUT, generation=6),
        replace(LAYOUT, run="b" * 16),
        replace(LAYOUT, ready=False),
    ],
    ids=["none", "newer", "older", "other run", "not ready"],
)
def test_another_layout_fences(seen: Layout | None) -> None:
    """A generation, a run of the same generation, or one that is not ready (docs/protocol.md)."""
    with pytest.raises(Fenced, match="another start of this flow has taken over") as refusal:
        check_mine(seen, 7, "a" * 16)
    assert refusal.value.exit_code == 4
    assert refusal.value.expected == "generation 7, ready"


def test_the_same_clusters_and_a_first_start_are_accepted() -> None:
    """Nothing to compare, or nothing different."""
    check_clusters(None, "X", "Y")
    check_clusters(LAYOUT, "S", "T")


@pytest.mark.parametrize(
    ("ids", "side"), [(("X", "T"), "source"), (("S", "X"), "target"), (("T", "S"), "source")]
)
def test_another_cluster_is_refused(ids: tuple[str, str], side: str) -> None:
    """Which side, what was expected, what was seen."""
    with pytest.raises(NeedsOperator, match=f"the {side} cluster is not the one") as refusal:
        check_clusters(LAYOUT, *ids)
    assert refusal.value.code == "FOREIGN_CLUSTER"
    assert refusal.value.where == side


@pytest.mark.parametrize("layout", [LAYOUT, LAYOUT.as_ready("at_least_once"), LAYOUT.as_ended(9)])
def test_json_round_trip(layout: Layout) -> None:
    """Nothing is lost; a field of a later version is ignored."""
    assert Layout.from_json(layout.to_json()) == layout
    assert Layout.from_json({**layout.to_json(), "later": 1}) == layout


def test_ready_and_ended_change_nothing_else() -> None:
    """Who runs stays who runs."""
    announced = replace(LAYOUT, ready=False)
    assert announced.as_ready(LAYOUT.delivery) == LAYOUT
    assert LAYOUT.as_ended(9) == replace(LAYOUT, ended_at_ms=9, ended_why="done")


@pytest.mark.parametrize("version", [None, 0, 2, "1"])
def test_another_version_is_refused(version: object) -> None:
    """An older program does not run beside a newer one."""
    with pytest.raises(NeedsOperator, match="another version") as refusal:
        Layout.from_json({**LAYOUT.to_json(), "v": version})
    assert refusal.value.code == "STATE_VERSION"


@pytest.mark.parametrize("lanes", [0, -1])
def test_a_layout_without_lanes_is_none(lanes: int) -> None:
    """Whatever is asked of its lanes would divide by them."""
    with pytest.raises(NeedsOperator) as refusal:
        Layout.from_json({**LAYOUT.to_json(), "lanes": lanes})
    assert refusal.value.code == "STATE_UNREADABLE"


def test_a_handler_that_has_run_once_is_remembered() -> None:
    """A change by hand copies nothing; what an older release has not kept nobody knows, until one runs."""
    first = ever_handled(None, handler=False, seized=False)
    assert first is False
    known = [replace(LAYOUT, handled=handled) for handled in (False, True, None)]
    assert [ever_handled(each, handler=False, seized=False) for each in known] == [False, True, None]
    assert [ever_handled(each, handler=True, seized=True) for each in known] == [False, True, None]
    assert [ever_handled(each, handler=True, seized=False) for each in known] == [True, True, True]


def test_topics_that_bad_records_went_to_are_remembered_with_the_newest_generation() -> None:
    """Whatever the flow file names now, and whoever changes the flow by hand."""
    assert letters_with(None, 1, None) == {}
    assert letters_with(None, 1, "a") == {"a": 1}
    known = replace(LAYOUT, letters={"a": 3, "b": 7})
    assert letters_with(known, 8, "a") == {"a": 8, "b": 7}
    assert letters_with(known, 8, None) == {"a": 3, "b": 7}
    assert Layout.from_json(known.to_json()) == known


def test_a_layout_of_an_older_release_remembers_no_topics_of_bad_records() -> None:
    """Nor does an older release read what it does not know."""
    written = LAYOUT.to_json()
    del written["letters"]
    assert Layout.from_json(written).letters == {}
    with pytest.raises(NeedsOperator):
        Layout.from_json({**written, "letters": {"a": "b"}})


def test_starts_after_a_run_that_did_not_end_in_order_are_counted() -> None:
    """Killed or failed; neither the first, nor the next of a schedule, nor one after a change by hand."""
    running = replace(LAYOUT, restarts=4)
    failed = running.as_ended(1, FAILED, Retriable("the JVM is gone"))
    assert restarts_with(None) == 0
    by_hand = replace(running, seized=True, interrupted=True)
    assert [restarts_with(each) for each in (running, failed, by_hand)] == [5, 5, 4]
    assert [restarts_with(running.as_ended(1, why)) for why in (DONE, ASKED)] == [4, 4]
