"""``onceover drill run`` on real clusters: what it shows, and that nothing of it stays."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from onceover.config.flow.load import run_dir
from onceover.drills.abort import Aborted
from onceover.drills.rehearsing.course import STEP_NAMES
from onceover.drills.rehearsing.steps import RehearsalSteps
from onceover.planning.operation import wait
from onceover.process.children import ChildProcess
from onceover.state import names
from onceover.wiring.failovers.switchovers import abort_drill
from tests.support.drills.rehearsing import both_sides, nobody_alive, rehearsing
from tests.support.drills.switching import trouble
from tests.support.flows.groups import commit
from tests.support.flows.replica import Replica, delete_topics
from tests.support.session.wait import wait_until

DONE, USAGE, PERSON, FENCED, INTERRUPTED, KILLED = 0, 2, 3, 4, 130, -9
TIMEOUT_S = 90.0


def ran(replica: Replica, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    return replica.command(capsys, "drill", "run", str(replica.flow.path), *more)


def drill(replica: Replica, capsys: pytest.CaptureFixture[str], action: str) -> tuple[int, dict[str, Any]]:
    return replica.command(capsys, "drill", action, str(replica.flow.path))


def copied(replica: Replica) -> str:
    """Return a topic of the flow with records, all of which are copied."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(20))
    replica.copy()
    return topic


def newest(replica: Replica, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the newest drill's entry of ``status``; empty before the first one."""
    drills: list[dict[str, Any]] = drill(replica, capsys, "status")[1]["drills"]
    return drills[0] if drills else {}


def is_paused(child: ChildProcess) -> bool:
    return psutil.Process(child.pid).status() == psutil.STATUS_STOPPED


def evidence_of(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {step["name"]: step["evidence"] for step in told["steps"]}


def test_a_rehearsal_passes_and_leaves_nothing(replica: Replica, capsys: pytest.CaptureFixture[str]) -> None:
    """Topics, groups and canaries are copied, compared and taken away; the report says what was seen."""
    topic = copied(replica)
    group = f"{replica.name}-billing"
    commit(replica.source_client, group, topic, {0: 7})
    before = both_sides(replica)
    code, told = ran(replica, capsys)
    assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
    assert [step["name"] for step in told["steps"]] == list(STEP_NAMES)
    evidence = evidence_of(told)
    assert (evidence["compare"]["records"], evidence["compare"]["different"]) == (220, 0)
    assert evidence["verify"]["positions"] == {"exact": 1, "compacted": 0, "expired": 0}
    assert {(each["missing"], each["repeated"]) for each in evidence["verify"]["canaries"]} == {(0, 0)}
    assert told["plan"]["groups"] == [group]
    assert both_sides(replica) == before
    home = run_dir(replica.name) / "drills" / told["drill"]
    assert json.loads((home / "report.json").read_text())["verdict"] == "PASS"
    assert "PASS" in (home / "report.html").read_text()
    assert {path.stat().st_mode & 0o077 for path in home.iterdir()} == {0}
    assert Path(told["report"]) == home / "report.html"
    assert not run_dir(names.rehearsal_flow(replica.name)).exists()
    _, status = drill(replica, capsys, "status")
    assert status["running"] is None
    assert [(each["drill"], each["result"]) for each in status["drills"]] == [(told["drill"], "PASS")]


def test_a_sample_is_the_newest_of_each_partition(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the records' own times are; a group that stands before it is a finding."""
    topic = copied(replica)
    commit(replica.source_client, f"{replica.name}-behind", topic, {0: 3})
    commit(replica.source_client, f"{replica.name}-near", topic, {0: 17})
    code, told = ran(replica, capsys, "--sample", "5")
    assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
    assert evidence_of(told)["compare"]["records"] == 205
    assert evidence_of(told)["verify"]["positions"]["exact"] == 1
    assert [finding["code"] for finding in told["findings"]] == ["GROUP_NOT_COVERED"]


def test_production_goes_on_beside_it(replica: Replica, capsys: pytest.CaptureFixture[str]) -> None:
    """The flow runs, and is written to, meanwhile; its generation, its copy and its groups are its own."""
    topic = copied(replica)
    with replica.running() as live:
        generation = replica.flow.status()["generation"]
        transaction = replica.source.transaction(topic)
        transaction.send(0, replica.source.records(5))
        transaction.commit()
        _, told = ran(replica, capsys)
        assert live.alive
        assert replica.flow.status()["generation"] == generation
        replica.source.plain(topic, 0, replica.source.records(5))
        wait_until(lambda: len(replica.target_records(topic)) == 30, TIMEOUT_S, "the flow goes on copying")
    assert told["verdict"] == "PASS", trouble(told)
    replica.assert_same()


def test_what_is_wrong_with_a_copy_fails_it(
    replica: Replica, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody writes into the copy once it is promoted: the canaries' reader tells."""
    copied(replica)
    before = both_sides(replica)
    real = RehearsalSteps.promote

    def promote(steps: RehearsalSteps, deadline: Any) -> Any:
        found = real(steps, deadline)
        copy = f"{names.rehearsal_copies(replica.name)}.{names.canary_topic(replica.name)}"
        replica.target.plain(copy, 0, replica.target.records(1))
        return found

    monkeypatch.setattr(RehearsalSteps, "promote", promote)
    code, told = ran(replica, capsys)
    assert (code, told["verdict"]) == (PERSON, "FAIL")
    failed = [step for step in told["steps"] if step["state"] == "failed"]
    assert [(step["name"], step["error"]["code"]) for step in failed] == [("verify", "CANARY_LOST")]
    assert told["steps"][-1]["state"] == "done"
    assert both_sides(replica) == before


@pytest.mark.parametrize(
    ("step", "when"), [pytest.param("copy", "behind", marks=pytest.mark.soak), ("verify", "before")]
)
def test_killed_at_a_step_the_next_one_takes_everything_away(
    replica: Replica, capsys: pytest.CaptureFixture[str], tmp_path: Path, step: str, when: str
) -> None:
    """A drill that died is told as such, and hinders none."""
    copied(replica)
    before = both_sides(replica)
    with rehearsing(replica, tmp_path / "drill.log", step=step, when=when) as child:
        assert child.wait(TIMEOUT_S) == KILLED, child.tail()
    assert both_sides(replica) != before
    [report] = (run_dir(replica.name) / "drills").glob("2*/report.json")
    assert json.loads(report.read_text())["verdict"] is None
    with nobody_alive():
        code, told = ran(replica, capsys)
    assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
    assert both_sides(replica) == before
    _, status = drill(replica, capsys, "status")
    assert [each["result"] for each in status["drills"]] == ["PASS", "died"]


def test_of_two_at_once_the_second_is_refused_and_abort_ends_the_first(
    replica: Replica, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It is alive, in the middle of a step; asked to end, it takes everything away itself."""
    copied(replica)
    before = both_sides(replica)
    hold = tmp_path / "go"
    with rehearsing(replica, tmp_path / "drill.log", step="read", hold=str(hold)) as child:
        wait_until(lambda: newest(replica, capsys).get("step") == "read", TIMEOUT_S, "it is at a step")
        code, refused = ran(replica, capsys)
        assert (code, refused["error"]["code"]) == (PERSON, "DRILL_RUNS")
        answers: list[Aborted] = []
        aborting = threading.Thread(target=lambda: answers.append(abort_drill(replica.flow.watch.flow, wait)))
        aborting.start()
        wait_until(lambda: newest(replica, capsys)["asked_to_end"], TIMEOUT_S, "it is asked to end")
        hold.touch()
        assert child.wait(TIMEOUT_S) == PERSON, child.tail()
        aborting.join(TIMEOUT_S)
    assert [answer.was_alive for answer in answers] == [True]
    assert both_sides(replica) == before


@pytest.mark.soak
def test_a_frozen_one_that_wakes_touches_nothing(
    replica: Replica, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It was taken for dead; what is there by then is another one's."""
    copied(replica)
    with rehearsing(replica, tmp_path / "drill.log", step="read", when="behind", signal="STOP") as child:
        wait_until(lambda: newest(replica, capsys).get("step") == "read", TIMEOUT_S, "it is at a step")
        wait_until(lambda: is_paused(child), TIMEOUT_S, "it stands still")
        code, aborted = drill(replica, capsys, "abort")
        assert (code, aborted["was_alive"]) == (DONE, False)
        after = both_sides(replica)
        child.send_signal(signal.SIGCONT)
        assert child.wait(TIMEOUT_S) == FENCED, child.tail()
    assert both_sides(replica) == after
    assert drill(replica, capsys, "abort")[1]["drill"] is None


@pytest.mark.soak
def test_interrupted_it_takes_everything_away(
    replica: Replica, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Ctrl-C in the middle of a step."""
    copied(replica)
    before = both_sides(replica)
    with rehearsing(replica, tmp_path / "drill.log", step="drain", when="before", signal="INT") as child:
        assert child.wait(TIMEOUT_S) == INTERRUPTED, child.tail()
    assert both_sides(replica) == before
    assert [each["result"] for each in drill(replica, capsys, "status")[1]["drills"]] == ["interrupted"]


@pytest.mark.soak
def test_a_journal_that_somebody_has_changed_is_told(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is begun behind it; deleted, it begins anew."""
    copied(replica)
    assert ran(replica, capsys)[0] == DONE
    topic = names.drills_topic(replica.name)
    entry = {"v": 1, "number": 3, "drill": "x", "what": "step", "at_ms": 1, "said": {}, "before": "0" * 64}
    producer = Producer(replica.target_client)
    producer.produce(topic, key=b"entry/000000000003", value=json.dumps(entry).encode())
    producer.flush(30)
    code, told = ran(replica, capsys)
    assert (code, told["error"]["code"]) == (PERSON, "JOURNAL_DAMAGED")
    delete_topics(replica.target_client, [topic])
    assert ran(replica, capsys)[0] == DONE


def test_bad_input_is_one_message_and_nothing_is_made(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """No topic matches, an expression is none, the flow was never started."""
    replica.topic()
    code, told = ran(replica, capsys)
    assert (code, told["error"]["code"]) == (USAGE, "NOT_STARTED")
    replica.copy()
    for more in (["--topics", "nobody"], ["--topics", "("], ["--canaries", "1"], ["--sample", "0"]):
        assert ran(replica, capsys, *more)[0] == USAGE
    topics = set(AdminClient(replica.target_client).list_topics(timeout=30).topics)
    assert names.drills_topic(replica.name) not in topics
