"""Turns what was seen of one run into its figures. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onceover.errors import Retriable
from onceover_lab.bench.stats import Sample, first_at_least, percentile, steady_window, value_at
from onceover_lab.bench.watching.cpu import Part


@dataclass(frozen=True)
class Observed:
    """What was seen of a throughput run; all times are of the same monotonic clock.

    ``progress`` is the sum of the target's last stable offsets, ``cpu`` the cumulative CPU seconds, ``parts``
    those of each part.
    """

    started_s: float
    progress: Sequence[Sample]
    cpu: Sequence[Sample]
    peak_memory_bytes: int
    parts: Mapping[Part, Sequence[Sample]] = field(default_factory=dict)


@dataclass(frozen=True)
class Arrivals:
    """What reached the consumer: the latencies of the measured span, and the span itself."""

    latencies_ms: Sequence[float]
    first_s: float
    from_s: float
    to_s: float


def check_complete(source: dict[int, int], target: dict[int, int]) -> None:
    """Refuse a run whose target does not hold exactly the records of the source.

    Raises:
        Retriable: a partition holds fewer or more.
    """
    wrong = {p: (source[p], target.get(p, 0)) for p in source if source[p] != target.get(p, 0)}
    if wrong:
        partition, (expected, seen) = next(iter(wrong.items()))
        raise Retriable(
            f"{len(wrong)} partitions of the target do not hold the records of the source",
            where=f"partition {partition}",
            expected=f"{expected} records",
            seen=f"{seen} records",
        )


def throughput_figures(observed: Observed, *, records: int, record_bytes: int) -> dict[str, float]:
    """Return the figures of a run that copied ``records`` records.

    Offsets hold transaction markers too; shares of all offsets are therefore turned into shares of all
    records, which spreads the markers evenly.

    Raises:
        Retriable: the run was over before a steady state could be told apart, or the target held something
            when it began.
    """
    if observed.progress[0].value != 0:
        raise Retriable(
            "the target held records before the run began",
            expected="an empty topic, or none",
            seen=f"end offsets sum up to {observed.progress[0].value:.0f}",
        )
    last = observed.progress[-1].value
    window = steady_window(observed.progress, last)
    first, done = first_at_least(observed.progress, 1), first_at_least(observed.progress, last)
    if window is None or first is None or done is None:
        raise Retriable("the run had no steady state", resolve="use more records: a larger --scale")
    steady_records = window.share * records
    rate = steady_records / window.seconds

    def cpu_s_per_million(cpu: Sequence[Sample]) -> float:
        return (value_at(cpu, window.end_s) - value_at(cpu, window.start_s)) / steady_records * 1e6

    return {
        "records_per_s": rate,
        "mb_per_s": rate * record_bytes / 1e6,
        "cpu_s_per_million": cpu_s_per_million(observed.cpu),
        **{f"cpu_{part.value}_s_per_million": cpu_s_per_million(cpu) for part, cpu in observed.parts.items()},
        "steady_s": window.seconds,
        "start_up_s": first.at_s - observed.started_s,
        "whole_s": done.at_s - observed.started_s,
        "whole_cpu_s": value_at(observed.cpu, done.at_s),
        "peak_memory_mb": observed.peak_memory_bytes / 1e6,
    }


def latency_figures(
    arrivals: Arrivals, cpu: Sequence[Sample], *, started_s: float, peak_memory_bytes: int
) -> dict[str, float]:
    """Return the figures of a latency run.

    Raises:
        Retriable: nothing was sent in the measured span.
    """
    if not arrivals.latencies_ms:
        raise Retriable("no record was sent in the measured span", resolve="use a larger --scale")
    cpu_s = value_at(cpu, arrivals.to_s) - value_at(cpu, arrivals.from_s)
    return {
        "p50_ms": percentile(arrivals.latencies_ms, 50),
        "p99_ms": percentile(arrivals.latencies_ms, 99),
        "p999_ms": percentile(arrivals.latencies_ms, 99.9),
        "max_ms": arrivals.latencies_ms[-1],
        "cpu_cores": cpu_s / (arrivals.to_s - arrivals.from_s),
        "samples": float(len(arrivals.latencies_ms)),
        "start_up_s": arrivals.first_s - started_s,
        "peak_memory_mb": peak_memory_bytes / 1e6,
    }
