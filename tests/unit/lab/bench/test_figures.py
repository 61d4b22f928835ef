"""From samples to figures, and from runs to what they say together."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from onceover.errors import Retriable
from onceover_lab.bench.findings.figures import (
    Arrivals,
    Observed,
    check_complete,
    latency_figures,
    throughput_figures,
)
from onceover_lab.bench.findings.results import (
    LATENCY_METRICS,
    THROUGHPUT_METRICS,
    ContenderRun,
    WorkloadResult,
    as_document,
)
from onceover_lab.bench.stats import Sample, Spread
from onceover_lab.bench.workloads import DEFAULT, WorkloadKind

THROUGHPUT = next(w for w in DEFAULT if w.kind is WorkloadKind.THROUGHPUT)
LATENCY = next(w for w in DEFAULT if w.kind is WorkloadKind.LATENCY)
RECORDS_PER_S = THROUGHPUT_METRICS[0]
P50 = LATENCY_METRICS[0]


def linear_run() -> Observed:
    """Started at 100 s, first record at 110 s, then 1010 offsets a second for 10 s, on half a core."""
    progress = [Sample(100, 0), *(Sample(110 + 0.1 * n, 101.0 * n) for n in range(101)), Sample(123, 10_100)]
    cpu = [Sample(100, 0.0), Sample(110, 20.0), Sample(120, 25.0), Sample(123, 26.0)]
    return Observed(100, progress, cpu, 500_000_000)


def test_figures_of_a_run_tell_start_up_and_steady_state_apart() -> None:
    """10,000 records took 10,100 offsets: markers are spread evenly and do not count as records."""
    found = throughput_figures(linear_run(), records=10_000, record_bytes=1000)
    assert found["records_per_s"] == pytest.approx(1000)
    assert found["mb_per_s"] == pytest.approx(1.0)
    assert found["cpu_s_per_million"] == pytest.approx(500)
    assert found["start_up_s"] == pytest.approx(10.1)
    assert found["whole_s"] == pytest.approx(20)
    assert found["whole_cpu_s"] == pytest.approx(25)
    assert found["peak_memory_mb"] == 500


def test_run_of_a_single_commit_has_no_figures() -> None:
    observed = Observed(0, [Sample(0, 0), Sample(1, 100)], [Sample(0, 0), Sample(1, 1)], 0)
    with pytest.raises(Retriable, match="no steady state"):
        throughput_figures(observed, records=100, record_bytes=1)


def test_run_onto_what_was_there_before_has_no_figures() -> None:
    """A deleted topic's ends are told until its logs are closed: the run would count another's records."""
    run = linear_run()
    left = [Sample(99, 10_100), *run.progress]
    with pytest.raises(Retriable, match=r"held records before.*end offsets sum up to 10100"):
        throughput_figures(replace(run, progress=left), records=10_000, record_bytes=1)


@pytest.mark.parametrize("target", [{0: 5, 1: 4}, {0: 5, 1: 6}, {0: 5}])
def test_target_with_other_counts_is_refused(target: dict[int, int]) -> None:
    with pytest.raises(Retriable, match="partition 1; expected: 5 records"):
        check_complete({0: 5, 1: 5}, target)


def test_target_with_the_same_counts_is_complete() -> None:
    check_complete({0: 5, 1: 0}, {1: 0, 0: 5})


def test_latency_figures_cover_the_measured_span_only() -> None:
    arrivals = Arrivals([float(n) for n in range(1, 1001)], first_s=12, from_s=20, to_s=30)
    cpu = [Sample(0, 0), Sample(20, 30), Sample(30, 32)]
    found = latency_figures(arrivals, cpu, started_s=2, peak_memory_bytes=1_000_000)
    assert (found["p50_ms"], found["p99_ms"], found["p999_ms"], found["max_ms"]) == (500, 990, 999, 1000)
    assert found["cpu_cores"] == pytest.approx(0.2)
    assert (found["start_up_s"], found["samples"]) == (10, 1000)


def test_latency_without_samples_is_refused() -> None:
    with pytest.raises(Retriable, match="no record was sent in the measured span"):
        latency_figures(Arrivals([], 0, 1, 2), [Sample(0, 0)], started_s=0, peak_memory_bytes=0)


def throughput_result(*runs: tuple[str, int, float | None]) -> WorkloadResult:
    return WorkloadResult(
        THROUGHPUT,
        tuple(
            ContenderRun(name, n, error="broken")
            if rate is None
            else ContenderRun(name, n, {"records_per_s": rate})
            for name, n, rate in runs
        ),
    )


def test_ratio_pairs_rounds_and_leaves_failed_runs_out() -> None:
    result = throughput_result(
        ("mm2", 1, 100), ("onceover", 1, 400), ("mm2", 2, 50), ("onceover", 2, None), ("mm2", 3, 100),
        ("onceover", 3, 300),
    )  # fmt: skip
    assert result.ratio(RECORDS_PER_S) == ("mm2", Spread(3.5, 3.0, 4.0, 2))
    assert [run.round_number for run in result.failed] == [2]
    assert result.spread_of("onceover", "records_per_s") == Spread(350, 300, 400, 2)


def test_ratio_without_a_rival_is_none() -> None:
    assert throughput_result(("onceover", 1, 400)).ratio(RECORDS_PER_S) is None
    assert throughput_result(("mm2", 1, 400)).ratio(RECORDS_PER_S) is None


def test_ratio_is_taken_against_the_best_rival() -> None:
    """Lower is better for latency: the quicker of MirrorMaker 2's settings is the one to beat."""
    runs = (
        ContenderRun("mm2-poll", 1, {"p50_ms": 30}),
        ContenderRun("mm2-200ms", 1, {"p50_ms": 116}),
        ContenderRun("onceover", 1, {"p50_ms": 15}),
    )
    assert WorkloadResult(LATENCY, runs).ratio(P50) == ("mm2-poll", Spread(0.5, 0.5, 0.5, 1))


def test_document_holds_every_run_and_is_json() -> None:
    result = throughput_result(("mm2", 1, 100), ("onceover", 1, 400), ("onceover", 2, None))
    document = json.loads(json.dumps(as_document([result], {"cores": 2}, {"rounds": 3})))
    (workload,) = document["workloads"]
    assert [(run["contender"], run["round_number"], run["ok"]) for run in workload["runs"]] == [
        ("mm2", 1, True),
        ("onceover", 1, True),
        ("onceover", 2, False),
    ]
    assert workload["ratios"]["records_per_s"] == {
        "rival": "mm2", "aim": 3.0, "median": 4.0, "low": 4.0, "high": 4.0, "runs": 1,
    }  # fmt: skip
