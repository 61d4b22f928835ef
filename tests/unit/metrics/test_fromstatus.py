"""What `status` says, as samples: nothing unknown becomes a number, and the series are bounded."""

from __future__ import annotations

import re
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from onceover.config.codes import ConfigCode
from onceover.errors import UsageError
from onceover.metrics import catalogue as m
from onceover.metrics.catalogue import ALL, MetricKind
from onceover.metrics.figures import Distribution, Figures, exposition
from onceover.metrics.fromstatus import add_drills, add_driver, flow_figures
from onceover.operate.states import PARTITION_NEEDS, CopyState, PartitionState
from onceover.operate.statusneeds import with_fault
from onceover.operate.statusshape import broken_entry
from onceover.state.records.runstate import RunState
from tests.support.raw.hostilenames import HOSTILE
from tests.support.worlds.statusentries import NOW_MS, partition_entry, running_entry, status_entry

Labels = tuple[tuple[str, str], ...]


def scraped(*figures: Figures) -> dict[tuple[str, Labels], float]:
    """Return what Prometheus' own reader finds in a scrape of these flows."""
    text = exposition([each.texts() for each in figures]).decode()
    found: dict[tuple[str, Labels], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


def values(entry: dict[str, Any], name: str, most: int = 100) -> dict[tuple[str, ...], float]:
    """Return the samples of one metric by their labels' values, the flow's name apart."""
    return {
        tuple(value for label, value in labels if label != "flow"): value
        for (found, labels), value in scraped(flow_figures(entry, most)).items()
        if found == f"onceover_{name}"
    }


def test_a_flow_that_runs_is_told_with_its_numbers() -> None:
    """As `status` has them; times as seconds."""
    told = running_entry(lag_offsets=12, oldest_missing_s=2.5)
    assert values(told, "flow_lag_offsets") == {(): 12}
    assert values(told, "flow_oldest_missing_age_seconds") == {(): 2.5}
    assert values(told, "flow_last_commit_timestamp_seconds") == {(): NOW_MS / 1000}
    assert values(told, "flow_starts_total") == {(): 3}
    assert values(told, "flow_fenced_starts_total") == {(): 1}
    figures = Figures()
    add_driver(figures, told, NOW_MS)
    assert scraped(figures) == {
        ("onceover_flow_driver_seen_timestamp_seconds", (("flow", "orders"),)): NOW_MS / 1000 - 1
    }


def test_what_is_not_known_has_no_sample() -> None:
    """A flow that nobody could read has no lag, no positions and no commits: never 0."""
    dark = partition_entry(0, "unknown", None, position=None, lso=None, open_offsets=None)
    told = status_entry(partitions=[dark, partition_entry(1, open_offsets=4)])
    for name in (
        "flow_lag_offsets",
        "flow_open_offsets",
        "flow_open_transaction_partitions",
        "topic_lag_offsets",
    ):
        assert values(told, name) == {}
    for name, value in (("lag", 0), ("position", 5), ("open", 4)):
        unit = "offset" if name == "position" else "offsets"
        assert values(told, f"partition_{name}_{unit}") == {("0", "1", "orders"): value}
    assert values(told, "flow_unknown_lag_partitions") == {(): 1}


def test_a_refused_topic_that_lacks_nothing_is_no_part_of_which_nobody_knows_anything() -> None:
    """As `status` has it; one that is not copied at all counts with all of its partitions."""
    refused = partition_entry(None, "not_enrolled", None, partitions=0)
    told = running_entry(partitions=[partition_entry(0), refused])
    assert values(told, "flow_unknown_lag_partitions") == {(): 0}
    assert values(told, "topic_lag_offsets") == {("orders",): 0}
    assert values(told, "flow_partitions")[("not_enrolled",)] == 0
    unknown = partition_entry(None, "not_enrolled", None, partitions=12)
    assert values(running_entry(partitions=[unknown]), "flow_unknown_lag_partitions") == {(): 12}


def test_every_state_has_a_sample_and_one_of_them_is_1() -> None:
    """Of flow and run; a state that a later release adds is one of them, too."""
    told = running_entry(state="resting")
    assert values(told, "flow_state")[("resting",)] == 1
    assert sum(values(told, "flow_state").values()) == 1
    assert values(told, "flow_run_state") == {(str(s),): float(s == RunState.RUNNING) for s in RunState}


def test_of_a_run_that_nobody_knows_no_state_is_said_not_to_be_it() -> None:
    """What Prometheus has seen last of the others is what was known last."""
    assert values(status_entry(), "flow_run_state") == {("unknown",): 1}


def test_a_file_that_is_not_in_order_is_said_beside_everything_else() -> None:
    """The flow is read as the file was; with a Connection that is not given, no file is broken."""
    told = with_fault(running_entry(lag_offsets=7), UsageError("unknown key"))
    assert values(told, "flow_file_valid") == {(): 0}
    assert values(told, "flow_lag_offsets") == {(): 7}
    assert values(told, "flow_status_exit") == {(): 2}
    missing = UsageError("no Connection", code=ConfigCode.NO_CONNECTION)
    assert values(broken_entry("x", "/x.yaml", missing), "flow_file_valid") == {(): 1}
    assert values(broken_entry("x", "/x.yaml", missing), "flow_needs") == {("NO_CONNECTION", "2"): 1}


def test_what_was_never_proven_is_told_with_what_was() -> None:
    """A topic that was enrolled a moment ago takes away neither the age of the others nor their number."""
    old, new = {"at_ms": 5_000}, NOW_MS
    some = [partition_entry(0, verified=old), partition_entry(1, verified={"at_ms": 9_000})]
    outside = partition_entry(None, "not_enrolled", enrolled_ms=None)
    for partitions, proven, since, counts in (
        (some, {(): 5}, {(): 5}, (2, 0)),
        ([*some, partition_entry(2, enrolled_ms=new), outside], {(): 5}, {(): 5}, (2, 1)),
        ([partition_entry(0, enrolled_ms=3_000), some[1]], {(): 9}, {(): 3}, (1, 1)),
        ([partition_entry(0, enrolled_ms=3_000)], {}, {(): 3}, (0, 1)),
    ):
        told = running_entry(partitions=partitions)
        assert values(told, "flow_verified_timestamp_seconds") == proven
        assert values(told, "flow_unproven_since_timestamp_seconds") == since
        assert values(told, "flow_verified_partitions") == {(): counts[0]}
        assert values(told, "flow_unverified_partitions") == {(): counts[1]}
    assert values(running_entry(partitions=[outside]), "flow_unproven_since_timestamp_seconds") == {}


def test_a_broken_file_says_so_and_is_asked_nothing() -> None:
    """There is no cluster that could be up or down."""
    error = UsageError("unknown key tarket: hunter2", resolve="correct it")
    told = broken_entry("bad", "/x/bad.yaml", error)
    assert values(told, "flow_file_valid") == {(): 0}
    assert values(told, "flow_status_exit") == {(): 2}
    assert values(told, "flow_cluster_up") == {}
    text = exposition([flow_figures(told).texts()]).decode()
    assert "hunter2" not in text


def test_needs_are_counted_by_their_codes() -> None:
    """Their texts may say anything, and are left out."""
    need = {"code": "RECORD_REFUSED", "message": "password=hunter2", "resolve": "x", "exit": 3}
    told = running_entry(needs=[need, need, {**need, "code": "AUDIT_FAILED", "exit": 1}], exit=1)
    assert values(told, "flow_needs") == {("RECORD_REFUSED", "3"): 2, ("AUDIT_FAILED", "1"): 1}


def test_above_the_bound_only_who_is_not_in_order_has_series() -> None:
    """The flow's own samples still have all of it, and what is left out is counted."""
    some = [partition_entry(number, lag=1) for number in range(30)]
    told = running_entry(partitions=[*some, partition_entry(30, "stopped", 9)], lag_offsets=39)
    assert len(values(told, "partition_lag_offsets", most=31)) == 31
    assert values(told, "partitions_left_out", most=31) == {(): 0}
    assert values(told, "partition_lag_offsets", most=30) == {("0", "30", "orders"): 9}
    assert values(told, "partitions_left_out", most=30) == {(): 30}
    assert values(told, "topic_lag_offsets", most=30) == {("orders",): 39}
    all_stopped = running_entry(partitions=[partition_entry(n, "stopped") for n in range(31)])
    assert len(values(all_stopped, "partition_state", most=30)) == 30
    assert values(all_stopped, "flow_partitions", most=30)[("stopped",)] == 31


def test_states_are_the_ones_that_status_has() -> None:
    """Each is counted, also where no partition is in it; who needs somebody has series."""
    told = running_entry()
    assert {state for (state,) in values(told, "flow_partitions")} == set(PartitionState)
    assert {state for (state,) in values(told, "flow_state")} == set(CopyState)
    every = [partition_entry(number, str(state)) for number, state in enumerate(PartitionState)]
    shown = values(running_entry(partitions=every), "partition_state", most=len(every) - 1)
    assert {state for _, _, state, _ in shown} == PARTITION_NEEDS
    assert set(PartitionState) - PARTITION_NEEDS == {"caught_up", "copying", "idle"}


def test_lag_of_what_is_copied_is_told_without_the_rest() -> None:
    """What is stopped or not taken in has a lag that no commit makes less; what is unknown has none."""
    some = [partition_entry(0, "copying", 3), partition_entry(1, "stuck", 4), partition_entry(2)]
    others = [partition_entry(3, "stopped", 50), partition_entry(None, "not_enrolled", 60)]
    dark = partition_entry(4, "unknown", None)
    for partitions, lag in (
        ([*some, *others, dark], {(): 7}),
        (others, {(): 0}),
        ([*others, dark], {}),
    ):
        told = running_entry(partitions=partitions, lag_offsets=110)
        assert values(told, "flow_copied_lag_offsets") == lag


def test_above_the_bound_the_worst_come_first() -> None:
    """Where the source is away no partition is known, and one that is stopped still has series."""
    dark = [partition_entry(number, "unknown", None) for number in range(9)]
    told = running_entry(partitions=[*dark, partition_entry(9, "stopped")])
    shown = values(told, "partition_state", most=2)
    assert {(number, state) for _, number, state, _ in shown} == {("9", "stopped"), ("0", "unknown")}


def test_above_the_bound_no_topic_has_series() -> None:
    told = running_entry(partitions=[partition_entry(0, topic=f"t{n}") for n in range(4)])
    assert len(values(told, "topic_lag_offsets", most=4)) == 4
    assert values(told, "topic_lag_offsets", most=3) == {}


def test_topics_that_are_not_taken_in_count_with_all_their_partitions() -> None:
    """They have no partition of their own in the entry, and no series."""
    missing = partition_entry(None, "not_enrolled", 40, partitions=6, lane=None, position=None)
    told = running_entry(partitions=[partition_entry(0), missing])
    assert values(told, "flow_partitions")[("not_enrolled",)] == 6
    assert len(values(told, "partition_state")) == 1


def test_drills_are_told_by_their_last_of_each_mode() -> None:
    """One that runs has no result yet; one that was cut off ended all the same."""
    ended = {"mode": "rehearsal", "began_ms": 1_000, "ended_ms": 5_000, "result": "PASS", "rto_s": 2.5}
    ended |= {"rpo_offsets": 7, "rpo_s": 0.5}
    told = {
        "running": "d9",
        "drills": [
            {**ended, "drill": "d9", "mode": "planned", "ended_ms": None, "result": None},
            {**ended, "drill": "d8"},
            {**ended, "drill": "d7", "result": "FAIL", "rto_s": None},
            {**ended, "drill": "d6", "mode": "unplanned", "result": "interrupted", "rto_s": None},
        ],
    }
    figures = Figures()
    add_drills(figures, "orders", told)
    assert figures.samples(m.DRILL_RESULT)[("orders", "rehearsal", "PASS")] == 1
    assert figures.samples(m.DRILL_RESULT)[("orders", "rehearsal", "FAIL")] == 0
    assert figures.samples(m.DRILL_RESULT)[("orders", "unplanned", "interrupted")] == 1
    assert figures.samples(m.DRILL_RTO) == {("orders", "rehearsal"): 2.5}
    assert figures.samples(m.DRILL_RPO)[("orders", "rehearsal")] == 7
    assert figures.samples(m.DRILL_RPO_AGE)[("orders", "rehearsal")] == 0.5
    assert figures.samples(m.DRILL_RUNNING) == {("orders",): 1.0}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_topic_is_one_label_and_nothing_else(name: str) -> None:
    """It ends no line, and makes no sample of its own."""
    found = scraped(flow_figures(running_entry(partitions=[partition_entry(0, topic=name, lag=3)])))
    lags = {k: v for k, v in found.items() if k[0] == "onceover_topic_lag_offsets"}
    shown = name.encode(errors="backslashreplace").decode()
    assert lags == {("onceover_topic_lag_offsets", (("flow", "orders"), ("topic", shown))): 3}


def test_samples_of_several_flows_stand_together() -> None:
    """Prometheus takes no metric whose samples are apart."""
    text = exposition([flow_figures(running_entry(name)).texts() for name in ("a", "b")]).decode()
    heads = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    assert len(heads) == len(set(heads)) > 10
    families = [line.partition("{")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len([n for n, name in enumerate(families) if n == 0 or families[n - 1] != name]) == len(heads)


def test_a_distribution_is_a_histogram() -> None:
    figures = Figures()
    figures.put(m.CANARY_ROUND_TRIP, Distribution(((0.5, 3), (float("inf"), 4)), 9.5), "orders")
    found = {name: value for (name, _), value in scraped(figures).items() if not name.endswith("_bucket")}
    assert found == {
        "onceover_canary_round_trip_seconds_count": 4,
        "onceover_canary_round_trip_seconds_sum": 9.5,
    }


def test_names_are_as_prometheus_wants_them() -> None:
    """A prefix, base units, `_total` for counters and for nothing else; each once."""
    names = [spec.name for spec in ALL]
    assert len(names) == len(set(names)) > 50
    for spec in ALL:
        assert re.fullmatch(r"onceover_[a-z]+(_[a-z]+)*", spec.name)
        assert spec.name.endswith("_total") == (spec.kind is MetricKind.COUNTER)
        assert not re.search(r"_(ms|s|mb|kb|minutes|hours)$", spec.name)
        assert spec.text.endswith(".")
        assert "\n" not in spec.text and "\\" not in spec.text
