"""The page says what was measured, also when it is not what was hoped for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceover_lab.bench.findings.plot import draw
from onceover_lab.bench.findings.publish import publish
from onceover_lab.bench.findings.report import render_page, render_ratios, render_workload
from onceover_lab.bench.findings.results import ContenderRun, WorkloadResult
from onceover_lab.bench.workloads import DEFAULT, EXTRA, WorkloadKind

THROUGHPUT = next(w for w in DEFAULT if w.kind is WorkloadKind.THROUGHPUT)
LATENCY = next(w for w in DEFAULT if w.kind is WorkloadKind.LATENCY)
UNCOMPRESSED = next(w for w in EXTRA if w.name == "1kb-none")
SETTINGS = {"rounds": 1, "scale": 1.0, "started_at": "2026-01-01 00:00 UTC", "minutes": 12.5}


@pytest.fixture
def machine() -> dict[str, Any]:
    return {
        "cores": 2,
        "cpu": "some cpu",
        "memory_gb": 24.0,
        "system": "Linux",
        "kafka": "4.3.0",
        "python": "3.11",
        "java": "17",
        "records": "compiled",
        "packages": {"pyspark": "4.2.0"},
    }


def rates(mm2: float, ours: float) -> tuple[ContenderRun, ContenderRun]:
    return ContenderRun("mm2", 1, {"records_per_s": mm2}), ContenderRun(
        "onceover", 1, {"records_per_s": ours}
    )


@pytest.mark.parametrize("records", ["compiled", "python"])
def test_page_says_where_records_were_not_copied_by_compiled_code(
    machine: dict[str, Any], records: str
) -> None:
    """What the figures are worth on a machine that has it."""
    page = render_page(
        [WorkloadResult(THROUGHPUT, rates(100, 300))], {**machine, "records": records}, SETTINGS
    )
    assert ("records by Python alone" in page) == (records == "python")


def test_reached_aim_says_yes() -> None:
    page = render_ratios([WorkloadResult(THROUGHPUT, rates(100, 300))])
    assert "| 1 KB, lz4 | records/s | 3.00 [3.00, 3.00] | ≥ 3 | yes | mm2 |" in page


def test_missed_aim_says_no() -> None:
    page = render_ratios([WorkloadResult(THROUGHPUT, rates(100, 299))])
    assert "| 2.99 [2.99, 2.99] | ≥ 3 | no |" in page


def test_lower_is_better_for_latency() -> None:
    runs = (ContenderRun("mm2-poll", 1, {"p99_ms": 100}), ContenderRun("onceover", 1, {"p99_ms": 150}))
    page = render_ratios([WorkloadResult(LATENCY, runs)])
    assert "| p99 | 1.50 [1.50, 1.50] | ≤ 1 | no | mm2-poll |" in page


@pytest.mark.parametrize(
    ("name", "rival", "ours", "key", "row"),
    [
        (
            "start",
            "mm2-poll",
            "onceover",
            "start_up_s",
            "| start to first record | 0.80 [0.80, 0.80] | ≤ 0.82 | yes |",
        ),
        (
            "recover",
            "mm2-killed",
            "driver-killed",
            "back_s",
            "| kill to copying again, slowest partition | 0.80 [0.80, 0.80] | ≤ 0.8 | yes |",
        ),
    ],
)
def test_seconds_are_judged_by_those_of_the_rival_in_the_same_run(
    name: str, rival: str, ours: str, key: str, row: str
) -> None:
    """On a machine half as quick both need twice as long."""
    workload = next(w for w in DEFAULT if w.name == name)
    runs = (ContenderRun(rival, 1, {key: 10}), ContenderRun(ours, 1, {key: 8}))
    assert f"{row} {rival} |" in render_ratios([WorkloadResult(workload, runs)])


def test_workload_without_an_aim_shows_the_ratio_alone() -> None:
    """The aims are for lz4: another codec's ratio is reported and not judged."""
    page = render_ratios([WorkloadResult(UNCOMPRESSED, rates(100, 200))])
    assert "| 1 KB, uncompressed | records/s | 2.00 [2.00, 2.00] |  |  | mm2 |" in page


def test_failed_run_is_named_and_has_no_number() -> None:
    section = render_workload(
        WorkloadResult(THROUGHPUT, (ContenderRun("onceover", 2, error="it fell over"),))
    )
    assert "Failed: onceover, round 2: it fell over" in section
    assert "| records/s | - | - |" in section


def test_scaled_run_is_marked(machine: dict[str, Any]) -> None:
    results = [WorkloadResult(THROUGHPUT, rates(100, 300))]
    assert "not to be compared" in render_page(results, machine, SETTINGS | {"scale": 0.1})
    assert "not to be compared" not in render_page(results, machine, SETTINGS)


def test_page_without_a_pair_has_no_ratio_table(machine: dict[str, Any]) -> None:
    results = [WorkloadResult(THROUGHPUT, rates(100, 300)[:1])]
    assert "Onceover / rival" not in render_page(results, machine, SETTINGS)


def test_publishing_writes_data_page_and_picture(tmp_path: Path, machine: dict[str, Any]) -> None:
    latency = WorkloadResult(
        LATENCY, (ContenderRun("onceover", 1, {"p50_ms": 5, "p99_ms": 9, "p999_ms": 20}),)
    )
    publish(tmp_path / "out", [WorkloadResult(THROUGHPUT, rates(100, 300)), latency], machine, SETTINGS)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "README.md",
        "bench.json",
        "bench.png",
    ]
    assert (tmp_path / "out" / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_picture_of_failed_runs_alone_can_be_drawn(tmp_path: Path) -> None:
    draw([WorkloadResult(THROUGHPUT, (ContenderRun("mm2", 1, error="no"),))], tmp_path / "empty.png")
    assert (tmp_path / "empty.png").exists()
