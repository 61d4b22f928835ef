"""The text of `status`: who needs a person is seen at a glance, and nothing unknown reads as 0."""

from __future__ import annotations

from typing import Any

from onceover.cli.terminal.statustext import describe, headline, lag_text, progress_line
from onceover.config.codes import ConfigCode
from onceover.config.faults import BadConfig, Fault
from onceover.errors import Retriable, UsageError, unexpected
from onceover.exitstatus import worst
from onceover.operate.statusfacts import StatusFacts, StatusSide
from onceover.operate.statusread import FlowFacts
from onceover.operate.statusshape import broken_entry, shape

NOW_MS = 1_700_000_000_000.0
NO_CONNECTION = ConfigCode.NO_CONNECTION


def lag(**changes: Any) -> dict[str, Any]:
    """Return what the lag's words are made of: nothing is missing, but for ``changes``."""
    parts = {
        "known_offsets": 0,
        "unknown_partitions": 0,
        "not_enrolled_offsets": 0,
        "not_enrolled_topics": 0,
        "stopped_offsets": 0,
    }
    total, oldest = changes.pop("total", 0), changes.pop("oldest", 0.0)
    return {"lag_offsets": total, "oldest_missing_s": oldest, "lag": {**parts, **changes}}


def silent() -> dict[str, Any]:
    """Return the entry of a flow whose source does not answer."""
    error = Retriable("no broker of east answers", where="127.0.0.1:1")
    sides = StatusSide(alias="east", error=error), StatusSide(alias="west", cluster_id="w")
    return shape(
        StatusFacts(flow="orders", now_ms=NOW_MS, source=sides[0], target=sides[1], state=FlowFacts())
    )


def test_lag_is_told_with_what_it_is_made_of() -> None:
    """60,000 records of topics that nobody takes in are not `lag 0`."""
    assert lag_text(lag()) == "lag 0 offsets"
    told = lag(
        total=60_007, known_offsets=60_007, not_enrolled_offsets=60_000, not_enrolled_topics=2, oldest=252
    )
    assert lag_text(told) == (
        "lag 60007 offsets, 60000 of them in 2 topics not taken in yet, oldest missing 4 min 12 s"
    )
    assert lag_text(lag(total=None, known_offsets=5, unknown_partitions=1)) == "lag at least 5 offsets"
    assert lag_text(lag(total=None, unknown_partitions=1)) == "lag unknown"


def test_a_connection_that_is_not_given_is_not_called_a_broken_file() -> None:
    """Each side's has a line of its own, with the variable that it is looked for in."""
    fix = "export AIRFLOW_CONN_A"
    error = BadConfig([Fault("f.yaml", side, "is not set", fix, code=NO_CONNECTION) for side in "ab"])
    lines = describe(broken_entry("orders", "/x/f.yaml", error)).splitlines()
    assert lines[:3] == [
        "orders, NEEDS A PERSON: its Airflow Connections are not given to this process",
        f"  ! NO_CONNECTION: f.yaml: a: is not set; {fix}",
        f"    f.yaml: b: is not set; {fix}",
    ]


def test_silent_source_is_no_calm_text() -> None:
    """What does not answer comes first, and the lag is unknown."""
    entry = silent()
    lines = describe(entry).splitlines()

    assert lines[0] == "orders: not started, NOT FULLY KNOWN  (east -> west)"
    assert lines[1] == "  ! SOURCE_UNREACHABLE: the source does not answer: no broker of east answers"
    assert "lag unknown" in describe(entry)
    assert (entry["exit"], entry["lag_offsets"], entry["oldest_missing_s"]) == (5, None, None)
    assert progress_line(entry) == "orders: not started, lag unknown, east cannot be read"


def test_headline_names_who_needs_a_person() -> None:
    """Of many flows, those that somebody has to look at."""
    broken = broken_entry("bad", "/flows/bad.yaml", UsageError("no YAML", resolve="correct it"))
    calm = {"flow": "calm", "exit": 0}

    assert headline([calm, calm]) == "2 flows; none needs a person"
    assert headline([calm, broken, silent()]) == "3 flows; NEEDING A PERSON: bad; not fully known: orders"
    assert describe(broken).splitlines() == [
        "bad, NEEDS A PERSON: its file /flows/bad.yaml is not in order",
        "  ! UsageError: no YAML",
        "    do: correct it",
    ]


def test_status_that_cannot_be_read_is_not_laid_at_the_file() -> None:
    """It is in order: a person has to look at something else, and no audit has failed."""
    entry = broken_entry("odd", "/flows/odd.yaml", unexpected(LookupError("boom")))

    assert entry["exit"] == 3
    assert describe(entry).splitlines()[:2] == [
        "odd, NEEDS A PERSON: its status cannot be read",
        "  ! UNEXPECTED: unexpected LookupError: boom",
    ]


def test_worst_exit_code_counts() -> None:
    """Wrong data, a person, a file, a silent cluster, nothing: in this order."""
    counts = [worst(codes) for codes in ([0, 5], [5, 4], [5, 2], [4, 2], [2, 3, 5], [3, 1], [])]
    assert counts == [5, 4, 2, 2, 3, 1, 0]
