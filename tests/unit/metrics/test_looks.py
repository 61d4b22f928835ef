"""What a scrape tells of looks: nothing that is too old, and nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceover.metrics import catalogue as m
from onceover.metrics.figures import Figures
from onceover.metrics.looks import LastLook, Seen, SeldomRead, scrape_text, stale_after_s


def look(file: str, age_s: float, flow: str | None = None) -> LastLook:
    """Return a look at a flow that has a lag of 7."""
    figures = Figures()
    figures.put(m.LAG, 7, flow or file)
    return LastLook(Path(f"{file}.yaml"), Seen(flow or file, figures.texts(), 5.0, 2_000, 0.5), age_s)


def told(*looks: LastLook) -> list[str]:
    text = scrape_text(looks, 60.0, "0.1").decode()
    return [line.removeprefix("onceover_") for line in text.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(("interval_s", "expected"), [(0.1, 60.0), (15.0, 60.0), (30.0, 120.0)])
def test_four_looks_may_fail_and_a_minute_may_pass(interval_s: float, expected: float) -> None:
    """Neither a slow cluster nor a short interval makes a flow look dead."""
    assert stale_after_s(interval_s) == expected


@pytest.mark.parametrize(("age_s", "fresh"), [(60.0, True), (60.1, False)])
def test_what_is_too_old_is_left_out_and_said(age_s: float, fresh: bool) -> None:
    """When it was seen is told all the same."""
    lines = told(look("a", age_s))
    assert f'look_fresh{{flow="a"}} {float(fresh)}' in lines
    assert ('flow_lag_offsets{flow="a"} 7.0' in lines) is fresh
    assert 'look_timestamp_seconds{flow="a"} 2.0' in lines


def test_a_flow_that_was_never_looked_at_is_called_after_its_file() -> None:
    """It is not fresh, however short it has waited."""
    lines = told(LastLook(Path("new.yaml"), None, 0.0))
    assert 'look_fresh{flow="new"} 0.0' in lines
    assert [line for line in lines if line.startswith("look_timestamp")] == []
    assert "exporter_flow_files 1.0" in lines


def test_a_second_file_of_one_name_is_not_in_order() -> None:
    """It makes no series twice."""
    lines = told(look("a", 0.0), look("b", 0.0, flow="a"))
    assert [line for line in lines if line.startswith("look_fresh")] == ['look_fresh{flow="a"} 1.0']
    assert 'flow_file_valid{flow="b.yaml"} 0.0' in lines
    assert "exporter_flow_files 2.0" in lines


def drills(running_s: float) -> Figures:
    figures = Figures()
    figures.put(m.DRILL_RUNNING, running_s, "a")
    return figures


def known(seldom: SeldomRead, flow: str, now_s: float) -> list[object]:
    figures = Figures()
    seldom.add_to(figures, flow, now_s)
    return list(figures.samples(m.DRILL_RUNNING).values())


def test_what_changes_seldom_is_read_each_minute_and_of_another_flow_at_once() -> None:
    """It takes as long as all the rest."""
    seldom = SeldomRead()
    assert seldom.is_due("a", 0.0)
    seldom.begin("a", 0.0)
    assert not seldom.is_due("a", 59.9)
    assert seldom.is_due("a", 60.0)
    assert seldom.is_due("b", 1.0)


def test_what_changes_seldom_is_told_for_five_minutes_without_an_answer() -> None:
    """A look that fails ends no alert; and nothing is told of another flow."""
    seldom = SeldomRead()
    seldom.begin("a", 0.0)
    seldom.keep("drills", drills(1.0))
    seldom.begin("a", 60.0)
    assert (known(seldom, "a", 299.9), known(seldom, "a", 300.0), known(seldom, "b", 60.0)) == ([1.0], [], [])
    seldom.keep("drills", drills(2.0))
    assert known(seldom, "a", 300.0) == [2.0]
    seldom.forget()
    assert known(seldom, "a", 60.0) == []
    seldom.keep("drills", drills(3.0))
    seldom.begin("b", 61.0)
    assert known(seldom, "b", 61.0) == known(seldom, "a", 61.0) == []
