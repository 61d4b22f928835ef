"""Every metric that there is: its name, its labels, what it means. Pure.

Invariants: names begin with ``onceover_`` and end with a base unit (seconds, bytes) where they have one; what
is not known has no sample, and is never 0; a label holds the name of a flow or a topic, a number, or one of a
few words, and never a secret. docs/metrics.md, the alerts and the dashboard are made from this, and a test
compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class MetricKind(StrEnum):
    """As Prometheus has it."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class MetricSpec:
    """One metric.

    Args:
        name: as it is scraped; a counter's ends with ``_total``.
        kind: of it.
        labels: names of its labels, in the order in which values are given.
        text: what a sample means.
    """

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    text: str


ALL: Final[list[MetricSpec]] = []
FLOW: Final = ("flow",)
_TOPIC: Final = ("flow", "topic")
_PARTITION: Final = ("flow", "topic", "partition", "lane")
_LANE: Final = ("flow", "lane")


def _add(kind: MetricKind, name: str, labels: tuple[str, ...], text: str) -> MetricSpec:
    spec = MetricSpec(f"onceover_{name}", kind, labels, text)
    ALL.append(spec)
    return spec


def _gauge(name: str, labels: tuple[str, ...], text: str) -> MetricSpec:
    return _add(MetricKind.GAUGE, name, labels, text)


def _counter(name: str, labels: tuple[str, ...], text: str) -> MetricSpec:
    return _add(MetricKind.COUNTER, name, labels, text)


# ---- the exporter itself: these are there whatever clusters do

EXPORTER_INFO: Final = _gauge("exporter_info", ("version",), "1; the version of what answers.")
FLOW_FILES: Final = _gauge("exporter_flow_files", (), "Flow files that are looked at.")
LOOK_ENDED: Final = _gauge(
    "look_timestamp_seconds", FLOW, "When the last look at the flow was over; none before the first."
)
LOOK_FRESH: Final = _gauge(
    "look_fresh",
    FLOW,
    "1 while the last look counts; 0 where it is too old: everything else about the flow is left out then.",
)
LOOK_DURATION: Final = _gauge("look_duration_seconds", FLOW, "How long the last look took.")
SERIES_LEFT_OUT: Final = _gauge(
    "partitions_left_out",
    FLOW,
    "Partitions without series of their own, because the flow has more than the bound.",
)

# ---- a flow, by `onceover status`

FILE_VALID: Final = _gauge(
    "flow_file_valid",
    FLOW,
    "1 where flow file and clients are in order, else 0: the flow is watched as they were, if that was seen.",
)
FLOW_EXIT: Final = _gauge(
    "flow_status_exit", FLOW, "The exit code of its status: 0 in order, 1, 2, 3 or 5 otherwise."
)
FLOW_STATE: Final = _gauge(
    "flow_state", ("flow", "state"), "1 for the state that its status says, 0 for the others."
)
RUN_STATE: Final = _gauge(
    "flow_run_state",
    ("flow", "state"),
    "1 for the state of the newest run, 0 for the others; gone is a dead driver. Unknown stands alone.",
)
WANTED: Final = _gauge(
    "flow_wanted",
    FLOW,
    "1 where somebody is to copy: until its run has ended, and between runs by schedules.replicate; else 0.",
)
RUN_DUE: Final = _gauge(
    "flow_run_due_timestamp_seconds",
    FLOW,
    "When schedules.replicate wants, or wanted, the next run to begin; none while one has not ended.",
)
LAG_LIMIT: Final = _gauge(
    "flow_lag_limit_seconds",
    FLOW,
    "How old what is missing may be: objectives.rpo, or one and a half waits of schedules.replicate, or 300.",
)
NEEDS: Final = _gauge(
    "flow_needs", ("flow", "code", "exit"), "How many things need somebody, by code (docs/codes.md)."
)
CLUSTER_UP: Final = _gauge(
    "flow_cluster_up", ("flow", "side"), "1 where all that was asked of the cluster was answered, else 0."
)
STARTS: Final = _counter(
    "flow_starts_total", FLOW, "Starts of the flow, changes by hand among them: its generation."
)
TAKEOVERS: Final = _counter(
    "flow_fenced_starts_total",
    FLOW,
    "Starts that fenced a run which had not said that it ended: killed, or alive.",
)
RESTARTS: Final = _counter(
    "flow_restarts_total",
    FLOW,
    "Starts after a run that had failed, or had not said that it ended; by whoever, and however soon.",
)
RUN_STARTED: Final = _gauge("flow_run_start_timestamp_seconds", FLOW, "When the newest run started.")
DRIVER_SEEN: Final = _gauge(
    "flow_driver_seen_timestamp_seconds",
    FLOW,
    "The driver's newest sign of life; none once it has said that it ended.",
)
LANES: Final = _gauge("flow_lanes", FLOW, "Lanes of the newest start.")
LAST_COMMIT: Final = _gauge(
    "flow_last_commit_timestamp_seconds", FLOW, "When a transaction was committed last."
)
LAG: Final = _gauge(
    "flow_lag_offsets",
    FLOW,
    "Source offsets that the target lacks: records, and markers among them. None where a part is not known.",
)
COPIED_LAG: Final = _gauge(
    "flow_copied_lag_offsets",
    FLOW,
    "As flow_lag_offsets, of what is copied and known: without what is stopped or not taken in.",
)
OLDEST: Final = _gauge(
    "flow_oldest_missing_age_seconds",
    FLOW,
    "Age of the oldest record that the target lacks, 0 where it lacks none; at least that where not all of "
    "them could be looked at, and no sample where it could be any.",
)
UNKNOWN_LAG: Final = _gauge(
    "flow_unknown_lag_partitions", FLOW, "Partitions of which nobody knows what is missing."
)
PARTITIONS: Final = _gauge("flow_partitions", ("flow", "state"), "Partitions by their state.")
OPEN_OFFSETS: Final = _gauge(
    "flow_open_offsets",
    FLOW,
    "Source offsets behind transactions that are open on the source. None where a part is not known.",
)
OPEN_PARTITIONS: Final = _gauge(
    "flow_open_transaction_partitions",
    FLOW,
    "Source partitions, and topics not taken in, that open transactions hold back. None as above.",
)
OPEN_AGE: Final = _gauge(
    "flow_open_transaction_age_seconds",
    FLOW,
    "For how long the exporter has seen the same open transaction hold a source partition back; 0 for none.",
)
DEAD_LETTERS: Final = _gauge("flow_dead_letter_offsets", FLOW, "Records in the dead-letter topic, at most.")
VERIFIED: Final = _gauge(
    "flow_verified_timestamp_seconds", FLOW, "The oldest verified watermark of the partitions that have one."
)
VERIFIED_PARTITIONS: Final = _gauge(
    "flow_verified_partitions", FLOW, "Partitions that an audit has proven something of."
)
UNVERIFIED_PARTITIONS: Final = _gauge(
    "flow_unverified_partitions", FLOW, "Partitions that are copied, and of which nothing was ever proven."
)
UNPROVEN: Final = _gauge(
    "flow_unproven_since_timestamp_seconds",
    FLOW,
    "The oldest of all partitions' verified watermarks; for one without, when its topic was enrolled.",
)
AUDIT_WAIT: Final = _gauge(
    "flow_audit_interval_seconds", FLOW, "The longest wait between two audits by schedules.audit."
)
AUDIT: Final = _gauge(
    "flow_audit_verdict", ("flow", "verdict"), "1 for what the last audit answered, 0 for the others."
)
AUDITED: Final = _gauge("flow_audit_timestamp_seconds", FLOW, "When the bounds of the last audit were fixed.")
OBJECTIVE_RTO: Final = _gauge("flow_objective_rto_seconds", FLOW, "objectives.rto of the flow file.")
OBJECTIVE_RPO: Final = _gauge(
    "flow_objective_rpo_seconds", FLOW, "objectives.rpo of the flow file, where that is a time."
)

# ---- what is read less often: drills and groups

DRILL_RESULT: Final = _gauge(
    "drill_result",
    ("flow", "mode", "result"),
    "1 for how the last drill of a mode ended; nothing where none ever did.",
)
DRILL_ENDED: Final = _gauge("drill_end_timestamp_seconds", ("flow", "mode"), "When it ended.")
DRILL_RTO: Final = _gauge(
    "drill_rto_seconds", ("flow", "mode"), "How long its clients waited: the RTO as it was measured."
)
DRILL_RPO: Final = _gauge(
    "drill_rpo_offsets",
    ("flow", "mode"),
    "What was on the source alone: lost by an unplanned one, and by a rehearsal had it been one.",
)
DRILL_RPO_AGE: Final = _gauge(
    "drill_rpo_seconds", ("flow", "mode"), "How old the oldest of that was: the RPO as it was measured."
)
DRILL_RUNNING: Final = _gauge(
    "drill_running_since_timestamp_seconds", FLOW, "When the drill began that has not ended."
)
GROUPS: Final = _gauge(
    "flow_groups", ("flow", "standing"), "Consumer groups by how they stand on the target."
)

# ---- topics and partitions

TOPIC_LAG: Final = _gauge("topic_lag_offsets", _TOPIC, "As flow_lag_offsets, of one source topic.")
TOPIC_OLDEST: Final = _gauge(
    "topic_oldest_missing_age_seconds", _TOPIC, "As of the flow, of one source topic."
)
PARTITION_STATE: Final = _gauge(
    "partition_state", (*_PARTITION, "state"), "1 for the partition's state; the others have no sample."
)
PARTITION_LAG: Final = _gauge(
    "partition_lag_offsets", _PARTITION, "As flow_lag_offsets, of one source partition."
)
PARTITION_OLDEST: Final = _gauge(
    "partition_oldest_missing_age_seconds", _PARTITION, "As of the flow, of one partition."
)
PARTITION_POSITION: Final = _gauge(
    "partition_position_offset", _PARTITION, "The next source offset to be copied."
)
PARTITION_OPEN: Final = _gauge(
    "partition_open_offsets", _PARTITION, "As flow_open_offsets, of one source partition."
)

# ---- what was committed, by the receipts in the offset map, since the exporter started

TOPIC_RECORDS: Final = _counter(
    "topic_records_written_total", _TOPIC, "Records that were committed to the target."
)
TOPIC_BYTES: Final = _counter(
    "topic_written_bytes_total", _TOPIC, "Bytes of record batches that were committed to the target."
)
LANE_FETCHED: Final = _counter(
    "lane_offsets_fetched_total",
    _LANE,
    "Source offsets that a lane has read and is through with: records and markers.",
)
LANE_RECORDS: Final = _counter("lane_records_written_total", _LANE, "Records that a lane has committed.")
LANE_BYTES: Final = _counter(
    "lane_written_bytes_total", _LANE, "Bytes of record batches that a lane has committed."
)
LANE_COMMITTED: Final = _counter(
    "lane_transactions_committed_total", _LANE, "Transactions that a lane has committed."
)
LANE_ABORTED: Final = _counter(
    "lane_transactions_aborted_total", _LANE, "Times that a lane gave up what it had begun, and began again."
)
RECEIPTS_PASSED: Final = _counter(
    "receipts_passed_over_total",
    FLOW,
    "Receipts that were not counted: too many for one look, or nobody can read them.",
)

# ---- the canary

CANARY_PRODUCED: Final = _counter(
    "canary_produced_total", FLOW, "Numbered records that the source has taken."
)
CANARY_RECEIVED: Final = _counter(
    "canary_received_total", FLOW, "Numbered records that were met on the target once."
)
CANARY_LOST: Final = _counter(
    "canary_lost_total",
    FLOW,
    "Numbered records that had not come when a later one of their partition did.",
)
CANARY_DUPLICATES: Final = _counter("canary_duplicates_total", FLOW, "Numbered records that were met again.")
CANARY_DISORDER: Final = _counter(
    "canary_out_of_order_total", FLOW, "Numbered records that came behind a later one."
)
CANARY_WAITING: Final = _gauge(
    "canary_waiting_age_seconds",
    FLOW,
    "Age of the oldest numbered record that has not come; 0 where all have.",
)
CANARY_FAILURES: Final = _counter(
    "canary_failures_total",
    FLOW,
    "Times that it could not be written or read, or the flow ran and had no copy of its topic.",
)
CANARY_ROUND_TRIP: Final = _add(
    MetricKind.HISTOGRAM,
    "canary_round_trip_seconds",
    FLOW,
    "From before a numbered record is sent to the source until it is read, committed, on the target.",
)

# Counters that the flow's state keeps; all others begin with the exporter.
KEPT: Final = frozenset(spec.name for spec in (STARTS, TAKEOVERS, RESTARTS, LANE_ABORTED))
