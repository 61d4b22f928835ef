"""The table and the counts of a run."""

from __future__ import annotations

from typing import Any

from onceover_airflow.telling.report import count_run, status_table

STOP = {"code": "TRUNCATED", "message": "the log starts at 5", "resolve": "onceover partition skip-to"}


def partition(
    topic: str, number: int, *, lag: int | None = 0, stop: dict[str, str] | None = None
) -> dict[str, Any]:
    state = "stopped" if stop else "caught_up" if lag == 0 else "copying"
    oldest_s = None if lag is None else 12.4 if lag else 0.0
    return {
        "topic": topic, "partition": number, "state": state,
        "lag_offsets": lag, "oldest_missing_s": oldest_s, "stop": stop,
    }  # fmt: skip


def status(state: str, *partitions: dict[str, Any]) -> dict[str, Any]:
    lag = sum(each["lag_offsets"] or 0 for each in partitions)
    needs = [
        {
            **each["stop"],
            "message": f"{each['topic']}:{each['partition']} is stopped: {each['stop']['message']}",
        }
        for each in partitions
        if each["stop"]
    ]
    return {
        "flow": "f", "state": state, "generation": 3, "lag_offsets": lag, "target": {"alias": "west"},
        "partitions": list(partitions), "needs": needs,
    }  # fmt: skip


def test_counts_are_numbers_and_names() -> None:
    """What goes into the XCom."""
    live = status(
        "copying", partition("a", 0), partition("a", 1, lag=7), partition("b", 0, lag=None, stop=STOP)
    )
    assert count_run({"records": 5, "bytes": 50, "transactions": 2, "until": "10m"}, live) == {
        "flow": "f",
        "generation": 3,
        "records": 5,
        "bytes": 50,
        "transactions": 2,
        "partitions": 3,
        "partitions_stopped": 1,
        "lag_offsets": 7,
        "caught_up": False,
    }


def test_table_shows_topics_and_what_resolves_a_stop() -> None:
    """One line a topic, in columns; one line a stopped partition."""
    live = status(
        "copying", partition("flights", 0), partition("flights", 1, lag=7), partition("z", 4, stop=STOP)
    )
    assert status_table(live) == [
        "topic    partitions  caught up  lag (offsets)  oldest missing  stopped",
        "flights  2           1          7              12 s            0",
        "z        1           0          0              -               1",
        "TRUNCATED: z:4 is stopped: the log starts at 5; to resolve: onceover partition skip-to",
    ]


def test_table_tells_what_is_not_taken_in_and_what_nobody_knows() -> None:
    """Records of a topic that nobody has enrolled are missing, too; an unknown lag, or age, is none of 0."""
    waiting = {**partition("new", 0, lag=60_000), "partition": None, "partitions": 6, "state": "not_enrolled"}
    waiting["oldest_missing_s"] = 434_697_709.4
    assert status_table(status("copying", waiting, partition("lost", 0, lag=None))) == [
        "topic  partitions  caught up  lag (offsets)        oldest missing  stopped",
        "lost   1           0          unknown              unknown         0",
        "new    6           0          60000, not taken in  13 y 286 d      0",
    ]
