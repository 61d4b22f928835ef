"""Commands in texts are shown as they can be typed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from onceover.cli.main import main
from onceover.cli.parser import Work
from onceover.cli.terminal.output import CommandResult, say
from onceover.cli.terminal.typed import FlowAtPath, as_typed, typed_program

COMMANDS = ["stop", "clusters"]
log = logging.getLogger("onceover.tests")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("stop with: onceover clusters down", "stop with: X clusters down"),
        ("run `onceover stop flights-dr`", "run `X stop flights-dr`"),
        ("onceover stop f, onceover stop g", "X stop f, X stop g"),
        ("see `onceover --help`", "see `X --help`"),
        # Near misses: none of these is a command of ours.
        ("group onceover.flights-dr stop", "group onceover.flights-dr stop"),
        ("/opt/onceover stop", "/opt/onceover stop"),
        ("groups named onceover are excluded", "groups named onceover are excluded"),
        ("onceover stopped", "onceover stopped"),
        ("onceover -- a project", "onceover -- a project"),
    ],
)
def test_commands_are_shown_as_they_can_be_typed(text: str, expected: str) -> None:
    """And nothing else of a text is changed."""
    assert as_typed(text, COMMANDS, "X") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run `onceover stop orders`", "run `X stop './my flow.yaml'`"),
        ("`onceover clusters of orders --topic orders`", "`X clusters of './my flow.yaml' --topic orders`"),
        ("`onceover stop orders orders:0 5`", "`X stop './my flow.yaml' orders:0 5`"),
        # Another flow, and what only begins like it.
        ("`onceover stop orders-dr`, `onceover stop other`", "`X stop orders-dr`, `X stop other`"),
        ("orders stop at `onceover stop --help`", "orders stop at `X stop --help`"),
    ],
)
def test_a_flow_is_named_by_its_path_where_it_was(text: str, expected: str) -> None:
    """Nobody finds it by its name."""
    assert as_typed(text, COMMANDS, "X", FlowAtPath("orders", "./my flow.yaml")) == expected


def test_what_is_told_before_a_command_is_done_names_the_flow_so_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plans that are shown and done in one go have the commands for the day on which the tool is gone."""
    path = tmp_path / "my.yaml"
    path.write_text("flow: orders\n")

    def work(_: object) -> CommandResult:
        say("by hand: onceover status orders; `onceover stop orders`")
        in_background(lambda: log.warning("waiting for a person: `onceover drill confirm orders fence`"))
        return CommandResult({}, "then `onceover groups plan orders`")

    def in_background(what: Callable[[], object]) -> None:
        thread = Thread(target=what)
        thread.start()
        thread.join()

    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(Work, "load", lambda _: work)
    assert main(["stop", str(path)]) == 0
    shown = f"by hand: onceover status {path}; `onceover stop {path}`\nthen `onceover groups plan {path}`\n"
    told = capsys.readouterr()
    assert told.out == shown
    assert told.err.endswith(f"waiting for a person: `onceover drill confirm {path} fence`\n")


def test_program_is_named_as_the_shell_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name when it is on PATH, relative in the project, absolute elsewhere."""
    program, elsewhere = tmp_path / ".venv" / "bin" / "onceover", tmp_path / "elsewhere"
    for directory in (program.parent, elsewhere):
        directory.mkdir(parents=True)
    for file in (program, elsewhere / "onceover"):
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert typed_program(str(program), str(program.parent)) == "onceover"
    # Another program of that name is what the shell would run.
    assert typed_program(".venv/bin/onceover", str(elsewhere)) == ".venv/bin/onceover"
    # Right, and nothing that anybody would type.
    monkeypatch.chdir(tmp_path.parent)
    assert typed_program(str(program), None) == str(program)
    monkeypatch.chdir(elsewhere)
    assert typed_program("../.venv/bin/onceover", None) == str(program)
    assert typed_program("/usr/bin/pytest", None) == "onceover"
