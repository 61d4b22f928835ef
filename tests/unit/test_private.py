"""What Onceover makes is its owner's alone; what it does not make keeps its way."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceover.cli import main as command_line
from onceover.cli.terminal.output import CommandResult
from onceover.private import UMASK, privately
from tests.support.session.modes import open_to_others


@pytest.fixture(autouse=True)
def _usual() -> Iterator[None]:
    """Begin as most shells do."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def current() -> int:
    """Return the process's mask."""
    mask = os.umask(UMASK)
    os.umask(mask)
    return mask


def make(folder: Path) -> None:
    """Make files as any code does."""
    (folder / "log").mkdir(parents=True)
    (folder / "log" / "driver.log").write_text("")


def test_files_are_the_owners_alone_meanwhile(tmp_path: Path) -> None:
    """Whatever is raised, it is as before afterwards."""

    @privately()
    def fail() -> None:
        make(tmp_path / "private")
        raise ValueError("late")

    with pytest.raises(ValueError, match="late"):
        fail()
    assert open_to_others(tmp_path / "private") == []
    make(tmp_path / "public")
    assert len(open_to_others(tmp_path / "public")) == 3
    assert current() == 0o022


def test_every_command_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that fails."""

    def command(_: argparse.Namespace) -> CommandResult:
        make(tmp_path / "home")
        raise ValueError("late")

    monkeypatch.setattr(command_line, "_function", lambda _: command)
    assert command_line.main(["status"]) == 1
    assert open_to_others(tmp_path / "home") == []
    assert current() == 0o022
