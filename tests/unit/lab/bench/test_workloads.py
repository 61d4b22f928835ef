"""Which workloads a run plays."""

from __future__ import annotations

import pytest

from onceover.errors import UsageError
from onceover_lab.bench.workloads import (
    DEFAULT,
    EXTRA,
    PARTITIONS,
    System,
    WorkloadKind,
    keep_systems,
    select_workloads,
)


def test_default_is_the_short_set_and_full_adds_to_it() -> None:
    assert select_workloads([], full=False, scale=1.0) == DEFAULT
    assert select_workloads([], full=True, scale=1.0) == (*DEFAULT, *EXTRA)


def test_named_workload_may_come_from_the_full_set() -> None:
    assert [w.name for w in select_workloads(["latency", "ceiling"], full=False, scale=1.0)] == [
        "ceiling",
        "latency",
    ]


def test_scale_changes_the_volume_only() -> None:
    half = select_workloads(["1kb-lz4"], full=False, scale=0.5)[0]
    assert half.records == DEFAULT[0].records // 2
    assert half.contenders == DEFAULT[0].contenders


def test_smallest_scale_leaves_a_record_for_each_partition() -> None:
    assert select_workloads(["1kb-lz4"], full=False, scale=1e-9)[0].records == PARTITIONS


def test_unknown_workload_is_named_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"unknown workload '2kb'.*1kb-lz4, tiny-batches, ceiling"):
        select_workloads(["2kb"], full=False, scale=1.0)


@pytest.mark.parametrize("scale", [0.0, -1.0, 101.0, float("nan")])
def test_senseless_scale_is_refused(scale: float) -> None:
    with pytest.raises(UsageError, match="out of range"):
        select_workloads([], full=False, scale=scale)


def test_keeping_one_system_drops_the_others_and_empty_workloads() -> None:
    kept = keep_systems((*DEFAULT, *EXTRA), ["librdkafka"])
    assert [w.name for w in kept] == ["ceiling"]
    assert {c.system for w in kept for c in w.contenders} == {System.LIBRDKAFKA}


def test_keeping_a_system_that_takes_no_part_is_refused() -> None:
    with pytest.raises(UsageError, match="no contender is left"):
        keep_systems(DEFAULT, ["audit"])


def test_latency_is_measured_against_two_settings_of_mirrormaker() -> None:
    latency = next(w for w in DEFAULT if w.kind is WorkloadKind.LATENCY)
    boundaries = [
        c.properties["transaction.boundary"] for c in latency.contenders if c.system is System.MIRRORMAKER
    ]
    assert boundaries == ["poll", "interval"]


def test_a_slow_system_copies_a_smaller_topic_of_its_own() -> None:
    """So that both are in their steady state for long, and the run is over before long."""
    workload = next(w for w in DEFAULT if w.name == "1kb-lz4")
    parts = {c.system: workload.portion(c) for c in workload.contenders}
    assert parts[System.ONCEOVER] is workload
    smaller = parts[System.MIRRORMAKER]
    assert smaller.records == round(workload.records * workload.mirror_share) < workload.records
    assert smaller.topic != workload.topic and smaller.codec == workload.codec
    assert smaller.portion(workload.contenders[0]) is smaller
