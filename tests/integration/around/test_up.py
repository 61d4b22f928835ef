"""What `make up` starts: the README's commands work in any shell, and nothing of it gets lost or stays."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from onceover.config.flow.load import load_flow
from onceover_lab.demo.feeding import FIRST_RECORDS, GROUP
from onceover_lab.demo.flights import TOPICS
from onceover_lab.demo.machine import MachineStatus
from onceover_lab.embed.airflow import State, marked
from onceover_lab.embed.ports import PortReservation
from tests.support.commands.firstflow import walk
from tests.support.commands.newcomer import PROGRAM, PROJECT, TIMEOUT_S, Machine
from tests.support.session.wait import wait_until

# What a newcomer sees of each command of the README, in its order.
EXPECTED: Final = {
    "flow check": r"flights-dr: in order",
    "topics plan": r"create topic flights\.airports",
    "replicate": r"flights-dr: 1459 records in",
    "status": r"flights\.airports:0 +\d+ caught_up",
    "metrics --once": r'^onceover_flow_state{flow="flights-dr",state="stopped"} 1\.0$',
    "groups apply": r"nothing to do",
    "translate": r"flights\.airports:0 offset 812 -> flights\.airports:0 offset 8\d\d",
    "drill plan": r"^lost: nothing\n(.*\n)*ready$",
    "drill run": r"^rehearsal \S+: PASS$",
    "audit": r"^PASS: 1,459 records",
    "partition skip-to": r"repeats \d+ offsets\n(.*\n)*nothing was changed; add --apply",
    "stop": r"flights-dr was not running",
    "connectors plan": r"copy offsets connect-offsets -> connect-offsets-airports: - -> 1 ",
}


@pytest.fixture(scope="module")
def machine(session_home: Path) -> Iterator[Machine]:
    """A machine on which `clusters up` was typed, interrupted, and typed again."""
    machine = Machine(session_home / "up")
    try:
        # Who does not wait for it may type it again.
        assert "make down" in interrupt_up(machine, lambda: own_processes(machine.home))
        machine.up()
        yield machine
    finally:
        machine.ask("clusters down")


def readme_commands() -> list[str]:
    """Return the lines that README.md tells people to type, without their comments."""
    section = (PROJECT / "README.md").read_text().partition("\n## Use it\n")[2]
    block = section.partition("```\n")[2].partition("```")[0]
    return [line.partition("#")[0].strip() for line in block.splitlines()]


# Two Spark jobs and nine commands, beside whatever else the machine is doing.
@pytest.mark.timeout(600)
def test_every_command_of_the_readme_works_as_written(machine: Machine, tmp_path: Path) -> None:
    """In a fresh shell, in the README's order; the first ones also from another directory."""
    lines = readme_commands()
    names = [line.removeprefix(".venv/bin/onceover ") for line in lines]
    commands = [next((name for name in EXPECTED if line.startswith(name)), line) for line in names]
    assert commands == list(EXPECTED)
    for command, line in zip(commands, lines, strict=True):
        done = machine.type(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}"
        assert re.search(EXPECTED[command], done.stdout, re.MULTILINE), f"{line}\n{done.stdout}"
    elsewhere = machine.type(f"{PROJECT}/{lines[0]}", cwd=tmp_path)
    assert (elsewhere.returncode, list(tmp_path.iterdir())) == (0, [])


def test_a_first_flow_of_ones_own_goes_as_its_page_says(machine: Machine, tmp_path: Path) -> None:
    """What is typed, and what is printed, without Spark's start: that takes longer than all of the rest."""
    walk(machine, tmp_path, spark=False)


@pytest.mark.soak
def test_what_was_killed_comes_back_where_it_was(machine: Machine) -> None:
    """kill -9 of a broker and of Connect: the next `up` starts these, on their ports, and keeps the rest."""
    before = machine.status()
    assert before.connect is not None
    for pid in (*before.clusters["east"]["pids"], before.connect["pid"]):
        psutil.Process(pid).kill()

    killed = machine.type(f"{PROGRAM} clusters status").stdout
    back = machine.up()
    again = machine.up()

    assert re.search(r"^east +down\nwest +up, .*\nconnect +down$", killed, re.MULTILINE)
    assert back.clusters["west"] == before.clusters["west"]
    assert ports_of(back) == ports_of(before)
    assert back.connect is not None
    assert (back.clusters["east"]["alive"], back.connect["alive"]) == (True, True)
    assert again == back
    assert [c["name"] for c in machine.ask("connectors list flights")["connectors"]] == ["airports"]


def test_flights_flow_when_asked_for(machine: Machine) -> None:
    """The first part at once, then more; kept for ever, in topics that the flow takes in, with a group."""
    without = machine.status().feed
    screen = machine.type(f"{PROGRAM} clusters up --feed").stdout
    fed = machine.fed()

    assert without is None
    assert re.search(r"^feed +running, 4\d,\d{3} of 336,776 flights", screen, re.MULTILINE), screen
    assert fed >= FIRST_RECORDS
    wait_until(lambda: machine.fed() > fed, TIMEOUT_S, "more flights")
    names, admin = {topic.name for topic in TOPICS}, machine.east
    assert names <= set(admin.list_topics(timeout=30).topics)
    configs = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
    assert {future.result(30)["retention.ms"].value for future in configs.values()} == {"-1"}
    assert GROUP in {group.group_id for group in admin.list_consumer_groups().result(30).valid}
    flow = load_flow("flights-dr", environ=machine.status().environment)
    assert all(flow.topics.selects(name) for name in names)


@pytest.mark.soak
def test_connector_is_seen_to_go_on_while_flights_flow(machine: Machine) -> None:
    """Its file grows meanwhile: the outcome is not left open."""
    done = machine.type(f"{PROGRAM} connectors apply flights --all")
    assert (done.returncode, "airports: done" in done.stdout) == (0, True), done.stdout


def test_down_leaves_nothing_but_the_data(machine: Machine) -> None:
    """No process, port or variable is left."""
    before = machine.up("--feed")

    stopped = machine.ask("clusters down")["stopped"]

    assert stopped == ["feed", "connect", "east", "west"]
    assert own_processes(machine.home) == []
    for port in ports_of(before):
        PortReservation(port).release()
    unset = machine.type(f"{PROGRAM} flow check flights-dr")
    assert unset.returncode == 2
    assert "make up" in unset.stdout
    feed = machine.status().feed
    assert feed is not None
    assert feed.state == "stopped"


@pytest.mark.soak
def test_the_next_up_has_the_same_ports_and_the_data(machine: Machine) -> None:
    """Also behind one that was interrupted."""
    before = machine.up("--feed")
    machine.ask("clusters down")

    interrupted = interrupt_up(machine, lambda: own_processes(machine.home))
    again = machine.up()

    assert "make down" in interrupted
    assert ports_of(again) == ports_of(before)
    assert "flights.jfk" in machine.east.list_topics(timeout=30).topics


@pytest.mark.soak
def test_ctrl_c_while_airflow_starts_says_what_runs_on_and_leaves_nothing_of_airflow(
    machine: Machine,
) -> None:
    """The clusters and Connect were up before, or are up by now: both are kept."""
    machine.up()
    home = machine.home / "airflow"

    said = interrupt_up(machine, lambda: marked(State.read(home).mark), "--airflow")

    assert re.search(r"^east +up, .*\nwest +up, .*\nconnect +up, .*\nairflow +down$", said, re.MULTILINE), (
        said
    )
    assert "make down" in said
    assert marked(State.read(home).mark) == []
    assert all(cluster["alive"] for cluster in machine.status().clusters.values())


def interrupt_up(machine: Machine, begun: Callable[[], object], *options: str) -> str:
    """Type `clusters up`, without a terminal, press Ctrl-C when it has ``begun``, and return what it says."""
    with subprocess.Popen(
        [str(PROGRAM), "clusters", "up", *options],
        cwd=PROJECT,
        env=machine.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as up:
        wait_until(begun, TIMEOUT_S, "a part starts")
        up.send_signal(signal.SIGINT)
        said, _ = up.communicate(timeout=TIMEOUT_S)
    assert up.returncode == 130, said
    return said


def ports_of(status: MachineStatus) -> list[int]:
    """Return the ports that clients use."""
    return [int(address.rpartition(":")[2]) for address in status.environment.values()]


def own_processes(home: Path) -> list[int]:
    """Return the processes with a path below ``home`` on their command lines."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(f"{home}/" in argument for argument in process.info["cmdline"] or ())
    ]
