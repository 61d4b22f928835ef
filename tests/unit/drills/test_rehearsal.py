"""What a rehearsal chooses, what it came to, and the page that shows it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from onceover.backoff import Deadline
from onceover.drills.about import DrillAbout, trend
from onceover.drills.codes import DrillCode
from onceover.drills.course import StepResult, StepState
from onceover.drills.looks.rpo import Objectives
from onceover.drills.page import drill_page
from onceover.drills.rehearsing.choice import (
    GROUPS,
    TOPICS,
    RehearsalPlan,
    RehearsalRequest,
    changes_of,
    chosen_groups,
    chosen_topics,
)
from onceover.drills.rehearsing.course import STEP_NAMES
from onceover.drills.rehearsing.rehearsal import RehearsalOutcome
from onceover.drills.rehearsing.steps import RehearsalSteps
from onceover.errors import Fenced, NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from onceover.stops.record import Stop
from onceover.topics.namingpolicy import PREFIX, NamingPolicy
from onceover.topics.scope import Rules, explain
from tests.support.raw.hostilenames import HOSTILE

EARLIER = {"drill": "d0", "began_ms": 500, "result": "PASS", "rto_s": 2.5, "rpo_offsets": 0, "rpo_s": 0.0}
OBJECTIVES = Objectives(30_000)
EVIDENCE: dict[str, dict[str, Any]] = {
    "look": {"losses": [{"topic": "orders", "offsets": 3, "seconds": None, "open_offsets": 0}]},
    "compare": {"records": 1234, "different": 0, "unverifiable": 0},
    "verify": {"canaries": [{"missing": 0, "repeated": 0}], "positions": {"exact": 2}},
}


def enrolment(topic: str, *, active: bool = True) -> Enrolment:
    return Enrolment(topic, topic, UUID(int=1), UUID(int=2), {0: 0}, 0, active)


def plan(name: str = "orders") -> RehearsalPlan:
    return RehearsalPlan(
        operation="rehearsal",
        flow="orders-dr",
        changes=changes_of("orders-dr", "east", "west", [name], [name], 200),
        topics=(name,),
        groups=(name,),
        steps=(),
        sample=1000,
    )


def outcome(
    *,
    name: str = "orders",
    failed: str = "",
    seconds: float = 1.0,
    ended: bool = True,
    objectives: Objectives = OBJECTIVES,
) -> RehearsalOutcome:
    results = [
        StepResult(
            step,
            step,
            10.0,
            StepState.FAILED if step == failed else StepState.DONE,
            1000,
            seconds,
            EVIDENCE.get(step, {}),
            NeedsOperator(f"bad {name}", code="CANARY_LOST") if step == failed else None,
        )
        for step in STEP_NAMES
    ]
    earlier = ({**EARLIER, "drill": name},)
    about = DrillAbout(name, name, "5ha", {name: name}, name, (name, name), name, earlier)
    finding = ("NOT_READY", f"{name} first")
    return RehearsalOutcome(
        plan(name), "d1", results, (finding,), objectives, 1000, about, 9000 if ended else None
    )


def test_topics_are_the_first_few_or_those_that_were_asked_for() -> None:
    """None that the flow has left; none at all where nothing matches is an error that names some."""
    enrolled = [enrolment(f"t{n}") for n in range(6)] + [enrolment("a", active=False)]
    assert chosen_topics(RehearsalRequest(), enrolled) == tuple(f"t{n}" for n in range(TOPICS))
    assert chosen_topics(RehearsalRequest(topics=lambda t: t in ("t5", "a")), enrolled) == ("t5",)
    with pytest.raises(UsageError, match="--topics") as caught:
        chosen_topics(RehearsalRequest(topics=lambda _: False), enrolled)
    assert "t0, t1" in (caught.value.expected or "")
    assert chosen_topics(RehearsalRequest(), []) == ()


def test_groups_are_those_that_read_the_topics() -> None:
    """The first few of them, or those that were asked for."""
    reads = {f"g{n:02}": {"t0"} for n in range(30)} | {"other": {"t9"}}
    assert len(chosen(RehearsalRequest(), reads)) == GROUPS
    assert chosen(RehearsalRequest(groups=lambda g: g in ("g29", "other")), reads) == ("g29",)
    assert chosen(RehearsalRequest(), {}) == ()


def chosen(
    request: RehearsalRequest,
    reads: Mapping[str, Collection[str]],
    unread: Mapping[str, OnceoverError] | None = None,
    *unheard: OnceoverError,
) -> tuple[str, ...]:
    """Return the groups that are taken of those that read the topic ``t0``."""
    return chosen_groups(request, reads, ["t0"], unread or {}, unheard)


def test_a_group_that_could_not_be_asked_is_no_mistake_of_who_asked_for_it() -> None:
    """Its coordinator is away, or whoever knows of it; the others are taken as far as they are known."""
    billing, away = RehearsalRequest(groups=lambda g: g == "billing"), Retriable("its coordinator is away")
    for unread, unheard in (({"billing": away}, ()), ({}, (away,))):
        with pytest.raises(Retriable, match="is away"):
            chosen(billing, {"g1": {"t0"}}, unread, *unheard)
        assert chosen(RehearsalRequest(), {"g1": {"t0"}}, unread, *unheard) == ("g1",)
    with pytest.raises(UsageError, match="--group"):
        chosen(billing, {"g1": {"t0"}}, {"other": away})


def test_groups_that_nobody_finds_are_an_error() -> None:
    """A PASS would say nothing about the group whose name was typed wrong; the error names some."""
    with pytest.raises(UsageError, match="--group") as caught:
        chosen(RehearsalRequest(groups=lambda g: g == "other"), {"g1": {"t0"}, "other": {"t9"}})
    assert (caught.value.code, "g1" in (caught.value.expected or "")) == ("NOTHING_CHOSEN", True)


def test_only_what_is_chosen_is_copied_whatever_it_is_called() -> None:
    """The canaries' topic looks internal, and a topic may look like a hop: both are in, nothing else is."""
    canary = names.canary_topic("orders-dr")
    naming = NamingPolicy(PREFIX, names.rehearsal_copies("orders-dr"), "west")
    rules = Rules((".*",), (), naming, chosen=frozenset({canary, "west.orders"}))
    assert explain(canary, rules).inside
    assert explain("west.orders", rules).target_topic == "__onceover.orders-dr.rehearsal.copy.west.orders"
    assert not explain("orders", rules).inside


def test_no_flow_can_be_called_like_a_rehearsals() -> None:
    """Nobody takes its state for a flow's, and it begins with what the flow may write anyway."""
    flow = names.rehearsal_flow("orders-dr")
    assert names.state_owner(names.state_topic(flow)) is None
    assert names.state_topic(flow).startswith("__onceover.orders-dr.")
    assert names.state_topic(flow).startswith(names.rehearsal_prefix("orders-dr"))


def test_the_verdict_needs_every_step_and_the_objective() -> None:
    """While it runs there is none."""
    assert outcome().verdict == "PASS"
    assert outcome().exit_code == 0
    assert outcome().rto_s == len(outcome().rto_steps)
    assert outcome(ended=False).verdict is None
    late = outcome(seconds=20.0)
    assert (late.verdict, late.exit_code) == ("FAIL", 3)
    failed = outcome(failed="verify")
    assert (failed.verdict, failed.exit_code, failed.rto_s) == ("FAIL", 3, None)
    assert outcome(failed="remove").verdict == "FAIL"


@pytest.mark.parametrize(
    ("error", "code"),
    [(UsageError("no right"), 3), (NeedsOperator("lost"), 3), (Fenced("newer"), 4), (Retriable("away"), 5)],
)
def test_a_step_that_failed_is_never_nothing_done(error: OnceoverError, code: int) -> None:
    """Exit code 2 says that nothing was changed."""
    failed = outcome(failed="verify")
    failed.results[STEP_NAMES.index("verify")].error = error
    assert failed.exit_code == code
    # Whatever it had met before: who deletes its journal would meet the next try, too.
    failed.results[-1].error = NeedsOperator("unknown", code=DrillCode.JOURNAL_DAMAGED)
    assert failed.exit_code == 3


def test_a_drill_of_any_number_of_topics_begins() -> None:
    """The journal's entry fits into a record; the report names them all."""
    topics = tuple(f"{number:0249}" for number in range(10_000))
    said = replace(outcome(), plan=replace(plan(), topics=topics)).begun()
    assert len(json.dumps(said)) < 100_000
    assert len(said["topics"]) + said["more_topics"] == len(topics)
    assert outcome().begun()["topics"] == ["orders"]


@pytest.mark.parametrize("told", [outcome(), outcome(failed="verify"), outcome(ended=False)])
def test_the_page_shows_what_was_seen(told: RehearsalOutcome) -> None:
    """Also of one that died, or failed."""
    page = drill_page(told.document())
    assert (told.verdict or "Not ended") in page
    assert "1,234" in page
    assert "orders first" in page


def test_the_page_claims_no_topic_that_was_not_copied() -> None:
    """It is evidence: what was left out was not rehearsed, nor was anything before it was copied."""
    told = outcome().document()
    told["plan"] = {**told["plan"], "topics": ["orders", "x" * 249]}
    evidence = next(step["evidence"] for step in told["steps"] if step["name"] == "copy")
    evidence.update(topics=["canaries", "orders"], left_out=["x" * 249])
    page = drill_page(told)
    assert "What was rehearsed" in page
    assert f'<td class="code">orders</td><td class="code">{"x" * 249}</td>' in page
    assert "<th>chosen, and not copied</th>" in page
    evidence.clear()
    assert "What was to be rehearsed" in drill_page(told)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_do_nothing_in_text_and_page(name: str) -> None:
    """They are shown, in the plan, the outcome and the page."""
    told = outcome(name=name, failed="verify")
    harmless = outcome(failed="verify")
    assert drill_page(told.document()).count("<") == drill_page(harmless.document()).count("<")
    for text in (told.describe(), told.plan.describe()):
        assert not [char for char in text if ord(char) < 32 and char != "\n"]
        assert len(text.split("\n")) in (
            len(harmless.describe().split("\n")),
            len(harmless.plan.describe().split("\n")),
        )


def test_the_trend_ends_where_the_drills_do() -> None:
    """An objective of a quarter of an hour makes no bar a hair; one that is near is in the picture."""
    drills = [
        {**EARLIER, "rto_s": 2.0},
        {**EARLIER, "rto_s": None, "result": None},
        {**EARLIER, "rto_s": 1.0},
    ]
    far, objective = trend(drills, 900.0)
    assert [(bar.width, bar.result) for bar in far] == [(100.0, "PASS"), (0.0, "not ended"), (50.0, "PASS")]
    assert objective == 100.0
    near, objective = trend(drills, 4.0)
    assert ([bar.width for bar in near], objective) == ([50.0, 0.0, 25.0], 100.0)
    missed, objective = trend(drills, 0.5)
    assert (missed[0].width, objective) == (100.0, 25.0)
    assert trend([{**EARLIER, "rto_s": None}], 900.0)[0][0].width == 0.0


def test_what_the_look_may_not_see_is_a_finding() -> None:
    """No right for groups, topics or clients: nothing is counted as none."""
    problem = {"message": "not authorized", "resolve": "grant DESCRIBE"}
    found: dict[str, Any] = {
        "needs": [],
        "ready": False,
        "losses": None,
        "groups": [],
        "drift": None,
        "clients": None,
        "problems": {"groups": problem, "clients": problem},
    }
    parts: Any = SimpleNamespace(look=lambda: found)
    steps = RehearsalSteps(parts, RehearsalRequest(), "d1", (), (), lambda: None)
    evidence = steps.look(Deadline(5.0))
    assert [text for _, text in steps.findings] == [
        "groups cannot be looked at: not authorized; grant DESCRIBE",
        "clients cannot be looked at: not authorized; grant DESCRIBE",
    ]
    assert [evidence[key] for key in ("losses", "drift", "consumers", "producers")] == [None] * 4
    unseen = {"message": "groups of b2 are hidden", "resolve": "bring it back"}
    found["clients"] = {"consumers": [1], "producers": [], "unseen": [unseen]}
    assert steps.look(Deadline(5.0))["consumers"] == 1
    assert ("NOT_READY", "groups of b2 are hidden; bring it back") in steps.findings


class Shadow:
    """A copy of which some partitions were overtaken."""

    def __init__(self, **expired: Stop) -> None:
        self.expired = {TopicPartition(topic, 0): stop for topic, stop in expired.items()}


def test_what_expires_while_it_is_copied_is_a_finding_once() -> None:
    """Retention, or an application that purges what it has read, is nobody's fault."""
    steps = RehearsalSteps(cast(Any, None), RehearsalRequest(), "d1", ("a",), (), lambda: None)
    gone = Stop("SOURCE_TRUNCATED", "the source has deleted 30 offsets", "", "", "", 5)
    steps._shadow = cast(Any, Shadow(a=gone))
    steps._name_expired()
    steps._name_expired()
    ((code, text),) = steps.findings
    assert (code, "a:0" in text, "deleted 30 offsets" in text) == ("NOT_COMPARED", True, True)


@pytest.mark.parametrize("asked", [False, True])
def test_a_rehearsal_of_nothing_of_the_flows_is_no_silent_pass(*, asked: bool) -> None:
    """Every week it would be evidence of nothing; what somebody has asked for by name fails."""
    request = RehearsalRequest(topics=lambda _: True) if asked else RehearsalRequest()
    steps = RehearsalSteps(cast(Any, None), request, "d1", ("a",) if asked else (), (), lambda: None)
    if asked:
        with pytest.raises(NeedsOperator) as caught:
            steps._check_chosen()
        assert caught.value.code == "TOPIC_LEFT_OUT"
        return
    steps._check_chosen()
    assert [code for code, _ in steps.findings] == ["TOPIC_LEFT_OUT"]
