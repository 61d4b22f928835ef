"""Whoever stops reading, closes a stream or fills a disk gets an exit code, and nothing of Python's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from onceover.cli.terminal import streams

_COMMAND = (sys.executable, "-m", "onceover.cli.entry")
_PROJECT = Path(__file__).parents[3]
_HELP = ("--help",)
_REFUSED = ("status", "no-such-flow")
# Nothing listens there: the status is a text all the same, and its exit code is 5.
_STATUS = ("status", "flights-dr", "--patience", "0.2")


def unread() -> int:
    """Return the writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def run(
    home: Path, arguments: Sequence[str], *, out: int, err: int = subprocess.PIPE, closed: Sequence[int] = ()
) -> tuple[int, str]:
    """Run the command line with these streams; return its exit code and what is on stderr."""

    def close() -> None:
        for number in closed:
            os.close(number)

    environment = {
        **os.environ,
        "ONCEOVER_EAST": "127.0.0.1:1",
        "ONCEOVER_WEST": "127.0.0.1:2",
        "ONCEOVER_FLOWS": str(_PROJECT / "include" / "flows"),
        "ONCEOVER_HOME": str(home),
    }
    # Buffered, as in a shell.
    environment.pop("PYTHONUNBUFFERED", None)
    ended = subprocess.run(
        [*_COMMAND, *arguments],
        env=environment,
        stdout=out,
        stderr=err,
        preexec_fn=close,
        text=True,
        timeout=120,
        check=False,
    )
    shown = ended.stderr or ""
    assert "Traceback" not in shown and "Exception ignored" not in shown
    return ended.returncode, shown


@pytest.mark.parametrize(
    ("arguments", "code"), [(_HELP, 0), (("status", "-h"), 0), (("--version",), 0), (_STATUS, 5)]
)
def test_a_reader_that_has_gone_is_no_failure(tmp_path: Path, arguments: Sequence[str], code: int) -> None:
    """As in ``| head -1``: the command says how it ended."""
    writing = unread()
    try:
        assert run(tmp_path, arguments, out=writing) == (code, "")
    finally:
        os.close(writing)


def test_errors_that_nobody_reads_leave_the_exit_code(tmp_path: Path) -> None:
    """As in ``2>&1 | true``."""
    writing = unread()
    try:
        assert run(tmp_path, _REFUSED, out=writing, err=writing) == (2, "")
    finally:
        os.close(writing)


@pytest.mark.parametrize(("arguments", "code"), [(_HELP, 3), (_STATUS, 5)])
def test_a_full_disk_is_told(tmp_path: Path, arguments: Sequence[str], code: int) -> None:
    """A result that is not there is no success."""
    with Path("/dev/full").open("w") as full:
        ended, shown = run(tmp_path, arguments, out=full.fileno())
    assert ended == code
    assert shown == "error: the result cannot be written to stdout: No space left on device\n"


def test_a_name_that_the_terminals_locale_has_no_letters_for_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of somebody's group, behind an apply that has worked."""
    written = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(written, encoding="ascii"))
    streams.complete()
    assert streams.write("group Касса")
    assert written.getvalue() == b"group \\u041a\\u0430\\u0441\\u0441\\u0430\n"


def test_a_closed_stdout_is_told(tmp_path: Path) -> None:
    """As in ``>&-``: nothing else gets its number, and what is not written is no success."""
    ended, shown = run(tmp_path, _HELP, out=subprocess.DEVNULL, closed=(1,))
    assert (ended, shown) == (3, "error: the result cannot be written to stdout: Bad file descriptor\n")


@pytest.mark.parametrize(
    ("arguments", "code", "closed"),
    [
        (_REFUSED, 2, (2,)),
        (_STATUS, 5, (0, 1, 2)),
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in [
                (_REFUSED, 2, (0, 2)),
                (_REFUSED, 2, (0, 1, 2)),
                (_STATUS, 5, (2,)),
                (_STATUS, 5, (0, 2)),
            ]
        ),
    ],
)
def test_closed_streams_change_no_exit_code(
    tmp_path: Path, arguments: Sequence[str], code: int, closed: Sequence[int]
) -> None:
    """A service may be started without any."""
    assert run(tmp_path, arguments, out=subprocess.DEVNULL, closed=closed)[0] == code


def test_errors_of_a_command_without_stderr_are_not_among_its_result(tmp_path: Path) -> None:
    """Where there is no stderr, a plan that is shown aside must not go to stdout instead."""
    loaded = "import sys; from onceover.cli.terminal import streams"
    looked = f"{loaded}; streams.complete(); print('x', file=sys.stderr)"
    ended = subprocess.run(
        [sys.executable, "-c", looked],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.close(2),
        text=True,
        timeout=120,
        check=True,
    )
    assert ended.stdout == ""
