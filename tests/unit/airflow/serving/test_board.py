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
from tests.support.session.wait import wait_until

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
    # Of one that has nothing to say of itself, what it is.
    clusters.fault = MemoryError()
    clock.now_s += FRESH_S
    wait_until(lambda: board.look().problem == "MemoryError", TIMEOUT_S, "another one")
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


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, Any]]:
    """What is told of several files at once, by their names: clusters that are away are waited for once."""
    folder = tmp_path_factory.mktemp("board")
    (folder / "bad.yaml").write_text("flow: bad\n")
    for name, connection in (("good", "hub"), ("large", "far"), ("lost", "none"), ("twice", "hub")):
        write(folder, name, connection)
    (folder / "twice-old.yaml").write_text((folder / "twice.yaml").read_text())
    # The environment that a process begins with may not hold that one.
    extras: Mapping[str, Mapping[str, str]] = {"hub": {}, "far": {"client.id": "x" * 300_000}}
    given = {
        name: json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:2", **extra}})
        for name, extra in extras.items()
    }
    asked: list[Sequence[str]] = []

    def connections(wanted: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
        asked.append(wanted)
        return given, {"none": "Airflow has no Connection none"}

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONCEOVER_FLOWS", str(folder))
        patch.setenv("ONCEOVER_HOME", str(folder / "var"))
        entries = Asking(connections)()
    assert asked == [["far", "hub", "none"]]
    return {str(entry["flow"]): entry for entry in entries}


def test_a_file_that_is_not_in_order_costs_no_other_one(told: Mapping[str, Mapping[str, Any]]) -> None:
    """Its fault stands in its entry; they come in the order of their names."""
    assert list(told) == ["bad", "good", "large", "lost", "twice-old", "twice"]
    bad, good = told["bad"], told["good"]
    assert (bad["exit"], good["exit"]) == (2, 5)
    assert {need["code"] for need in good["needs"]} == {"SOURCE_UNREACHABLE", "TARGET_UNREACHABLE"}


def test_two_files_for_one_flow_are_two_entries(told: Mapping[str, Mapping[str, Any]]) -> None:
    """The copy is not looked at; the flow's own says that there is another one."""
    old, own = told["twice-old"], told["twice"]
    assert (old["exit"], own["exit"]) == (2, 2)
    assert "is twice, as in twice.yaml" in old["error"]["message"]
    assert "is twice, as in twice-old.yaml" in own["fault"]["message"]


def test_a_connection_may_be_as_large_as_its_certificates(told: Mapping[str, Mapping[str, Any]]) -> None:
    """An environment that a process begins with may not hold it; and one that is not there is named."""
    large, lost = told["large"], told["lost"]
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


def test_a_directory_of_flow_files_that_is_gone_is_told_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the page, where nobody can make anything of a traceback."""
    monkeypatch.setenv("ONCEOVER_FLOWS", str(tmp_path / "gone"))
    with pytest.raises(Retriable) as raised:
        Asking(nobody)()
    words = str(raised.value.seen).removeprefix("exit code 1: ")
    assert words.startswith(f"{tmp_path}/gone: ONCEOVER_FLOWS names it, and it is no directory")


def imitate(folder: Path, text: str) -> None:
    """Put something else in the child's place."""
    package = folder / "onceover" / "wiring"
    package.mkdir(parents=True)
    for each in (package, package.parent):
        (each / "__init__.py").touch()
    (package / "board.py").write_text(text)
