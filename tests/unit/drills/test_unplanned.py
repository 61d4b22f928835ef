"""The steps of an unplanned switchover without clusters: whatever the source does, it goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from onceover.backoff import Deadline
from onceover.clock import now_ms
from onceover.drills import chain as chains
from onceover.drills.switching.unplanned import UnplannedSteps
from onceover.errors import NeedsOperator, Retriable
from onceover.planning.operation import Caller
from onceover.planning.plan import Refusal
from onceover.state import names
from onceover.state.read import FlowState
from onceover.state.records.enrolment import Enrolment
from tests.unit.drills.test_fences import Notes
from tests.unit.drills.test_switching import enrolment, entry
from tests.unit.state.records.test_layout import LAYOUT

COPIES = {topic: SimpleNamespace(topic_id=UUID(int=2)) for topic in ("a", "b")}
AWAY = Retriable("no broker of east answers")


def refuses(error: Exception) -> Callable[..., Any]:
    def call(*_: object) -> Any:
        raise error

    return call


class Steps(UnplannedSteps):
    """Topics a and b, which this drill has promoted."""

    def _live(self, state: FlowState | None = None) -> dict[str, Enrolment]:
        return dict(self.enrolled)


def steps(notes: Notes | None = None, copies: Callable[[], Any] = lambda: COPIES, **parts: Any) -> Steps:
    heard: list[tuple[str, Sequence[str]]] = []

    def redirect(topics: Sequence[str], _: Deadline) -> Mapping[str, Any]:
        heard.append(("redirect", topics))
        return {"exit_code": 0}

    usual = {
        "flow": "orders-dr",
        "source": SimpleNamespace(alias="east", hasty=refuses(AWAY)),
        "led_back": lambda: (),
        "target": SimpleNamespace(alias="west", retry=lambda call: call(), topics=lambda _: copies()),
        "let_in": lambda _: {},
        "denied": lambda _: (),
        "redirect": redirect,
        "heard": heard,
        "pause": lambda _: False,
    }
    enrolled = {topic: enrolment(topic, "d1") for topic in ("a", "b")}
    made = SimpleNamespace(**{**usual, **parts})
    return Steps(cast(Any, made), "d1", "d1", enrolled, True, notes or Notes(), cast(Any, None))


def test_clients_are_brought_over_although_nobody_can_ask_whom_the_way_back_keeps_off() -> None:
    """Its journal is on the source, which is gone; what is denied on the target is named."""
    switching = steps(let_in=refuses(AWAY), denied=lambda copies: [f"DENY WRITE on {copies[0]}"])
    assert switching.redirect(Deadline(5.0)) == {"exit_code": 0}
    assert cast(Any, switching.parts).heard == [("redirect", ["a", "b"])]
    told = dict(switching.findings)
    assert "no broker of east answers" in told["STILL_FENCED"]
    assert "DENY WRITE on a" in told["TARGET_DENIES"]


def test_that_the_target_cannot_be_asked_holds_up_no_redirect() -> None:
    switching = steps(denied=refuses(Retriable("west is slow")))
    assert switching.redirect(Deadline(5.0)) == {"exit_code": 0}
    assert "west is slow" in dict(switching.findings)["NOT_COMPARED"]


def test_who_is_let_in_is_told() -> None:
    switching = steps(let_in=lambda _: {"let_in": {"acls": 2}})
    assert switching.redirect(Deadline(5.0)) == {"let_in": {"acls": 2}, "exit_code": 0}
    assert switching.findings == []


class Hanging:
    """A run that does not answer for 20 s: the state as it is asked to end, and behind that."""

    def __init__(self, delivery: str, silent_s: float, *, beats: bool = False) -> None:
        layout = {names.LAYOUT: replace(LAYOUT, delivery=delivery).to_json()}
        then_ms = now_ms() - int(1000 * silent_s)
        signs = [{"run": LAYOUT.run, "at_ms": then_ms + beats * count, "pid": 7} for count in range(2)]
        self._states = iter([FlowState(layout, {names.HEARTBEAT: sign}) for sign in signs])

    def stopped(
        self, monkeypatch: pytest.MonkeyPatch, shown: Mapping[str, Any], *, whatever: bool = False
    ) -> Steps:
        monkeypatch.setattr("onceover.drills.switching.common.request_stop", silent)
        monkeypatch.setattr(Steps, "_state", lambda _: next(self._states))
        switching = steps(glance=lambda: shown, whatever_is_lost=whatever)
        assert switching._stopped(Deadline(5.0))
        return switching


def silent(*_: object, wait_s: float) -> Any:
    raise Retriable("flow orders-dr did not end within 20 s", code="NO_ANSWER")


ONCE, ONCE_MORE = "exactly_once", "at_least_once"
LOST = ("a", None, None), ("b", None, None)
GONE, RAN = entry(*LOST, delivery=ONCE_MORE), entry(*LOST, delivery=ONCE_MORE, runs=True)


def test_one_that_hangs_is_fenced_where_it_runs_exactly_once_whatever_its_file_says_by_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At least once it may wake behind the promotion, and what it has in hand would be among the clients'."""
    for silent_s in (1.0, 60.0):
        told = dict(Hanging(ONCE, silent_s).stopped(monkeypatch, RAN).findings)["FLOW_STOPPED"]
        assert told.endswith("it was fenced")
        with pytest.raises(Retriable, match="did not end") as caught:
            Hanging(ONCE_MORE, silent_s).stopped(monkeypatch, RAN)
        assert "`onceover status orders-dr` says that its driver is gone" in str(caught.value.resolve)


@pytest.mark.parametrize(
    ("silent_s", "beats", "shown", "whatever", "goes_on"),
    [
        (60.0, False, GONE, False, True),
        (60.0, False, RAN, True, True),
        (1.0, False, GONE, False, False),
        (1.0, False, GONE, True, False),
        (60.0, True, GONE, True, False),
    ],
    ids=["gone", "gone by now, whatever is lost", "back", "lives, whatever is lost", "its clock is slow"],
)
def test_one_that_runs_at_least_once_and_is_gone_for_good_is_given_up_where_that_was_shown(
    monkeypatch: pytest.MonkeyPatch,
    silent_s: float,
    shown: Any,
    *,
    beats: bool,
    whatever: bool,
    goes_on: bool,
) -> None:
    """Its driver stood beside the source: nobody else could ever end it. One that lives is another matter."""
    hanging = Hanging(ONCE_MORE, silent_s, beats=beats)
    if not goes_on:
        with pytest.raises(Retriable, match="did not end"):
            hanging.stopped(monkeypatch, shown, whatever=whatever)
        return
    switching = hanging.stopped(monkeypatch, shown, whatever=whatever)
    assert "should it wake, that comes again" in dict(switching.findings)["FLOW_STOPPED"]


def verified(notes: Notes) -> list[tuple[str, str]]:
    """Return the findings of *verify*."""
    switching = steps(notes, clients=lambda *_: SimpleNamespace(consumers=()))
    switching.probe = cast(Any, SimpleNamespace(run=lambda *_: {}))
    switching.verify(Deadline(5.0))
    return switching.findings


def test_a_fence_that_an_earlier_drill_has_left_on_promoted_topics_is_told() -> None:
    """It could not be lifted, as the source was gone; nobody else would know of it."""
    notes = Notes()
    assert "STILL_FENCED" not in dict(verified(notes))
    notes.write(chains.FENCED, {"kind": "acls", "marks": [["a", "User:*"], ["other", "User:*"]]})
    text = dict(verified(notes))["STILL_FENCED"]
    assert "a on east" in text and "other" not in text
    assert "`onceover drill abort orders-dr`" in text


def test_what_is_wrong_on_the_target_keeps_nobody_from_hearing_of_the_rest() -> None:
    """Where to look when the source is back is told now, whatever somebody has to do first."""
    notes = Notes()
    notes.write(chains.FENCED, {"kind": "acls", "marks": [["a", "User:*"]]})
    switching = steps(notes)
    lost = NeedsOperator("a number is lost", code="CANARY_LOST")
    switching.probe = cast(Any, SimpleNamespace(run=refuses(lost)))
    with pytest.raises(NeedsOperator, match="a number is lost"):
        switching.verify(Deadline(5.0))
    assert [code for code, _ in switching.findings] == ["LOOK_BACK", "STILL_FENCED"]


HALF = entry(("a", 3, None), ("b", None, None))


class Sync:
    """Puts groups in place; one is left alone."""

    def apply(self, _: Caller) -> Any:
        left = Refusal("billing b:0", "GROUP_UNKNOWN", "the source does not tell where it ends", "wait")
        return SimpleNamespace(waiting=[left], done=["billing a:0"], plan=SimpleNamespace(risky=[]))


@pytest.mark.parametrize(
    ("told", "written"), [(HALF, 1), (entry(("a", None, None), ("b", None, None)), 0)], ids=["half", "none"]
)
def test_groups_are_put_in_place_where_anything_answers(told: dict[str, Any], written: int) -> None:
    """A partition without a leader, or a topic that was deleted, says nothing of the others' groups."""
    switching = steps(glance=lambda: told, groups=lambda: nullcontext(Sync()))
    assert switching.place(Deadline(5.0))["written"] == written
    (text,) = [text for code, text in switching.findings if code == "GROUPS_LEFT"]
    assert ("billing b:0" in text) == bool(written)


def test_a_source_that_answers_in_part_is_no_silent_one() -> None:
    """A person reads what is known, and that what answers whole could go over without a loss."""
    standing = steps(glance=lambda: HALF).standing()
    assert "answers in 1 of 2 partitions" in str(standing)
    assert "`--topics`" in str(standing) and "lose nothing" in str(standing)
    assert (standing.answers, standing.document()["answering"], standing.given_up()) == (False, 1, [])


def partition(topic: str, lag: int | None) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": 0,
        "lag_offsets": lag,
        "open_offsets": 0,
        "oldest_open_s": None,
        "oldest_missing_s": 0.0,
        "high_watermark": 9,
        "position": 9,
        "stop": None,
    }


@pytest.mark.parametrize(
    ("told", "losses", "unknown"),
    [
        ([partition("a", 0), partition("b", 0)], [], 0),
        # A target that is slow tells of none at all; or of one, where the other was taken in a moment ago.
        ([], [], 2),
        ([partition("a", 0)], [], 1),
    ],
)
def test_a_partition_of_which_nobody_tells_is_not_one_without_loss(
    told: list[Any], losses: list[Any], unknown: int
) -> None:
    status = {
        "flow": "orders-dr",
        "source": {"alias": "east"},
        "run": {"state": "ended"},
        "delivery": ONCE_MORE,
        "needs": [],
        "partitions": told,
        "last_commit_ms": None,
    }
    switching = steps(glance=lambda: status)
    evidence = switching.look(Deadline(5.0))
    assert (evidence["losses"], evidence["partitions_unknown"], evidence["partitions"]) == (
        losses,
        unknown,
        2,
    )
    assert [code for code, _ in switching.findings] == (["LOSS_UNKNOWN"] if unknown else [])
