"""Enrolling topics: their records and first progress, in the leader's transactions (docs/protocol.md).

Invariant: a partition that has progress never gets another start offset, whatever its topic's record says:
the group is asked. Where that progress is of topics that are gone, the lane stops the partition. Topics that
leave the filter or return to it get a new record and nothing else: their progress is their lane's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from onceover.clock import now_ms
from onceover.errors import MustReset, OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.admin.topics import await_leaders, led_within
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.lead.leader import Leader
from onceover.model import TopicPartition
from onceover.planning.plan import Refusal
from onceover.state import names
from onceover.state.records.enrolment import Enrolment, PlacedProgress
from onceover.state.records.firstlook import EARLIEST
from onceover.state.records.progress import first_progress
from onceover.topics.plan import TopicPlan, View
from onceover.topics.refusals import grown_into, not_enrolled

log = logging.getLogger(__name__)

# Less than others wait: a running flow's driver does nothing else meanwhile, and plans them anew soon.
_CREATED_WITHIN_S: Final = 15.0
# A transaction writes one batch to the state and one to the offsets topic, each within a broker's
# default limit of 1 MiB: 300 bytes a partition at most, plus its topic's record.
_PARTITIONS_PER_TRANSACTION: Final = 1500
_NAMED: Final = 5


@dataclass(frozen=True)
class Newest:
    """Where a partition begins of which only the newest part is wanted.

    Args:
        offsets: how many before its end, at most.
        whole: topics of which everything is wanted.
    """

    offsets: int
    whole: frozenset[str] = frozenset()


# ``earliest``, ``latest``, a timestamp in ms since 1970, or the newest part.
Start = str | int | Newest
# Where a topic begins that is not enrolled yet.
StartOf = Callable[[TopicInfo], Start]


@dataclass(frozen=True)
class Enroller:
    """Enrols what a plan names. Used by the flow's leader only.

    Args:
        leader: of the confirmed run.
        source: source cluster; ``target`` likewise.
    """

    leader: Leader
    source: Cluster
    target: Cluster

    def enrol(self, view: View, plan: TopicPlan, start: StartOf) -> list[Refusal]:
        """Enrol new topics and partitions, and write down who left and who returned.

        Args:
            view: what the plan was computed from; its target topics exist by now.
            plan: says which.
            start: tells where a new topic begins; added partitions of known ones begin at the earliest.

        Returns:
            Topics that the target does not let us enrol; the others are.

        Raises:
            Fenced: a newer generation runs.
            Retriable: interrupted; plan anew.
        """
        known = {**view.enrolled_by_source, **{e.source: e for e in plan.turn}}
        wanted = {t: view.rules.naming.target_name(t) for t in plan.enrol}
        refused = self._hidden(wanted)
        targets = {t: target for t, target in wanted.items() if t not in {r.object for r in refused}}
        created = self._wait_created(view, targets)
        held = self._held([created[target] for topic, target in targets.items() if topic not in known])
        enrol = [topic for topic, target in targets.items() if target not in held]
        if view.rules.one_to_one:
            refused += self._grown_into_others(view, [t for t in enrol if t in known], known)
            enrol = [topic for topic in enrol if topic not in {r.object for r in refused}]
        starts = self._added(view, enrol, known, start)
        records = [e for e in plan.turn if e.source not in wanted]
        for topic in enrol:
            source, target = view.source[topic], created[targets[topic]]
            added = starts.get(topic, {})
            records.append(_record(source, target, known.get(topic), added, self._generation))
        for batch in _batches(records):
            refused += self._write(batch, view)
        return refused

    def _write(self, batch: list[Enrolment], view: View) -> list[Refusal]:
        """Enrol topics in one transaction; without those to which the target takes no progress."""
        if not batch:
            return []
        try:
            self.leader.enrol(batch, self._first_progress(batch, view))
        except OnceoverError as error:
            concerned = {topic for topic, _ in error.partitions}
            rest = [e for e in batch if e.target not in concerned]
            if isinstance(error, Retriable | MustReset) or len(rest) == len(batch):
                raise
            # Not committed: no EndTxn was sent, and the leader has its id back.
            refused = [not_enrolled(e.source, e.target, error) for e in batch if e.target in concerned]
            return refused + self._write(rest, view)
        self._report(batch, view.enrolled)
        return []

    def _hidden(self, targets: Mapping[str, str]) -> list[Refusal]:
        """Return the source topics whose counterpart may not be looked at."""
        if not targets:
            return []
        each = self.target.retry(lambda: self.target.each_topic(sorted(targets.values())))
        return [
            not_enrolled(source, target, each.failed[target])
            for source, target in targets.items()
            if target in each.failed and not isinstance(each.failed[target], Retriable)
        ]

    def _held(self, created: Sequence[TopicInfo]) -> set[str]:
        """Return the target topics that hold records by now: somebody wrote there since the plan was made."""
        wanted = [TopicPartition(topic.name, p) for topic in created for p in topic.partitions]
        # A leader that was elected a moment ago may not know of it yet.
        ends = self.target.retry(
            lambda: self.target.list_offsets(wanted, calls.LATEST, calls.READ_UNCOMMITTED)
        )
        held = {tp.topic for tp, end in ends.items() if end}
        if held:
            log.error("not taken in, somebody writes there: %s", ", ".join(sorted(held)))
        return held

    def _grown_into_others(
        self, view: View, topics: Sequence[str], known: Mapping[str, Enrolment]
    ) -> list[Refusal]:
        """Return grown topics where an added partition's copy holds what the flow has not written."""
        added = [TopicPartition(known[t].target, p) for t in topics for p in _missing(view, known[t])]
        ends = self.target.list_offsets(added, calls.LATEST, calls.READ_UNCOMMITTED)
        written = [tp for tp, end in ends.items() if end]
        foreign = sorted(set(written) - self._progress_of(view.flow, written))
        first = {tp.topic: tp for tp in reversed(foreign)}
        return [grown_into(t, first[known[t].target], view.flow) for t in topics if known[t].target in first]

    def _added(
        self, view: View, topics: Sequence[str], known: Mapping[str, Enrolment], start: StartOf
    ) -> dict[str, dict[int, int]]:
        """Return the start offsets of partitions that are not enrolled yet, by topic and number.

        Asked for all at once: a request for each of a thousand topics would take seconds.
        """
        wanted: dict[Start, list[TopicPartition]] = {}
        for topic in topics:
            old, info = known.get(topic), view.source[topic]
            added = list(info.partitions) if old is None else _missing(view, old)
            at = start(info) if old is None else EARLIEST
            wanted.setdefault(at, []).extend(TopicPartition(topic, p) for p in added)
        found: dict[str, dict[int, int]] = {}
        for at, tps in wanted.items():
            for tp, offset in self._starts(tps, at).items():
                found.setdefault(tp.topic, {})[tp.partition] = offset
        return found

    @property
    def _generation(self) -> int:
        layout = self.leader.layout
        return layout.generation if layout else 0

    def _first_progress(
        self, enrolments: Sequence[Enrolment], view: View
    ) -> dict[TopicPartition, calls.OffsetToCommit]:
        """Return the start offsets of the partitions that these enrolments add and that have no progress."""
        found: dict[TopicPartition, calls.OffsetToCommit] = {}
        for enrolment in enrolments:
            old = view.enrolled.get(enrolment.target)
            for partition, offset in enrolment.start.items():
                if old is None or partition not in old.start:
                    first = first_progress(enrolment, offset, self._generation)
                    found[TopicPartition(enrolment.target, partition)] = first
        kept = self._progress_of(view.flow, found)
        if kept:
            log.warning("enrolled with the progress that is there: %s", ", ".join(map(str, sorted(kept))))
        return {tp: first for tp, first in found.items() if tp not in kept}

    def _progress_of(self, flow: str, targets: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return the target partitions that have progress already."""
        if not targets:
            return set()
        # One that is told too early has none, and the start would be committed over it.
        self.leader.settle()
        group = names.progress_group(flow)
        return set(self.target.retry(lambda: self.target.committed(group, targets)))

    def _starts(self, added: list[TopicPartition], start: Start) -> dict[TopicPartition, int]:
        if start == EARLIEST:
            return self.source.list_offsets(added, calls.EARLIEST)
        ends = self.source.list_offsets(added, calls.LATEST)
        if start == "latest":
            return ends
        if isinstance(start, Newest):
            first = self.source.list_offsets(added, calls.EARLIEST)
            back = {tp: 0 if tp.topic in start.whole else ends[tp] - start.offsets for tp in added}
            return {tp: max(first[tp], back[tp]) for tp in added}
        found = self.source.list_offsets(added, int(start))
        return {tp: offset if offset >= 0 else ends[tp] for tp, offset in found.items()}

    def _wait_created(self, view: View, targets: Mapping[str, str]) -> Mapping[str, TopicInfo]:
        """Return the target topics to enrol, once all of them have leaders for all partitions."""
        counts = {
            target: view.rules.target_partitions(len(view.source[source].partitions))
            for source, target in targets.items()
        }
        within = led_within(len(counts), _CREATED_WITHIN_S)
        return await_leaders(self.target, counts, within)

    @staticmethod
    def _report(batch: Sequence[Enrolment], enrolled: Mapping[str, Enrolment]) -> None:
        known = {e.source: enrolled[e.target].active for e in batch if e.target in enrolled}
        left = [e.source for e in batch if not e.active and known.get(e.source)]
        back = [e.source for e in batch if e.active and known.get(e.source) is False]
        new = [e.source for e in batch if e.active and e.source not in back]
        for what, topics in (("enrolled", new), ("left the filter", left), ("returned", back)):
            if topics:
                log.info("%s: %s", what, ", ".join(topics))


def _record(
    source: TopicInfo, target: TopicInfo, old: Enrolment | None, added: dict[int, int], generation: int
) -> Enrolment:
    placed = {partition: PlacedProgress(generation, offset, 0) for partition, offset in added.items()}
    # From offset 0 on all that both logs hold is the copy's anyway: of most topics nothing is to be said.
    begun = frozenset(partition for partition, offset in added.items() if offset)
    if old is not None:
        start = {**old.start, **added}
        return replace(old, start=start, placed={**old.placed, **placed}, begun=old.begun | begun)
    ids = source.topic_id, target.topic_id
    return Enrolment(source.name, target.name, *ids, added, now_ms(), placed=placed, begun=begun)


def _missing(view: View, enrolment: Enrolment) -> list[int]:
    """Return the partitions of the source that the topic's record lacks."""
    return [p for p in view.source[enrolment.source].partitions if p not in enrolment.start]


def _batches(records: Sequence[Enrolment]) -> Iterator[list[Enrolment]]:
    batch: list[Enrolment] = []
    size = 0
    for record in records:
        if batch and size + len(record.start) > _PARTITIONS_PER_TRANSACTION:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += len(record.start)
    if batch:
        yield batch
