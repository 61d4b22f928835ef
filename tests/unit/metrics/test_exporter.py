"""`onceover metrics` without clusters: scrapes are answered whatever flows, files and clients do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onceover.cli.main import main
from onceover.wiring.monitoring import exporter as monitoring
from onceover.wiring.monitoring.exporter import Exporter, MonitorSettings, look_once
from tests.support.statusentries import running_entry
from tests.support.wait import wait_until

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
        # Their next look would be one without the fixture that keeps them from the network.
        wait_until(lambda: not looking(), 20, "nobody looks any more")


def looking() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("onceover-metrics-")]


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
        now_s[0] = SETTINGS.stale_s + 1
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


def test_two_files_with_one_name_make_no_series_twice(folder: Path) -> None:
    """Prometheus would take none of the scrape then; the second file is said to be broken."""
    paths = [folder / "good.yaml", write(folder, "twin", "good")]
    for text in (look_once(paths, SETTINGS), _settled(paths)):
        names = [line.partition(" ")[0] for line in text.decode().splitlines() if not line.startswith("#")]
        assert len(names) == len(set(names))
        assert lines(text, "flow_file_valid") == samples("flow_file_valid", good=1, twin=0)


def _settled(paths: list[Path]) -> bytes:
    with exporting(lambda: paths) as exporter:
        wait_until(lambda: len(lines(exporter.scrape(), "flow_file_valid")) == 2, 20, "both are seen")
        return exporter.scrape()


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
    ],
)
def test_bad_input_is_refused_with_one_message(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["metrics", *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""


def test_a_port_that_is_taken_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["metrics", "--json", "--port", str(taken.getsockname()[1])]) == 2
    assert "PORT_TAKEN" in capsys.readouterr().out
