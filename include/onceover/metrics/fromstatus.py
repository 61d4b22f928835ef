"""What `status` says of a flow, as samples: the same answer that people read. Pure.

Invariant: the number of series is bounded, whatever a flow has. With more partitions than the bound only
those have series of their own that somebody has to look at, up to the bound; with more topics than
it, no topic has. What is left out is counted, and is in the flow's own samples all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from onceover.config.codes import ConfigCode
from onceover.drills.chain import DrillResult
from onceover.errors import OnceoverError
from onceover.exitstatus import USAGE
from onceover.metrics import catalogue as m
from onceover.metrics.figures import Figures
from onceover.operate.states import PARTITION_NEEDS, CopyState, PartitionState
from onceover.operate.statusshape import oldest_of
from onceover.state.records.runstate import RunState
from onceover.state.records.verdicts import Verdict

Entry = Mapping[str, Any]

# Series of one flow's partitions: five for each. Two such flows are what a small Prometheus takes unnoticed.
MAX_PARTITIONS: Final = 2_000
# Those of switchovers and rehearsals.
DRILL_RESULTS: Final = (DrillResult.PASS, DrillResult.FAIL, DrillResult.INTERRUPTED)
_MS: Final = 1000
# No commit makes their lag less.
_NOT_COPIED: Final = (PartitionState.STOPPED, PartitionState.NOT_ENROLLED)


def flow_figures(entry: Entry, most: int = MAX_PARTITIONS) -> Figures:
    """Return the samples of one flow.

    Args:
        entry: as `status` has it.
        most: partitions, and topics, with series of their own.
    """
    figures, flow = Figures(), entry["flow"]
    _add_flow(figures, entry, flow)
    _add_sides(figures, entry, flow)
    _add_audit(figures, entry, flow)
    partitions = [p for p in entry["partitions"] if p["partition"] is not None]
    # A refused topic of which nothing is missing: its other partitions speak for it.
    counted = [p for p in entry["partitions"] if p.get("partitions", 1)]
    _add_totals(figures, flow, counted)
    _add_topics(figures, flow, counted, most)
    shown = chosen(partitions, most)
    for partition in shown:
        _add_partition(figures, flow, partition)
    figures.put(m.SERIES_LEFT_OUT, len(partitions) - len(shown), flow)
    return figures


def chosen(partitions: Sequence[Entry], most: int) -> Sequence[Entry]:
    """Return the partitions that have series of their own."""
    if len(partitions) <= most:
        return partitions
    needing = (p for p in partitions if p["state"] in PARTITION_NEEDS)
    return sorted(needing, key=lambda p: list(PartitionState).index(p["state"]))[:most]


def _add_flow(figures: Figures, entry: Entry, flow: str) -> None:
    figures.put(m.FILE_VALID, float(not _is_broken(entry)), flow)
    figures.put(m.FLOW_EXIT, entry["exit"], flow)
    figures.put_state(m.FLOW_STATE, entry["state"], map(str, CopyState), flow)
    _add_run_state(figures, entry["run"]["state"], flow)
    for (code, exit_code), count in Counter((n["code"], n["exit"]) for n in entry["needs"]).items():
        figures.put(m.NEEDS, count, flow, code, exit_code)
    figures.put(m.STARTS, entry["generation"], flow)
    figures.put(m.TAKEOVERS, entry["fenced_starts"], flow)
    figures.put(m.RESTARTS, entry["restarts"], flow)
    for lane, count in entry["aborted"].items():
        figures.put(m.LANE_ABORTED, count, flow, lane)
    figures.put(m.LANES, entry["lanes"], flow)
    figures.put(m.RUN_STARTED, _seconds(entry["run"]["started_ms"]), flow)
    figures.put(m.LAST_COMMIT, _seconds(entry["last_commit_ms"]), flow)
    figures.put(m.LAG, entry["lag_offsets"], flow)
    figures.put(m.OLDEST, entry["oldest_missing_s"], flow)
    if entry["dead_letters"] is not None:
        figures.put(m.DEAD_LETTERS, entry["dead_letters"]["at_most"], flow)


def _is_broken(entry: Entry) -> bool:
    """Tell whether file or clients are not in order; a Connection that is not given is none of these."""
    errors = [error for error in (entry["error"], entry["fault"]) if error is not None]
    return any(error["exit"] == USAGE and error["code"] != ConfigCode.NO_CONNECTION for error in errors)


def _add_run_state(figures: Figures, state: str, flow: str) -> None:
    """Add the state of the newest run; of one that nobody knows no other state is said not to be it.

    So the last that was known of a flow is what Prometheus has last seen.
    """
    others = () if state == RunState.UNKNOWN else map(str, RunState)
    figures.put_state(m.RUN_STATE, state, others, flow)


def _add_sides(figures: Figures, entry: Entry, flow: str) -> None:
    if entry["error"] is not None:  # nobody was asked
        return
    for side in ("source", "target"):
        figures.put(m.CLUSTER_UP, float(entry[side]["error"] is None), flow, side)


def _add_audit(figures: Figures, entry: Entry, flow: str) -> None:
    copied = [p for p in entry["partitions"] if p["state"] != PartitionState.NOT_ENROLLED]
    if copied:
        proven = [p["verified"]["at_ms"] for p in copied if p["verified"] is not None]
        waiting = [p["enrolled_ms"] for p in copied if p["verified"] is None]
        figures.put(m.VERIFIED, _seconds(min(proven, default=None)), flow)
        figures.put(m.VERIFIED_PARTITIONS, len(proven), flow)
        figures.put(m.UNVERIFIED_PARTITIONS, len(waiting), flow)
        figures.put(m.UNPROVEN, _seconds(min(proven + waiting)), flow)
    if (audit := entry["audit"]) is not None:
        figures.put_state(m.AUDIT, audit["verdict"], tuple(Verdict), flow)
        figures.put(m.AUDITED, _seconds(audit["at_ms"]), flow)


def _add_totals(figures: Figures, flow: str, partitions: Sequence[Entry]) -> None:
    states: Counter[str] = Counter(dict.fromkeys(map(str, PartitionState), 0))
    for partition in partitions:
        # One entry stands for all partitions of a topic that is not copied at all.
        states[partition["state"]] += partition.get("partitions", 1)
    copied = [p["lag_offsets"] for p in partitions if p["state"] not in _NOT_COPIED]
    known = [lag for lag in copied if lag is not None]
    if partitions:
        figures.put(m.COPIED_LAG, sum(known) if known or not copied else None, flow)
        for state, count in states.items():
            figures.put(m.PARTITIONS, count, flow, state)
        waiting = [p["open_offsets"] for p in partitions]
        if None not in waiting:
            figures.put(m.OPEN_OFFSETS, sum(waiting), flow)
            figures.put(m.OPEN_PARTITIONS, sum(1 for offsets in waiting if offsets), flow)
        unknown = [p for p in partitions if p["lag_offsets"] is None]
        figures.put(m.UNKNOWN_LAG, sum(p.get("partitions", 1) for p in unknown), flow)


def _add_topics(figures: Figures, flow: str, partitions: Iterable[Entry], most: int) -> None:
    topics: dict[str, list[Entry]] = {}
    for partition in partitions:
        topics.setdefault(partition["topic"], []).append(partition)
    for topic, some in topics.items() if len(topics) <= most else ():
        lags = [p["lag_offsets"] for p in some]
        known = all(lag is not None for lag in lags)
        figures.put(m.TOPIC_LAG, sum(lags) if known else None, flow, topic)
        figures.put(m.TOPIC_OLDEST, oldest_of([p["oldest_missing_s"] for p in some]), flow, topic)


def _add_partition(figures: Figures, flow: str, partition: Entry) -> None:
    lane = "" if partition["lane"] is None else partition["lane"]
    labels = (flow, partition["topic"], partition["partition"], lane)
    figures.put(m.PARTITION_STATE, 1, *labels, partition["state"])
    figures.put(m.PARTITION_LAG, partition["lag_offsets"], *labels)
    figures.put(m.PARTITION_OLDEST, partition["oldest_missing_s"], *labels)
    figures.put(m.PARTITION_POSITION, partition["position"], *labels)
    figures.put(m.PARTITION_OPEN, partition["open_offsets"], *labels)


def add_driver(figures: Figures, entry: Entry, now_ms: int) -> None:
    """Add the driver's newest sign of life, seen ``now_ms``."""
    if (driver := entry["driver"]) is not None:
        figures.put(m.DRIVER_SEEN, _seconds(now_ms - driver["silent_ms"]), entry["flow"])


def add_drills(figures: Figures, flow: str, told: Mapping[str, Any]) -> None:
    """Add how the last drill of each mode ended, as the journal tells of them, the newest first."""
    for drill in told["drills"]:
        mode = drill["mode"]
        if drill["ended_ms"] is None:
            if drill["drill"] == told["running"]:
                figures.put(m.DRILL_RUNNING, _seconds(drill["began_ms"]), flow)
            continue
        if (flow, str(mode)) in figures.samples(m.DRILL_ENDED):
            continue
        figures.put_state(m.DRILL_RESULT, str(drill["result"]), DRILL_RESULTS, flow, mode)
        figures.put(m.DRILL_ENDED, _seconds(drill["ended_ms"]), flow, mode)
        figures.put(m.DRILL_RTO, drill["rto_s"], flow, mode)
        figures.put(m.DRILL_RPO, drill["rpo_offsets"], flow, mode)
        figures.put(m.DRILL_RPO_AGE, drill["rpo_s"], flow, mode)


def add_needs(figures: Figures, flow: str, needs: Iterable[OnceoverError]) -> None:
    """Add what waits for somebody beside the entry of `status`: what the journal of drills tells of."""
    for (code, exit_code), count in Counter((each.code, each.exit_code) for each in needs).items():
        figures.put(m.NEEDS, count, flow, code, exit_code)


def add_groups(figures: Figures, flow: str, groups: Mapping[str, Any]) -> None:
    """Add how many groups stand how, as ``groups`` of the entry says."""
    for standing, count in (groups.get("counts") or {}).items():
        figures.put(m.GROUPS, count, flow, standing)


def _seconds(at_ms: float | None) -> float | None:
    return None if at_ms is None else at_ms / _MS
