"""A flow's audit, from the flow file to the partitions' results: what the Spark job and tests call."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from onceover.audit.checks.bookkeeping import check_bookkeeping
from onceover.audit.checks.evidence import BookkeepingChecks
from onceover.audit.checks.result import AuditResult, PartitionResult
from onceover.audit.checks.verdict import QualityVerdict
from onceover.audit.course.content import Content, Prepared, planned, proven
from onceover.audit.course.lastverdict import FinishedAudit, next_verdicts
from onceover.audit.course.plans import PlanInputs
from onceover.audit.model import Side
from onceover.audit.ranges.diverted import diverted
from onceover.audit.ranges.since import since_ms
from onceover.audit.ranges.snapshot import (
    SETTLE_S,
    AuditSelection,
    asked_enrolments,
    take_snapshot,
)
from onceover.audit.ranges.tiling import RANGE_BYTES
from onceover.audit.ranges.watermark import write_outcome
from onceover.audit.records.batches import LARGEST_RECORD_BYTES
from onceover.audit.records.lookup import Lookup
from onceover.audit.report.jsonreport import document, summary
from onceover.audit.report.payload import with_payload
from onceover.clock import now_ms
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import run_dir
from onceover.config.patterns import check_each
from onceover.copy.lane import RECORD_SHARE
from onceover.errors import UsageError
from onceover.kafka.ports import Cluster
from onceover.positions.index import MapIndex
from onceover.state.read import read_flow_state
from onceover.state.records.layout import Layout
from onceover.state.records.verdicts import WATERMARK, AuditAnswer
from onceover.topics.scope import explain
from onceover.wiring.flows import open_clusters, rules
from onceover.wiring.handlers import dead_letter_of


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What a person asks for.

    Args:
        topics: anchored regular expressions over source topics; none for all of the flow.
        since: ``watermark`` goes on where earlier audits ended, ``start`` begins at the flow's start, a
            time (ISO 8601) at the records from then on.
        sample: how many ranges to read; None for all.
        show_payload: findings carry keys and values.
        range_bytes: of a range, about; what a first comparison names is no finer.
        settle_s: how long to wait for what is under way at the start.
    """

    topics: tuple[str, ...] = ()
    since: str = WATERMARK
    sample: int | None = None
    show_payload: bool = False
    range_bytes: int = RANGE_BYTES
    settle_s: float = SETTLE_S

    def selection(self, inside: Callable[[str, bool], bool]) -> AuditSelection:
        """Return what the snapshot is taken of.

        Args:
            inside: tells whether a topic of the source is in the flow's filter.

        Raises:
            UsageError: the pattern or the time is not understood, or the time is still to come.
        """
        check_each("--topics", self.topics)
        if self.sample is not None and self.sample < 1:
            raise UsageError("--sample is out of range", expected="1 or more", seen=str(self.sample))
        return AuditSelection(self.topics, since_ms(self.since, now_ms()), self.settle_s, inside)


def check_topics(flow: Flow, topics: tuple[str, ...]) -> None:
    """Ask the target whether the flow copies anything that an audit is asked for.

    Raises:
        UsageError: the flow was never started, or copies none of the topics.
        Retriable: the target is away.
    """
    source, target = open_clusters(flow)
    with source, target:
        state = target.retry(lambda: read_flow_state(target, flow.flow))
        asked_enrolments(flow.flow, state, target.alias, AuditSelection(topics))


def prepare(
    flow: Flow, source: Cluster, target: Cluster, request: AuditRequest, *, keeps_index: bool = True
) -> Prepared:
    """Fix the bounds of an audit and cut them into ranges.

    Args:
        source: the flow's source; ``target`` its target. Belong to the caller.
        keeps_index: that of the offset map stays in the flow's folder, for who asks next.

    Raises:
        UsageError: the flow was never started, or the request is not understood.
        NeedsOperator: the flow belongs to other clusters.
        Retriable: a cluster is away.
    """
    which = rules(flow)

    def inside(topic: str, is_internal: bool) -> bool:
        return explain(topic, which, is_internal=is_internal).inside

    seen = take_snapshot(flow.flow, source, target, request.selection(inside))
    with MapIndex(target, flow.flow, run_dir(flow) if keeps_index else None) as index:
        target.retry(lambda: index.refresh(settled=True))
        inputs = PlanInputs(
            seen,
            index.store,
            diverted(target, _letters(flow, seen.layout), flow.flow, dead_letter_of(flow.on_bad_record)),
            from_watermark=request.since == WATERMARK,
            range_bytes=request.range_bytes,
            handled=flow.handler is not None,
            handler_changed=flow.sha256 != seen.layout.flow_sha256,
        )
        return planned(inputs, request.sample)


def _letters(flow: Flow, layout: Layout) -> dict[str, int]:
    """Return the topics that the flow has diverted to, each with the newest generation that is known to have.

    That of the file, too: a run of an older release has kept none, and one that begins meanwhile uses it.
    """
    topic = dead_letter_of(flow.on_bad_record)
    return {**({} if topic is None else {topic: 0}), **layout.letters}


def audit_bookkeeping(flow: Flow, source: Cluster, target: Cluster, content: Content) -> BookkeepingChecks:
    """Check what the flow says of its work against what is there: positions, map, receipts, groups.

    Raises:
        Retriable: a cluster is away.
        NeedsOperator: the flow's state cannot be read.
    """
    untimed = [
        pair
        for seen in content.snapshot.partitions
        if seen.untimed
        for pair in ((Side.SOURCE, seen.source), (Side.TARGET, seen.target))
    ]
    clusters = {Side.SOURCE: source, Side.TARGET: target}
    ids = {
        (side, tp.topic): topic_id
        for seen in content.snapshot.partitions
        for side, tp, topic_id in zip(clusters, (seen.source, seen.target), seen.enrolled, strict=True)
    }
    with Lookup(clusters, untimed, record_bytes(flow), ids) as look:
        return check_bookkeeping(flow.flow, target, run_dir(flow), content.snapshot, content.partitions, look)


def record_bytes(flow: Flow) -> int:
    """Return the largest record that an audit takes apart: whatever a lane of the flow may, or 64 MiB."""
    return max(LARGEST_RECORD_BYTES, flow.limits.memory_per_lane_bytes // RECORD_SHARE)


def show_payload(source: Cluster, target: Cluster, content: Content) -> Content:
    """Return what was seen, its findings with their records as text."""
    with Lookup({Side.SOURCE: source, Side.TARGET: target}) as look:

        def shown(result: PartitionResult) -> PartitionResult:
            return replace(result, findings=tuple(with_payload(result.findings, look)))

        partitions = tuple(map(shown, content.partitions))
        return replace(content, partitions=partitions, beside=tuple(map(shown, content.beside)))


def keep_verified(flow: Flow, target: Cluster, content: Content, told: FinishedAudit | None = None) -> None:
    """Write the verified watermarks of partitions that were proven to get further, and what was answered.

    Args:
        told: the audit's answer, which ``status`` shows; None where nothing was judged.

    Raises:
        Retriable: the target is away, or another audit of the flow is writing.
    """
    verdicts = None if told is None else partial(next_verdicts, told=told)
    write_outcome(target, flow.flow, proven(content), verdicts)


def told_of(
    request: AuditRequest, content: Content, result: AuditResult, quality: QualityVerdict, report: Path
) -> FinishedAudit:
    """Return what an audit tells the flow's state.

    Args:
        result: what was seen; ``quality`` what the expectations made of it.
        report: where its report is, on this machine.
    """
    answer = AuditAnswer(
        verdict=str(quality.verdict),
        at_ms=content.snapshot.started_ms,
        summary=summary(document(result, quality)),
        report=str(report.absolute()),
        host=socket.gethostname(),
        since=request.since,
        topics=request.topics,
        sample=request.sample,
    )
    return FinishedAudit.of(answer, content.snapshot, result, quality)
