"""When the demo may say PASS, and what it shows."""

from __future__ import annotations

import io
import sys
from collections import Counter

import pytest
from rich.console import Console

from onceover.cli.commands.demo import RichNarrator, render
from onceover_lab.demo.feed import Tally
from onceover_lab.demo.report import DemoReport, Kill, Rehearsed, make_rows
from onceover_lab.demo.verdict import CopyFaultKind, CopyVerdict, Partition, PartitionVerdict

KILL = Kill(11, 12, 0.41, 16.4, 1, 2, 2, 14.25, 16.0)


REHEARSED = Rehearsed("PASS", 1.25, "var/demo/report.html")


def report(
    produced: int,
    seen: int,
    found: dict[CopyFaultKind, int] | None = None,
    rehearsed: Rehearsed = REHEARSED,
) -> DemoReport:
    part = Partition("flights.lga", 0)
    verdict = CopyVerdict((PartitionVerdict(part, part, seen, seen, Counter(found or {})),))
    tally = Tally({"flights.lga": produced}, {"flights.lga": 500}, 1)
    return DemoReport(
        rows=make_rows(tally, verdict, {"flights.lga": "gzip"}),
        verdict=verdict,
        kill=KILL,
        rehearsed=rehearsed,
        aborted_transactions=1,
        compare_s=1.0,
        total_s=100.0,
        airflow={"url": "http://127.0.0.1:8080", "username": "admin", "password_file": "var/pw.json"},
    )


@pytest.mark.parametrize(
    ("produced", "seen", "found", "ok"),
    [
        pytest.param(10, 10, {}, True, id="all there"),
        pytest.param(0, 0, {}, False, id="nothing was fed"),
        pytest.param(10, 9, {}, False, id="retention took one on both sides"),
        pytest.param(10, 10, {CopyFaultKind.REORDERED: 1}, False, id="reordered"),
    ],
)
def test_demo_passes_only_if_every_fed_record_was_compared(
    produced: int, seen: int, found: dict[CopyFaultKind, int], ok: bool
) -> None:
    """An empty or partial comparison proves nothing."""
    result = report(produced, seen, found)
    assert result.ok is ok
    assert render(result, kept=False).count("PASS: each of") == int(ok)


def test_demo_passes_only_if_the_rehearsal_did() -> None:
    """Whatever the comparison says."""
    assert not report(10, 10, rehearsed=Rehearsed("FAIL", None, "var/demo/report.html")).ok


def test_text_says_what_was_killed_and_how_to_log_in() -> None:
    """A person reads pids, generations, seconds, address and where the password is; not the password."""
    text = render(report(10, 10), kept=True)
    for part in (
        "driver 11",
        "JVM 12",
        "Generation 1 before, 2 after",
        "14.2 s",
        "make down",
        "var/pw.json",
        "rehearsed meanwhile: PASS",
        "var/demo/report.html",
    ):
        assert part in text
    assert "flights.lga" in text
    assert "500" in text


def test_a_result_holds_no_escapes_on_a_terminal_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be shown as text, like whatever else commands a terminal."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b" not in render(report(10, 10), kept=False)


def test_failure_names_the_offending_records() -> None:
    """FAIL comes with the judge's explanation."""
    text = render(report(10, 10, {CopyFaultKind.LOST: 3}), kept=False)
    assert "FAIL: the clusters differ." in text
    assert "3 lost" in text


def test_document_has_plain_values() -> None:
    """The JSON names every kind of anomaly, zero included."""
    document = report(10, 10).as_dict()
    assert document["topics"][0]["aborted_visible"] == 0
    assert document["killed"]["generation_after"] == 2


def test_progress_without_a_terminal_is_plain_lines() -> None:
    """A log file gets lines, at most one every few seconds, and no control characters."""
    out = io.StringIO()
    with RichNarrator(Console(file=out, force_terminal=False)) as narrator:
        narrator.say("Starting [two] clusters.")
        narrator.progress(10, 100, None)
        narrator.progress(20, 100, 5)
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("s] Starting [two] clusters.")
    assert lines[1].endswith("10 of 100 fed, copy not seen yet")


def test_no_heading_and_no_number_is_cut_however_many_there_are() -> None:
    """All 336,776 flights of the data set, and as many of each fault: the table keeps to its width."""
    most = 336_776
    kinds = (CopyFaultKind.DUPLICATED, CopyFaultKind.LOST, CopyFaultKind.ALTERED, CopyFaultKind.REORDERED)
    lines = render(report(most, most, dict.fromkeys(kinds, most)), kept=False).splitlines()
    headings = next(line for line in lines if "codec" in line)
    assert headings.split() == [
        "topic",
        "codec",
        "produced",
        "aborted",
        "copied",
        "duplicates",
        "losses",
        "altered",
        "reordered",
        "other",
    ]
    row = next(line for line in lines if "flights.lga" in line)
    assert row.split() == ["flights.lga", "gzip", f"{most:,}", "500", *[f"{most:,}"] * 5, "0"]
    assert max(len(headings), len(row)) <= 110
