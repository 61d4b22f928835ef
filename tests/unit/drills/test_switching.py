"""A switchover without clusters: what its journal, its plan and its outcome say."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock
from uuid import UUID

import pytest

from onceover.backoff import Deadline
from onceover.config.flow.load import load_flow
from onceover.drills import chain as chains
from onceover.drills import running
from onceover.drills.about import DrillAbout
from onceover.drills.chain import JournalEntry
from onceover.drills.course import CourseWatch, DrillStep, StepResult, StepState, run_course
from onceover.drills.leaving.fences import UserCommand
from onceover.drills.leaving.words import check_waits
from onceover.drills.looks.rpo import Objectives
from onceover.drills.page import drill_page
from onceover.drills.progress import left_to_copy
from onceover.drills.switching.course import REVERSE, UNAVAILABLE, course_of
from onceover.drills.switching.earlier import done_under
from onceover.drills.switching.plan import SwitchoverPlan, changes_of
from onceover.drills.switching.standing import SourceStanding
from onceover.drills.switching.steps import PlannedSteps
from onceover.drills.switching.switchover import SwitchoverOutcome, unfinished_of
from onceover.drills.switching.unplanned import UnplannedSteps
from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.model import TopicPartition
from onceover.planning.approval import Approval
from onceover.process.children import ChildProcess
from onceover.state.records.enrolment import Enrolment, LeftAt, PlacedProgress
from onceover.wiring.failovers.switchovers import SwitchoverOptions, switchover
from tests.support.flows.flows import write_flow
from tests.support.raw.hostilenames import HOSTILE

COPY, ANEW = str(UUID(int=2)), str(UUID(int=3))
PLANNED, UNPLANNED = "planned", "unplanned"
EAST, WEST = {"bootstrap.servers": "127.0.0.1:1"}, {"bootstrap.servers": "127.0.0.1:2"}


def enrolment(topic: str, promoted_by: str = "") -> Enrolment:
    found = Enrolment(topic, topic, UUID(int=1), UUID(int=2), {0: 0}, 0)
    return found.as_promoted(promoted_by, LeftAt(7, 70), {0: 5}, {0: 3}) if promoted_by else found


def names_of(mode: str) -> list[str]:
    """Return the steps of a switchover whose flow names one that leads back."""
    steps = MagicMock(looked_s=0.0, parts=MagicMock(quiet_s=0.0))
    return [step.name for step in course_of(mode, steps, goes_on=False)]


def written(*entries: tuple[str, str, Mapping[str, Any]]) -> list[JournalEntry]:
    chain: list[JournalEntry] = []
    for drill, what, said in entries:
        chain.append(chains.next_entry(chain, drill, what, 0, said))
    return chain


def plan(name: str = "orders", mode: str = PLANNED, goes_on: str | None = None) -> SwitchoverPlan:
    return SwitchoverPlan(
        operation="switchover",
        flow="orders-dr",
        mode=mode,
        changes=changes_of([enrolment(name)], "east", "west", name, name, name),
        topics=(name,),
        steps=(),
        goes_on=goes_on,
        reverse=name if mode == PLANNED else None,
    )


def outcome(
    name: str = "orders",
    mode: str = PLANNED,
    failed: str = "",
    seconds: float = 1.0,
    goes_on: str = "",
    error: OnceoverError | None = None,
    verified: Mapping[str, Any] = MappingProxyType({}),
    unknown: int = 0,
) -> SwitchoverOutcome:
    evidence: dict[str, dict[str, Any]] = {
        "audit": {"records": 1000},
        "compare": {"records": 234, "different": 0, "exact": 2},
        "verify": {
            "clients_on_the_target": 3,
            "clients_on_the_source": 0,
            "written_behind": 0,
            "topics_unknown": 0,
            **verified,
        },
        "look": {
            "losses": [{"topic": name, "offsets": 5, "seconds": 1.0, "open_offsets": 0}],
            "partitions_unknown": unknown,
        },
    }
    steps = ["redirect", "verify", "undo"] if goes_on else names_of(mode)
    results = [
        StepResult(
            step,
            step,
            10.0,
            StepState.FAILED if step == failed else StepState.DONE,
            1000,
            seconds,
            evidence.get(step, {}),
            (error or NeedsOperator(f"bad {name}", code="FENCE_LEAKS")) if step == failed else None,
        )
        for step in steps
    ]
    about = DrillAbout(name, name, "5ha", {name: name}, name, (name, name), name, ())
    planned = plan(name, mode, goes_on or None)
    approval = {"by": name, "at_ms": 5, "id": "a"}
    return SwitchoverOutcome(
        planned, "d2", results, (("X", name),), Objectives(30_000), 1000, about, 9000, approval
    )


def test_writers_are_kept_off_until_they_are_let_in_by_whichever_drill() -> None:
    """Also over several drills, each as it was fenced; what is no such entry is none of it."""
    everybody, app = ["a", "User:*"], ["a", "User:app"]
    chain = written(
        ("d1", chains.FENCED, {"kind": "acls", "marks": [everybody, app, ["b", "User:*"]]}),
        ("d1", chains.UNFENCED, {"kind": "acls", "marks": [everybody]}),
        ("d2", chains.FENCED, {"kind": "command", "marks": [["c", ""], ["d", 7], "e", ["f"]]}),
        ("d2", chains.FENCED, {"kind": "command", "marks": "text"}),
        ("d2", chains.FENCED, {"kind": 7, "marks": [["g", ""]]}),
        ("d2", chains.STEP, {"kind": "acls", "marks": [["h", ""]]}),
        ("d3", chains.UNFENCED, {"kind": "person", "marks": [["b", "User:*"]]}),
    )
    assert chains.fenced(chain) == {
        "acls": {("a", "User:app"), ("b", "User:*")},
        "command": {("c", "")},
    }
    assert chains.fenced_topics(chain) == {"a", "b", "c"}


def test_a_word_counts_for_its_drill_and_step() -> None:
    """Nobody's word for an earlier drill lets a later one go on."""
    chain = written(("d1", chains.CONFIRMED, {"step": "redirect", "by": "ann"}))
    assert chains.confirmed(chain, "d1", "redirect") == chain[0]
    assert chains.confirmed(chain, "d2", "redirect") is None
    assert chains.confirmed(chain, "d1", "fence") is None


BEGUN = "d1", chains.BEGUN, {"mode": "planned"}


@pytest.mark.parametrize(
    ("entries", "unfinished"),
    [
        ([BEGUN], "d1"),
        # Of a journal that was deleted, nobody knows whether it was done: it is not done again.
        ([], None),
        ([("d2", chains.BEGUN, {"mode": "planned"})], None),
        ([BEGUN, ("d1", chains.ENDED, {"result": "FAIL", "done": False})], "d1"),
        ([BEGUN, ("d1", chains.ENDED, {"result": "died"})], "d1"),
        # Too slow, and done all the same.
        ([BEGUN, ("d1", chains.ENDED, {"result": "FAIL", "done": True})], None),
        ([BEGUN, ("d1", chains.ENDED, {"result": "PASS", "done": True})], None),
        (
            [
                BEGUN,
                ("d1", chains.ENDED, {"result": "died"}),
                ("d2", chains.BEGUN, {"goes_on": "d1"}),
                ("d2", chains.ENDED, {"result": "PASS", "done": True}),
            ],
            None,
        ),
        (
            [
                BEGUN,
                ("d1", chains.ENDED, {"result": "died"}),
                ("d2", chains.BEGUN, {"goes_on": "d1"}),
                ("d2", chains.ENDED, {"result": "FAIL", "done": False}),
            ],
            "d1",
        ),
    ],
)
def test_what_has_promoted_topics_is_unfinished_until_all_of_it_is_done(
    entries: list[tuple[str, str, Mapping[str, Any]]], unfinished: str | None
) -> None:
    """By whichever drill."""
    found = unfinished_of(written(*entries), [enrolment("a", "d1"), enrolment("b")])
    assert (None if found is None else found[0]) == unfinished
    if found is not None:
        assert [each.source for each in found[1]] == ["a"]


def entry(
    *partitions: tuple[str, int | None, str | None],
    runs: bool = False,
    open_offsets: int = 0,
    delivery: str = "exactly_once",
    needs: Sequence[str] = (),
) -> dict[str, Any]:
    """Return an entry of ``status``: topic, what is missing of its partition, where it was stopped."""
    return {
        "flow": "orders-dr",
        "source": {"alias": "east"},
        "run": {"state": "running" if runs else "fenced" if needs else "gone"},
        "delivery": delivery,
        "needs": [{"code": code} for code in needs],
        "partitions": [
            {
                "topic": topic,
                "partition": number,
                "high_watermark": None if missing is None else 100,
                "lag_offsets": missing,
                "oldest_missing_s": None,
                "oldest_open_s": None,
                "open_offsets": None if missing is None else open_offsets,
                "stop": None if stop is None else {"code": stop},
            }
            for number, (topic, missing, stop) in enumerate(partitions)
        ],
    }


def asked(told: dict[str, Any], *, whatever: bool = False, copy: str | None = COPY) -> SwitchoverPlan:
    """Return the plan of an unplanned switchover of topic a, whose copy's topic has that id."""
    enrolled, standing = [enrolment("a")], SourceStanding.of(told, {"a"}, {"a": copy})
    changes = changes_of(enrolled, "east", "west", None, "ann", None, standing, whatever=whatever)
    states = standing.states(enrolled)
    return replace(plan("a", UNPLANNED), changes=changes, standing=standing, states=states)


AWAY = entry(("a", None, None))
AT_LEAST_ONCE = "at_least_once"
GONE = entry(("a", None, None), delivery=AT_LEAST_ONCE)


@pytest.mark.parametrize(
    ("shown", "now", "part"),
    [
        (AWAY, entry(("a", 0, None)), "source east"),
        (AWAY, entry(("a", None, None), runs=True), "flow orders-dr"),
        (AWAY, entry(("a", None, "SOURCE_DIVERGED")), "a:0"),
        (entry(("a", 3, "SOURCE_DIVERGED")), entry(("a", 3, "TARGET_DIVERGED")), "TARGET_DIVERGED, not"),
        (entry(("a", 3, None)), AWAY, "an unknown number"),
        (entry(("a", 3, None)), entry(("a", 3, None), open_offsets=20_000), "20003 offsets, not 3"),
        (AWAY, AWAY, ""),
        (AWAY, GONE, "sure end of flow"),
        (entry(("a", None, None), runs=True, delivery=AT_LEAST_ONCE), GONE, "sure end of flow"),
        (AWAY, entry(("a", None, None), delivery=AT_LEAST_ONCE, needs=["FENCED"]), "sure end of flow"),
        (AWAY, entry(("a", None, None), delivery=AT_LEAST_ONCE, needs=["PROMOTED"]), ""),
        (AWAY, entry(("a", None, None), needs=["FENCED"]), ""),
        (GONE, AWAY, ""),
        (entry(("a", 3, None), runs=True), entry(("a", 900, None)), ""),
        (entry(("a", 3, "SOURCE_DIVERGED")), entry(("a", 3, None)), ""),
        (AWAY, entry(("a", None, None), ("b", 0, "SOURCE_DIVERGED")), ""),
    ],
)
def test_what_was_not_given_up_and_more_that_is_lost_is_another_question(
    shown: dict[str, Any], now: dict[str, Any], part: str
) -> None:
    """What need not be given up any more is not, nor what is of other topics."""
    approved = Approval.from_json(Approval.of(asked(shown).items).to_json())
    if not part:
        approved.check(asked(now).items, "here")
        return
    with pytest.raises(NeedsOperator, match="something else") as refused:
        approved.check(asked(now).items, "here")
    assert part in str(refused.value)


@pytest.mark.parametrize("whatever", [False, True])
@pytest.mark.parametrize(
    ("shown", "now", "part"),
    [
        (COPY, ANEW, "copy a"),
        (COPY, None, "copy a"),
        (ANEW, None, "topic None, not"),
        (None, ANEW, f"topic {ANEW}, not"),
        (ANEW, ANEW, ""),
    ],
)
def test_another_copy_than_was_shown_is_another_question(
    shown: str | None, now: str | None, part: str, *, whatever: bool
) -> None:
    """Whatever the source tells, which a person may have given up: the copy is what clients get."""
    yes = asked(AWAY, whatever=whatever, copy=shown)
    assert ("give up copy a" in yes.describe()) == (shown != COPY)
    approved = Approval.from_json(Approval.of(yes.items).to_json())
    changed = asked(AWAY, whatever=whatever, copy=now)
    if not part:
        approved.check(changed.items, "here")
        return
    with pytest.raises(NeedsOperator, match="something else") as refused:
        approved.check(changed.items, "here")
    assert part in str(refused.value)


HALF_DEAD = (
    entry(("a", 3, None)),
    AWAY,
    entry(("a", 90_000, None), runs=True),
    entry(("a", None, "SOURCE_DIVERGED")),
    entry(("a", 3, "SOURCE_DIVERGED"), runs=True),
    GONE,
)


@pytest.mark.parametrize("now", HALF_DEAD)
@pytest.mark.parametrize("shown", HALF_DEAD)
def test_whoever_gives_up_whatever_is_lost_is_not_asked_again(
    shown: dict[str, Any], now: dict[str, Any]
) -> None:
    """A source that comes and goes is another one at every look; what was known then is shown."""
    yes = asked(shown, whatever=True)
    approved = Approval.from_json(Approval.of(yes.items).to_json())
    approved.check(asked(now, whatever=True).items, "here")
    with pytest.raises(NeedsOperator, match="something else"):
        Approval.of(asked(shown).items).check(yes.items, "here")
    told = yes.describe()
    assert "whatever it tells" in told
    assert ("3 offsets are known to be there alone" in told) == (shown in (HALF_DEAD[0], HALF_DEAD[4]))


def test_what_is_given_up_is_shown() -> None:
    told = asked(entry(("a", 3, "SOURCE_DIVERGED"), runs=True))
    text = told.describe()
    for part in ("east answers; flow orders-dr runs", "skips 3 offsets", "a:0", "would lose nothing"):
        assert part in text, part
    assert told.document()["standing"] == {
        "answers": True,
        "partitions": 1,
        "answering": 1,
        "runs": True,
        "missing": {"a": 3},
        "stopped": {"a:0": "SOURCE_DIVERGED"},
        "copies": {"a": COPY},
        "wakes": False,
    }
    assert "may repeat records" in asked(GONE).describe()
    assert "what it repeats should it wake" in asked(GONE, whatever=True).describe()
    assert "should it wake" not in asked(AWAY).describe() + asked(AWAY, whatever=True).describe()
    assert "may skip" in asked(AWAY).describe()


def test_what_was_done_under_an_approval_is_told_again() -> None:
    """Only to its end, and only under this one."""

    def begun(drill: str, approval: str) -> tuple[str, str, dict[str, Any]]:
        return drill, chains.BEGUN, {"approval": {"id": approval}}

    died, codes = {"result": "died"}, ["RTO_MISSED", 7]
    done = {"result": "FAIL", "done": True, "rto_s": 31.5, "codes": codes}
    chain = written(
        ("d0", chains.BEGUN, {"mode": "rehearsal"}),
        ("d0", chains.ENDED, {"result": "PASS", "done": True}),
        begun("d1", "mine"),
        ("d1", chains.ENDED, died),
        begun("d2", "mine"),
        ("d2", chains.ENDED, done),
        begun("d3", "died"),
        ("d3", chains.ENDED, died),
        begun("d4", "late"),
    )
    found = done_under(chain, "orders-dr", "mine")
    assert found is not None
    assert dict(found.counts) == {"flow": "orders-dr", "drill": "d2", "verdict": "FAIL", "rto_s": 31.5}
    assert found.exit_code == 3
    assert [(each.object, each.code) for each in found.waiting] == [("switchover d2", "RTO_MISSED")]
    assert [done_under(chain, "orders-dr", other) for other in ("died", "late", "")] == [None, None, None]


def test_what_was_gone_on_with_under_another_approval_is_done() -> None:
    """Whoever said yes to the first half is told how it ended."""
    chain = written(
        ("d1", chains.BEGUN, {"approval": {"id": "first"}}),
        ("d1", chains.ENDED, {"result": "FAIL"}),
        ("d2", chains.BEGUN, {"approval": {"id": "second"}, "goes_on": "d1"}),
        ("d2", chains.ENDED, {"result": "died"}),
        ("d3", chains.BEGUN, {"approval": {"id": "third"}, "goes_on": "d2"}),
        ("d3", chains.ENDED, {"result": "PASS", "done": True}),
        ("d4", chains.BEGUN, {"approval": {"id": "other"}}),
    )
    for approval in ("first", "second", "third"):
        found = done_under(chain, "orders-dr", approval)
        assert found is not None
        assert (found.drill, found.exit_code) == ("d3", 0)
    assert done_under(chain, "orders-dr", "other") is None


def test_what_is_left_behind_a_switchover_that_was_done_is_told_whenever_it_is_asked_for() -> None:
    """Running it again does not do it: at its end, and to whoever tries it once more."""
    first = outcome(failed=REVERSE, error=Retriable("east is away"))
    assert (first.ended()["done"], first.exit_code) == (True, 3)
    chain = written(
        ("d2", chains.BEGUN, {"approval": {"id": "mine"}, **first.begun()} | {"approval": {"id": "mine"}}),
        *(("d2", chains.STEP, running.said(result)) for result in first.results),
        ("d2", chains.ENDED, first.ended()),
    )
    again = done_under(chain, "orders-dr", "mine")
    assert again is not None
    assert again.exit_code == 3
    (left,) = again.waiting
    assert (left.object, left.code) == ("switchover d2, step reverse", "Retriable")
    assert "onceover seed apply orders --from promoted:orders-dr" in left.resolve


@pytest.mark.parametrize(
    ("found", "told"),
    [(("WRITTEN_BEHIND", "5 records"), ["WRITTEN_BEHIND"]), (("STILL_THERE", "2 consumers"), [])],
)
def test_what_makes_it_fail_although_all_was_done_waits_for_somebody(
    found: tuple[str, str], told: list[str]
) -> None:
    """A task that fails says for what."""
    seen = replace(outcome(), findings=(found,))
    assert [each.code for each in seen.waiting] == told
    assert seen.exit_code == (3 if told else 0)
    assert seen.ended()["codes"] == told


def test_whatever_keeps_the_way_back_away_a_person_leads_it_back() -> None:
    """What passes by itself is nothing that running a switchover again would do."""

    def away(_: Sequence[str]) -> Mapping[str, Any]:
        raise Retriable("east is away")

    parts: Any = SimpleNamespace(flow="orders-dr", reverse=away, back="orders-back", lifts=False)
    notes: Any = SimpleNamespace(read=lambda: [])
    steps = PlannedSteps(parts, "d1", "d1", {}, True, notes, cast(Any, None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlannedSteps, "_check_promoted", lambda _: None)
        with pytest.raises(NeedsOperator, match="east is away") as caught:
            steps.reverse(Deadline(5.0))
    assert "onceover seed apply orders-back --from promoted:orders-dr" in str(caught.value.resolve)


def test_a_topic_that_was_placed_since_is_promoted_no_more() -> None:
    """A flow the other way has led it back."""
    placed = replace(enrolment("a", "d1"), placed={0: PlacedProgress(8, 0, 0)})
    assert unfinished_of([], [placed]) is None


def test_what_is_left_is_what_is_behind_the_copy() -> None:
    """A partition without progress is left whole; one that is ahead is not."""
    a, b, c = (TopicPartition(topic, 0) for topic in "abc")
    assert left_to_copy({a: 5, b: 9}, {a: 7, b: 9, c: 2}) == {a: 2, c: 2}


@pytest.mark.parametrize("mode", [PLANNED, UNPLANNED])
def test_the_verdict_is_of_all_steps_and_of_the_seconds(mode: str) -> None:
    """Of those that clients wait for us in."""
    told = outcome(mode=mode)
    assert (told.verdict, told.rto_s) == ("PASS", float(len(UNAVAILABLE[mode])))
    assert outcome(mode=mode, failed="promote").verdict == "FAIL"
    assert outcome(mode=mode, seconds=20.0).verdict == "FAIL"
    assert outcome(mode=mode, seconds=20.0).ended()["done"] is True


def test_what_goes_on_behind_another_one_has_no_seconds_of_its_own() -> None:
    """It passes when it is done."""
    assert (outcome(goes_on="d1").verdict, outcome(goes_on="d1").rto_s) == ("PASS", None)
    assert outcome(goes_on="d1", failed="verify").verdict == "FAIL"
    assert outcome(goes_on="d1").begun()["goes_on"] == "d1"


@pytest.mark.parametrize("told", [outcome(), outcome(mode=UNPLANNED), outcome(goes_on="d1")])
def test_the_page_says_who_has_approved_it(told: SwitchoverOutcome) -> None:
    """And what it came to."""
    page = drill_page(told.document())
    assert "approved by" in page
    assert ("1,234" in page) == (told.plan.mode == PLANNED and not told.plan.goes_on)
    assert told.plan.mode.capitalize() in page


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_do_nothing_in_text_and_page(name: str) -> None:
    """They are shown, in the plan, the outcome and the page."""
    told, harmless = outcome(name, failed="settle"), outcome(failed="settle")
    assert drill_page(told.document()).count("<") == drill_page(harmless.document()).count("<")
    for text, other in (
        (told.describe(), harmless.describe()),
        (told.plan.describe(), harmless.plan.describe()),
    ):
        assert not [char for char in text if ord(char) < 32 and char != "\n"]
        assert len(text.split("\n")) == len(other.split("\n"))


def command(folder: Path, script: str) -> UserCommand:
    program = folder / "switch"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    return UserCommand(["./switch"], {"ONCEOVER_FLOW": "orders-dr"}, lambda: folder / "drill", folder)


def test_a_command_gets_what_it_needs_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its word, the flow, the topics; nothing of our environment that may be secret."""
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    made = command(tmp_path, 'env > env.txt; echo "$1" "$ONCEOVER_FLOW" $(cat "$ONCEOVER_TOPICS")')
    assert made.run("redirect", ["b", "a"], Deadline(30.0)) == {"exit_code": 0}
    assert (tmp_path / "drill" / "redirect.log").read_text() == "redirect orders-dr a b\n"
    assert "hunter2" not in (tmp_path / "env.txt").read_text()


def test_the_page_tells_what_of_our_environment_a_command_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else, but for what a shell sets by itself."""
    page = Path(__file__).parents[3] / "docs" / "drills.md"
    [listed] = re.findall(r"nothing else of our environment but ([^.]+)\.", page.read_text())
    told = set(re.findall(r"`(\w+)`", listed))
    for name in {*told, "LC_ALL", "LC_CTYPE", "LOGNAME", "SHELL", "PYTHONPATH"}:
        monkeypatch.setenv(name, os.environ.get(name, "C"))
    command(tmp_path, "env > env.txt").run("fence", ["a"], Deadline(30.0))
    got = {line.partition("=")[0] for line in (tmp_path / "env.txt").read_text().splitlines()}
    ours = {name for name in got if name.startswith("ONCEOVER_")}
    assert got - ours - {"PWD", "OLDPWD", "SHLVL", "_"} == told


@pytest.mark.parametrize(
    ("script", "within_s", "seen"),
    [("exit 3", 60.0, "exit code 3"), ("sleep 60 & sleep 60", 1.0, "has not ended in time")],
)
def test_a_command_that_fails_or_hangs_is_told(
    tmp_path: Path, script: str, within_s: float, seen: str
) -> None:
    """With where to look; what it prints is not repeated."""
    with pytest.raises(NeedsOperator, match="did not fence") as caught:
        command(tmp_path, f"echo hunter2; {script}").run("fence", ["a"], Deadline(within_s))
    assert seen in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert str(tmp_path / "drill" / "fence.log") in str(caught.value.resolve)


def test_a_command_lets_writers_in_though_the_disk_takes_nothing(tmp_path: Path) -> None:
    """Its topics and what it prints are in memory then, and nothing is left of it."""
    (tmp_path / "file").touch()
    made = command(tmp_path, 'cat "$ONCEOVER_TOPICS" > told.txt; dirname "$ONCEOVER_TOPICS" >> told.txt')
    full = replace(made, folder=lambda: tmp_path / "file" / "drill")
    assert full.run("unfence", ["b", "a"], Deadline(30.0)) == {"exit_code": 0}
    *topics, folder = (tmp_path / "told.txt").read_text().splitlines()
    assert topics == ["a", "b"]
    assert not Path(folder).exists()
    failing = replace(command(tmp_path, "echo no; exit 3"), folder=full.folder)
    with pytest.raises(NeedsOperator) as caught:
        failing.run("unfence", ["a"], Deadline(30.0))
    printed = Path(str(caught.value.resolve).rsplit(" ", 1)[1])
    assert printed.read_text() == "no\n"
    shutil.rmtree(printed.parent)


def test_a_command_can_print_though_the_disk_is_full_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was room in *fence*: the file of topics is there, and takes its own text once more."""
    made = command(tmp_path, 'set -e; echo said; dirname "$ONCEOVER_TOPICS" >> told.txt')
    made.run("fence", ["a"], Deadline(30.0))

    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    made.run("unfence", ["a"], Deadline(30.0))
    before, behind = (tmp_path / "told.txt").read_text().splitlines()
    assert (before, Path(behind).parent == Path(before).parent) == (str(tmp_path / "drill"), False)
    assert not Path(behind).exists()


def test_a_command_ends_though_somebody_interrupts_its_end_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would keep writers off behind the one that lets them in."""
    left, real = [KeyboardInterrupt()] * 2, ChildProcess.kill

    def interrupted(child: ChildProcess) -> None:
        if left:
            raise left.pop()
        real(child)

    def waiting(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(ChildProcess, "kill", interrupted)
    monkeypatch.setattr(ChildProcess, "wait", waiting)
    with pytest.raises(KeyboardInterrupt):
        command(tmp_path, "sleep 1; touch fenced").run("fence", ["a"], Deadline(30.0))
    time.sleep(1.5)
    assert not (tmp_path / "fenced").exists()


def test_a_command_that_is_not_there_is_told(tmp_path: Path) -> None:
    """As any other that fails."""
    missing = UserCommand(["./missing"], {}, lambda: tmp_path / "drill", tmp_path)
    with pytest.raises(NeedsOperator, match="did not fence"):
        missing.run("fence", ["a"], Deadline(10.0))


@pytest.mark.parametrize(
    ("step", "state", "how", "is_taken"),
    [
        ("redirect", "running", "person", True),
        ("redirect", "done", "person", False),
        ("fence", "running", "person", False),
        ("redirect", "running", "command", False),
    ],
)
def test_a_word_is_taken_by_the_step_that_waits_for_it(
    step: str, state: str, how: str, is_taken: bool
) -> None:
    """Said early, it would stand for what nobody has done yet."""
    chain = written(("d1", chains.BEGUN, {}), ("d1", chains.STEP, {"step": step, "state": state}))
    if is_taken:
        check_waits(chain, "d1", "orders-dr", "redirect", how)
        return
    with pytest.raises(UsageError, match="does not wait for anybody to redirect"):
        check_waits(chain, "d1", "orders-dr", "redirect", how)


def test_what_came_before_a_switchover_is_told_beside_its_seconds() -> None:
    """How long nothing was copied, where nobody had planned it, and how long the yes took."""
    found = outcome(mode="unplanned")
    next(r for r in found.results if r.name == "look").evidence = {
        "last_commit_ms": 400,
        "losses": [],
        "partitions_unknown": 0,
    }
    asked = replace(found, approval={"by": "ann", "at_ms": 5, "waited_s": 12.5})
    assert asked.document()["rto"]["before"] == {"detect_s": 0.6, "decide_s": 12.5}
    page = drill_page(asked.document())
    assert "12.5" in page
    assert outcome().document()["rto"]["before"] == {"detect_s": None, "decide_s": None}


def test_a_report_says_until_when_it_is_to_be_kept() -> None:
    """Five years; of a day that is none there, the next one."""
    about = replace(outcome().about, today=date(2028, 2, 29))
    assert about.document()["keep_until"] == "2033-03-01"
    assert replace(about, today=date(2026, 11, 25)).document()["keep_until"] == "2031-11-25"


def test_an_unplanned_one_counts_the_look_that_it_was_planned_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients wait meanwhile, whichever side of the plan it is on."""

    clock = [7.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def glance() -> Mapping[str, Any]:
        clock[0] += 4.5
        return {**AWAY, "last_commit_ms": None}

    parts: Any = SimpleNamespace(flow="orders-dr", glance=glance, reverse=None, quiet_s=0.0, target=None)
    steps = UnplannedSteps(parts, "d1", "d1", {}, True, cast(Any, None), cast(Any, None))
    steps.standing()
    look = course_of(UNPLANNED, steps, goes_on=False)[0]
    last = DrillStep("undo", "undo", 1.0, lambda _: {}, "by hand")
    results = run_course([look], last, CourseWatch(lambda *_: None, lambda: False))
    assert [(each.state, each.seconds) for each in results] == [("done", 4.5), ("done", 0.0)]


def test_where_nothing_is_lost_nobody_gives_it_up(tmp_path: Path) -> None:
    """In a planned one; in every other mode than an unplanned one the command line says so itself."""
    options = SwitchoverOptions(PLANNED, whatever_is_lost=True)
    flow = load_flow(write_flow(tmp_path, "orders-dr", EAST, WEST, ["orders"]))
    nobody = cast(Any, None)
    with (
        pytest.raises(UsageError, match="--whatever-is-lost means nothing with --mode planned"),
        switchover(flow, nobody, nobody, options, nobody),
    ):
        pass


@pytest.mark.parametrize(
    ("codes", "seconds", "answer"),
    [
        (("STILL_THERE", "WRITTEN_BEHIND"), 1.0, "not everything is as it should be"),
        (("STILL_THERE", "RTO_MISSED"), 20.0, "took longer than the objective allows"),
        (("STILL_THERE", "WRITTEN_BEHIND", "RTO_MISSED"), 20.0, "not everything is as it should be"),
    ],
)
def test_the_page_says_why_it_fails_though_all_was_done(
    codes: tuple[str, ...], seconds: float, answer: str
) -> None:
    """What makes it fail stands apart from what does not."""
    told = replace(outcome(seconds=seconds), findings=[(code, f"text {code}") for code in codes])
    assert told.verdict == "FAIL"
    page = drill_page(told.document())
    assert answer in page
    fails, looks = (page.index(title) for title in ("What makes it fail", "What somebody should look at"))
    for code in codes:
        assert (fails < page.index(f"text {code}") < looks) == (code != "STILL_THERE")
