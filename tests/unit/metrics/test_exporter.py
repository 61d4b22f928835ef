"""`onceover metrics` without clusters: scrapes are answered whatever flows, files and clients do."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onceover.cli.commands import metrics as command
from onceover.cli.main import main
from onceover.drills.codes import DrillCode
from onceover.drills.history import DrillHistory
from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.groups.standing import unknown_standing
from onceover.metrics import tallies as counted
from onceover.metrics.canary.thread import CanaryThread
from onceover.metrics.figures import exposition
from onceover.metrics.looks import stale_after_s
from onceover.metrics.tallies import Tallies
from onceover.positions.tail import TailRead
from onceover.wiring.monitoring import exporter as monitoring
from onceover.wiring.monitoring.exporter import Exporter, FlowMonitor, MonitorSettings, look_once
from onceover.wiring.monitoring.watchedfile import WatchedFile
from tests.support.session.wait import wait_until
from tests.support.worlds.statusentries import partition_entry, running_entry
from tests.unit.drills.test_switching import written
from tests.unit.metrics.test_counting import receipt

SETTINGS = MonitorSettings(interval_s=0.01, patience_s=0.2, most=100)
_FLOW = """flow: {name}
source:
  alias: east
  client: {{bootstrap.servers: "127.0.0.1:1", security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN,
    sasl.username: me, sasl.password: "${{SECRET}}"}}
target: {{alias: west, client: {{bootstrap.servers: "127.0.0.1:2"}}}}
topics: {{include: ["x"]}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A flows directory with one flow whose clusters are dead."""
    monkeypatch.setenv("ONCEOVER_FLOWS", str(tmp_path))
    monkeypatch.setenv("SECRET", "hunter2")

    def refused(*_: object, **__: object) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", refused)
    write(tmp_path, "good")
    return tmp_path


def write(folder: Path, name: str, flow: str | None = None) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(_FLOW.format(name=flow or name))
    return path


def lines(text: bytes, name: str) -> set[str]:
    """Return the samples of one metric, as they are scraped."""
    return {line for line in text.decode().splitlines() if line.startswith(f"onceover_{name}{{")}


def samples(name: str, **values: int) -> set[str]:
    return {f'onceover_{name}{{flow="{flow}"}} {float(value)}' for flow, value in values.items()}


@contextmanager
def exporting(
    paths: Callable[[], list[Path]], settings: MonitorSettings = SETTINGS, **others: Any
) -> Iterator[Exporter]:
    exporter = Exporter(paths, settings, **others)
    exporter.refresh()
    try:
        yield exporter
    finally:
        exporter.close()


def test_a_broken_file_and_dead_clusters_cost_nobody_their_samples(folder: Path) -> None:
    """Each is said of its own flow, and no secret is in any label."""
    (folder / "typo.yaml").write_text("flow: typo\nsource: {password: hunter2}\n")
    text = look_once(sorted(folder.iterdir()), SETTINGS)
    assert lines(text, "flow_file_valid") == samples("flow_file_valid", good=1, typo=0)
    assert lines(text, "flow_status_exit") == samples("flow_status_exit", good=5, typo=2)
    assert 'onceover_flow_cluster_up{flow="good",side="source"} 0.0' in text.decode()
    assert b"hunter2" not in text


def test_a_look_that_hangs_is_given_no_samples_and_keeps_no_scrape_waiting(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others' go on; its own are left out once they are too old, and that is said."""
    hangs, now_s, slow = threading.Event(), [0.0], []

    def status(flow: Any, **_: object) -> dict[str, Any]:
        if flow.flow == "slow":
            slow.append(flow)
            if len(slow) > 1:
                hangs.wait(30)
        return {**running_entry(flow.flow), "path": ""}

    monkeypatch.setattr(monitoring, "read_status", status)
    monkeypatch.setattr(monitoring, "drill_history", lambda *_: pytest.fail("asked for drills"))
    monkeypatch.setattr(monitoring.FlowMonitor, "_keep_seldom", lambda *_: None)
    paths = [folder / "good.yaml", write(folder, "slow")]
    with exporting(lambda: paths, clock=lambda: now_s[0]) as exporter:
        both = samples("look_fresh", good=1, slow=1)
        wait_until(lambda: lines(exporter.scrape(), "look_fresh") == both, 20, "both flows are seen")
        now_s[0] = stale_after_s(SETTINGS.interval_s) + 1
        one = samples("look_fresh", good=1, slow=0)
        wait_until(lambda: lines(exporter.scrape(), "look_fresh") == one, 20, "the other is looked at again")
        assert lines(exporter.scrape(), "flow_lag_offsets") == samples("flow_lag_offsets", good=0)
        hangs.set()


def test_files_come_and_go(folder: Path) -> None:
    """One that is gone has no samples; one that has come is said to be there before it was looked at."""
    paths = [folder / "good.yaml"]
    with exporting(lambda: list(paths)) as exporter:
        wait_until(lambda: lines(exporter.scrape(), "flow_file_valid"), 20, "the flow is seen")
        paths[:] = [write(folder, "new")]
        exporter.refresh()
        assert {
            line.partition('"')[2].partition('"')[0] for line in lines(exporter.scrape(), "look_fresh")
        } == {"new"}


def test_a_flow_for_which_no_thread_is_to_be_had_is_looked_at_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs nobody else their samples, and is not taken for one that is looked at."""
    start = threading.Thread.start

    def started(thread: threading.Thread) -> None:
        if thread.name == "onceover-metrics-late":
            raise RuntimeError("can't start new thread")
        start(thread)

    paths = list[Path]()
    with exporting(lambda: paths) as exporter:
        paths += [write(folder, "late"), folder / "good.yaml"]
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", started)
            exporter.refresh()
            wait_until(lambda: _fresh(exporter, "good"), 20, "the other one is looked at")
        assert lines(exporter.scrape(), "look_fresh") == samples("look_fresh", good=1, late=0)
        exporter.refresh()
        wait_until(lambda: _fresh(exporter, "late"), 20, "it is looked at, too")


def _fresh(exporter: Exporter, flow: str) -> bool:
    return bool(lines(exporter.scrape(), "look_fresh") & samples("look_fresh", **{flow: 1}))


def test_two_files_with_one_name_make_no_series_twice(folder: Path) -> None:
    """Prometheus would take none of the scrape then. A copy that sorts before the flow's own file is not
    looked at, and both are said not to be in order: nobody knows which one was meant.
    """
    paths = [write(folder, "good-old", "good"), folder / "good.yaml"]
    both = {f'onceover_flow_file_valid{{flow="{flow}"}} 0.0' for flow in ("good", "good-old")}
    for text in (look_once(paths, SETTINGS), _settled(paths)):
        assert_each_series_once(text)
        assert lines(text, "flow_file_valid") == both
        assert lines(text, "flow_status_exit") == {
            'onceover_flow_status_exit{flow="good"} 2.0',
            'onceover_flow_status_exit{flow="good-old"} 2.0',
        }
        assert 'onceover_flow_cluster_up{flow="good",side="target"} 0.0' in text.decode()


def test_a_file_that_is_called_after_anothers_flow_makes_no_series_twice(folder: Path) -> None:
    """Where it is not in order itself, its own name stands for it."""
    paths = [write(folder, "a", "b"), write(folder, "b", "c"), write(folder, "d", "c")]
    text = look_once(paths, SETTINGS)
    assert_each_series_once(text)
    assert lines(text, "flow_file_valid") == {
        'onceover_flow_file_valid{flow="b"} 1.0',
        'onceover_flow_file_valid{flow="b.yaml"} 0.0',
        'onceover_flow_file_valid{flow="d"} 0.0',
    }


def assert_each_series_once(text: bytes) -> None:
    names = [line.partition(" ")[0] for line in text.decode().splitlines() if not line.startswith("#")]
    assert len(names) == len(set(names))


def _settled(paths: list[Path]) -> bytes:
    with exporting(lambda: paths) as exporter:
        wait_until(lambda: len(lines(exporter.scrape(), "flow_file_valid")) == 2, 20, "both are seen")
        return exporter.scrape()


@pytest.fixture
def running(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `status` says of the flow: it runs, and a partition is stopped. Changes change the next look."""
    told = {"partitions": [partition_entry(0, "stopped", 4)]}

    def status(flow: Any, **_: object) -> dict[str, Any]:
        return {**running_entry(flow.flow), "path": "", **told}

    monkeypatch.setattr(monitoring, "read_status", status)
    monkeypatch.setattr(monitoring, "drill_history", lambda *_: DrillHistory("good", (), 0))
    return told


def looked(monitor: FlowMonitor) -> bytes:
    """Return what one look tells."""
    return exposition([monitor.look()[1].texts()])


# A driver that is gone has not ended its run: somebody has to hear of it.
UNENDED = ["starting", "running", "gone"]
STOPPED = 'onceover_flow_partitions{flow="good",state="stopped"} 1.0'
WANTED = 'onceover_flow_wanted{flow="good"} 1.0'


@pytest.mark.usefixtures("running")
def test_a_file_that_was_in_order_once_is_watched_on_as_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is the matter with it now stands beside: no page goes away over a typo."""
    path = folder / "good.yaml"
    monitor, text = FlowMonitor(path, SETTINGS, Tallies()), path.read_text()

    def tells(valid: int) -> None:
        told = looked(monitor)
        assert lines(told, "flow_file_valid") == samples("flow_file_valid", good=valid)
        assert {STOPPED, WANTED} <= set(told.decode().splitlines())

    tells(1)
    for typo in (f"{text}tpics: 1\n", text.replace("flow: good", "flow: godo"), "flow: ["):
        path.write_text(typo)
        tells(0)
    path.unlink()
    tells(0)
    path.write_text(text)
    tells(1)
    monkeypatch.delenv("SECRET")
    tells(0)


def test_a_file_that_is_deployed_again_says_what_it_has_said_before(folder: Path) -> None:
    """A run that is missed since is missed still; another text begins anew."""
    path = folder / "good.yaml"
    file = WatchedFile(path, lambda: [path])
    seen = []
    for at_s, text in ((1000, ""), (2000, ""), (3000, "lanes: 2\n"), (4000, "")):
        path.write_text(path.read_text() + text)
        os.utime(path, (at_s, at_s))
        file.refresh(runs=False)
        seen.append(file.in_order().written_ms)
    assert seen == [1_000_000, 1_000_000, 3_000_000, 3_000_000]


@pytest.mark.parametrize("state", UNENDED)
def test_a_flow_is_called_otherwise_once_its_run_has_ended(
    folder: Path, running: dict[str, Any], state: str
) -> None:
    """Until then nobody else would watch the run, or miss it."""
    path = folder / "good.yaml"
    monitor = FlowMonitor(path, SETTINGS, Tallies())
    looked(monitor)
    running["run"] = {**running_entry()["run"], "state": state}
    path.write_text(_FLOW.format(name="other"))
    assert monitor.look()[0] == "good"
    assert monitor.look()[0] == "good"
    running["run"] = {**running_entry()["run"], "state": "ended"}
    assert monitor.look()[0] == "good"
    assert monitor.look()[0] == "other"


def test_a_file_that_was_never_in_order_is_told_as_broken_alone(folder: Path) -> None:
    """Nobody knows what it is to copy, so nobody is missed."""
    (folder / "good.yaml").write_text("flow: [")
    told = looked(FlowMonitor(folder / "good.yaml", SETTINGS, Tallies()))
    assert lines(told, "flow_file_valid") == samples("flow_file_valid", good=0)
    assert lines(told, "flow_wanted") == lines(told, "flow_lag_limit_seconds") == set()
    assert lines(told, "flow_run_state") == {'onceover_flow_run_state{flow="good",state="unknown"} 1.0'}


@pytest.mark.parametrize("state", UNENDED)
def test_a_file_that_goes_while_its_flow_runs_is_forgotten_when_the_run_has_ended(
    folder: Path, running: dict[str, Any], state: str
) -> None:
    """The run goes on without it; that its driver is killed is told as long as nobody starts it again."""
    paths = [folder / "good.yaml"]
    with exporting(lambda: list(paths)) as exporter:
        wait_until(lambda: STOPPED in exporter.scrape().decode(), 20, "the flow is seen")
        paths.pop().unlink()
        exporter.refresh()
        broken = samples("flow_file_valid", good=0)
        wait_until(lambda: lines(exporter.scrape(), "flow_file_valid") == broken, 20, "the fault is seen")
        assert STOPPED in exporter.scrape().decode()
        running["run"] = {**running_entry()["run"], "state": state}
        told = f'onceover_flow_run_state{{flow="good",state="{state}"}} 1.0'
        wait_until(lambda: told in exporter.scrape().decode(), 20, "how it stands is seen")
        exporter.refresh()
        assert told in exporter.scrape().decode()
        running["run"] = {**running_entry()["run"], "state": "ended"}
        ended = 'onceover_flow_run_state{flow="good",state="ended"} 1.0'
        wait_until(lambda: ended in exporter.scrape().decode(), 20, "the end is seen")
        exporter.refresh()
        assert lines(exporter.scrape(), "look_fresh") == set()


def test_the_file_of_a_flow_that_runs_may_be_given_another_name(
    folder: Path, running: dict[str, Any]
) -> None:
    """It says the same flow: there are not two, and none is broken."""
    paths = [folder / "good.yaml"]
    with exporting(lambda: list(paths)) as exporter:
        wait_until(lambda: STOPPED in exporter.scrape().decode(), 20, "the flow is seen")
        paths[0] = paths[0].rename(folder / "payments.yaml")
        running["partitions"] = []
        exporter.refresh()

        def told() -> set[str]:
            return lines(exporter.scrape(), "flow_file_valid")

        wait_until(
            lambda: told() == samples("flow_file_valid", good=1), 20, "it is looked at under the new name"
        )
        wait_until(lambda: STOPPED not in exporter.scrape().decode(), 20, "as it is now")
        assert len(exporter._watches) == 1


def test_an_airflow_connection_that_is_not_given_is_no_broken_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the exporter lacks is told by a code of its own; with the variable it is there."""
    text = (folder / "good.yaml").read_text()
    before = text[text.index('  client: {bootstrap.servers: "127.0.0.1:1') : text.index("target:")]
    (folder / "good.yaml").write_text(text.replace(before, "  connection: kafka_east\n"))
    told = looked(FlowMonitor(folder / "good.yaml", SETTINGS, Tallies()))
    assert lines(told, "flow_file_valid") == samples("flow_file_valid", good=1)
    assert 'onceover_flow_needs{code="NO_CONNECTION",exit="2",flow="good"} 1.0' in told.decode()
    given = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_EAST", json.dumps(given))
    told = looked(FlowMonitor(folder / "good.yaml", SETTINGS, Tallies()))
    assert 'onceover_flow_cluster_up{flow="good",side="source"} 0.0' in told.decode()


ENDED_DRILL = {
    "mode": "rehearsal", "ended_ms": 1_000.0, "result": "FAIL", "rto_s": 1.0, "rpo_offsets": 0, "rpo_s": 0.0,
}  # fmt: skip
SELDOM = ("flow_groups", "drill_end_timestamp_seconds")


@pytest.mark.parametrize(
    "fails", ["the target", "what reads groups and drills"], ids=["target", "groups and drills alone"]
)
def test_one_look_that_fails_takes_no_drill_and_no_group_away(
    folder: Path, running: dict[str, Any], monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """Their alerts would end, and begin again; what nobody has known for long has no samples."""
    now_s, told = (
        [0.0],
        SimpleNamespace(document=lambda: {"drills": [ENDED_DRILL], "running": None}, needs=[]),
    )
    away = Retriable("west is away")

    def history(*_: object) -> Any:
        if now_s[0]:
            raise away
        return told

    monkeypatch.setattr(monitoring, "drill_history", history)
    running["groups"] = {"error": None, "counts": {"in_place": 2}}
    monitor = FlowMonitor(folder / "good.yaml", SETTINGS, Tallies(), lambda: now_s[0])
    known = [lines(looked(monitor), name) for name in SELDOM]
    assert all(known)
    if fails == "the target":
        running["target"] = {**running_entry()["target"], "error": away.as_dict()}
    running["groups"] = unknown_standing(away.as_dict())
    for now_s[0] in (61.0, 70.0, 125.0, 299.0):
        text = looked(monitor)
        assert [lines(text, name) for name in SELDOM] == known, now_s
    now_s[0] = 301.0
    text = looked(monitor)
    assert [lines(text, name) for name in SELDOM] == [set(), set()]


def test_a_flow_that_is_called_otherwise_has_no_drills_of_the_one_before(
    folder: Path, running: dict[str, Any]
) -> None:
    """Nor groups, while those of the new one are not known."""
    running["run"] = {**running_entry()["run"], "state": "ended"}
    running["groups"] = {"error": None, "counts": {"in_place": 2}}
    path = folder / "good.yaml"
    monitor = FlowMonitor(path, SETTINGS, Tallies())
    assert lines(looked(monitor), "flow_groups")
    path.write_text(_FLOW.format(name="other"))
    running["target"] = {**running_entry()["target"], "error": Retriable("west is away").as_dict()}
    assert lines(looked(monitor), "flow_groups") == set()


def test_groups_that_nobody_can_read_are_said_once(
    folder: Path, running: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """In the samples they are only not there."""
    error = UsageError("the index cannot be kept", where="/var", resolve="set another ONCEOVER_HOME")
    running["groups"] = unknown_standing(error.as_dict())
    now_s = [0.0]
    monitor = FlowMonitor(folder / "good.yaml", SETTINGS, Tallies(), lambda: now_s[0])
    for _ in range(3):
        assert lines(looked(monitor), "flow_groups") == set()
        now_s[0] += 100
    assert caplog.text.count("the index cannot be kept; /var; set another ONCEOVER_HOME") == 1


class Tail:
    """A map in which each look finds ten records more."""

    def __init__(self, flow: str, most: int) -> None:
        self.flow, self.read_to = flow, 0

    def read(self, _target: object) -> TailRead:
        self.read_to += 10
        return TailRead([receipt(self.read_to - 10, self.read_to)])


@pytest.mark.usefixtures("counting")
def test_receipts_that_nobody_can_read_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like those that are too many: the counters lack them."""
    monkeypatch.setattr(Tail, "read", lambda *_: TailRead((), passed_over=2, unread=3))
    told = lines(looked(FlowMonitor(folder / "good.yaml", SETTINGS, Tallies())), "receipts_passed_over_total")
    assert told == {'onceover_receipts_passed_over_total{flow="good"} 5.0'}


@pytest.mark.usefixtures("counting")
def test_counters_that_stand_still_for_a_reason_that_stays_are_told_of_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What passes is none: the next look counts it."""
    errors: list[OnceoverError] = [Retriable("west is away"), *[UsageError("not authorized")] * 3]

    def fails(*_: object) -> TailRead:
        raise errors.pop(0)

    monkeypatch.setattr(Tail, "read", fails)
    monitor = FlowMonitor(folder / "good.yaml", SETTINGS, Tallies())
    while errors:
        looked(monitor)
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warned == ["the receipts of good cannot be read, and are not counted: not authorized"]


@pytest.fixture
def counting(running: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Let each look at a flow count ten records."""
    running["partitions"] = [partition_entry(0, position=0)]
    running["run"] = {**running_entry()["run"], "state": "ended"}

    def status(flow: Any, beside: Any, **_: object) -> dict[str, Any]:
        entry = {**running_entry(flow.flow), "path": "", **running}
        beside(entry, None, None)
        return entry

    monkeypatch.setattr(monitoring, "read_status", status)
    monkeypatch.setattr(counted, "MapTail", Tail)
    return running


def records(exporter: Exporter, flow: str = "good") -> float:
    """Return how many records of the flow are counted; 0 where that is not told."""
    labels = f'{{flow="{flow}",lane="0"}}'
    found = [line for line in lines(exporter.scrape(), "lane_records_written_total") if labels in line]
    return float(found[0].split()[-1]) if found else 0.0


@pytest.mark.usefixtures("counting")
def test_a_file_that_goes_and_comes_back_takes_nothing_from_the_counters(folder: Path) -> None:
    """Whatever it is called then: they are the flow's."""
    paths = [folder / "good.yaml"]
    with exporting(lambda: list(paths)) as exporter:
        wait_until(lambda: records(exporter) >= 50, 20, "something is counted")
        before, text = records(exporter), paths[0].read_text()
        paths.pop().unlink()
        exporter.refresh()
        assert records(exporter) == 0, "nobody looks at it"
        paths.append(folder / "moved.yaml")
        paths[0].write_text(text)
        exporter.refresh()
        wait_until(lambda: records(exporter), 20, "it is looked at again")
        assert records(exporter) > before


@pytest.mark.usefixtures("counting")
def test_a_file_of_another_flow_by_now_counts_for_that_one(folder: Path) -> None:
    """Nothing of the first is told of the second."""
    path = folder / "good.yaml"
    monitor, text = FlowMonitor(path, SETTINGS, Tallies()), path.read_text()
    written = {"good": 10.0, "other": 10.0, "good again": 20.0}
    for flow, count in written.items():
        path.write_text(text.replace("flow: good", f"flow: {flow.split()[0]}"))
        sample = f'onceover_lane_records_written_total{{flow="{flow.split()[0]}",lane="0"}} {count}'
        assert lines(looked(monitor), "lane_records_written_total") == {sample}


@pytest.mark.usefixtures("folder")
def test_drills_of_another_name_are_told_no_more(
    folder: Path, running: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file may be of that flow by now, and a series that is there twice costs the whole scrape."""
    running["run"] = {**running_entry()["run"], "state": "ended"}
    running["groups"] = {"counts": {"ready": 2}, "error": None}
    path = folder / "good.yaml"
    monitor, text = FlowMonitor(path, SETTINGS, Tallies(), lambda: 0.0), path.read_text()
    for flow in ("good", "other"):
        path.write_text(text.replace("flow: good", f"flow: {flow}"))
        told = f'onceover_flow_groups{{flow="{flow}",standing="ready"}} 2.0'
        assert lines(looked(monitor), "flow_groups") == {told}


def test_an_open_transaction_is_as_old_as_the_looks_that_saw_it(
    folder: Path, counting: dict[str, Any]
) -> None:
    """One look cannot know."""
    now_s = [0.0]
    monitor = FlowMonitor(folder / "good.yaml", SETTINGS, Tallies(), lambda: now_s[0])
    for lso, age in ((5, 0.0), (6, 0.0), (6, 900.0), (6, 1800.0)):
        counting["partitions"] = [partition_entry(0, lso=lso, open_offsets=7)]
        age_line = f'onceover_flow_open_transaction_age_seconds{{flow="good"}} {age}'
        assert lines(looked(monitor), "flow_open_transaction_age_seconds") == {age_line}
        now_s[0] += 900


def test_a_canary_that_is_begun_anew_goes_on_counting(
    folder: Path, running: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a change of the flow file that concerns it; another one leaves it alone."""
    begun: list[CanaryThread] = []
    monkeypatch.setattr(CanaryThread, "start", lambda thread: begun.append(thread))
    path, tallies = folder / "good.yaml", Tallies()
    text = path.read_text().replace('["x"]', '["x", "onceover-canary.good"]')
    monitor = FlowMonitor(path, SETTINGS, tallies)
    for change, threads in (
        ("canary: {interval: 1s}", 1),
        ("canary: {interval: 1s} # and so on", 1),
        ("canary: {interval: 2s}", 2),
    ):
        path.write_text(f"{text}{change}\n")
        monitor.keep_canary()
        tallies.of("good").canary.received += 5
        assert len(begun) == threads
    path.write_text(f"{text.replace('topics: {', 'topics: {exclude: [y], ')}canary: {{interval: 2s}}\n")
    monitor.keep_canary()
    assert len(begun) == 2
    assert lines(looked(monitor), "canary_received_total") == samples("canary_received_total", good=15)


def test_a_canary_that_cannot_be_begun_is_begun_at_the_next_look(
    folder: Path, running: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no thread is to be had; it would be taken for one that runs, for ever."""
    left = ["can't start new thread"]

    def start(_thread: threading.Thread) -> None:
        if left:
            raise RuntimeError(left.pop())
        left.append("begun")

    monkeypatch.setattr(threading.Thread, "start", start)
    path = folder / "good.yaml"
    text = path.read_text().replace('["x"]', '["x", "onceover-canary.good"]')
    path.write_text(f"{text}canary: {{interval: 1s}}\n")
    monitor = FlowMonitor(path, SETTINGS, Tallies())
    monitor.keep_canary()
    assert left == []
    monitor.keep_canary()
    assert left == ["begun"]


def test_one_look_tells_when_it_was_and_counts_nothing(folder: Path) -> None:
    """Counters that began with it would stay 0 for ever."""
    before_s = time.time()
    text = look_once([folder / "good.yaml"], SETTINGS)
    (line,) = lines(text, "look_timestamp_seconds")
    assert before_s - 1 <= float(line.split()[-1]) <= time.time() + 1
    kinds = {name: kind for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text.decode(), re.MULTILINE)}
    assert set(kinds.values()) == {"gauge"}


def test_one_look_is_written_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside the file, and renamed: who reads it meanwhile finds the last one."""
    path = folder / "textfile" / "onceover.prom"
    path.parent.mkdir()
    path.write_text("before")
    with path.open() as reader:
        assert main(["metrics", "--once", "--output", str(path), "--patience", "0.2"]) == 0
        assert reader.read() == "before"
    assert 'onceover_look_fresh{flow="good"} 1.0' in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o644, "node_exporter is another user"
    assert [each.name for each in path.parent.iterdir()] == ["onceover.prom"]
    assert str(path) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "65536"], "is no port"),
        (["--port", "x"], "is no port"),
        (["--interval", "0s"], "is not understood"),
        (["--host", "192.0.2.1"], "nobody can listen there"),
        (["--host", ""], "is empty"),
        (["nope"], 'holds no flow file "nope"'),
        (["/no/such.yaml"], "there is no flow file"),
        (["good", "good"], "named twice"),
        (["--partitions", "-1"], "number of partitions"),
        (["--output", "x.prom"], "is for one look"),
        (["--once", "--output", "/no/such/x.prom"], "/no/such"),
        (["--once", "--output", "pipe"], "it is no file"),
        (["--once", "--output", "link"], "it is no file"),
    ],
)
def test_bad_input_is_refused_with_one_message(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(folder)
    os.mkfifo("pipe")
    os.symlink("/dev/stdout", "link")
    assert main(["metrics", *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""
    assert stat.S_ISFIFO(os.stat("pipe").st_mode) and os.path.islink("link")


def test_a_directory_that_goes_under_an_exporter_is_said_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is looked for every few seconds, and may be gone for days."""
    looks = iter(range(5))

    def wait(_: float) -> bool:
        number = next(looks)
        if number in (0, 3):
            folder.rename(folder.with_name("away"))
        elif number == 2:
            folder.with_name("away").rename(folder)
        return number == 4

    monkeypatch.setattr(command, "ending_signals", lambda: nullcontext(SimpleNamespace(wait=wait)))
    assert main(["metrics", "--port", "0", "--patience", "0.2"]) == 0
    assert [r.getMessage().partition(":")[0] for r in caplog.records].count(
        "no flow files are looked for"
    ) == 2


def test_a_port_that_is_taken_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["metrics", "--json", "--port", port, "--patience", "0.2"]) == 2
    assert "PORT_TAKEN" in capsys.readouterr().out


DRILLED = written(("d1", "begun", {"mode": "planned"}), ("d1", "ended", {"result": "died"}))


def damaged() -> DrillHistory:
    raise NeedsOperator("damaged", code=DrillCode.JOURNAL_DAMAGED)


@pytest.mark.parametrize(
    ("history", "need"),
    [
        (lambda: DrillHistory("good", DRILLED, DRILLED[-1].at_ms, {"orders"}), "STILL_FENCED"),
        (damaged, "JOURNAL_DAMAGED"),
    ],
)
def test_what_the_journal_of_drills_says_waits_for_somebody_here_too(
    folder: Path,
    running: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    history: Callable[[], DrillHistory],
    need: str,
) -> None:
    """Otherwise writers that are kept off production are a red page that nobody has open."""
    monkeypatch.setattr(monitoring, "drill_history", lambda *_: history())
    told = looked(FlowMonitor(folder / "good.yaml", SETTINGS, Tallies()))
    assert f'onceover_flow_needs{{code="{need}",exit="3",flow="good"}} 1.0' in told.decode()
