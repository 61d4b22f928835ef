"""The copy as Spark runs it, started by the command line, on real brokers."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from onceover.config.flow.load import load_flow
from onceover.kafka import calls
from onceover.model import TopicPartition
from onceover.process.children import ChildProcess
from onceover.spark.launch.submit import replicate_job
from onceover.wiring.flows import open_clusters
from tests.support.brokers.clusters import SharedCluster
from tests.support.commands.replicate import START_S, Replicate, run_cli
from tests.support.commands.sparkintruder import open_doors
from tests.support.commands.sparkmaster import SparkMaster, driver_port, press_kill, settings_shown
from tests.support.flows.flows import InlineFlow, assert_same, write_flow
from tests.support.raw.adversary import Adversary, Traffic
from tests.support.session.modes import open_to_others
from tests.support.session.wait import wait_until

PARTITIONS = 4
INCLUDE = Path(__file__).parents[3] / "include"


@pytest.fixture
def topic(source_cluster: SharedCluster, unique_name: str) -> str:
    """A topic on the source with something of everything in it."""
    with Adversary(source_cluster.bootstrap) as adversary:
        adversary.create_topic(unique_name, PARTITIONS)
        for partition in range(PARTITIONS):
            adversary.every_null_and_empty(unique_name, partition)
            adversary.interleaved(unique_name, partition)
    return unique_name


@pytest.fixture
def flow(tmp_path: Path, source_cluster: SharedCluster, target_cluster: SharedCluster, topic: str) -> Path:
    """A flow of that topic."""
    return write_flow(
        tmp_path, f"f-{topic}", source_cluster.client, target_cluster.client, [topic, f"{topic}.stuck"]
    )


@pytest.fixture
def traffic(source_cluster: SharedCluster, topic: str) -> Iterator[Traffic]:
    """Adversarial producers that go on while the test runs."""
    with Traffic(source_cluster.bootstrap, {topic: PARTITIONS}, seed=7) as running:
        yield running


def caught_up(flow: Path) -> bool:
    """Tell whether everything that readers may see on the source is committed on the target."""
    status = InlineFlow(flow).status()
    return bool(status["partitions"]) and all(p["lag_offsets"] == 0 for p in status["partitions"])


def assert_nothing_open(flow: Path, target: SharedCluster) -> None:
    """Fail unless readers of the target reach its end: no transaction holds the LSO back."""
    source, cluster = open_clusters(InlineFlow(flow).watch.flow)
    with source, cluster:
        partitions = InlineFlow(flow).status()["partitions"]
        tps = [TopicPartition(p["target_topic"], p["partition"]) for p in partitions]

        def closed() -> bool:
            lso = cluster.list_offsets(tps, calls.LATEST)
            return lso == cluster.list_offsets(tps, calls.LATEST, calls.READ_UNCOMMITTED)

        wait_until(closed, 10.0, "the target's transactions are closed")


def assert_starts_lean(jvm_pid: int) -> None:
    """Fail if Spark has started its workers' Python twice, or if pandas was loaded: half of a start."""
    family = [each for each in psutil.Process(jvm_pid).children(recursive=True) if each.name() == "python"]
    daemons = [
        each for each in family if each.ppid() == jvm_pid and "onceover.spark.daemon" in each.cmdline()
    ]
    heavy = [each.cmdline() for each in family if any("/pandas/" in one.path for one in each.memory_maps())]
    assert (len(daemons), heavy) == (1, [])


def assert_one_scratch(own: Path) -> Path:
    """What Spark has in use lies where the next start finds it, and nowhere else; return where."""
    (living,) = own.iterdir()
    assert {each.name.split("-")[0] for each in living.iterdir()} >= {"lock", "blockmgr", "spark"}
    return living


def test_killed_worker_driver_and_lost_hints_lose_and_repeat_nothing(
    flow: Path,
    topic: str,
    traffic: Traffic,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
    tmp_path: Path,
) -> None:
    """Kill -9 of a worker and of the driver, checkpoint and receipts deleted: G2, G4."""
    run = Replicate(flow, tmp_path, "--until", "forever")
    workers = run.copying()
    wait_until(lambda: (InlineFlow(flow).status()["last_commit_ms"] or 0) > 0, START_S, "something is copied")
    # Whoever finds the UI is not asked for a login.
    ui = run.driver_note()["ui"]
    assert "(kill)" not in press_kill(ui)
    # Nor do the other ports of a local driver open to another JVM of the machine, which has no secret.
    assert open_doors(driver_port(ui)) == []
    assert_starts_lean(run.driver_note()["jvm_pid"])
    workers[0].kill()
    before = InlineFlow(flow).status()["last_commit_ms"]
    wait_until(lambda: InlineFlow(flow).status()["last_commit_ms"] > before, START_S, "copying goes on")
    # Started again at once, by the command itself: it stands still until the hints are gone.
    note = run.driver_note()
    jvm = psutil.Process(note["jvm_pid"])
    run.child.pause()
    os.kill(note["pid"], signal.SIGKILL)
    wait_until(lambda: jvm.status() == psutil.STATUS_ZOMBIE, START_S, "the JVM has ended with its driver")
    shutil.rmtree(tmp_path / flow.stem / "checkpoint")
    shutil.rmtree(tmp_path / flow.stem / "receipts", ignore_errors=True)
    run.child.resume()
    wait_until(lambda: run.driver_note()["generation"] == 2, START_S, "another driver leads the flow")
    run.copying()
    assert_one_scratch(tmp_path / flow.stem / "tmp")
    traffic.stop()
    wait_until(lambda: caught_up(flow), START_S, "the flow is caught up")
    code, stopped = run_cli(tmp_path, "stop", str(flow))
    assert (code, stopped["stopped"], stopped["was_running"]) == (0, True, True)
    assert run.wait() == 0

    document = run.document()
    assert document["command"] == "replicate"
    assert (document["generation"], document["restarts"]) == (2, 1)
    assert_same(source_cluster.client, target_cluster.client, [topic])
    assert_nothing_open(flow, target_cluster)
    rows = pq.read_table(next((tmp_path / flow.stem / "receipts").iterdir())).to_pylist()
    assert sum(row["records"] for row in rows) == document["records"]
    # Checkpoint, receipts, logs, hints: made by the command, the JVM and the driver.
    assert open_to_others(tmp_path / flow.stem) == []
    assert list((tmp_path / flow.stem / "tmp").iterdir()) == []


@pytest.mark.soak
def test_killed_command_leaves_what_the_next_start_takes_away(
    flow: Path,
    topic: str,
    traffic: Traffic,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
    tmp_path: Path,
) -> None:
    """Kill -9 of the command and its JVM, which Spark's temporary files outlive; hints deleted: G2, G4."""
    first = Replicate(flow, tmp_path, "--until", "forever")
    first.copying()
    jvm = psutil.Process(first.driver_note()["jvm_pid"])
    os.kill(first.child.pid, signal.SIGKILL)
    jvm.kill()
    jvm.wait(START_S)
    first.wait()
    shutil.rmtree(tmp_path / flow.stem / "checkpoint")
    shutil.rmtree(tmp_path / flow.stem / "receipts", ignore_errors=True)

    own = tmp_path / flow.stem / "tmp"
    (killed,) = own.iterdir()
    second = Replicate(flow, tmp_path, "--until", "forever")
    second.copying()
    assert assert_one_scratch(own) != killed
    traffic.stop()
    wait_until(lambda: caught_up(flow), START_S, "the flow is caught up")
    assert run_cli(tmp_path, "stop", str(flow))[0] == 0
    assert second.wait() == 0
    assert second.document()["generation"] == 2
    assert_same(source_cluster.client, target_cluster.client, [topic])
    assert_nothing_open(flow, target_cluster)
    assert list(own.iterdir()) == []


@pytest.mark.soak
@pytest.mark.parametrize("what", ["is stopped", "is begun by somebody else"])
def test_what_is_done_while_a_killed_copy_waits_to_be_started_again_counts(
    flow: Path,
    topic: str,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
    tmp_path: Path,
    what: str,
) -> None:
    """Eight seconds before its third start. Told that nobody copies, a person is not copied behind."""
    run = Replicate(flow, tmp_path, "--until", "forever")
    run.copying()
    for count in range(1, 4):
        wait_until(lambda: run.driver_note()["generation"] == count, START_S, "it is started again")  # noqa: B023
        os.kill(run.driver_note()["jvm_pid"], signal.SIGKILL)
        wait_until(lambda: InlineFlow(flow).status()["run"]["ended"] == "failed", START_S, "it has ended")
    if what == "is stopped":
        code, told = run_cli(tmp_path, "stop", str(flow))
        assert (code, told["stopped"], told["was_running"]) == (0, True, False)
        assert run.wait() == 0, run.text()
        document = run.document()
        assert (document["generation"], document["records"], document["restarts"]) == (4, 0, 3)
    else:
        InlineFlow(flow).copy()
        assert run.wait() == 4, run.text()
        assert run.document()["error"]["seen"].startswith("generation 4")
        assert InlineFlow(flow).status()["generation"] == 4
        assert_same(source_cluster.client, target_cluster.client, [topic])
    assert_nothing_open(flow, target_cluster)


@pytest.mark.soak
@pytest.mark.parametrize("at", ["its first record", "its topics", "its note"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_as_it_begins_ends_as_asked(
    flow: Path, target_cluster: SharedCluster, tmp_path: Path, at: str, number: signal.Signals
) -> None:
    """Its JVM got the signal until its driver had left a note, and it had failed."""

    def begun() -> bool:
        status = InlineFlow(flow).status()
        enrolled = any(each["enrolled_ms"] for each in status["partitions"])
        told = {"its first record": status["generation"], "its topics": status["generation"] and enrolled}
        return bool(told.get(at, run.driver_note()))

    run = Replicate(flow, tmp_path, "--until", "forever")
    wait_until(begun, START_S, at, poll_s=0.01)
    run.child.send_signal(number)
    assert run.wait(30.0) == 0, run.text()
    assert InlineFlow(flow).status()["run"]["ended"] == "asked"
    assert_nothing_open(flow, target_cluster)


@pytest.mark.soak
def test_caught_up_ends_by_itself_and_sigterm_to_the_jvm_leaves_nothing_open(
    flow: Path,
    topic: str,
    traffic: Traffic,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
    tmp_path: Path,
) -> None:
    """A JVM that is told to end takes its workers along; the driver ends what they left open.

    The run after it copies everything but a record that the target refuses, says so, and ends with 3.
    """
    run = Replicate(flow, tmp_path, "--until", "forever", "--restarts", "0")
    run.copying()
    wait_until(lambda: (InlineFlow(flow).status()["last_commit_ms"] or 0) > 0, START_S, "something is copied")
    os.kill(run.driver_note()["jvm_pid"], signal.SIGTERM)
    assert run.wait() == 5
    assert run.document()["error"]["code"] == "JVM_GONE"
    assert_nothing_open(flow, target_cluster)
    traffic.stop()
    stuck = f"{topic}.stuck"
    with Adversary(source_cluster.bootstrap) as adversary:
        adversary.create_topic(stuck)
        adversary.plain(stuck, 0, adversary.records(1, key=None))
    with Adversary(target_cluster.bootstrap) as adversary:
        adversary.create_topic(stuck, config={"cleanup.policy": "compact"})

    caught = Replicate(flow, tmp_path, "--until", "caught-up")
    assert caught.wait() == 3, caught.text()
    assert caught.document()["caught_up"] is False
    (stop,) = caught.document()["stopped"]
    assert (stop["topic"], stop["partition"], stop["code"]) == (stuck, 0, "RECORD_REFUSED")
    assert_same(source_cluster.client, target_cluster.client, [topic])


@pytest.mark.soak
def test_takeover_and_sigterm_end_runs_in_a_line_and_within_ten_seconds(
    flow: Path, traffic: Traffic, target_cluster: SharedCluster, tmp_path: Path
) -> None:
    """A second start takes over: the first ends with 4 and says so in a line. SIGTERM ends the second one.

    No process stays behind; the log has one error of ours, and nothing of Spark's stack traces.
    """
    first = Replicate(flow, tmp_path, "--until", "forever")
    first.copying()
    run = Replicate(flow, tmp_path, "--until", "forever")
    assert first.wait() == 4
    assert first.document()["error"]["seen"].startswith("generation 2")
    run.copying()
    before = InlineFlow(flow).status()["last_commit_ms"]
    wait_until(lambda: InlineFlow(flow).status()["last_commit_ms"] > before, START_S, "copying goes on")
    family = psutil.Process(run.child.pid).children(recursive=True)
    run.child.send_signal(signal.SIGTERM)
    assert run.wait(20.0) == 0, run.text()
    assert_nothing_open(flow, target_cluster)
    assert not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert run.document()["generation"] == 2
    lines = run.printed().splitlines()
    assert not [line for line in lines if line.startswith(("\t", "Exception in thread"))]
    (error,) = (line for line in lines if " ERROR   onceover." in line)
    assert "another start of this flow has taken over" in error
    assert len(lines) < 40


@pytest.mark.soak
def test_standalone_master_with_two_workers_copies(
    flow: Path, topic: str, source_cluster: SharedCluster, target_cluster: SharedCluster, tmp_path: Path
) -> None:
    """A Spark cluster instead of local: executors in processes of their own."""
    with SparkMaster(tmp_path) as master:
        for _ in range(2):
            master.worker()
        run = Replicate(flow, tmp_path, "--master", master.url, secret=master.secret)
        assert run.wait(180.0) == 0, run.text()
        document = run.document()
        # The flow's second pattern is for a topic that another test makes.
        assert [warning["code"] for warning in document["warnings"]] == ["PATTERN_WITHOUT_TOPIC"]
        assert document["caught_up"] is True
    assert_same(source_cluster.client, target_cluster.client, [topic])


@pytest.mark.soak
def test_master_without_workers_is_a_temporary_failure_and_fences_nobody(flow: Path, tmp_path: Path) -> None:
    """Spark itself goes on without executors after a minute, and its tasks would wait for ever."""
    with SparkMaster(tmp_path) as master:
        run = Replicate(flow, tmp_path, "--until", "forever", "--master", master.url, secret=master.secret)
        assert run.wait(240.0) == 5, run.text()
    error = run.document()["error"]
    assert (error["code"], error["seen"]) == ("TOO_FEW_SLOTS", "0")
    assert InlineFlow(flow).status()["state"] == "not_started"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_run_that_loses_its_executors_ends_and_says_why(
    flow: Path, target_cluster: SharedCluster, tmp_path: Path
) -> None:
    """A driver that shows signs of life alone copies nothing; no transaction stays open."""
    with SparkMaster(tmp_path) as master:
        workers = [master.worker() for _ in range(2)]
        run = Replicate(flow, tmp_path, "--until", "forever", "--master", master.url, secret=master.secret)
        wait_until(lambda: InlineFlow(flow).status()["last_commit_ms"], 240.0, "something is copied")
        for worker in workers:
            worker.stop()
        assert run.wait(240.0) == 5, run.text()
        assert run.document()["error"]["code"] == "TOO_FEW_SLOTS"
    assert_nothing_open(flow, target_cluster)


# In place of the copy: says that it is there, and stays.
_SESSION = """
import json, os, sys
from onceover.spark.session import opening
with opening(os.getppid()) as spark:
    context = spark.sparkContext
    print("told", json.dumps([context.applicationId, context.uiWebUrl]), flush=True)
    # Until its JVM is gone.
    sys.stdin.read()
"""


@pytest.mark.soak
def test_standalone_master_is_talked_to_with_a_secret_that_nobody_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Master and job have the same one, or it would give no id; no page or command line shows it."""
    (tmp_path / "app.py").write_text(_SESSION)
    nowhere = {"bootstrap.servers": "127.0.0.1:1"}
    flow = load_flow(write_flow(tmp_path, "f", nowhere, nowhere, ["x"]))
    log = tmp_path / "job.log"
    with SparkMaster(tmp_path) as master:
        monkeypatch.setenv("ONCEOVER_SPARK_SECRET", master.secret)
        job = replace(replicate_job(flow, until="1m", master=master.url), application=tmp_path / "app.py")
        env = job.process_environment({**os.environ, "PYTHONPATH": str(INCLUDE)})
        child = ChildProcess.start(job.command(), name="job", log_path=log, env=env)
        try:
            told = wait_until(lambda: _told(log), START_S, "the master has registered the job")
            lines, shown = master.command_lines(child.pid), settings_shown(told[1])
        finally:
            child.stop()
    assert told[0].startswith("app-")
    assert [line for line in lines if "app.py" in line and "spark.network.crypto.saslFallback=false" in line]
    assert "spark.network.crypto.saslFallback" in shown
    assert [text for text in (*lines, shown, log.read_text()) if master.secret in text] == []


def _told(log: Path) -> list[str] | None:
    # A line that is there whole.
    lines = [line for line in log.read_text().splitlines(keepends=True) if line.startswith("told ")]
    return json.loads(lines[0].removeprefix("told ")) if lines and lines[0].endswith("\n") else None


@pytest.mark.soak
def test_standalone_master_with_a_secret_copies_and_no_process_shows_it(
    source_cluster: SharedCluster, target_cluster: SharedCluster, topic: str, tmp_path: Path
) -> None:
    """Executors and what they start have it from their worker; no command line, page or log shows it."""
    flow = write_flow(tmp_path, f"f-{topic}", source_cluster.client, target_cluster.client, [topic], lanes=1)
    with SparkMaster(tmp_path) as master:
        master.worker()
        run = Replicate(flow, tmp_path, "--until", "forever", "--master", master.url, secret=master.secret)
        note = run.started()
        wait_until(lambda: caught_up(flow), START_S, "the flow is caught up")
        lines = master.command_lines(note["jvm_pid"])
        assert [line for line in lines if "CoarseGrainedExecutorBackend" in line]
        shown = settings_shown(note["ui"])
        run.child.send_signal(signal.SIGTERM)
        assert run.wait() == 0, run.text()
        logs = [run.text(), run.printed()]
        assert [text for text in (*lines, shown, *logs) if master.secret in text] == []
    assert_same(source_cluster.client, target_cluster.client, [topic])


@pytest.mark.soak
@pytest.mark.parametrize("guarded", [True, False])
def test_master_of_somebody_else_gets_no_job(flow: Path, tmp_path: Path, guarded: bool) -> None:
    """One with another secret, and one that asks for none: the job ends, and has fenced nobody."""
    with SparkMaster(tmp_path, guarded=guarded) as master:
        master.worker()
        run = Replicate(flow, tmp_path, "--master", master.url, secret="the-secret-of-another-master")
        assert run.wait(240.0) == 5, run.text()
        # Nothing was killed: it is not started again at once, to wait another minute.
        assert run.document()["error"]["code"] == "SPARK_MASTER_GONE"
    assert InlineFlow(flow).status()["state"] == "not_started"
