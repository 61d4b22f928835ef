"""``onceover partition`` with what people mistype: one clear message, its exit code, nothing touched."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from onceover.cli import main as command_line
from onceover.kafka.calls import CommittedOffset
from onceover.model import TopicPartition
from onceover.state import names
from onceover.wiring.flows import open_clusters
from tests.support.flows.replica import Replica
from tests.support.flows.scene import Capture, Scene, generation
from tests.support.session.wait import wait_until

USAGE, OPERATOR = 2, 3


class Case(NamedTuple):
    """What is typed behind ``onceover partition``; FLOW and TOPIC stand for the test's own."""

    typed: str
    code: int
    text: str


SLIPS = (
    Case("resume FLOW nothing:0", USAGE, "nothing:0 is not part of flow"),
    Case("reseed FLOW TOPIC:7", USAGE, "TOPIC:7 is not part of flow"),
    Case("skip-to FLOW nothing:0 5", USAGE, "`onceover status FLOW` lists them"),
    Case("resume FLOW TOPIC", USAGE, "'TOPIC' names no partition"),
    Case("reseed FLOW TOPIC:x", USAGE, "'TOPIC:x' names no partition"),
    Case("reseed FLOW", USAGE, "required: "),
    Case("skip-to FLOW TOPIC:0", USAGE, "required: OFFSET"),
    Case("skip-to FLOW TOPIC:0 soon", USAGE, "'soon' is no offset"),
    Case("skip-to FLOW TOPIC:0 -1", USAGE, "'-1' is no offset"),
    Case("skip-to FLOW TOPIC:0 1e3", USAGE, "'1e3' is no offset"),
    Case("resume FLOW TOPIC:0 5", USAGE, "'5' is one word too many"),
    Case("resume no-such-flow TOPIC:0", USAGE, "no-such-flow"),
    Case("skip-to FLOW TOPIC:0 11", OPERATOR, "choose an offset from 0 to 10"),
    Case("resume FLOW TOPIC:0", OPERATOR, "the partition is not stopped"),
)


def type_in(scene: Scene, capsys: Capture, typed: str, *, apply: bool = True) -> tuple[int, str]:
    """Run it as a person would, without ``--json``; return the exit code and all that it says."""
    words = _filled(scene, typed).split()
    capsys.readouterr()
    code = command_line.main(["partition", *words, *(["--apply"] if apply else [])])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out + err


def _filled(scene: Scene, text: str) -> str:
    return text.replace("FLOW", scene.replica.name).replace("TOPIC", scene.topic)


def touched(replica: Replica) -> tuple[int | None, dict[TopicPartition, CommittedOffset], int]:
    """Return what a repair would change: generation, progress, the end of the state."""
    _, target = open_clusters(replica.flow.watch.flow)
    state = TopicPartition(names.state_topic(replica.name), names.STATE_OTHERS)
    with target:
        progress = target.retry(lambda: target.committed(names.progress_group(replica.name), None))
        end = target.list_offsets([state], -1)[state]
    return generation(replica), dict(progress), end


def test_a_slip_is_told_and_nothing_is_touched(replica: Replica, capsys: Capture) -> None:
    """Although ``--apply`` is given each time."""
    scene = Scene(replica)
    before = touched(replica)
    for case in SLIPS:
        code, said = type_in(scene, capsys, case.typed)
        assert (case.typed, code) == (case.typed, case.code), said
        assert _filled(scene, case.text) in said
    assert touched(replica) == before


def test_a_flow_that_was_never_started_has_no_partitions(replica: Replica, capsys: Capture) -> None:
    """The message names the command that starts it; nothing is created by asking."""
    topic = replica.topic("a")
    name = replica.flow.name
    for typed in (["resume", f"{topic}:0"], ["skip-to", f"{topic}:0", "0"], ["reseed", f"{topic}:0"]):
        code, document = replica.command(capsys, "partition", typed[0], name, *typed[1:], "--apply")
        assert (code, document["error"]["code"]) == (USAGE, "NOT_STARTED")
        assert f"`onceover replicate {name}`" in document["error"]["resolve"]
    code, document = replica.command(capsys, "partition", "resume", name, "--apply")
    assert (code, document["changes"], "applied" in document) == (0, [], False)
    _, target = open_clusters(replica.flow.watch.flow)
    with target:
        assert names.state_topic(name) not in target.topics()


@pytest.mark.parametrize("typed", ["skip-to FLOW TOPIC:0 4", "reseed FLOW TOPIC:0"])
def test_beside_a_running_flow_a_plan_is_only_a_plan(replica: Replica, capsys: Capture, typed: str) -> None:
    """It says that the run would be fenced, and what would come again; the run goes on."""
    scene = Scene(replica)
    with replica.running() as live:
        code, said = type_in(scene, capsys, typed, apply=False)
        assert code == 0
        assert "fenced" in said and "repeats" in said and "add --apply to do it" in said
        scene.feed(2)
        wait_until(lambda: replica.partition_status(scene.topic)["lag_offsets"] == 0, 30, "it goes on")
        assert live.alive
    assert live.records == 4
