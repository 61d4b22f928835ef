"""The pace of the feed, and which transactions fail on purpose."""

from __future__ import annotations

import pytest

from onceover_lab.demo.feed import create_topics, is_aborted, spread_evenly


@pytest.mark.parametrize(
    ("done", "elapsed_s", "pause_s"),
    [
        pytest.param(50, 5.0, 0.0, id="on time"),
        pytest.param(50, 4.0, 1.0, id="early"),
        pytest.param(50, 6.0, 0.0, id="late"),
        pytest.param(100, 9.5, 0.5, id="at the end"),
    ],
)
def test_pace_waits_only_when_early(done: int, elapsed_s: float, pause_s: float) -> None:
    """100 records over 10 seconds."""
    assert spread_evenly(done, 100, elapsed_s, 10.0) == pytest.approx(pause_s)


def test_aborts_begin_with_the_second_transaction() -> None:
    """A small run has an abort too, and the first transaction is an ordinary one."""
    assert [attempt for attempt in range(10) if is_aborted(attempt)] == [1, 5, 9]


def test_a_feed_that_goes_on_has_no_topic_to_make() -> None:
    """Kafka's library refuses an empty list: stopped by `make down`, the feed ended with that."""
    create_topics({"bootstrap.servers": "127.0.0.1:1"}, [])
