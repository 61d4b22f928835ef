"""A shell gets words, or none: never an error, never a wait, never a file."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceover.cli import completion
from tests.support.commands.shell import words
from tests.support.session.wait import wait_until

_FLOW = """flow: {name}
source: {{alias: east, client: {{bootstrap.servers: "{east}"}}}}
target: {{alias: west, client: {{bootstrap.servers: "127.0.0.1:2"}}}}
topics: {{include: ["flights[.].*"]}}
"""


class Shell:
    """A shell of somebody who has some flows.

    Args:
        folder: where the flows and ``ONCEOVER_HOME`` are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "ONCEOVER_FLOWS": str(folder / "flows"),
            "ONCEOVER_CONNECT": str(folder / "connect"),
            "ONCEOVER_HOME": str(folder / "var"),
        }
        for kind in ("flows", "connect"):
            (folder / kind).mkdir()
        (folder / "connect" / "airports.yaml").write_text("")

    def has(self, name: str, east: str = "127.0.0.1:1") -> None:
        """Write a flow file."""
        (self.folder / "flows" / f"{name}.yaml").write_text(_FLOW.format(name=name, east=east))

    def words(self, typed: str) -> list[str]:
        """Return what is offered behind ``typed``."""
        return words(typed, self.environment)

    def files(self) -> list[str]:
        """Return every path that there is."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A shell with two flows, whose clusters are away."""
    made = Shell(tmp_path)
    made.has("orders-dr")
    made.has("orders-back")
    return made


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a broker that takes connections, and nothing more."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("onceover st", ["stop", "status"]),
        ("onceover topics ", ["plan", "apply"]),
        ("onceover topics plan ord", ["orders-back", "orders-dr"]),
        ("onceover replicate orders-d", ["orders-dr"]),
        ("onceover replicate orders-dr --unt", ["--until"]),
        ("onceover replicate orders-dr --until ", ["caught-up", "forever"]),
        ("onceover connectors plan a", ["airports"]),
        ("onceover groups plan orders-dr --direction fail", ["failover", "failback"]),
        ("onceover status --patience ", []),
    ],
)
def test_words_that_may_follow_are_offered(shell: Shell, typed: str, offered: list[str]) -> None:
    """Commands, flows by their files, options and what these may be."""
    # On a busy machine a shell gets no words: whoever types presses the key again.
    wait_until(lambda: shell.words(typed) == offered, 120.0, f"{offered} behind {typed}")


@pytest.mark.parametrize(
    "typed",
    [
        "onceover partition resume orders-dr fl",
        "onceover groups plan orders-dr --group ",
        "onceover audit no-such-flow --topics ",
        "onceover audit --topics ",
        "onceover audit broken --topics ",
    ],
)
def test_what_cannot_be_asked_has_no_words_and_leaves_nothing(shell: Shell, typed: str) -> None:
    """Clusters that are away, flows that are not there or not in order; no file is made on the way."""
    (shell.folder / "flows" / "broken.yaml").write_text("flow: [")
    before = shell.files()
    assert shell.words(typed) == []
    assert shell.files() == before


def test_a_cluster_that_never_answers_holds_nobody_up(shell: Shell, silent: str) -> None:
    """The shell goes on without its names, long before anything else gives up on it."""
    shell.has("silent", silent)
    assert shell.words("onceover audit silent --topics ") == []


def test_nothing_holds_it_up_for_longer_than_its_deadline() -> None:
    """Not even what never ends, such as a disk that is away."""
    code = (
        "import threading; from onceover.cli import completion; completion._DEADLINE_S = 0.1; "
        "completion.build_parser = threading.Event().wait; completion.complete()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_what_goes_wrong_is_not_told_to_a_shell(tmp_path: Path) -> None:
    """A traceback among what somebody types helps nobody."""
    code = "from onceover.cli import completion; completion.attach = None; completion.complete()"
    environment = {**os.environ, "_ARGCOMPLETE": "1", "COMP_LINE": "onceover ", "COMP_POINT": "9"}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_names_that_a_shell_would_take_for_more_are_left_out() -> None:
    """Anybody may name a group; one that matches itself as a pattern is offered."""
    names = ["billing", "billing.eu", "b$(touch x)", "b;ls", "b\x1b[2J", "b c", "b+", "über", "other"]
    assert completion._plain("b", names) == ["billing", "billing.eu"]
