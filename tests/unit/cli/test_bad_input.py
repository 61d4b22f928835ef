"""Bad input of each command: one clear message, exit code 2, and nothing was begun."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from onceover.cli.main import main
from onceover.cli.parsing import build_parser, parse
from onceover.errors import UsageError
from tests.support.commands.parsers import leaves

_EVER = "99999999999999d"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Flows and Connect files that are in order; nothing listens, and a unit test could not ask."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    for number, name in enumerate(("EAST", "WEST"), start=1):
        monkeypatch.setenv(f"ONCEOVER_{name}", f"127.0.0.1:{number}")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "typed",
    [
        "flow check nowhere",
        "flow check flights-dr --sample 0",
        "flow check flights-dr --sample 3",
        "flow check flights-dr --explain 'no topic'",
        "flow import nowhere.properties",
        "flow import .",
        "topics plan nowhere",
        "topics apply nowhere.yaml",
        "replicate flights-dr --until soon",
        f"replicate flights-dr --until {_EVER}",
        "replicate flights-dr --master nowhere",
        "stop flights-dr --wait -1",
        "stop flights-dr --wait inf",
        "status --patience never",
        "status ''",
        "partition resume flights-dr flights.jfk",
        "partition resume flights-dr 'no topic:0'",
        "partition skip-to flights-dr flights.jfk:0 1e3",
        f"partition reseed flights-dr flights.jfk:{'9' * 5000}",
        "groups plan flights-dr --group '('",
        "groups apply flights-dr --direction sideways",
        "groups apply flights-dr --group ''",
        "groups follow flights-dr --interval 0s",
        f"groups follow flights-dr --interval {_EVER}",
        "seed plan flights-dr",
        "seed plan flights-dr --from nowhere",
        "seed plan flights-dr --from file:nowhere.csv",
        "seed apply flights-dr --from map --missing perhaps",
        "seed apply flights-dr --from map --topic=",
        "adopt plan flights-dr --window 0",
        "adopt plan flights-dr --decided nowhere.csv",
        "adopt apply flights-dr --decided ''",
        "adopt apply flights-dr --mm2-source 'no alias'",
        "adopt apply flights-dr --offsets-topic 'no topic'",
        "translate flights-dr flights.jfk:0 -1",
        "translate flights-dr flights.jfk:0",
        "translate flights-dr flights.jfk 0 5",
        "translate flights-dr flights.jfk:0 5 --to nowhere",
        "receipts rebuild nowhere",
        "audit flights-dr --sample 0",
        "audit flights-dr --since 2026-99-99",
        "audit flights-dr --full --since start",
        "audit flights-dr --report .",
        "audit flights-dr --report file/report.html",
        "audit flights-dr --report pipe",
        "audit flights-dr --report link",
        "connectors list nowhere",
        "connectors plan flights",
        "connectors plan flights --connector a --all",
        "connectors plan flights --connector a --topic 'no topic'",
        f"connectors apply flights --connector a --watch {_EVER}",
        "connectors apply flights --connector a --watch 0s",
        "connectors downgrade flights --all --mode medium",
        "clusters up --port 5",
        "demo --records 5",
        "demo --seconds nan",
        "bench --rounds 0",
        "bench --scale nan",
        "bench --scale 0",
        "bench --workload nonsense",
        "bench --system nonsense",
    ],
)
def test_bad_input_is_told_in_one_message(
    typed: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It names what was wrong, and no traceback or file of ours."""
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("/dev/stdout")
    os.mkfifo(tmp_path / "pipe")
    assert main(shlex.split(typed)) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ") and shown.err.count("error:") == 1
    assert "unexpected" not in shown.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "pipe"]
    assert (tmp_path / "link").is_symlink() and (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("parser", list(leaves(build_parser())), ids=lambda parser: parser.prog)
def test_an_empty_word_is_taken_for_nothing_else(parser: object) -> None:
    """A variable of a script that is not set must not mean every flow, or no file of decisions."""
    command = str(getattr(parser, "prog", "")).split()[1:]
    for word in ("", " ", "--xyzzy="):
        with pytest.raises(UsageError):
            parse([*command, word])


def test_an_empty_word_is_told_with_its_usual_cause() -> None:
    """Nothing can be seen of it where it was typed."""
    with pytest.raises(UsageError, match="a word is empty") as refused:
        parse(["status", ""])
    assert "variable" in str(refused.value)
