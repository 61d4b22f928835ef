"""The command line's frame: one JSON document, exit codes, errors without traceback."""

from __future__ import annotations

import json
import sys

import pytest

from onceover.cli.main import main


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["replicate"],
        ["replicate", "no-such-flow"],
        ["replicate", "flights-dr", "--until", "5parsecs"],
        ["replicate", "flights-dr", "--until", "1000000000000000s"],
        ["replicate", "flights-dr", "--master", ""],
        ["audit", "flights-dr", "--master", ""],
        ["audit", "flights-dr", "--since", "2026-99-99"],
        ["audit", "flights-dr", "--topics", "["],
        ["audit", "flights-dr", "--topics", " flights.jfk "],
        ["groups", "plan", "flights-dr", "--group", "["],
        ["seed", "plan", "flights-dr", "--from", "map", "--topic", "["],
        ["adopt", "plan", "flights-dr", "--topic", "["],
        ["status", "no-such-flow"],
        ["flow", "check", "no-such-flow"],
        ["partition", "skip-to", "flights-dr", "topic-without-number", "5"],
        ["partition", "skip-to", "flights-dr", "topic:1", "-5"],
        ["stop"],
        ["clusters"],
        ["receipts", "rebuild", "no-such-flow"],
    ],
)
def test_bad_usage_gives_one_message_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is touched: unit tests cannot open a socket."""
    monkeypatch.setenv("ONCEOVER_EAST", "127.0.0.1:1")
    monkeypatch.setenv("ONCEOVER_WEST", "127.0.0.1:2")
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert "Traceback" not in shown.err


def test_a_level_of_logging_that_there_is_not_is_bad_usage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an empty variable is none: containers set it so."""
    monkeypatch.setenv("ONCEOVER_LOG", "loud")
    assert main(["status", "nowhere", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["seen"] == "LOUD"
    monkeypatch.setenv("ONCEOVER_LOG", "")
    assert main(["status", "nowhere", "--json"]) == 2
    assert "nowhere" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_bad_usage_with_json_prints_exactly_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """Machines get the error where they look for it."""
    assert main(["replicate", "no-such-flow", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["onceover"], document["ok"], document["exit"]) == (1, False, 2)
    assert document["command"] == "replicate"
    assert "no-such-flow" in document["error"]["message"]


def test_advice_in_a_document_can_be_typed_like_the_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the program is not on PATH, its name alone is no command."""
    monkeypatch.setattr(sys, "argv", ["/opt/app/.venv/bin/onceover"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["replicate", "--json"]) == 2
    shown = capsys.readouterr()
    advice = json.loads(shown.out)["error"]["resolve"]
    assert "`/opt/app/.venv/bin/onceover replicate --help`" in advice
    assert advice in shown.err
