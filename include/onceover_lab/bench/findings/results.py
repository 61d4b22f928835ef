"""What a run of the benchmark found, and what several runs say together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from onceover_lab.bench.stats import Spread, paired_ratios, spread
from onceover_lab.bench.workloads import System, Workload, WorkloadKind


@dataclass(frozen=True)
class Metric:
    """A measured quantity; ``aim`` is the wanted ratio Onceover / rival, of throughput on lz4 only."""

    key: str
    title: str
    digits: int
    higher_is_better: bool = False
    aim: float | None = None


# How a figure begins that is a part of the one before it.
_PART: Final = "of these,"
THROUGHPUT_METRICS: Final = (
    Metric("records_per_s", "records/s", 0, higher_is_better=True, aim=3.0),
    Metric("mb_per_s", "MB/s", 1, higher_is_better=True),
    Metric("cpu_s_per_million", "CPU-s per million records", 2, aim=0.1),
    Metric("cpu_lanes_s_per_million", f"{_PART} lanes", 2),
    Metric("cpu_jvm_s_per_million", f"{_PART} JVM", 2),
    Metric("cpu_driver_s_per_million", f"{_PART} driver and command", 2),
    Metric("steady_s", "steady window, s", 1),
    Metric("start_up_s", "start to first record, s", 1),
    Metric("whole_s", "start to last record, s", 1),
    Metric("whole_cpu_s", "CPU-s, start-up included", 1),
    Metric("peak_memory_mb", "peak memory, MB", 0),
)
READING_METRICS: Final = (
    Metric("records_per_s", "records/s, of each side", 0, higher_is_better=True, aim=1.0),
    *(replace(m, aim=None) for m in THROUGHPUT_METRICS[1:] if not m.title.startswith(_PART)),
)
START_METRICS: Final = (
    # 7 s where MirrorMaker needs 8.5 to 12: as a ratio it holds on any machine.
    Metric("start_up_s", "start to first record, s", 1, aim=0.82),
    Metric("leads_s", "until its driver leads the flow, s", 1),
    Metric("query_s", "until its query is started, s", 1),
    Metric("nothing_to_do_s", "until caught-up, with nothing to do, s", 1),
    Metric("nothing_to_do_cpu_s", "CPU-s of that", 1),
)
RECOVERY_METRICS: Final = (
    # 8 s where MirrorMaker, started again without any delay, needs 10.
    Metric("back_s", "kill to copying again, slowest partition, s", 1, aim=0.8),
)
IDLE_METRICS: Final = (
    Metric("cpu_cores", "cores in use", 3),
    Metric("peak_memory_mb", "peak memory, MB", 0),
)
LATENCY_METRICS: Final = (
    Metric("p50_ms", "p50, ms", 0, aim=1.0),
    Metric("p99_ms", "p99, ms", 0, aim=1.0),
    Metric("p999_ms", "p99.9, ms", 0),
    Metric("max_ms", "max, ms", 0),
    Metric("cpu_cores", "cores in use", 2),
    Metric("samples", "samples", 0, higher_is_better=True),
    Metric("start_up_s", "start to first record, s", 1),
    Metric("peak_memory_mb", "peak memory, MB", 0),
)

_METRICS: Final = {
    WorkloadKind.THROUGHPUT: THROUGHPUT_METRICS,
    WorkloadKind.LATENCY: LATENCY_METRICS,
    WorkloadKind.READING: READING_METRICS,
    WorkloadKind.START: START_METRICS,
    WorkloadKind.RECOVERY: RECOVERY_METRICS,
    WorkloadKind.IDLE: IDLE_METRICS,
}
_OURS: Final = (System.ONCEOVER, System.AUDIT)
_RIVALS: Final = (System.MIRRORMAKER, System.CONSUMERS)


def metrics_of(workload: Workload) -> tuple[Metric, ...]:
    """Return what is measured in a workload, the most telling first."""
    return _METRICS[workload.kind]


@dataclass(frozen=True)
class ContenderRun:
    """One contender's turn in one round. A run that did not copy everything has an error, and no figures."""

    contender: str
    round_number: int
    figures: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class WorkloadResult:
    """Every run of one workload."""

    workload: Workload
    runs: tuple[ContenderRun, ...]

    @property
    def failed(self) -> tuple[ContenderRun, ...]:
        return tuple(run for run in self.runs if run.error is not None)

    def spread_of(self, contender: str, key: str) -> Spread | None:
        """Return the spread of a figure over the good runs of a contender."""
        return spread(list(self._by_round(contender, key).values()))

    def ratio(self, metric: Metric) -> tuple[str, Spread] | None:
        """Return the rival with the best median, and the spread of ours / rival over the rounds.

        The best is taken for each metric anew: Onceover is never compared with a setting that suits it.
        None when one side has no good run.
        """
        ours = next((c for c in self.workload.contenders if c.system in _OURS), None)
        if ours is None:
            return None
        rivals = [
            (found.median, contender.name)
            for contender in self.workload.contenders
            if contender.system in _RIVALS
            and (found := self.spread_of(contender.name, metric.key)) is not None
        ]
        if not rivals:
            return None
        _, best = max(rivals) if metric.higher_is_better else min(rivals)
        ratios = spread(
            paired_ratios(self._by_round(ours.name, metric.key), self._by_round(best, metric.key))
        )
        return None if ratios is None else (best, ratios)

    def _by_round(self, contender: str, key: str) -> dict[int, float]:
        return {
            run.round_number: run.figures[key]
            for run in self.runs
            if run.contender == contender and run.error is None and key in run.figures
        }


def as_document(
    results: Sequence[WorkloadResult], machine: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the JSON document: machine, settings, every run, and what they say together."""
    return {
        "machine": dict(machine),
        "settings": dict(settings),
        "workloads": [_workload_document(result) for result in results],
    }


def _workload_document(result: WorkloadResult) -> dict[str, Any]:
    workload = result.workload
    return {
        "name": workload.name,
        "title": workload.title,
        "kind": workload.kind.value,
        "record_bytes": workload.record_bytes,
        "records": workload.records,
        "codec": workload.codec,
        "runs": [
            asdict(run) | {"ok": run.error is None, "figures": dict(run.figures)} for run in result.runs
        ],
        "summary": {
            contender.name: _spreads(
                (metric.key, result.spread_of(contender.name, metric.key)) for metric in metrics_of(workload)
            )
            for contender in workload.contenders
        },
        "ratios": {
            metric.key: {"rival": found[0], "aim": metric.aim, **asdict(found[1])}
            for metric in metrics_of(workload)
            if metric.key != "samples" and (found := result.ratio(metric)) is not None
        },
    }


def _spreads(items: Iterable[tuple[str, Spread | None]]) -> dict[str, Any]:
    return {key: asdict(found) for key, found in items if found is not None}
