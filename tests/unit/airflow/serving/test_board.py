"""What the page shows is kept fresh while somebody looks, and nobody waits for a cluster."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from onceover.errors import Retriable
from onceover_airflow.serving.board import FRESH_S, Asking, Board, Entries
from tests.support.wait import wait_until

TIMEOUT_S = 20.0


class Clusters:
    """Answer when they are let."""

    def __init__(self) -> None:
        self.asked = 0
        self.go_on = threading.Event()
        self.fault: Exception | None = None

    def read(self) -> Entries:
        self.asked += 1
        assert self.go_on.wait(TIMEOUT_S)
        if self.fault is not None:
            raise self.fault
        told: Mapping[str, Any] = {
            "flow": "orders",
            "lag_offsets": self.asked,
            "oldest_missing_s": None,
            "partitions": [],
        }
        return [told]


class Clock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clusters() -> Clusters:
    return Clusters()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clusters: Clusters, clock: Clock) -> Board:
    return Board(clusters.read, clock, lambda: 5)


def seen(board: Board) -> bool:
    return board.look().age_s is not None


def test_many_that_look_at_once_ask_once(board: Board, clusters: Clusters, clock: Clock) -> None:
    """Also while the answer takes long; what is fresh is not asked for again."""
    assert board.look().age_s is None
    assert board.look().entries == ()
    clusters.go_on.set()
    wait_until(lambda: seen(board), TIMEOUT_S, "an answer")
    clock.now_s += FRESH_S - 1
    look = board.look()
    assert (clusters.asked, look.age_s) == (1, FRESH_S - 1)
    clock.now_s += 1
    wait_until(lambda: board.look().entries[0]["lag_offsets"] == 2, TIMEOUT_S, "the next look")
    assert [sample.lag_offsets for sample in board.samples("orders")] == [1, 2]


def test_while_clusters_are_silent_the_last_look_is_shown_with_its_age(
    board: Board, clusters: Clusters, clock: Clock
) -> None:
    """Nobody waits."""
    clusters.go_on.set()
    wait_until(lambda: seen(board), TIMEOUT_S, "an answer")
    clusters.go_on.clear()
    clock.now_s += 1000
    assert board.look().age_s == 1000
    clusters.go_on.set()


def test_what_cannot_be_asked_is_said_until_it_can(board: Board, clusters: Clusters, clock: Clock) -> None:
    """And what was seen before stays."""
    clusters.go_on.set()
    wait_until(lambda: seen(board), TIMEOUT_S, "an answer")
    clusters.fault = Retriable("no memory")
    clock.now_s += FRESH_S
    wait_until(lambda: board.look().problem is not None, TIMEOUT_S, "the fault")
    look = board.look()
    assert (look.problem, look.entries[0]["flow"]) == ("no memory", "orders")
    clusters.fault = None
    clock.now_s += FRESH_S
    wait_until(lambda: board.look().problem is None, TIMEOUT_S, "it is over")


def nobody(_: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Hand out nothing."""
    return {}, {}


@pytest.fixture
def flows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of flow files."""
    folder = tmp_path / "flows"
    folder.mkdir()
    monkeypatch.setenv("ONCEOVER_FLOWS", str(folder))
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    return folder


def write(folder: Path, name: str, connection: str) -> None:
    """Write a flow whose clusters are not there."""
    target = {"alias": "b", "client": {"bootstrap.servers": "127.0.0.1:1"}}
    document = {
        "flow": name,
        "source": {"alias": "a", "connection": connection},
        "target": target,
        "topics": {"include": ["x"]},
    }
    (folder / f"{name}.yaml").write_text(json.dumps(document))


def test_a_file_that_is_not_in_order_costs_no_other_one(flows: Path) -> None:
    """Its fault stands in its entry; they come in the order of their names."""
    (flows / "bad.yaml").write_text("flow: bad\n")
    write(flows, "good", "hub")
    given = {"hub": json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:2"}})}
    asked: list[Sequence[str]] = []

    def connections(wanted: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
        asked.append(wanted)
        return given, {}

    bad, good = Asking(connections)()
    assert asked == [["hub"]]
    assert (bad["flow"], bad["exit"], good["flow"], good["exit"]) == ("bad", 2, "good", 5)
    assert {need["code"] for need in good["needs"]} == {"SOURCE_UNREACHABLE", "TARGET_UNREACHABLE"}


def test_two_files_for_one_flow_are_two_entries(flows: Path) -> None:
    """The copy is not looked at; the flow's own says that there is another one."""
    write(flows, "good", "hub")
    (flows / "good-old.yaml").write_text((flows / "good.yaml").read_text())
    given = {"hub": json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:2"}})}
    old, good = Asking(lambda _: (given, {}))()
    assert [(entry["flow"], entry["exit"]) for entry in (old, good)] == [("good-old", 2), ("good", 2)]
    assert "is good, as in good.yaml" in old["error"]["message"]
    assert "is good, as in good-old.yaml" in good["fault"]["message"]


def test_a_connection_may_be_as_large_as_its_certificates(flows: Path) -> None:
    """An environment that a process begins with may not hold it; and one that is not there is named."""
    write(flows, "large", "hub")
    write(flows, "lost", "none")
    extra = {"bootstrap.servers": "127.0.0.1:2", "client.id": "x" * 300_000}
    given = {"hub": json.dumps({"conn_type": "kafka", "extra": extra})}
    large, lost = Asking(lambda _: (given, {"none": "Airflow has no Connection none"}))()
    assert large["exit"] == 5, large["needs"]
    assert lost["needs"][0]["message"] == "Airflow has no Connection none"
    assert "Admin > Connections" in lost["needs"][0]["resolve"]


def test_what_is_not_told_in_time_is_said_of_that_flow(
    flows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are shown."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    child = (
        "import json,sys,time\nprint(json.dumps({'paths': ['/x/a.yaml', '/x/b.yaml'], 'connections': []}))\n"
    )
    child += "sys.stdout.flush()\nsys.stdin.readline()\n"
    child += "print(json.dumps({'flow': 'b', 'path': '/x/b.yaml'}))\nsys.stdout.flush()\ntime.sleep(600)\n"
    imitate(tmp_path, child)
    late, told = Asking(nobody, limit_s=3.0)()
    assert (told["flow"], late["flow"], late["exit"]) == ("b", "a", 5)
    assert "onceover status a" in late["needs"][0]["resolve"]


def test_a_child_that_fails_is_told_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a directory that may not be read."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    imitate(tmp_path, "raise SystemExit('broken on purpose')\n")
    with pytest.raises(Retriable, match="what asks the clusters has ended") as raised:
        Asking(nobody)()
    assert "broken on purpose" in str(raised.value.seen)


def imitate(folder: Path, text: str) -> None:
    """Put something else in the child's place."""
    package = folder / "onceover" / "wiring"
    package.mkdir(parents=True)
    for each in (package, package.parent):
        (each / "__init__.py").touch()
    (package / "board.py").write_text(text)
