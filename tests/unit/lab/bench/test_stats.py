"""The arithmetic that the published numbers rest on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover_lab.bench.stats import (
    Sample,
    Spread,
    Window,
    paired_ratios,
    percentile,
    spread,
    steady_window,
    value_at,
)


def steps(step_s: float, per_step: float, count: int, start_s: float = 0.0) -> list[Sample]:
    """Progress that grows by ``per_step`` every ``step_s``, seen every 0.1 s: commits of transactions."""
    total_s = step_s * count
    looks = round(total_s / 0.1) + 1
    return [Sample(start_s + 0.1 * look, per_step * ((0.1 * look + 1e-9) // step_s)) for look in range(looks)]


def test_window_of_long_transactions_gives_the_exact_rate() -> None:
    """Both borders are commits, so that one-second steps do not blur a ten-second run."""
    progress = steps(step_s=1.0, per_step=1000, count=10)
    window = steady_window(progress, 10_000)
    assert window is not None
    assert window.share * 10_000 / window.seconds == pytest.approx(1000)


def test_window_leaves_out_a_slow_start_and_a_slow_end() -> None:
    ramp = [Sample(0, 0), Sample(10, 100), Sample(11, 500), Sample(12, 900), Sample(60, 1000)]
    assert steady_window(ramp, 1000) == Window(10, 12, 0.8)


def test_window_within_one_commit_is_refused() -> None:
    """A single transaction with everything in it has no rate."""
    assert steady_window([Sample(0, 0), Sample(1, 1000)], 1000) is None


def test_window_of_an_unfinished_run_is_refused() -> None:
    assert steady_window([Sample(0, 0), Sample(1, 200), Sample(2, 500)], 1000) is None


def test_window_of_no_progress_is_refused() -> None:
    assert steady_window([], 1000) is None
    assert steady_window([Sample(0, 0), Sample(1, 0)], 0) is None


@given(
    step_s=st.sampled_from([0.1, 0.2, 0.5, 1.0]),
    count=st.integers(min_value=20, max_value=60),
    start_s=st.floats(min_value=0, max_value=1e4),
)
def test_window_rate_does_not_depend_on_the_transaction_length(
    step_s: float, count: int, start_s: float
) -> None:
    progress = steps(step_s, 500 * step_s, count, start_s)
    total = progress[-1].value
    window = steady_window(progress, total)
    assert window is not None
    assert window.share * total / window.seconds == pytest.approx(500, rel=1e-6)


def test_value_between_samples_is_interpolated_and_flat_outside() -> None:
    samples = [Sample(10, 1.0), Sample(20, 3.0)]
    assert [value_at(samples, at) for at in (0, 10, 15, 20, 99)] == [1.0, 1.0, 2.0, 3.0, 3.0]


def test_value_of_no_samples_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^no samples to read a value from$"):
        value_at([], 1)


def test_percentile_is_a_value_that_occurred() -> None:
    """Nearest rank: of 1..1000 the 99.9th percentile is the 999th value, the 100th the last."""
    values = list(range(1, 1001))
    assert [percentile(values, p) for p in (0.01, 50, 99, 99.9, 100)] == [1, 500, 990, 999, 1000]


@pytest.mark.parametrize(("values", "percent"), [([], 50.0), ([1.0], 0.0), ([1.0], 100.1)])
def test_percentile_without_a_meaning_is_refused(values: list[float], percent: float) -> None:
    with pytest.raises(ValueError, match=r"^no percentile"):
        percentile(values, percent)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), st.floats(0.01, 100))
def test_percentile_splits_the_values_as_it_says(values: list[float], percent: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, percent)
    at_most = sum(value <= found for value in ordered)
    below = sum(value < found for value in ordered)
    assert at_most >= percent / 100 * len(ordered) - 1e-5
    assert below < percent / 100 * len(ordered) + 1e-5


def test_spread_names_the_extremes() -> None:
    assert spread([3, 1, 2]) == Spread(2, 1, 3, 3)
    assert spread([]) is None


def test_ratios_pair_the_runs_of_a_round() -> None:
    """A round that one side did not finish gives no ratio, and no run is paired with another round's."""
    assert paired_ratios({1: 30.0, 2: 40.0}, {2: 10.0, 3: 5.0}) == [4.0]
    assert paired_ratios({1: 30.0}, {1: 0.0}) == []
