"""Colours are for terminals whose owner wants them, and never in a document."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onceover.cli.terminal.colours import are_wanted, painted

_COMMAND = (sys.executable, "-m", "onceover.cli.entry")


class Terminal:
    """Stands for a stream that somebody looks at."""

    def isatty(self) -> bool:
        """Say so."""
        return True

    def write(self, text: str) -> int:
        """Show nothing."""
        return len(text)


def seen(*arguments: str, environment: dict[str, str]) -> str:
    """Return what a command writes to the terminal that it runs at."""
    master, slave = os.openpty()
    try:
        subprocess.run(
            [*_COMMAND, *arguments],
            env={**os.environ, "TERM": "xterm", **environment},
            stdout=slave,
            stderr=slave,
            timeout=120,
            check=False,
        )
        return os.read(master, 1 << 16).decode()
    finally:
        os.close(slave)
        os.close(master)


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_a_terminal_has_colours_unless_its_owner_says_otherwise(
    environment: dict[str, str], coloured: bool
) -> None:
    """An empty NO_COLOR is none."""
    shown = seen("status", "no-such-flow", environment=environment)
    assert ("\x1b[1;31merror:\x1b[0m " in shown) is coloured
    assert ("\x1b" in shown) is coloured


def test_a_document_has_none(tmp_path: Path) -> None:
    """A person may look at one, too."""
    shown = seen("clusters", "status", "--json", environment={"ONCEOVER_HOME": str(tmp_path)})
    assert json.loads(shown)["ok"]


def test_a_pipe_has_none() -> None:
    """Whatever TERM says."""
    ended = subprocess.run(
        [*_COMMAND, "status", "no-such-flow"],
        env={**os.environ, "TERM": "xterm"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.stderr.startswith("error: ")
    assert "\x1b" not in ended.stderr


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("PASS: 3 records", "\x1b[1;32mPASS\x1b[0m: 3 records"),
        ("FAIL: 3 records", "\x1b[1;31mFAIL\x1b[0m: 3 records"),
        ("  ! FENCED: another start", "\x1b[1;33m  ! FENCED\x1b[0m: another start"),
        ("    do: onceover stop a", "\x1b[1m    do: \x1b[0monceover stop a"),
        ("a: stopped, NEEDS A PERSON  (east)", "a: stopped, \x1b[1;31mNEEDS A PERSON\x1b[0m  (east)"),
        ("a group PASS", "a group PASS"),
    ],
)
def test_what_matters_stands_out(line: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else does."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    assert are_wanted(stream)
    assert painted(f"first\n{line}", stream) == f"first\n{shown}"
