"""`onceover metrics` beside a flow that copies between real clusters: it tells what really happened."""

from __future__ import annotations

import http.client
import signal
import socket
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from onceover.cli.main import main
from onceover.copy.account import Account
from onceover.errors import MustReset
from onceover.metrics import catalogue as m
from onceover.metrics.figures import exposition
from onceover.metrics.serve import serving
from onceover.metrics.tallies import Tallies
from onceover.wire.offsetmap import MapRecord
from onceover.wiring.monitoring.exporter import FlowMonitor, MonitorSettings
from tests.support.flows.groups import commit
from tests.support.flows.replica import Replica
from tests.support.session.wait import wait_until

SETTINGS = MonitorSettings(interval_s=0.1, patience_s=10.0, most=100)


def look(monitor: FlowMonitor) -> dict[str, float]:
    """Return the samples of one look whose labels beside flow and topic are as they stand behind the name."""
    _, figures = monitor.look()
    found = {}
    for family in text_string_to_metric_families(exposition([figures.texts()]).decode()):
        for sample in family.samples:
            labels = [value for name, value in sample.labels.items() if name not in ("flow", "topic")]
            found[" ".join([sample.name.removeprefix("onceover_"), *labels])] = sample.value
    return found


def test_counters_go_on_over_the_runs_of_a_flow(replica: Replica) -> None:
    """What each run commits is counted once; starts are counted by the flow itself."""
    topic = replica.topic("counted", 1)
    monitor = FlowMonitor(replica.flow.path, SETTINGS, Tallies())
    before = look(monitor)
    assert before["flow_run_state not_started"] == 1
    for run in (1, 2):
        replica.source.plain(topic, 0, replica.source.records(10))
        replica.copy()
        now = look(monitor)
        assert now["topic_records_written_total"] == 10 * run
        assert now["flow_starts_total"] == run
        assert now["flow_lag_offsets"] == 0
        assert now["flow_fenced_starts_total"] == now["flow_restarts_total"] == 0
        assert now["flow_cluster_up source"] == now["flow_cluster_up target"] == 1
        (position,) = [v for name, v in now.items() if name.startswith("partition_position_offset ")]
        assert position == 10 * run
    lanes = [name for name in now if name.startswith("lane_records_written_total")]
    assert sum(now[name] for name in lanes) == 20
    assert 2 <= sum(v for name, v in now.items() if name.startswith("lane_transactions_committed")) <= 20
    assert sum(v for name, v in now.items() if name.startswith("lane_offsets_fetched")) >= 20
    assert now["topic_written_bytes_total"] > 0
    # A new exporter begins at 0, as Prometheus expects of one that was restarted.
    assert "topic_records_written_total" not in look(FlowMonitor(replica.flow.path, SETTINGS, Tallies()))


def test_a_start_that_fences_a_run_and_a_transaction_that_fails_are_counted(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the flow's state: whoever looks later sees them, too."""
    topic = replica.topic("fenced", 1)
    replica.source.plain(topic, 0, replica.source.records(5))
    written, write_map = [], Account.write_map

    def fails_once(self: Account, *arguments: Any) -> list[MapRecord]:
        written.append(self)
        if len(written) == 1:
            raise MustReset("as if a broker had gone away")
        return write_map(self, *arguments)

    with replica.flow.running():
        pass  # it never says that it has ended
    monkeypatch.setattr(Account, "write_map", fails_once)
    replica.copy()
    now = look(FlowMonitor(replica.flow.path, SETTINGS, Tallies()))
    assert now["flow_fenced_starts_total"] == now["flow_restarts_total"] == 1
    assert sum(v for name, v in now.items() if name.startswith("lane_transactions_aborted_total")) == 1
    assert now["flow_lag_offsets"] == 0


def test_of_open_transactions_the_one_that_stays_is_old(replica: Replica) -> None:
    """Others begin and end, as a busy producer's do; each look sees one."""
    topic, now_s = replica.topic("held", 1), [0.0]
    replica.source.plain(topic, 0, replica.source.records(2))
    replica.copy()
    monitor = FlowMonitor(replica.flow.path, SETTINGS, Tallies(), lambda: now_s[0])
    for _ in range(3):
        with_records = replica.source.transaction(topic)
        with_records.send(0, replica.source.records(3))
        now = look(monitor)
        assert (now["flow_open_transaction_partitions"], now["flow_open_transaction_age_seconds"]) == (1, 0)
        now_s[0] += 600
        assert look(monitor)["flow_open_transaction_age_seconds"] == 600
        with_records.commit()
    now = look(monitor)
    assert (now["flow_open_transaction_partitions"], now["flow_open_transaction_age_seconds"]) == (0, 0)


def test_a_topic_that_is_excluded_takes_its_counters_with_it_and_no_others(replica: Replica) -> None:
    """As soon as a run has left it out; whatever its lane has done counts on."""
    topics = [replica.topic(name, 1) for name in ("stays", "goes")]
    monitor = FlowMonitor(replica.flow.path, SETTINGS, Tallies())

    def told() -> set[tuple[str, ...]]:
        _, figures = monitor.look()
        return {(labels[1], str(count)) for labels, count in figures.samples(m.TOPIC_RECORDS).items()}

    monitor.look()
    for topic in topics:
        replica.source.plain(topic, 0, replica.source.records(4))
    replica.copy()
    assert told() == {(topic, "4") for topic in topics}
    replica.configure(topics={"exclude": [topics[1]]})
    replica.write_flow()
    replica.flow.watch.current()
    replica.source.plain(topics[0], 0, replica.source.records(1))
    replica.copy()
    assert told() == {(topics[0], "5")}


@pytest.mark.soak
def test_a_typo_in_its_file_hides_nothing_of_a_flow(replica: Replica) -> None:
    """Groups and drills are read as the file was, too; all is as before when it is in order again."""
    topic = replica.topic("typo", 1)
    replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    path, now_s = replica.flow.path, [0.0]
    monitor, text = FlowMonitor(path, SETTINGS, Tallies(), lambda: now_s[0]), path.read_text()
    before = look(monitor)
    assert before["flow_file_valid"] == 1
    assert before["flow_partitions caught_up"] == 1
    now_s[0] = 400.0
    path.write_text(f"{text}tpics: 1\n")
    now = look(monitor)
    assert (now["flow_file_valid"], now["flow_status_exit"]) == (0, 2)
    assert now.keys() - {"flow_needs bad_config 2"} == before.keys()
    assert {name for name in now if name.startswith("flow_groups")}
    path.write_text(text)
    assert look(monitor)["flow_file_valid"] == 1


def test_groups_are_not_known_without_a_place_to_write_and_that_is_said(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything else is told all the same."""
    topic = replica.topic("homeless", 1)
    replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    commit(replica.source_client, f"{replica.name}-readers", topic, {0: 3})
    # Nobody makes a directory there, root neither.
    monkeypatch.setenv("ONCEOVER_HOME", "/proc/onceover")
    now = look(FlowMonitor(replica.flow.path, SETTINGS, Tallies()))
    assert now["flow_partitions caught_up"] == 1
    assert not [name for name in now if name.startswith("flow_groups")]
    assert "the index of the offset map of" in caplog.text


def asked(port: int, path: str = "/metrics", method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_endpoint_answers_scrapes_and_nothing_else() -> None:
    """Who connects and is silent keeps nobody waiting."""
    with serving("127.0.0.1", 0, lambda: b"x 1\n") as port, socket.socket() as silent:
        silent.connect(("127.0.0.1", port))
        assert asked(port) == (200, b"x 1\n")
        assert asked(port, "/metrics?x=1") == (200, b"x 1\n")
        assert asked(port, method="HEAD") == (200, b"")
        assert asked(port, "/../etc/passwd")[0] == 404
        assert asked(port, method="POST")[0] == 501
    with pytest.raises(ConnectionRefusedError):
        asked(port)


@pytest.fixture
def no_flows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the flows directory empty."""
    monkeypatch.setenv("ONCEOVER_FLOWS", str(tmp_path))


@pytest.mark.usefixtures("no_flows")
def test_it_serves_until_it_is_asked_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    """And leaves no thread that serves, and no port that is taken."""

    def end() -> None:
        time_limit = time.monotonic() + 20
        while "onceover-metrics" not in {t.name for t in threading.enumerate()}:
            assert time.monotonic() < time_limit
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    ending = threading.Thread(target=end)
    ending.start()
    assert main(["metrics", "--port", "0"]) == 0
    ending.join()
    assert "/metrics" in capsys.readouterr().out
    wait_until(lambda: "onceover-metrics" not in {t.name for t in threading.enumerate()}, 20, "nobody serves")


def test_numbered_records_make_their_way_and_a_restart_loses_none(replica: Replica) -> None:
    """Written on the source, copied by the flow, met on the target; the next run goes on behind them."""
    replica.configure(canary={"interval": "1s", "topic": f"{replica.name}.canary"})
    replica.topic("other")
    now = dict[str, float]()
    with replica.running():
        for _ in range(2):
            monitor = FlowMonitor(replica.flow.path, SETTINGS, Tallies())
            monitor.keep_canary()
            try:
                wait_until(partial(_arrived, monitor, now), 60, "numbered records on the target")
            finally:
                monitor.close()
            for wrong in ("lost", "duplicates", "failures", "out_of_order"):
                assert now[f"canary_{wrong}_total"] == 0
            assert now["canary_round_trip_seconds_sum"] > 0
    numbers = [
        int(record.key or b"")
        for partition in (0, 1)
        for record in replica.target_records(f"{replica.name}.canary", partition).values()
    ]
    assert sorted(numbers) == list(range(len(numbers)))


def _arrived(monitor: FlowMonitor, now: dict[str, float]) -> bool:
    now.clear()
    now.update(look(monitor))
    return now["canary_received_total"] >= 2
