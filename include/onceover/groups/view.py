"""Reading both clusters for the moving of groups. Never writes.

Invariant: what cannot be read is an error in the view, never an absence: a group whose coordinator is away,
or which the principal may not see, is known to be unknown (G8). Order matters: committed offsets are read
before the copy's progress, and that before the offset map, so that each is covered by what is read after it.

Nothing on the way to failover waits for the source, which is where the disaster is: what its brokers do not
answer is known to be unknown after a moment. Its logs' ends are shown only; no position depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from onceover.clock import now_ms
from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.groups.codes import GroupCode
from onceover.groups.commits import Commits, Committed, read_commits
from onceover.groups.decide import Direction, PartitionFacts, Remembered
from onceover.groups.forerunners import Forerunners, GroupPlace
from onceover.groups.history import Histories, ends_early
from onceover.groups.logs import Logs, read_logs
from onceover.groups.memory import GroupMemory
from onceover.groups.plan import GroupFacts, GroupView
from onceover.groups.settle import GroupSettler
from onceover.groups.strays import Copies, find_strays, stray_facts
from onceover.kafka.admin.topicfacts import may_not_read
from onceover.kafka.calls import NO_EPOCH, CommittedOffset
from onceover.kafka.codes import KafkaCode
from onceover.kafka.each import Each
from onceover.kafka.groups.admin import GroupAdmin, GroupListing
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.codes import StateCode
from onceover.state.log import StateLog
from onceover.state.records.enrolment import Enrolment, read_enrolments
from onceover.state.records.layout import Layout, check_clusters, check_distinct, layout_in
from onceover.state.records.progress import beside, copied_between
from onceover.wire.offsetlookup import NotCovered, Translation

Problems = dict[TopicPartition, tuple[str, str]]
_CLASSIC: Final = "classic"
# Of the source in a failover, with all of its brokers together: longer than a healthy one is away.
_SOURCE_PATIENCE_S: Final = 10.0
_UNHANDLED: Final = "the map has no record yet that tells where the handler puts its output"


class Translates(Protocol):
    """Exact translation between the two logs of a flow; never a guess (G7)."""

    def refresh(self) -> None:
        """Bring it up to date with everything that is committed."""

    def to_target(
        self, source: TopicPartition, offset: int, progress: CommittedOffset | None = None
    ) -> Translation:
        """Return the counterpart of a source offset in the partition of the same number.

        Args:
            progress: of the partition, as it was read since the refresh.
        """

    def to_source(self, target: TopicPartition, offset: int) -> Translation:
        """Return the counterpart of a target offset."""

    def is_one_to_one(self, source: TopicPartition) -> bool:
        """Tell whether all that was copied from ``source`` is in one partition, which holds nothing else."""

    def holds(self, source: TopicPartition) -> bool:
        """Tell whether anything is known about ``source``."""

    def copied_on(self, source: TopicPartition, offset: int) -> int | None:
        """Return up to where everything behind a source offset was copied, without a kept record."""


@dataclass(frozen=True)
class EnrolledPair:
    """A source partition of the flow and its counterpart."""

    source: TopicPartition
    target: TopicPartition
    enrolment: Enrolment


@dataclass(frozen=True)
class _Raw:
    """One group as it was read, before anything is translated."""

    facts: GroupFacts
    commits: Commits
    opposite: Mapping[TopicPartition, Remembered]


class _Here(NamedTuple):
    """The groups of the giving side; or why it cannot be asked at all."""

    listing: GroupListing
    away: OnceoverError | None = None


class GroupReader:
    """Looks at the groups of a flow, again and again. Not thread-safe; the caller closes the clusters.

    Args:
        flow: name of the flow.
        direction: which way groups are moved.
        source: source cluster; ``target`` likewise.
        translator: translates between their offsets.
        selects: tells whether a group is to be moved.
        handled: the flow has a handler, so that only the map tells where records go.
        copies: how the copies of source topics are called that are the flow's by its file.
        forerunners: makes what asks the flows whose promoted copies are on the source.
    """

    def __init__(
        self,
        flow: str,
        direction: Direction,
        source: Cluster,
        target: Cluster,
        translator: Translates,
        selects: Callable[[str], bool],
        *,
        handled: bool = False,
        copies: Copies = lambda _: None,
        forerunners: Callable[[Cluster], Forerunners] | None = None,
    ) -> None:
        self.direction = direction
        self._copies = copies
        self.memory = GroupMemory(target, flow)
        self._flow = flow
        self._target = target
        self._translator = translator
        self._selects = selects
        self._handled = handled
        if direction is Direction.FAILOVER:
            source = source.hasty(min(_SOURCE_PATIENCE_S, source.patience.left_s))
        self._source = source
        self._forerunners = None if forerunners is None else forerunners(source)
        self._histories = Histories(flow, source, target)
        sides = (source, target) if direction is Direction.FAILOVER else (target, source)
        self.giving, self.receiving = (GroupAdmin(cluster) for cluster in sides)
        # The source has no partition of the flow's own.
        own = TopicPartition(names.state_topic(flow), names.STATE_OTHERS)
        here, there = (None, own) if direction is Direction.FAILOVER else (own, None)
        self.settler = GroupSettler(self.receiving.cluster, names.groups_id(flow), there)
        self.giving_settler = GroupSettler(self.giving.cluster, names.groups_id(flow), here)
        self._state = StateLog(target, names.state_topic(flow), names.STATE_LEADER)

    def close(self) -> None:
        """Close all connections of its own."""
        self._state.close()
        self._histories.close()
        self.memory.close()
        self.settler.close()
        self.giving_settler.close()
        if self._forerunners is not None:
            self._forerunners.close()
        if self.direction is Direction.FAILOVER:
            self._source.close()

    def read(self) -> GroupView:
        """Return both clusters as they are now.

        Raises:
            Retriable: a cluster, or what the flow keeps on its target, cannot be read.
            UsageError: both sides are one cluster, or the flow was never started.
            NeedsOperator: the flow belongs to other clusters.
        """
        here = self._listed()
        here, pairs = self._target.retry(lambda: self._pairs(here))
        self._target.retry(self.memory.read)
        there = self.receiving.groups()
        raw = list(self._raw(here, there, pairs))
        touched = {tp for one in raw if one.facts.error is None for tp in one.commits.partitions}
        used = {tp: pairs[tp] for tp in sorted(touched)}
        # Before the map and the ends of the logs: what the progress stands for is in both.
        copied = self._target.retry(lambda: self._progress(used))
        progress = copied.found
        problems = self._problems(used, progress)
        for giving, pair in used.items():
            if giving not in problems and (hidden_copy := copied.failed.get(pair.target)) is not None:
                problems[giving] = _unseen(hidden_copy, f"how far {pair.source} is copied cannot be asked")
        logs = self._logs({tp: pair for tp, pair in used.items() if tp not in problems}, problems)
        self._target.retry(self._translator.refresh)
        if self._forerunners is not None:
            self._forerunners.refresh()
        strays = self._strays(raw)
        hidden, unasked = ({}, ()) if here.away is not None else self._hidden(pairs)
        groups = [
            replace(
                g.facts,
                partitions=(
                    *self._facts(g, pairs, problems, logs, progress),
                    *stray_facts(g.commits.others, strays),
                ),
            )
            for g in raw
        ]
        return GroupView(
            flow=self._flow,
            direction=self.direction,
            giving=self.giving.cluster.alias,
            receiving=self.receiving.cluster.alias,
            groups=tuple(groups),
            errors=here.listing.unheard + unasked,
            errors_there=there.unheard,
            hidden=hidden,
            now_ms=now_ms(),
            away=here.away,
            lag_unknown=_lag_unknown(self.giving.cluster.alias, logs),
        )

    def unwritable(self, topics: Collection[str]) -> frozenset[str]:
        """Return in which of these topics of the receiving side nothing may be committed: READ is missing."""
        cluster = self.receiving.cluster
        return cluster.retry(lambda: may_not_read(cluster, topics))

    # ---- the flow

    def _listed(self) -> _Here:
        """Return the groups of the giving side; in a failover it may be away."""
        self._source.patience.renew()
        try:
            return _Here(self.giving.groups())
        except OnceoverError as error:
            if self.direction is Direction.FAILBACK:
                raise
            return _Here(GroupListing({}), error)

    def _pairs(self, here: _Here) -> tuple[_Here, dict[TopicPartition, EnrolledPair]]:
        """Return the flow's partitions by giving partition; a source of another flow is away, too."""
        if names.state_topic(self._flow) not in self._target.topics([names.state_topic(self._flow)]):
            raise UsageError(
                f"flow {self._flow} was never started: nothing is copied yet",
                code=StateCode.NOT_STARTED,
                where=self._target.alias,
                resolve=f"start it with `onceover replicate {self._flow}`",
            )
        values = self._state.catch_up(wait=False)
        here = self._checked(here, layout_in(values))
        enrolments = read_enrolments(values).values()
        found = {}
        for enrolment in enrolments:
            for source in enrolment.sources():
                pair = EnrolledPair(source, enrolment.target_of(source), enrolment)
                found[self._sides(pair)[0]] = pair
        return here, found

    def _checked(self, here: _Here, layout: Layout | None) -> _Here:
        """Make sure that these are the flow's clusters.

        Raises:
            NeedsOperator: they are not. In a failover this is raised of the target only.
            UsageError: both sides are one cluster.
        """
        target_id = self._target.cluster_id()
        check_clusters(layout, layout.source_cluster_id if layout else "", target_id)
        if here.away is not None:
            return here
        source_id = self._source.cluster_id()
        try:
            check_clusters(layout, source_id, target_id)
        except NeedsOperator as error:
            if self.direction is Direction.FAILBACK:
                raise
            return _Here(GroupListing({}), error)
        check_distinct(source_id, target_id)
        return here

    def _progress(
        self, pairs: Mapping[TopicPartition, EnrolledPair]
    ) -> Each[TopicPartition, CommittedOffset]:
        wanted = [pair.target for pair in pairs.values()]
        return self._target.each_committed(names.progress_group(self._flow), wanted) if wanted else Each()

    def _problems(self, pairs: Mapping[TopicPartition, EnrolledPair], progress: Committed) -> Problems:
        """Return partitions whose topic is gone or another one bears its name: their map is of the past."""
        if not pairs:
            return {}
        targets = self._target.retry(
            lambda: self._target.each_topic(sorted({p.target.topic for p in pairs.values()}))
        )
        try:
            sources = self._source.retry(
                lambda: self._source.each_topic(sorted({p.source.topic for p in pairs.values()}))
            )
        except Retriable as error:
            if self.direction is Direction.FAILBACK:
                raise
            text = f"whether it is the partition that was copied cannot be asked: {error.message}"
            return dict.fromkeys(pairs, (GroupCode.UNREADABLE, text))
        found: dict[TopicPartition, tuple[str, str]] = {}
        for giving, pair in pairs.items():
            doubt = beside(progress.get(pair.target)).doubt
            if doubt is not None:
                found[giving] = (
                    GroupCode.UNREADABLE,
                    f"how far {pair.source} is copied is not known: {doubt.message}",
                )
                continue
            # What was deleted with its rights is refused, not missing: brokers tell no one from the other.
            is_gone = pair.target.topic not in targets.found.keys() | targets.failed.keys()
            if is_gone and pair.source.topic not in sources.found:
                found[giving] = (GroupCode.GONE, f"topic {pair.source.topic} was deleted on both sides")
                continue
            meta = beside(progress.get(pair.target)).meta
            source_id, target_id = copied_between(pair.enrolment, pair.source.partition, meta)
            for tp, topics, wanted, alias in (
                (pair.source, sources, source_id, self._source.alias),
                (pair.target, targets, target_id, self._target.alias),
            ):
                # One that may not be looked at costs its own groups something, and no others.
                if (hidden := topics.failed.get(tp.topic)) is not None:
                    found[giving] = _unseen(hidden, f"{tp} on {alias} cannot be asked about")
                elif not _is_there(topics.found.get(tp.topic), tp, wanted):
                    text = f"{tp} on {alias} is not the partition that was copied: deleted, or made anew"
                    found[giving] = (GroupCode.RECREATED, text)
        known = {pair.source: giving for giving, pair in pairs.items() if giving not in found}
        sides = [(pairs[giving].source, pairs[giving].target) for giving in known.values()]
        parted = self._histories.parted(sides, progress, sources.found)
        return found | {known[source]: told for source, told in parted.items()}

    def _hidden(
        self, pairs: Mapping[TopicPartition, EnrolledPair]
    ) -> tuple[dict[str, OnceoverError], tuple[OnceoverError, ...]]:
        """Return the topics that the giving side does not show: nor does it show what is committed there.

        Beside them why it cannot be asked.
        """
        topics = {tp.topic for tp in pairs}
        giving = self.giving.cluster
        try:
            return giving.retry(lambda: giving.hidden_topics(topics)), ()
        except Retriable as error:
            return {}, (error,)

    def _sides(self, pair: EnrolledPair) -> tuple[TopicPartition, TopicPartition]:
        forward = self.direction is Direction.FAILOVER
        return (pair.source, pair.target) if forward else (pair.target, pair.source)

    # ---- groups

    def _strays(self, raw: Iterable[_Raw]) -> dict[TopicPartition, TopicPartition]:
        """Return what the flow should have taken in; on the target, what else there is is not the flow's."""
        if self.direction is Direction.FAILBACK:
            return {}
        return find_strays(self._source, self._copies, (one.commits.others for one in raw))

    def _raw(
        self, here: _Here, there: GroupListing, pairs: Mapping[TopicPartition, EnrolledPair]
    ) -> Iterator[_Raw]:
        known = here.listing.groups.keys() | self.memory.groups(self.direction)
        memory, unread = self._remembered(self.direction, (n for n in sorted(known) if self._selects(n)))
        receiving_of = dict(map(self._sides, pairs.values()))
        commits = read_commits(here.away or self.giving, self.receiving, memory, receiving_of)
        # Once more: what another sync has written there meanwhile, it has remembered before.
        self._target.retry(self.memory.read)
        opposite, unread_too = self._remembered(self.direction.opposite, commits)
        unread = unread_too | unread
        for name, found in commits.items():
            listed, other = here.listing.groups.get(name), there.groups.get(name)
            error = found.error or unread.get(name)
            if error is None and other is None and there.unheard and any(found.current):
                # Its coordinator is back, but did not say whether it has members.
                error = there.unheard[0]
            facts = GroupFacts(
                name=name,
                type=listed.type if listed else other.type if other else _CLASSIC,
                there_type=other.type if other else None,
                there_state=other.state if other else None,
                error=error,
                seen_s=found.seen_s,
            )
            yield _Raw(facts, found, opposite[name])

    def _remembered(
        self, direction: Direction, groups: Iterable[str]
    ) -> tuple[dict[str, Mapping[TopicPartition, Remembered]], dict[str, OnceoverError]]:
        """Return what was written for groups, and why not of those of which it cannot be read."""
        found: dict[str, Mapping[TopicPartition, Remembered]] = {}
        unread: dict[str, OnceoverError] = {}
        for name in groups:
            try:
                found[name] = self.memory.of(direction, name)
            except NeedsOperator as error:
                found[name], unread[name] = {}, error
        return found, unread

    def _facts(
        self,
        group: _Raw,
        pairs: Mapping[TopicPartition, EnrolledPair],
        problems: Problems,
        logs: Logs,
        progress: Committed,
    ) -> Iterator[PartitionFacts]:
        commits = group.commits
        for giving in sorted(commits.partitions):
            receiving = self._sides(pairs[giving])[1]
            committed, current = commits.committed.get(giving), commits.current.committed.get(receiving)
            unseen = commits.unseen.get(receiving)
            facts = PartitionFacts(
                giving=giving,
                receiving=receiving,
                committed=committed.offset if committed else None,
                metadata=committed.metadata if committed else "",
                current=current.offset if current else None,
                current_metadata=current.metadata if current else "",
                current_epoch=current.leader_epoch if current else NO_EPOCH,
                last=commits.last.get(giving),
                opposite=group.opposite.get(giving),
                problem=problems.get(giving)
                or (None if unseen is None else _unseen(unseen, f"{receiving} cannot be asked about"))
                or (_pending(receiving) if receiving in commits.current.pending else None),
            )
            if facts.problem is None:
                facts = self._placed(group, facts, pairs[giving], logs, progress)
            yield facts

    def _placed(
        self, group: _Raw, facts: PartitionFacts, pair: EnrolledPair, logs: Logs, progress: Committed
    ) -> PartitionFacts:
        """Add where the group goes on, or why that is not known: each part of the map is read on its own."""
        try:
            facts = replace(facts, problem=self._not_one_to_one(pair))
            if facts.problem is None and group.facts.error is None:
                facts = self._translated(facts, pair, logs, progress)
                if isinstance(facts.translation, NotCovered):
                    facts = self._before(group.facts.name, facts, pair, progress)
        except (Retriable, NeedsOperator) as error:
            text = f"what the offset map tells of {pair.source} cannot be read now: {error.message}"
            return replace(facts, problem=(GroupCode.UNREADABLE, text))
        except UsageError as error:
            if error.code == KafkaCode.NOT_AUTHORIZED:
                return replace(facts, problem=_unseen(error, f"{pair.target} cannot be asked about"))
            # Taken out by a reseed of its shrunk topic since this look began; the next one knows.
            if error.code != StateCode.NOT_ENROLLED:
                raise
            return replace(facts, problem=(GroupCode.UNREADABLE, f"{pair.source} has just left the flow"))
        return facts

    def _not_one_to_one(self, pair: EnrolledPair) -> tuple[str, str] | None:
        if self._translator.is_one_to_one(pair.source):
            return None
        return (
            GroupCode.NOT_ONE_TO_ONE,
            f"a handler spreads {pair.source} over several partitions: no one place follows",
        )

    # ---- logs

    def _logs(self, pairs: Mapping[TopicPartition, EnrolledPair], problems: Problems) -> Logs:
        """Read the logs; a partition that cannot be read becomes a problem of its own."""
        wanted = dict(map(self._sides, pairs.values()))
        logs = read_logs(self.giving.cluster, self.receiving.cluster, wanted)
        for giving, receiving in wanted.items():
            error = logs.unread.get(receiving)
            if error is not None:
                problems[giving] = _unseen(error, "it cannot be read now")
        return logs

    def _translated(
        self, facts: PartitionFacts, pair: EnrolledPair, logs: Logs, progress: Committed
    ) -> PartitionFacts:
        facts = replace(
            facts,
            giving_end=logs.giving_ends.get(facts.giving),
            start=logs.starts[facts.receiving],
            end=logs.ends[facts.receiving],
        )
        copied = progress.get(pair.target)
        source_end = facts.giving_end if self.direction is Direction.FAILOVER else facts.end
        if copied is not None and (early := ends_early(pair.source, source_end, copied.offset)):
            return replace(facts, problem=early)
        if facts.committed is None:
            return facts
        if self.direction is Direction.FAILBACK:
            return replace(facts, translation=self._translator.to_source(pair.target, facts.committed))
        if copied is None:
            # Lost: where the map ends, nobody knows how far the copy is.
            return replace(facts, translation=self._translator.to_target(pair.source, facts.committed))
        if self._handled and not self._translator.holds(pair.source):
            return replace(facts, translation=NotCovered(None, None, _UNHANDLED))
        # What lies behind the copy's position will be written behind its counterpart.
        known = min(facts.committed, copied.offset)
        answer = self._translator.to_target(pair.source, known, copied)
        return replace(facts, copied=copied.offset, translation=answer)

    def _before(
        self, group: str, facts: PartitionFacts, pair: EnrolledPair, progress: Committed
    ) -> PartitionFacts:
        """Ask who wrote what the group reads: it may have read nothing since that copy was promoted."""
        if self._forerunners is None or self.direction is Direction.FAILBACK or facts.committed is None:
            return facts
        meta = beside(progress.get(pair.target)).meta
        answer = self._forerunners.answer(
            (pair.source, pair.target),
            copied_between(pair.enrolment, pair.source.partition, meta),
            GroupPlace(group, facts.committed, facts.current),
            self._translator,
        )
        if answer is None:
            return facts
        opposite = max(
            filter(None, (facts.opposite, answer.remembered)), key=lambda one: one.at_ms, default=None
        )
        return replace(facts, translation=answer.translation, opposite=opposite, forerunner=answer.flow)


def _lag_unknown(alias: str, logs: Logs) -> str | None:
    """Return what the giving side was not able to tell, and why nothing depends on it."""
    if logs.not_asked is None:
        return None
    return (
        f"the lag in {logs.missing} partitions is not known, because {alias} does not tell where they end "
        f"({logs.not_asked.message}): it is only shown, and no new position depends on it"
    )


def _unseen(error: OnceoverError, text: str) -> tuple[str, str]:
    """Return the problem of a partition that could not be asked about. It passes, but for a missing right."""
    return (
        KafkaCode.NOT_AUTHORIZED if isinstance(error, UsageError) else GroupCode.UNREADABLE,
        f"{text}: {error.message}",
    )


def _pending(receiving: TopicPartition) -> tuple[str, str]:
    return GroupCode.COMMIT_PENDING, f"a transaction commits for {receiving} there, and is not decided"


def _is_there(info: TopicInfo | None, tp: TopicPartition, wanted: str) -> bool:
    return info is not None and str(info.topic_id) == wanted and tp.partition in info.partitions
