"""The state of a flow, from live clusters only (docs/operations.md). Reads, never writes.

Invariant: what one cluster or broker does not answer hides nothing of what the others do. How long it is
waited for is the clusters' ``patience``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from onceover.clock import now_ms
from onceover.errors import NeedsOperator, OnceoverError, Retriable, unexpected
from onceover.kafka import calls
from onceover.kafka.logs.between import Interval
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.operate.deadletters import DeadLetterCount, count_dead_letters
from onceover.operate.recordtimes import last_commit_ms, oldest_timestamps
from onceover.operate.statusfacts import StatusFacts, StatusSide
from onceover.operate.statusjudge import judge_all
from onceover.operate.statusread import (
    FlowFacts,
    Refused,
    SourceLogs,
    TargetLogs,
    described,
    existing,
    oldest_open,
    read_flow,
    read_source_logs,
    read_target_logs,
)
from onceover.operate.statusshape import shape
from onceover.planning.background import in_background
from onceover.state.committed import told_beside
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.firstlook import EARLIEST
from onceover.state.records.layout import check_clusters
from onceover.state.records.progress import beside, newest_of, promoted_again
from onceover.stops.record import Stop
from onceover.topics.scope import Rules, in_scope

T = TypeVar("T")
LATEST: Final = "latest"
# Beyond a cluster's patience: what hangs then hangs where no timeout reaches, such as in a dead resolver.
_GRACE_S: Final = 2.0
# A judgement that something is lost is made twice: progress moves on while the logs are read.
_LOOK_AGAIN_S: Final = 0.3


def flow_status(
    flow: str,
    source: Cluster,
    target: Cluster,
    rules: Rules | None = None,
    start: str | int = EARLIEST,
    dead_letters: str | None = None,
) -> dict[str, Any]:
    """Return one entry of ``status``'s ``flows``. A cluster that does not answer is an error in it.

    Args:
        flow: name of the flow.
        source: source cluster; ``target`` likewise. Used in another thread, and not beyond the call.
        rules: from the flow file: which topics are in, and what of them is missing; None to leave that out.
        start: where the flow's first topics begin: earliest, latest or a time in ms since 1970.
        dead_letters: the topic for records that cannot be copied; None to leave it out.
    """
    return shape(_Reading(flow, source, target, rules, start, dead_letters).facts())


def stopped_partitions(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the partitions, and topics not taken in, that wait for an operator, with the reason."""
    return [
        {"topic": p["topic"], "partition": p["partition"], **p["stop"]}
        for p in status["partitions"]
        if p["stop"]
    ]


@dataclass
class _Reading:
    """One look at a flow."""

    flow: str
    source: Cluster
    target: Cluster
    rules: Rules | None
    start: str | int
    dead_letters: str | None
    _here: StatusSide = field(init=False)
    _there: StatusSide = field(init=False)

    def facts(self) -> StatusFacts:
        """Read everything that answers; both clusters are connected to at the same time."""
        listing = in_background(lambda: self.source.retry(self.source.topics))
        connecting = in_background(self._connect_target)
        self._here, self._there = StatusSide(alias=self.source.alias), StatusSide(alias=self.target.alias)
        facts = StatusFacts(
            flow=self.flow, now_ms=now_ms(), source=self._here, target=self._there, rules=self.rules
        )
        if self.dead_letters is not None:
            facts.dead_letters = DeadLetterCount(self.dead_letters)
        if self._answer(connecting, self.target, self._there) is not None:
            self._read_target(facts)
        topics = self._answer(listing, self.source, self._here)
        if facts.state is not None:
            owners = {tp: e for e in facts.state.enrolments for tp in e.sources()}
            if topics is None:
                facts.judged = judge_all(self.flow, owners, facts.here, facts.there)
            elif self._is_ours(facts.state):
                self._read_source(facts, facts.state, topics, owners)
        self._name_clusters(facts.state)
        facts.now_ms = now_ms()
        return facts

    def _connect_target(self) -> str:
        return self.target.retry(self.target.cluster_id)

    def _answer(self, future: Future[T], cluster: Cluster, side: StatusSide) -> T | None:
        """Return what a cluster answered first; None, and the error noted, where it did not."""
        limit_s = cluster.patience.limit_s
        try:
            return future.result(None if limit_s is None else limit_s + _GRACE_S)
        except OnceoverError as error:
            side.error = error
        except TimeoutError:
            side.error = Retriable(
                "no connection in time", where=cluster.config.properties["bootstrap.servers"]
            )
        except Exception as error:  # noqa: BLE001 - a bug about one side; what the other one says counts
            side.error = unexpected(error)
        return None

    # ---- the target

    def _read_target(self, facts: StatusFacts) -> None:
        try:
            state = self._read_flow(facts)
            if facts.is_shortened:
                # A run may have begun between the state and what has copied by it.
                state = self._read_flow(facts)
        except OnceoverError as error:
            self._there.error = error
            return
        self._there.error = facts.there.error
        if self.dead_letters is not None:
            facts.dead_letters = count_dead_letters(self.target, self.dead_letters)
            self._there.error = self._there.error or facts.dead_letters.error
        if state.layout is not None:
            facts.last_commit_ms = self._last_commit_ms()

    def _read_flow(self, facts: StatusFacts) -> FlowFacts:
        """Read what the state says, and then what stands on the target of the partitions that it names."""
        facts.state = state = read_flow(self.flow, self.target)
        pairs = [e.target_of(tp) for e in state.enrolments for tp in e.sources()]
        facts.there = read_target_logs(self.flow, self.target, pairs)
        facts.newest = newest_of(facts.there.committed.values())
        if not facts.newest and (facts.there.knows_progress or not pairs):
            # Where it names none, another one may have copied that it does not tell of any more. Who has not
            # answered is not asked once more: that would be waited for as long again.
            facts.newest = told_beside(self.target, self.flow)
        # What the state has lost of that, the next start writes again.
        again = {e.target: promoted_again(e, facts.there.committed) for e in state.enrolments}
        state.known.update((target, each) for target, each in again.items() if each is not None)
        return state

    def _last_commit_ms(self) -> int | None:
        try:
            return self.target.retry(lambda: last_commit_ms(self.target, self.flow))
        except OnceoverError as error:
            self._there.error = self._there.error or error
            return None

    def _is_ours(self, state: FlowFacts) -> bool:
        """Tell whether the flow was started between these clusters; the side that is another one says so."""
        layout = state.layout
        if layout is None:
            return True
        ids = layout.source_cluster_id, layout.target_cluster_id
        pairs = (
            (self._here, (self.source.expected_id, ids[1])),
            (self._there, (ids[0], self.target.expected_id)),
        )
        for side, (source_id, target_id) in pairs:
            try:
                check_clusters(layout, str(source_id), str(target_id))
            except NeedsOperator as error:
                side.error = error
                return False
        return True

    def _name_clusters(self, state: FlowFacts | None) -> None:
        """Name both clusters by their ids, a silent one by that of the flow's start."""
        layout = None if state is None else state.layout
        self._here.cluster_id = self.source.expected_id or (layout.source_cluster_id if layout else None)
        self._there.cluster_id = self.target.expected_id or (layout.target_cluster_id if layout else None)

    # ---- the source

    def _read_source(
        self,
        facts: StatusFacts,
        state: FlowFacts,
        topics: Mapping[str, TopicInfo],
        owners: Mapping[TopicPartition, Enrolment],
    ) -> None:
        missing = list(self._missing(state, topics))
        progress = {tp: beside(facts.there.committed.get(e.target_of(tp))).meta for tp, e in owners.items()}
        topics, refused = self._by_name(topics, owners.values())
        facts.here = read_source_logs(self.source, topics, [*owners, *missing], progress, refused)
        held_up = self._held_up(facts, owners)
        facts.here.open = oldest_open(self.source, held_up)
        facts.here.open_ms = self._oldest_open(facts.here, held_up)
        facts.missing = self._starts(facts, missing)
        facts.judged = self._judged(facts, owners)
        facts.oldest_ms = self._oldest(facts, owners)
        reader = facts.here.reader
        for error in (facts.here.error, None if reader is None else reader.error):
            self._here.error = self._here.error or error

    def _by_name(
        self, topics: Mapping[str, TopicInfo], enrolments: Iterable[Enrolment]
    ) -> tuple[Mapping[str, TopicInfo], Refused]:
        """Return the topics with those that are enrolled and were not listed.

        Asked by name a cluster says whether they are gone, or not for us to see.
        """
        lacking = {e.source for e in enrolments} - topics.keys()
        try:
            found, refused = described(self.source, lacking)
        except OnceoverError as error:
            return topics, dict.fromkeys(lacking, error)
        return {**topics, **found}, refused

    def _missing(self, state: FlowFacts, topics: Mapping[str, TopicInfo]) -> Iterable[TopicPartition]:
        """Yield the partitions that are in scope, or were refused, and not enrolled."""
        enrolled = {e.source: e for e in state.known.values()}
        refused = {r["object"] for r in state.refused if r["blocks"]}
        inside = refused if self.rules is None else in_scope(topics, self.rules).keys()
        for name, info in sorted(topics.items()):
            known = enrolled.get(name)
            if known is None and name in inside:
                yield from (TopicPartition(name, p) for p in sorted(info.partitions))
            elif known is not None and known.active and known.source_id == info.topic_id:
                yield from (
                    TopicPartition(name, p) for p in sorted(info.partitions.keys() - known.start.keys())
                )

    def _starts(self, facts: StatusFacts, missing: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset that is missing: where the partition will begin once it is enrolled."""
        here, wanted = facts.here, list(missing)
        starts = {tp: here.starts[tp] for tp in wanted if tp in here.starts}
        begins = {tp: starts.get(tp, 0) for tp in wanted}
        if facts.state is None or self.start == EARLIEST or here.reader is None:
            return begins
        known, first = {e.source for e in facts.state.known.values()}, facts.state.first_look
        # An added partition of a topic that is enrolled begins at its earliest record, wherever that one did.
        new = [tp for tp in existing(wanted, here.topics) if tp.topic not in known]
        elsewhere = [tp for tp in new if first.saw(here.topics[tp.topic])]
        found = {} if self.start == LATEST else here.reader.offsets(elsewhere, int(self.start))
        ends = {tp: here.lsos.get(tp, 0) for tp in elsewhere}
        return begins | ends | {tp: at for tp, at in found.items() if at >= 0}

    def _held_up(
        self, facts: StatusFacts, owners: Mapping[TopicPartition, Enrolment]
    ) -> list[TopicPartition]:
        """Return the partitions whose readers wait for a transaction, of brokers that answer."""
        here, committed = facts.here, facts.there.committed
        return [
            tp
            for tp, enrolment in owners.items()
            if (told := committed.get(enrolment.target_of(tp))) is not None
            and here.high_watermarks.get(tp, 0) > max(here.lsos.get(tp, 0), told.offset)
            and here.reader is not None
            and here.reader.leader(tp) >= 0
        ]

    def _oldest_open(self, here: SourceLogs, held_up: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return when the first records were written that wait for a transaction; nothing that counts depends
        on it, and nobody waits for it.
        """
        waiting = {tp: Interval(here.lsos[tp], here.high_watermarks[tp]) for tp in held_up if tp in here.lsos}
        try:
            told = oldest_timestamps(self.source, here.topics, waiting, calls.READ_UNCOMMITTED)
        except OnceoverError:
            return {}
        return {tp: at_ms for tp, at_ms in told.items() if at_ms is not None}

    def _judged(
        self, facts: StatusFacts, owners: Mapping[TopicPartition, Enrolment]
    ) -> dict[TopicPartition, Stop]:
        """Return what a lane would stop for, seen twice."""
        once = judge_all(self.flow, owners, facts.here, facts.there)
        if not once:
            return {}
        time.sleep(_LOOK_AGAIN_S)
        some = {tp: owners[tp] for tp in once}
        here, there = self._look_again(some)
        # What it did not get to see may be why it judges otherwise.
        self._here.error = self._here.error or here.error
        self._there.error = self._there.error or there.error
        again = judge_all(self.flow, some, here, there)
        return {tp: stop for tp, stop in again.items() if stop.code == once[tp].code}

    def _look_again(self, some: Mapping[TopicPartition, Enrolment]) -> tuple[SourceLogs, TargetLogs]:
        pairs = {tp: e.target_of(tp) for tp, e in some.items()}
        there = read_target_logs(self.flow, self.target, pairs.values())
        progress = {tp: beside(there.committed.get(target)).meta for tp, target in pairs.items()}
        try:
            topics, refused = described(self.source, {tp.topic for tp in some})
        except OnceoverError as error:
            return SourceLogs(error=error), there
        return read_source_logs(self.source, topics, some, progress, refused), there

    def _oldest(
        self, facts: StatusFacts, owners: Mapping[TopicPartition, Enrolment]
    ) -> dict[TopicPartition, int | None]:
        """Return the timestamps of the first records that are missing."""
        here, there = facts.here, facts.there
        wanted = dict(facts.missing)
        for tp, enrolment in owners.items():
            committed = there.committed.get(enrolment.target_of(tp))
            if committed is not None and tp not in facts.judged:
                wanted[tp] = committed.offset
            elif tp in facts.judged and tp in here.starts:
                wanted[tp] = max(here.starts[tp], enrolment.start[tp.partition])
        behind = {
            tp: Interval(max(offset, here.starts.get(tp, 0)), here.lsos[tp])
            for tp, offset in wanted.items()
            if offset < here.lsos.get(tp, 0) and here.reader is not None and here.reader.leader(tp) >= 0
        }
        try:
            return self.source.retry(lambda: oldest_timestamps(self.source, here.topics, behind))
        except OnceoverError as error:
            self._here.error = self._here.error or error
            return {}
