"""Ctrl-C in what starts and stops detached parts: it says what runs on, and how that is ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceover.cli.main import main
from onceover_lab.demo import machine, run


def interrupt(*_: object, **__: object) -> None:
    """Somebody presses Ctrl-C."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("action", ["up", "down"])
def test_what_runs_on_is_said_also_without_a_terminal(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make up > log 2>&1`, or a program that runs it: the parts go on running without it."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path))
    monkeypatch.setattr(machine, action, interrupt)
    assert main(["clusters", action]) == 130
    said = capsys.readouterr().err
    assert "what runs by now goes on running:\neast     down\n" in said
    assert "the same command" in said
    assert "onceover clusters down" in said or "make down" in said


@pytest.mark.parametrize(("options", "kept"), [(["--keep"], True), ([], False)])
def test_a_demo_that_keeps_its_parts_says_so(
    options: list[str],
    kept: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The other has ended all that it started."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path))
    monkeypatch.setattr(run, "run_demo", interrupt)
    assert main(["demo", *options]) == 130
    assert ("what runs by now goes on running:" in capsys.readouterr().err) is kept
