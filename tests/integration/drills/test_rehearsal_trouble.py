"""Rehearsals in trouble, on real clusters: nothing of another one is touched, and nothing is left."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from onceover.drills.abort import Aborted
from onceover.drills.looks import nextrecords
from onceover.drills.rehearsing.shadow import ShadowCopy
from onceover.drills.rehearsing.steps import RehearsalSteps
from onceover.kafka.logs.between import IntervalReader
from onceover.planning.operation import wait
from onceover.state import names
from onceover.state.records.layout import Layout
from onceover.wiring.failovers import drills, switchovers
from tests.integration.drills.test_rehearsal import (
    DONE,
    FENCED,
    INTERRUPTED,
    KILLED,
    PERSON,
    TIMEOUT_S,
    USAGE,
    copied,
    drill,
    evidence_of,
    is_paused,
    newest,
    ran,
)
from tests.support.drills.rehearsing import both_sides, rehearsing
from tests.support.drills.switching import trouble
from tests.support.flows.groups import commit
from tests.support.flows.replica import Replica, delete_before, delete_topics, topic_config
from tests.support.session.wait import wait_until


def behind(monkeypatch: pytest.MonkeyPatch, step: str, act: Callable[[], object]) -> None:
    """Have something happen behind a step of the rehearsal in this process."""
    real = getattr(RehearsalSteps, step)

    def acted(steps: RehearsalSteps, deadline: Any) -> Any:
        found = real(steps, deadline)
        act()
        return found

    monkeypatch.setattr(RehearsalSteps, step, acted)


@pytest.mark.parametrize("step", [pytest.param("prepare", marks=pytest.mark.soak), "remove"])
def test_a_frozen_one_that_wakes_within_a_step_touches_nothing_of_the_next_one(
    replica: Replica, capsys: pytest.CaptureFixture[str], tmp_path: Path, step: str
) -> None:
    """It was about to write, or to take away; by then all of that is another one's."""
    copied(replica)
    before = both_sides(replica)
    hold = tmp_path / "go"
    with rehearsing(replica, tmp_path / "old.log", step=step, signal="STOP") as old:
        wait_until(lambda: newest(replica, capsys).get("step") == step, TIMEOUT_S, "it is at the step")
        wait_until(lambda: is_paused(old), TIMEOUT_S, "it stands still")
        options = {"step": "drain", "hold": str(hold), "silent": "1"}
        with rehearsing(replica, tmp_path / "new.log", **options) as new:
            wait_until(lambda: newest(replica, capsys).get("step") == "drain", TIMEOUT_S, "the next one runs")
            during = both_sides(replica)
            old.send_signal(signal.SIGCONT)
            assert old.wait(TIMEOUT_S) == FENCED, old.tail()
            assert both_sides(replica) == during
            hold.touch()
            assert new.wait(TIMEOUT_S) == DONE, new.tail()
    assert both_sides(replica) == before


@pytest.mark.soak
def test_interrupted_twice_it_takes_everything_away(
    replica: Replica, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Ctrl-C in the middle of a step, and again because it takes so long to end."""
    copied(replica)
    before = both_sides(replica)
    with rehearsing(replica, tmp_path / "drill.log", step="drain", signal="INT", again="remove") as child:
        assert child.wait(TIMEOUT_S) == INTERRUPTED, child.tail()
    assert both_sides(replica) == before
    assert newest(replica, capsys)["result"] == "interrupted"


@pytest.mark.soak
def test_with_a_full_disk_it_takes_everything_away(
    replica: Replica, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its report cannot be written from a step on: that fails it, and its outcome is told."""
    copied(replica)
    before = both_sides(replica)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    behind(monkeypatch, "copy", lambda: monkeypatch.setattr(drills, "put", full))
    code, told = ran(replica, capsys)
    assert (code, told["verdict"]) == (PERSON, "FAIL"), trouble(told)
    assert both_sides(replica) == before
    errors = {step["name"]: step["error"]["code"] for step in told["steps"] if step["error"]}
    assert errors == {"copy": "PATH_UNUSABLE", "remove": "PATH_UNUSABLE"}
    assert newest(replica, capsys)["result"] == "FAIL"


def test_who_can_write_no_report_begins_nothing(
    replica: Replica, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And hinders nobody: the next one need not wait for signs of life."""
    copied(replica)
    before = both_sides(replica)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(drills, "put", full)
        code, told = ran(replica, capsys)
    assert (code, told["error"]["code"]) == (PERSON, "PATH_UNUSABLE")
    assert "No space left" in told["error"]["message"]
    assert both_sides(replica) == before
    assert drill(replica, capsys, "status")[1]["running"] is None


@pytest.mark.soak
def test_killed_while_somebody_waits_for_its_end_it_is_cleaned_up(
    replica: Replica, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Who wants it to end is not told that it is over while its topics are there."""
    copied(replica)
    before = both_sides(replica)
    with rehearsing(replica, tmp_path / "drill.log", step="read", hold=str(tmp_path / "never")) as child:
        wait_until(lambda: newest(replica, capsys).get("step") == "read", TIMEOUT_S, "it is at a step")
        answers: list[Aborted] = []
        aborting = threading.Thread(
            target=lambda: answers.append(switchovers.abort_drill(replica.flow.watch.flow, wait))
        )
        aborting.start()
        wait_until(lambda: newest(replica, capsys)["asked_to_end"], TIMEOUT_S, "it is asked to end")
        child.kill()
        assert child.wait(TIMEOUT_S) == KILLED
        aborting.join(TIMEOUT_S)
    assert [(answer.was_alive, answer.removed.nothing) for answer in answers] == [(True, False)]
    assert both_sides(replica) == before


@pytest.mark.soak
def test_a_journal_made_anew_meanwhile_is_not_gone_on_with(
    replica: Replica, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Somebody deletes it, and another drill begins a new one: the first one is over."""
    copied(replica)
    before = both_sides(replica)
    hold = tmp_path / "go"
    with rehearsing(replica, tmp_path / "drill.log", step="read", hold=str(hold)) as child:
        wait_until(lambda: newest(replica, capsys).get("step") == "read", TIMEOUT_S, "it is at a step")
        delete_topics(replica.target_client, [names.drills_topic(replica.name)])
        code, told = ran(replica, capsys)
        assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
        hold.touch()
        assert child.wait(TIMEOUT_S) == PERSON, child.tail()
        assert "JOURNAL_DAMAGED" in child.tail()
    assert both_sides(replica) == before
    assert [each["result"] for each in drill(replica, capsys, "status")[1]["drills"]] == ["PASS"]


def test_canaries_do_not_depend_on_the_clusters_defaults(
    replica: Replica, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source may compact, expire or stamp whatever says nothing else: numbers are as they were written."""
    copied(replica)
    seen: dict[str, str] = {}
    behind(
        monkeypatch,
        "prepare",
        lambda: seen.update(topic_config(replica.source_client, names.canary_topic(replica.name))),
    )
    assert ran(replica, capsys)[0] == DONE
    wanted = {"cleanup.policy": "delete", "retention.ms": "-1", "message.timestamp.type": "CreateTime"}
    assert wanted.items() <= seen.items()


def test_a_group_that_nobody_finds_is_told(replica: Replica, capsys: pytest.CaptureFixture[str]) -> None:
    """No PASS for a name that was typed wrong."""
    topic = copied(replica)
    commit(replica.source_client, f"{replica.name}-billing", topic, {0: 7})
    code, told = ran(replica, capsys, "--group", f"{replica.name}-biling")
    assert (code, told["error"]["code"]) == (USAGE, "NOTHING_CHOSEN")
    assert f"{replica.name}-billing" in told["error"]["expected"]


@pytest.mark.parametrize("what", [pytest.param("expired", marks=pytest.mark.soak), "deleted"])
def test_what_could_not_be_compared_is_a_finding(
    replica: Replica, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Retention takes a group's next record, or somebody the whole topic: it was not seen on both sides."""
    topic = copied(replica)
    group = f"{replica.name}-billing"
    commit(replica.source_client, group, topic, {0: 7})

    def happens() -> None:
        if what == "expired":
            delete_before(replica.source_client, topic, 12)
        else:
            delete_topics(replica.source_client, [topic])

    behind(monkeypatch, "compare", happens)
    code, told = ran(replica, capsys)
    assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
    assert evidence_of(told)["verify"]["positions"] == {"exact": 0, "compacted": 0, "expired": 1}
    assert [(each["code"], group in each["text"]) for each in told["findings"]] == [("NOT_COMPARED", True)]


def test_what_expires_before_it_is_copied_is_a_finding_and_says_nothing_of_the_flow(
    replica: Replica, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention overtakes the rehearsal's own position; the flow has copied it all long ago."""
    topic = copied(replica)
    commit(replica.source_client, f"{replica.name}-billing", topic, {0: 7})
    begin = ShadowCopy._copy

    def late(shadow: ShadowCopy, layout: Layout) -> None:
        delete_before(replica.source_client, topic, 12)
        begin(shadow, layout)

    monkeypatch.setattr(ShadowCopy, "_copy", late)
    code, told = ran(replica, capsys)
    assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
    findings = [each for each in told["findings"] if f"{topic}:0" in each["text"]]
    assert {each["code"] for each in findings} <= {"NOT_COMPARED", "GROUP_NOT_COVERED"}
    assert any("expired while they were copied" in each["text"] for each in findings)


@pytest.mark.soak
def test_many_positions_are_compared_together(
    replica: Replica, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one they would take longer than the objective as soon as a cluster is far away."""
    opened: list[IntervalReader] = []

    def counted(*arguments: Any, **more: Any) -> IntervalReader:
        opened.append(IntervalReader(*arguments, **more))
        return opened[-1]

    topic, now_ms = replica.topic(partitions=10), int(time.time() * 1000)
    for number in range(10):
        replica.source.plain(topic, number, replica.source.records(20, timestamp_ms=now_ms))
        replica.source.plain(topic, number, replica.source.records(20, timestamp_ms=now_ms))
    for number in range(15):
        commit(replica.source_client, f"{replica.name}-{number}", topic, dict.fromkeys(range(10), number * 2))
    replica.copy()
    monkeypatch.setattr(nextrecords, "IntervalReader", counted)
    code, told = ran(replica, capsys)
    assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
    assert evidence_of(told)["verify"]["positions"] == {"exact": 150, "compacted": 0, "expired": 0}
    # On either side once.
    assert len(opened) == 2


def test_a_position_on_another_record_is_told(
    replica: Replica, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record further on the target, of many that are right."""
    topic = copied(replica)
    for number in range(5):
        commit(replica.source_client, f"{replica.name}-{number}", topic, {0: number})
    real = RehearsalSteps._move

    def moved(steps: RehearsalSteps, translator: Any, group: str, *where: Any) -> Any:
        found = real(steps, translator, group, *where)
        return replace(found, target=(found.target or 0) + 1) if group == f"{replica.name}-3" else found

    monkeypatch.setattr(RehearsalSteps, "_move", moved)
    code, told = ran(replica, capsys)
    assert (code, told["verdict"]) == (PERSON, "FAIL")
    [error] = [step["error"] for step in told["steps"] if step["error"]]
    assert (error["code"], f"group {replica.name}-3 " in error["message"]) == ("GROUP_MOVED", True)


def delete_group(client: Mapping[str, str], group: str) -> None:
    admin = AdminClient(dict(client))
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)


@pytest.mark.soak
def test_a_group_that_is_gone_meanwhile_is_a_finding(
    replica: Replica, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan names it, and nothing was seen of it."""
    topic = copied(replica)
    group = f"{replica.name}-billing"
    commit(replica.source_client, group, topic, {0: 7})
    behind(monkeypatch, "read", lambda: delete_group(replica.source_client, group))
    code, told = ran(replica, capsys)
    assert (code, told["plan"]["groups"]) == (DONE, [group]), json.dumps(told, indent=1)
    found = [(each["code"], group in each["text"]) for each in told["findings"]]
    assert found == [("GROUP_NOT_COVERED", True)]


@pytest.mark.soak
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_canaries_group_that_somebody_deletes_is_told(
    replica: Replica, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    """No bug of ours, and nobody to blame a copy for."""
    copied(replica)
    group = names.canary_group(replica.name)
    if side == "source":
        behind(monkeypatch, "read", lambda: delete_group(replica.source_client, group))
    else:
        moved = names.rehearsal_group(replica.name, group)
        behind(monkeypatch, "place", lambda: delete_group(replica.target_client, moved))
    code, told = ran(replica, capsys)
    assert (code, told["verdict"]) == (PERSON, "FAIL")
    [error] = [step["error"] for step in told["steps"] if step["error"]]
    assert (error["code"], "no position any more" in error["message"]) == ("CANARY_LOST", True)


@pytest.mark.soak
def test_a_topic_made_anew_behind_the_comparison_blames_no_group(
    replica: Replica, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in it now is another topic's."""
    topic = copied(replica)
    commit(replica.source_client, f"{replica.name}-billing", topic, {0: 7})

    def happens() -> None:
        delete_topics(replica.source_client, [topic])
        replica.source.create_topic(topic)
        replica.source.reconnect(topic)
        replica.source.plain(topic, 0, replica.source.records(30, timestamp_ms=int(time.time() * 1000)))

    behind(monkeypatch, "compare", happens)
    told = ran(replica, capsys)[1]
    assert "GROUP_MOVED" not in json.dumps(told)
