"""The benchmark's page in Markdown: tables, ratios, and how the numbers came about. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onceover_lab.bench.findings.results import Metric, WorkloadResult, metrics_of
from onceover_lab.bench.stats import STEADY_FROM, STEADY_TO, Spread
from onceover_lab.bench.workloads import FED, IDLE_SPAN_S, LANES, PARTITIONS, WorkloadKind

PLOT_FILE: Final = "bench.png"
DATA_FILE: Final = "bench.json"
PAGE_FILE: Final = "README.md"
# What they find depends on the records.
_OF_A_RATE: Final = frozenset({WorkloadKind.THROUGHPUT, WorkloadKind.READING})

_METHOD: Final = f"""\
## How it is measured

- Two real single-node clusters on one machine. Each workload has one topic of {PARTITIONS} partitions,
  written once; every system copies that same topic, or one with fewer of such records where it would take
  minutes, in turn (A B A B ...). Before each run the target is emptied of everything but the broker's own
  topics.
- MirrorMaker 2 runs in dedicated mode from Kafka's own jars, exactly-once, {LANES} tasks, with 1 MiB batches,
  50 ms linger, 5000 records per poll, transactions of 1 s (throughput) and the workload's codec;
  heartbeats, checkpoints and ACL sync are off. In the latency workload it runs with its fastest setting
  (a transaction per poll) and with 200 ms transactions; Onceover is compared with the better one, figure
  by figure.
- Onceover runs as users run it, `onceover replicate` through Spark, with {LANES} lanes and default settings.
- *Steady state* is the span between the commits that pass {STEADY_FROM:.0%} and {STEADY_TO:.0%} of the data:
  the target's last stable offsets are sampled every 100 ms. Start-up is told apart: process start to first
  committed record.
- CPU and memory are those of the whole process tree of the copying system (for Onceover spark-submit, the
  JVM, driver and workers), ended processes included; brokers are not counted. Memory is the largest sum
  of PSS.
- MB/s counts keys and values before compression.
- A run counts only if an independent read_committed consumer finds exactly as many records in each
  partition of the target as the source holds.
- The audit workload is copied once; `onceover audit --full` and two plain librdkafka consumers (a process
  for each cluster) then read both sides in turn. Their steady state is from the first worker's or
  consumer's first record to the last one's last.
- Latency is the time from the producer's call to a read_committed consumer's return, by one monotonic
  clock; every record is accounted for by its sequence number.
- Start: from the command to the first committed record; then what the same command costs when there is
  nothing to do. The phases in between are told by its log.
- Recovery: kill -9 while 500 records/s flow; the longest time from then on in which a partition had no
  record for a read_committed reader. Each record is accounted for. MirrorMaker 2 is started again at once
  by the benchmark, as by a supervisor that needs no time; Onceover starts itself again, or Spark its lane.
- Idle: cores in use over {IDLE_SPAN_S:.0f} s, from 5 s after all is copied.
- Cells hold the median of the runs and, in brackets, the smallest and largest. A ratio compares
  neighbouring runs.
"""


def render_page(
    results: Sequence[WorkloadResult], machine: Mapping[str, Any], settings: Mapping[str, Any]
) -> str:
    """Return the whole page."""
    parts = [
        "# Benchmark\n",
        f"{_machine_line(machine)}\n",
        f"Rounds: {settings['rounds']}. Started {settings['started_at']}, took {settings['minutes']} minutes."
        f" Made by `onceover bench`; every run is in [{DATA_FILE}]({DATA_FILE}).\n",
    ]
    if settings["scale"] != 1.0:
        parts.append(
            f"**Scaled by {settings['scale']}: a quick look, not to be compared with other runs.**\n"
        )
    parts.append(f"![Throughput, CPU and latency]({PLOT_FILE})\n")
    parts += [render_ratios(results), *(render_workload(result) for result in results), _METHOD]
    return "\n".join(parts)


def render_ratios(results: Sequence[WorkloadResult]) -> str:
    """Return the table of Onceover / rival with the aims; empty without a pair."""
    lines = [
        "## Ratios: Onceover / rival\n",
        "| workload | figure | ratio | aim | reached | rival |",
        "|---|---|---|---|---|---|",
    ]
    rows = [
        _ratio_row(result, metric)
        for result in results
        for metric in metrics_of(result.workload)
        if metric.aim is not None
    ]
    found = [row for row in rows if row]
    return "\n".join([*lines, *found, ""]) if found else ""


def render_workload(result: WorkloadResult) -> str:
    """Return the section of one workload: a column for each contender, and the failed runs."""
    names = [contender.name for contender in result.workload.contenders]
    lines = [
        f"## {result.workload.title}\n",
        f"{_volume(result)}\n",
        f"| | {' | '.join(names)} |",
        "|---" * (len(names) + 1) + "|",
    ]
    for metric in metrics_of(result.workload):
        cells = (_cell(result.spread_of(name, metric.key), metric.digits) for name in names)
        lines.append(f"| {metric.title} | {' | '.join(cells)} |")
    lines += [f"\nFailed: {run.contender}, round {run.round_number}: {run.error}" for run in result.failed]
    return "\n".join([*lines, ""])


def has_aim(result: WorkloadResult, metric: Metric) -> bool:
    """Tell whether the aim is meant for this workload: a rate's is for lz4 that can pass as batches."""
    workload = result.workload
    passes_as_bytes = workload.sync_configs and workload.batch_records is None
    return metric.aim is not None and (
        workload.kind not in _OF_A_RATE or (workload.codec == "lz4" and passes_as_bytes)
    )


def _ratio_row(result: WorkloadResult, metric: Metric) -> str:
    found = result.ratio(metric)
    if found is None or metric.aim is None:
        return ""
    rival, ratio = found
    aim, reached = "", ""
    if has_aim(result, metric):
        aim = f"{'≥' if metric.higher_is_better else '≤'} {metric.aim:g}"
        good = ratio.median >= metric.aim if metric.higher_is_better else ratio.median <= metric.aim
        reached = "yes" if good else "no"
    title = metric.title.removesuffix(", ms").removesuffix(", s")
    return f"| {result.workload.title} | {title} | {_cell(ratio, 2)} | {aim} | {reached} | {rival} |"


def _cell(found: Spread | None, digits: int) -> str:
    if found is None:
        return "-"
    return f"{found.median:,.{digits}f} [{found.low:,.{digits}f}, {found.high:,.{digits}f}]"


def _volume(result: WorkloadResult) -> str:
    workload = result.workload
    where = f"{workload.record_bytes:,} B over {workload.partitions:,} partitions"
    if workload.kind in FED:
        parts = {c.name: workload.portion(c).records for c in workload.contenders}
        fewer = "; ".join(f"{name}: {n:,}" for name, n in parts.items() if n != workload.records)
        return f"{workload.records:,} records of {where}{f' ({fewer})' if fewer else ''}."
    return f"{workload.rate_per_s} records/s of {where}."


def _machine_line(machine: Mapping[str, Any]) -> str:
    packages = machine["packages"]
    records = "" if machine["records"] == "compiled" else ", records by Python alone: not compiled"
    return (
        f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_gb']} GB, "
        f"{machine['system']}; Kafka {machine['kafka']}, Spark {packages['pyspark']}, "
        f"Python {machine['python']}, {machine['java']}{records}."
    )
