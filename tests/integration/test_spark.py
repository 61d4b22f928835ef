"""The copy as Spark runs it, started by the command line, on real brokers."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from onceover.embed.ports import PortReservation
from onceover.embed.processes import ChildProcess
from onceover.kafka import calls
from onceover.model import TopicPartition
from onceover.spark.locate import spark_submit
from onceover.wiring.flows import open_clusters
from tests.support.adversary import Adversary, Traffic
from tests.support.clusters import SharedCluster
from tests.support.flows import InlineFlow, assert_same, write_flow
from tests.support.modes import open_to_others
from tests.support.replicate import START_S, Replicate, run_cli
from tests.support.wait import wait_until

PARTITIONS = 4


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


def test_killed_worker_driver_and_lost_hints_lose_and_repeat_nothing(
    flow: Path,
    topic: str,
    traffic: Traffic,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
    tmp_path: Path,
) -> None:
    """Kill -9 of a worker and of the driver, checkpoint and receipts deleted: G2, G4."""
    first = Replicate(flow, tmp_path, "--until", "forever")
    workers = first.copying()
    wait_until(lambda: (InlineFlow(flow).status()["last_commit_ms"] or 0) > 0, START_S, "something is copied")
    workers[0].kill()
    before = InlineFlow(flow).status()["last_commit_ms"]
    wait_until(lambda: InlineFlow(flow).status()["last_commit_ms"] > before, START_S, "copying goes on")
    os.kill(first.driver_note()["pid"], signal.SIGKILL)
    assert first.wait() == 5
    shutil.rmtree(tmp_path / flow.stem / "checkpoint")
    shutil.rmtree(tmp_path / flow.stem / "receipts", ignore_errors=True)

    second = Replicate(flow, tmp_path, "--until", "forever")
    second.copying()
    traffic.stop()
    wait_until(lambda: caught_up(flow), START_S, "the flow is caught up")
    code, stopped = run_cli(tmp_path, "stop", str(flow))
    assert (code, stopped["stopped"], stopped["was_running"]) == (0, True, True)
    assert second.wait() == 0

    document = second.document()
    assert document["command"] == "replicate"
    assert document["generation"] == 2
    assert_same(source_cluster.client, target_cluster.client, [topic])
    assert_nothing_open(flow, target_cluster)
    rows = pq.read_table(next((tmp_path / flow.stem / "receipts").iterdir())).to_pylist()
    assert sum(row["records"] for row in rows) == document["records"]
    # Checkpoint, receipts, logs, hints: made by the command, the JVM and the driver.
    assert open_to_others(tmp_path / flow.stem) == []


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
    run = Replicate(flow, tmp_path, "--until", "forever")
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
    lines = (tmp_path / flow.stem / "log" / "driver.log").read_text().splitlines()
    assert not [line for line in lines if line.startswith(("\t", "Exception in thread"))]
    (error,) = (line for line in lines if " ERROR   onceover." in line)
    assert "another start of this flow has taken over" in error
    assert len(lines) < 40


class SparkMaster:
    """A standalone master, with the workers that a test wants; a context manager that ends them all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bin = spark_submit().parent
        self._env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        self._children: list[ChildProcess] = []
        self.url = ""

    def __enter__(self) -> SparkMaster:
        reserved = [PortReservation(), PortReservation()]
        port, web_port = (reservation.port for reservation in reserved)
        for reservation in reserved:
            reservation.release()
        self.url = f"spark://127.0.0.1:{port}"
        arguments = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_port))
        master = self._start("master", "org.apache.spark.deploy.master.Master", *arguments)
        wait_until(lambda: master.listens_on(port), START_S, "the master listens")
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.stop()

    def worker(self) -> ChildProcess:
        """Start a worker of one core."""
        name = f"worker-{len(self._children)}"
        options = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0")
        work = ("--work-dir", str(self._folder / name))
        return self._start(name, "org.apache.spark.deploy.worker.Worker", *options, *work, self.url)

    def _start(self, name: str, kind: str, *arguments: str) -> ChildProcess:
        command = [str(self._bin / "spark-class"), kind, *arguments]
        log = self._folder / f"{name}.log"
        child = ChildProcess.start(command, name=name, log_path=log, env=self._env)
        self._children.append(child)
        return child


@pytest.mark.soak
def test_standalone_master_with_two_workers_copies(
    flow: Path, topic: str, source_cluster: SharedCluster, target_cluster: SharedCluster, tmp_path: Path
) -> None:
    """A Spark cluster instead of local: executors in processes of their own."""
    with SparkMaster(tmp_path) as master:
        for _ in range(2):
            master.worker()
        run = Replicate(flow, tmp_path, "--master", master.url)
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
        run = Replicate(flow, tmp_path, "--until", "forever", "--master", master.url)
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
        run = Replicate(flow, tmp_path, "--until", "forever", "--master", master.url)
        wait_until(lambda: InlineFlow(flow).status()["last_commit_ms"], 240.0, "something is copied")
        for worker in workers:
            worker.stop()
        assert run.wait(240.0) == 5, run.text()
        assert run.document()["error"]["code"] == "TOO_FEW_SLOTS"
    assert_nothing_open(flow, target_cluster)
