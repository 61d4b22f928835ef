"""``seed`` and ``adopt``: plan from live state, then write the progress as a start does (docs/protocol.md).

Order of ``apply``: the plan is shown; the flow's own topics exist; a new generation is announced and every
lane is fenced, so nobody copies any more; the plan is computed again from what stands still now, and shown if
it differs; others that write are stopped, or a switchover's fence is lifted, and the plan is computed once
more behind that; copies are created; enrolment and progress are written in the leader's transactions. The
layout stays *not ready* until the next start. Interrupted anywhere it can be run again: a position that is
there already needs no change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from onceover.clock import now_ms
from onceover.errors import Fenced, OnceoverError
from onceover.kafka import calls
from onceover.kafka.admin.topicfacts import may_not_read
from onceover.kafka.admin.topics import Admin, led_within
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.logs.between import led_topics
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.lead.claims import Claims
from onceover.lead.leader import FlowIdentity, Leader
from onceover.model import TopicPartition
from onceover.namematch import names_whole
from onceover.operate.repair import PROMOTION, standing_of, stops_of
from onceover.planning.anew import agreed_anew
from onceover.planning.approval import Approval, ObjectState
from onceover.planning.counted import Counted
from onceover.planning.journal import Journal, OpenJournal
from onceover.planning.operation import Caller
from onceover.planning.plan import Refusal
from onceover.seeding.codes import SeedingCode
from onceover.seeding.left import has_written, left_of, placed_and_idle, saying_who, without
from onceover.seeding.origins import FlowClusters, Origin, seats_of
from onceover.seeding.plan import Choice, Seat, SeatedTopic, SeededPosition, SeedOffsets, SeedPlan, plan_seed
from onceover.state import names
from onceover.state.read import FlowState, read_flow_state
from onceover.state.records.enrolment import Enrolment, PlacedProgress
from onceover.state.records.layout import Layout, check_clusters, check_distinct
from onceover.state.records.managed import read_managed
from onceover.state.records.progress import beside, first_progress
from onceover.stops.record import stopped_in
from onceover.topics.making import make_targets
from onceover.topics.own import StateSettings, create_flow_topics
from onceover.topics.plan import View, plan_topics
from onceover.topics.refusals import barred_copy, hidden
from onceover.topics.scope import Rules
from onceover.topics.view import TopicReader

# A transaction writes one batch to the offsets topic, within a broker's default limit of 1 MiB: 300 bytes
# a partition at most.
_PARTITIONS_PER_TRANSACTION: Final = 1500


@dataclass(frozen=True)
class SeedingRequest:
    """What is to be seeded.

    Args:
        operation: ``seed`` or ``adopt``, the name in plans and journals.
        rules: which topics are in, and how they are called.
        sync_configs: whether copies that are created get the source's configuration.
        state: how the flow's own topics are created.
        choice: the operator's answers.
        topics: an anchored regular expression over source topics, None for all in scope.
    """

    operation: str
    rules: Rules
    sync_configs: bool
    state: StateSettings
    choice: Choice
    topics: str | None = None

    def selects(self, topic: str) -> bool:
        """Tell whether a source topic is wanted."""
        return self.topics is None or names_whole(self.topics, topic)


@dataclass
class Seeded:
    """What ``apply`` did.

    Args:
        plan: the last plan, which was carried out.
        generation: the new generation, None when nothing had to be done.
        earlier: nothing is done now: an earlier try under the same approval has done it all, but for what
            the plan refuses.
        written: positions that were written.
    """

    plan: SeedPlan
    generation: int | None = None
    written: int = 0
    earlier: bool = False

    @property
    def exit_code(self) -> int:
        """3 when something is refused."""
        return self.plan.exit_code

    @property
    def waiting(self) -> list[Refusal]:
        """What is not written until somebody decides."""
        return [refusal for refusal in self.plan.refused if refusal.blocks]

    @property
    def counts(self) -> dict[str, Any]:
        """Names, ids and counts."""
        return {"flow": self.plan.flow, "written": self.written, "generation": self.generation}

    def document(self) -> dict[str, Any]:
        """Return the plan and what became of it."""
        return {
            **self.plan.document(),
            "applied": self.generation is not None,
            "generation": self.generation,
            "written": self.written,
        }

    def describe(self) -> str:
        """Return the outcome as text."""
        if self.earlier:
            return "written by an earlier try; nothing was changed now"
        if self.generation is None:
            return "nothing was changed"
        return f"{self.written} positions written, generation {self.generation}; start the flow again"


def leaderless(view: View, selects: Callable[[str], bool]) -> list[Refusal]:
    """Return why chosen topics are left out of which nobody leads a partition, on either side. Pure."""
    found = []
    for decision in view.decisions():
        wanted = decision.inside and decision.topic not in view.hidden and selects(decision.topic)
        here, there = view.source.get(decision.topic), view.target.get(decision.target_topic)
        if not wanted or here is None or (here.is_led and (there is None or there.is_led)):
            continue
        side = "target" if here.is_led else "source"
        text = f"partitions of it have no leader on the {side} at the moment"
        fix = "bring the broker back, then run it again"
        found.append(Refusal(decision.topic, SeedingCode.UNREADABLE, text, fix))
    return found


@dataclass
class Seeder:
    """Seeds one flow. Not thread-safe; the clusters belong to the caller.

    Args:
        identity: name, lanes and hash of the flow file.
        request: what is to be seeded.
        origin: names the offsets.
        source: source cluster; ``target`` likewise.
        journal: opens what everything is written down in.
    """

    identity: FlowIdentity
    request: SeedingRequest
    origin: Origin
    source: Cluster
    target: Cluster
    journal: OpenJournal
    _place: FlowClusters = field(init=False)

    def __post_init__(self) -> None:
        self._place = FlowClusters(self.identity.name, self.source, self.target)

    # ---- plan

    def plan(self) -> SeedPlan:
        """Return what would be done now. Changes nothing.

        Raises:
            Retriable: a cluster is away.
            UsageError: both sides are one cluster, or the principal may not look.
            NeedsOperator: the flow belongs to other clusters, or the origin cannot be used.
        """
        return self.target.retry(self._plan)

    def _plan(self, since: int = 0) -> SeedPlan:
        ids = self.source.cluster_id(), self.target.cluster_id()
        check_distinct(*ids)
        state = read_flow_state(self.target, self._place.flow, since)
        check_clusters(state.layout, *ids)
        view = self._view(state)
        topic_plan = plan_topics(view)
        unseen = [*self._hidden(view), *leaderless(view, self.request.selects)]
        left_out = {refusal.object for refusal in unseen}
        topics, place = self._seated(view, left_out), replace(self._place, left_out=left_out)
        # Nothing but what cannot be looked at: that is what there is to say, not what the origin lacks.
        seeds = self.origin.read(place, topics) if topics or not unseen else SeedOffsets()
        topics = self._ends_anew(topics, seeds)
        planned = plan_seed(
            self.request.operation,
            self._place.flow,
            topics,
            seeds,
            topic_plan,
            self.request.choice,
            extra=self.origin.changes(),
        )
        placed = {name: at for topic in topics for name, at in placed_and_idle(topic).items()}
        refused = (*(saying_who(refusal, placed) for refusal in planned.refused), *unseen)
        return replace(planned, refused=refused, standing=_standing(state, topics))

    def _ends_anew(self, topics: list[SeatedTopic], seeds: SeedOffsets) -> list[SeatedTopic]:
        """Return the topics with their ends behind what an origin has read since, where it names more.

        A group, or another flow, that is caught up moves on while it is asked.
        """
        named = {tp: seed.offset for tp, seed in seeds.offsets.items() if not seed.named}
        beyond = [seat.source for seat in seats_of(topics) if named.get(seat.source, seat.end) > seat.end]
        if not beyond:
            return topics
        ends = self.source.list_offsets(beyond, calls.LATEST, calls.READ_UNCOMMITTED)

        def anew(seat: Seat) -> Seat:
            return replace(seat, end=ends.get(seat.source, seat.end))

        return [replace(topic, seats=tuple(anew(seat) for seat in topic.seats)) for topic in topics]

    def _hidden(self, view: View) -> list[Refusal]:
        """Return why topics are left out that are enrolled, but that may not be described on both sides."""
        records = [view.enrolled_by_source[topic] for topic in sorted(view.hidden)]
        return [hidden(r, *view.hidden[r.source]) for r in records if self.request.selects(r.source)]

    def _view(self, state: FlowState) -> View:
        reader = TopicReader(self._place.flow, self.source, self.target)
        try:
            view = reader.read(
                self.request.rules,
                state.enrolled,
                read_managed(state.owned),
                sync_configs=self.request.sync_configs,
            )
        finally:
            reader.close()
        # A target topic that holds records is refused to a flow that finds it; here the operator says that
        # they are the flow's.
        return replace(view, target_ends=dict.fromkeys(view.target_ends, 0))

    def _seated(self, view: View, left_out: Collection[str]) -> list[SeatedTopic]:
        found: list[tuple[TopicInfo, str, TopicInfo | None, Enrolment | None]] = []
        enrolled = {topic: view.known(record) for topic, record in view.enrolled_by_source.items()}
        for decision in view.decisions():
            info = view.source.get(decision.topic)
            if decision.topic in left_out:
                continue
            if decision.inside and info is not None and self.request.selects(decision.topic):
                copy = view.target.get(decision.target_topic)
                found.append((info, decision.target_topic, copy, enrolled.get(decision.topic)))
        logs = self._logs(found)
        return [
            SeatedTopic(source=info, target=name, copy=copy, enrolment=old, seats=tuple(logs[info.name]))
            for info, name, copy, old in found
        ]

    def _logs(
        self, topics: Sequence[tuple[TopicInfo, str, TopicInfo | None, Enrolment | None]]
    ) -> dict[str, list[Seat]]:
        pairs: dict[str, list[tuple[TopicPartition, TopicPartition]]] = {}
        existing: list[TopicPartition] = []
        for info, name, copy, old in topics:
            numbers = sorted(p for p in info.partitions if _has_seat(p, old, copy))
            pairs[info.name] = [(TopicPartition(info.name, p), TopicPartition(name, p)) for p in numbers]
            existing += [TopicPartition(name, p) for p in numbers if copy and p in copy.partitions]
        sources = [source for several in pairs.values() for source, _ in several]
        starts = self.source.list_offsets(sources, calls.EARLIEST)
        lsos = self.source.list_offsets(sources, calls.LATEST)
        ends = self.source.list_offsets(sources, calls.LATEST, calls.READ_UNCOMMITTED)
        target_starts = self.target.list_offsets(existing, calls.EARLIEST)
        target_ends = self.target.list_offsets(existing, calls.LATEST)
        committed = self.target.committed(names.progress_group(self._place.flow), None)

        def seat(source: TopicPartition, target: TopicPartition) -> Seat:
            progress = committed.get(target)
            meta, doubt = beside(progress)
            return Seat(
                source=source,
                target=target,
                start=starts[source],
                lso=lsos[source],
                end=ends[source],
                position=None if progress is None else progress.offset,
                target_start=target_starts.get(target, 0),
                target_end=target_ends.get(target, 0),
                between=None if meta is None else (meta.source_topic_id, meta.target_topic_id),
                doubt=doubt,
            )

        return {name: [seat(*pair) for pair in several] for name, several in pairs.items()}

    # ---- apply

    def apply(self, caller: Caller, approval: Approval | None = None) -> Seeded:
        """Do what a plan computed now says, as ``planning.operation`` has it; positions are counted.

        The plan is announced again if it has changed by the time that nobody copies any more. What an earlier
        try under the same approval has written is no part of it.
        """
        # Only here: who plans needs no right to write.
        first = self._permitted(self._left(approval))
        caller.announce(first)
        if not first.positions:
            return Seeded(first, earlier=approval is not None and has_written(first, approval))
        approved = approval or Approval.of(first.items)
        approved.check(first.items, first.title)
        with self.journal(approval) as journal, journal.applying(first):
            return self._seize(first, approved, journal, caller)

    def _left(self, approved: Approval | None, since: int = 0) -> SeedPlan:
        """Return what would be done now, without what was written under the approval already.

        Args:
            since: the generation that was begun for it, as of ``read_flow_state``.
        """
        planned = self.target.retry(lambda: self._plan(since))
        return planned if approved is None else left_of(planned, approved)

    def _permitted(self, plan: SeedPlan) -> SeedPlan:
        """Return the plan without topics of which we may write no positions; the others go on."""
        copies = {topic.target: topic.source.name for topic in plan.topics}
        barred = self.target.retry(lambda: may_not_read(self.target, copies))
        return without(plan, [barred_copy(copies[name], name) for name in sorted(barred)])

    def _seize(self, first: SeedPlan, approved: Approval, journal: Journal, caller: Caller) -> Seeded:
        create_flow_topics(Admin(self.target), self._place.flow, self.request.state)
        with closing(Leader(self.identity, self.source, self.target)) as leader:
            layout = leader.seize()
            with self._claiming(leader) as claims:
                plan = self._agreed(first, layout, claims, approved, journal, caller)
                plan = self._prepared(plan, layout, claims, approved, journal, caller)
                self._write(leader, layout, plan, approved, journal, caller.counted)
            return Seeded(plan, layout.generation, len(plan.positions))

    def _agreed(
        self,
        shown: SeedPlan,
        layout: Layout,
        claims: Claims,
        approved: Approval,
        journal: Journal,
        caller: Caller,
    ) -> SeedPlan:
        """Return what is written by now; the topics that are new to the flow are claimed, as a run does.

        What is refused by now, or another flow's, is left out: its topic is not touched, and others need not
        wait for it.
        """
        planned = self._left(approved, layout.generation)
        new = {
            t.source.name: t.target for t in planned.topics if t.enrolment is None or not t.enrolment.active
        }
        now = self._permitted(without(planned, claims.settle(new)))
        return agreed_anew(shown, now, approved, journal, caller, whole=False)

    def _prepared(
        self,
        plan: SeedPlan,
        layout: Layout,
        claims: Claims,
        approved: Approval,
        journal: Journal,
        caller: Caller,
    ) -> SeedPlan:
        """Have the origin do what precedes the positions; return the plan as it is behind that.

        Not before it is agreed that they are written: a fence that is lifted does not come back. And not
        without a look behind it: whoever is stopped by it may have written until then.
        """
        changes = self.origin.changes() if plan.positions else ()
        if not changes:
            return plan
        self.origin.prepare(self._place)
        journal.done(*changes)
        return self._agreed(plan, layout, claims, approved, journal, caller)

    @contextmanager
    def _claiming(self, leader: Leader) -> Iterator[Claims]:
        """Yield the claims of the flow; those that come to nothing, because of an error, are given back."""
        naming = self.request.rules.naming
        with closing(TopicReader(self._place.flow, self.source, self.target)) as reader:
            claims = Claims(leader, lambda topics: reader.rivals(naming, topics))
            try:
                yield claims
            except Fenced:
                raise
            except OnceoverError:
                # Where that fails, too, the next try settles them.
                with suppress(OnceoverError):
                    claims.withdraw()
                raise

    def _write(
        self,
        leader: Leader,
        layout: Layout,
        plan: SeedPlan,
        approved: Approval,
        journal: Journal,
        counted: Counted,
    ) -> None:
        if plan.topic_plan is not None:
            make_targets(self.target, self._place.flow, plan.topic_plan, journal)
        # Of those alone that are written: another one without a leader is no concern of theirs.
        written_to = [each.seat.target for each in plan.positions.values()]
        limit = led_within(len(plan.topics))
        copies = led_topics(self.target, written_to, limit, missing_s=limit.left_s)
        journal.refused(plan.refused)
        since = layout.generation
        state = self.target.retry(lambda: read_flow_state(self.target, self._place.flow, since))
        by_position = {c.object: c for c in plan.changes if c.what == "position"}
        taken_back = {c.object: c for c in plan.changes if c.what == PROMOTION}
        written = 0
        for batch in _batches(plan.topics, plan.positions):
            counted(written, len(plan.positions))
            enrolments = [
                _changed(_enrolment(topic, copies[topic.target], plan, layout), topic, plan, approved)
                for topic in batch
            ]
            progress: dict[TopicPartition, OffsetToCommit] = {}
            for enrolment in enrolments:
                progress.update(_progress(enrolment, plan, layout))
            _enrol(leader, enrolments, progress, sorted(stopped_in(state.others) & progress.keys()))
            journal.done(*(by_position[str(tp)] for topic in batch for tp in _written(topic, plan)))
            journal.done(*(taken_back[e.target] for e in enrolments if e.active and e.target in taken_back))
            written += len(progress)
        counted(written, len(plan.positions))


def _has_seat(partition: int, old: Enrolment | None, copy: TopicInfo | None) -> bool:
    """Tell whether a live partition of a source topic can be seeded.

    One that was added while the topic was given away comes back with the others: its copy may hold what it
    has come from, which a flow that finds it would take for somebody else's. Where there is no copy yet, the
    flow makes one, as of any topic that grows.
    """
    if old is None or partition in old.start:
        return True
    return old.waits_to_be_placed and copy is not None and partition in copy.partitions


def _enrolment(topic: SeatedTopic, copy: TopicInfo, plan: SeedPlan, layout: Layout) -> Enrolment:
    written = [plan.positions[tp] for tp in _written(topic, plan)]
    added = {position.seat.source.partition: position.offset for position in written}
    placed = {
        p.seat.source.partition: PlacedProgress(layout.generation, p.offset, p.target_end) for p in written
    }
    ids, old = (topic.source.topic_id, copy.topic_id), topic.enrolment
    if old is None:
        begun = frozenset(added)
        return Enrolment(topic.source.name, topic.target, *ids, added, now_ms(), placed=placed, begun=begun)
    new = replace(old, start={**old.start, **added}).between(*ids, added.keys())
    numbers = {p.seat.source.partition: p.seat.between for p in written}
    # What the map says about topics that are gone is void from here on.
    anew = [number for number, between in numbers.items() if (between or old.ids_of(number)) != new.ids]
    changed = replace(
        new,
        at_ms=now_ms(),
        since={**old.since, **dict.fromkeys(anew, layout.generation)},
        placed={**old.placed, **placed},
        begun=old.begun_with(placed, {*anew, *_unused(old, written)}, new.start),
    )
    # One that was left to another flow returns whole or not at all.
    return changed if changed.waits_to_be_placed else changed.back()


def _unused(old: Enrolment, written: Iterable[SeededPosition]) -> set[int]:
    """Return the partitions of which nothing was copied since their copy was placed to begin."""
    stand = {each.seat.source.partition: each.seat.position for each in written}
    return {p for p in old.begun & old.placed.keys() if stand.get(p) == old.placed[p].offset}


def _changed(enrolment: Enrolment, topic: SeatedTopic, plan: SeedPlan, approved: Approval) -> Enrolment:
    """Return the record with the approval under which its partitions are written."""
    written = [tp.partition for tp in _written(topic, plan)]
    return replace(enrolment, changed={**enrolment.changed, **dict.fromkeys(written, approved.id)})


def _standing(state: FlowState, topics: Sequence[SeatedTopic]) -> dict[str, ObjectState]:
    stops = stops_of(state)
    found: dict[str, ObjectState] = {}
    for topic in topics:
        sources = [seat.source for seat in topic.seats]
        found |= standing_of(stops, topic.enrolment, sources, topic.source.topic_id)
    return found


def _enrol(
    leader: Leader,
    enrolments: Sequence[Enrolment],
    progress: Mapping[TopicPartition, OffsetToCommit],
    over: Sequence[TopicPartition],
) -> None:
    try:
        leader.enrol(enrolments, progress, over)
    except Fenced as error:
        raise Fenced(
            "the flow was started meanwhile, and goes on with the progress that it found",
            code=error.code,
            expected=error.expected,
            seen=error.seen,
            resolve="stop that run, then run this again: it plans anew",
        ) from error


def _progress(
    enrolment: Enrolment, plan: SeedPlan, layout: Layout
) -> Iterator[tuple[TopicPartition, OffsetToCommit]]:
    for source in enrolment.sources():
        position = plan.positions.get(source)
        if position is not None:
            progress = first_progress(
                enrolment, position.offset, layout.generation, position.target_end, position.last
            )
            yield enrolment.target_of(source), progress


def _written(topic: SeatedTopic, plan: SeedPlan) -> list[TopicPartition]:
    return [seat.source for seat in topic.seats if seat.source in plan.positions]


def _batches(
    topics: Sequence[SeatedTopic], positions: Mapping[TopicPartition, SeededPosition]
) -> Iterator[list[SeatedTopic]]:
    batch: list[SeatedTopic] = []
    size = 0
    for topic in topics:
        written = sum(seat.source in positions for seat in topic.seats)
        if batch and size + written > _PARTITIONS_PER_TRANSACTION:
            yield batch
            batch, size = [], 0
        batch.append(topic)
        size += written
    if batch:
        yield batch
