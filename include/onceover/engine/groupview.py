"""Reading both clusters for the moving of groups. Never writes.

Invariant: what cannot be read is an error in the view, never an absence: a group whose coordinator is away,
or which the principal may not see, is known to be unknown (G8). Order matters: committed offsets are read
before the copy's progress, and that before the offset map, so that each is covered by what is read after it.
"""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from onceover.engine import names
from onceover.engine.enrolment import Enrolment, read_enrolments
from onceover.engine.groupmemory import GroupMemory
from onceover.engine.groupplan import GroupFacts, GroupView
from onceover.engine.groups import PENDING, UNREADABLE, Direction, Facts, Remembered
from onceover.engine.groupsettle import GroupSettler
from onceover.engine.layout import Layout, check_clusters, check_distinct
from onceover.engine.progress import beside
from onceover.engine.statelog import StateLog
from onceover.errors import OnceoverError, Retriable, UsageError
from onceover.kafka import calls
from onceover.kafka.backoff import Deadline
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.cluster import Cluster, TopicInfo
from onceover.kafka.groupadmin import GroupAdmin, Listing, Named
from onceover.model import TopicPartition
from onceover.wire.offsetlookup import NotCovered, Translated, Translation

Committed = Mapping[TopicPartition, CommittedOffset]
Offsets = Mapping[TopicPartition, int]
Problems = dict[TopicPartition, tuple[str, str]]
_CLASSIC: Final = "classic"
# A partition without a leader must not keep the groups of all others waiting.
_LOGS_S: Final = 5.0
# A reader that commits in transactions has one pending now and then, for a moment.
_PENDING_S: Final = 0.25


class Translates(Protocol):
    """Exact translation between the two logs of a flow; never a guess (G7)."""

    def refresh(self) -> None:
        """Bring it up to date with everything that is committed."""

    def to_target(self, source: TopicPartition, offset: int) -> Translation:
        """Return the counterpart of a source offset in the partition of the same number."""

    def to_source(self, target: TopicPartition, offset: int) -> Translation:
        """Return the counterpart of a target offset."""

    def is_one_to_one(self, source: TopicPartition) -> bool:
        """Tell whether all that was copied from ``source`` is in one partition, which holds nothing else."""


@dataclass(frozen=True)
class Pair:
    """A source partition of the flow and its counterpart."""

    source: TopicPartition
    target: TopicPartition
    enrolment: Enrolment


@dataclass(frozen=True)
class _Raw:
    """One group as it was read, before anything is translated."""

    facts: GroupFacts
    committed: Committed
    current: Named
    last: Mapping[TopicPartition, Remembered]
    opposite: Mapping[TopicPartition, Remembered]


class _Logs(NamedTuple):
    """What the partitions hold; all but ``giving_ends`` by receiving or target partition."""

    giving_ends: Offsets
    starts: Offsets
    ends: Offsets
    progress: Committed


class GroupReader:
    """Looks at the groups of a flow, again and again. Not thread-safe; the caller closes the clusters.

    Args:
        flow: name of the flow.
        direction: which way groups are moved.
        source: source cluster; ``target`` likewise.
        translator: translates between their offsets.
        selects: tells whether a group is to be moved.
    """

    def __init__(
        self,
        flow: str,
        direction: Direction,
        source: Cluster,
        target: Cluster,
        translator: Translates,
        selects: Callable[[str], bool],
    ) -> None:
        self.direction = direction
        self.memory = GroupMemory(target, flow)
        self._flow = flow
        self._source = source
        self._target = target
        self._translator = translator
        self._selects = selects
        sides = (source, target) if direction is Direction.FAILOVER else (target, source)
        self.giving, self.receiving = (GroupAdmin(cluster) for cluster in sides)
        self.settler = GroupSettler(self.receiving.cluster, names.groups_id(flow))
        self._state = StateLog(target, names.state_topic(flow), names.STATE_LEADER)

    def close(self) -> None:
        """Close all connections of its own."""
        self._state.close()
        self.memory.close()
        self.settler.close()

    def read(self) -> GroupView:
        """Return both clusters as they are now.

        Raises:
            Retriable: a cluster, or what the flow keeps on its target, cannot be read.
            UsageError: both sides are one cluster, or the flow was never started.
            NeedsOperator: the flow belongs to other clusters.
        """
        pairs = self._target.retry(self._pairs)
        self._target.retry(self.memory.read)
        here, there = self.giving.groups(), self.receiving.groups()
        there_of = {giving: self._sides(pair)[1] for giving, pair in pairs.items()}
        here_of = {receiving: giving for giving, receiving in there_of.items()}
        raw = [self._read(name, here, there, there_of, here_of) for name in self._names(here)]
        touched = {tp for group in raw for tp in group.committed.keys() | group.last.keys()}
        used = {tp: pairs[tp] for tp in sorted(touched)}
        # Before the map and the ends of the logs: what the progress stands for is in both.
        progress = self._target.retry(lambda: self._progress(used))
        problems = self._target.retry(lambda: self._problems(used, progress))
        logs = self._logs({tp: pair for tp, pair in used.items() if tp not in problems}, problems)
        logs = logs._replace(progress=progress)
        self._target.retry(self._translator.refresh)
        groups = [replace(g.facts, partitions=tuple(self._facts(g, pairs, problems, logs))) for g in raw]
        return GroupView(
            flow=self._flow,
            direction=self.direction,
            giving=self.giving.cluster.alias,
            receiving=self.receiving.cluster.alias,
            groups=tuple(groups),
            errors=here.unheard + there.unheard,
            now_ms=time.time_ns() // 1_000_000,
        )

    # ---- the flow

    def _pairs(self) -> dict[TopicPartition, Pair]:
        """Return the flow's partitions by giving partition."""
        ids = self._source.cluster_id(), self._target.cluster_id()
        check_distinct(*ids)
        if names.state_topic(self._flow) not in self._target.topics([names.state_topic(self._flow)]):
            raise UsageError(
                f"flow {self._flow} was never started: nothing is copied yet",
                code="NOT_STARTED",
                where=self._target.alias,
                resolve=f"start it with `onceover replicate {self._flow}`",
            )
        values = self._state.catch_up(wait=False)
        layout = values.get(names.LAYOUT)
        check_clusters(None if layout is None else Layout.from_json(layout), *ids)
        enrolments = read_enrolments(values).values()
        found = {}
        for enrolment in enrolments:
            for source in enrolment.sources():
                pair = Pair(source, enrolment.target_of(source), enrolment)
                found[self._sides(pair)[0]] = pair
        return found

    def _progress(self, pairs: Mapping[TopicPartition, Pair]) -> Committed:
        wanted = [pair.target for pair in pairs.values()]
        return self._target.committed(names.progress_group(self._flow), wanted) if wanted else {}

    def _problems(self, pairs: Mapping[TopicPartition, Pair], progress: Committed) -> Problems:
        """Return partitions whose topic is gone or another one bears its name: their map is of the past."""
        if not pairs:
            return {}
        sources = self._source.topics(sorted({p.source.topic for p in pairs.values()}))
        targets = self._target.topics(sorted({p.target.topic for p in pairs.values()}))
        found = {}
        for giving, pair in pairs.items():
            doubt = beside(progress.get(pair.target)).doubt
            if doubt is not None:
                found[giving] = (UNREADABLE, f"how far {pair.source} is copied is not known: {doubt.message}")
                continue
            source_id, target_id = _copied_ids(pair, progress.get(pair.target))
            for tp, topics, wanted, alias in (
                (pair.source, sources, source_id, self._source.alias),
                (pair.target, targets, target_id, self._target.alias),
            ):
                if not _is_there(topics.get(tp.topic), tp, wanted):
                    text = f"{tp} on {alias} is not the partition that was copied: deleted, or made anew"
                    found[giving] = ("RECREATED", text)
        return found

    def _sides(self, pair: Pair) -> tuple[TopicPartition, TopicPartition]:
        forward = self.direction is Direction.FAILOVER
        return (pair.source, pair.target) if forward else (pair.target, pair.source)

    # ---- groups

    def _names(self, here: Listing) -> list[str]:
        known = here.groups.keys() | self.memory.groups(self.direction)
        return sorted(name for name in known if self._selects(name))

    def _read(
        self,
        name: str,
        here: Listing,
        there: Listing,
        there_of: Mapping[TopicPartition, TopicPartition],
        here_of: Mapping[TopicPartition, TopicPartition],
    ) -> _Raw:
        listed, other = here.groups.get(name), there.groups.get(name)
        facts = GroupFacts(
            name=name,
            type=listed.type if listed else other.type if other else _CLASSIC,
            there_type=other.type if other else None,
            there_state=other.state if other else None,
            seen_s=time.monotonic(),
        )
        last = self.memory.of(self.direction, name)
        opposite = self.memory.of(self.direction.opposite, name)
        mine = {here_of[tp]: entry for tp, entry in last.items() if tp in here_of}
        try:
            committed = {tp: c for tp, c in self.giving.committed(name).items() if tp in there_of}
            # By name: of all partitions, those with nothing but a pending commit would be left out.
            wanted = [there_of[tp] for tp in sorted(committed.keys() | mine.keys())]
            current = self.receiving.named(name, wanted, _PENDING_S)
            if other is None and there.unheard and any(current):
                # Its coordinator is back, but did not say whether it has members.
                raise there.unheard[0]
        except OnceoverError as error:
            return _Raw(replace(facts, error=error), {}, Named({}, frozenset()), {}, {})
        return _Raw(facts, committed, current, mine, opposite)

    def _facts(
        self,
        group: _Raw,
        pairs: Mapping[TopicPartition, Pair],
        problems: Problems,
        logs: _Logs,
    ) -> Iterator[Facts]:
        for giving in sorted(group.committed.keys() | group.last.keys()):
            receiving = self._sides(pairs[giving])[1]
            committed, current = group.committed.get(giving), group.current.committed.get(receiving)
            facts = Facts(
                giving=giving,
                receiving=receiving,
                committed=committed.offset if committed else None,
                metadata=committed.metadata if committed else "",
                current=current.offset if current else None,
                current_metadata=current.metadata if current else "",
                last=group.last.get(giving),
                opposite=group.opposite.get(giving),
                problem=problems.get(giving)
                or (_pending(receiving) if receiving in group.current.pending else None)
                or self._not_one_to_one(pairs[giving]),
            )
            yield facts if facts.problem else self._translated(facts, pairs[giving], logs)

    def _not_one_to_one(self, pair: Pair) -> tuple[str, str] | None:
        if self._translator.is_one_to_one(pair.source):
            return None
        return (
            "NOT_ONE_TO_ONE",
            f"a handler spreads {pair.source} over several partitions: no one place follows",
        )

    # ---- logs

    def _logs(self, pairs: Mapping[TopicPartition, Pair], problems: Problems) -> _Logs:
        """Read the logs; a partition that cannot be read becomes a problem of its own."""
        try:
            return self._target.retry(lambda: self._read_logs(pairs), Deadline(_LOGS_S))
        except Retriable as error:
            if len(pairs) == 1:
                problems.update(dict.fromkeys(pairs, (UNREADABLE, f"it cannot be read now: {error.message}")))
                return _Logs({}, {}, {}, {})
        singly = [self._logs({giving: pair}, problems) for giving, pair in pairs.items()]
        return _Logs(*(dict(ChainMap(*maps)) for maps in zip(*singly, strict=True)))

    def _read_logs(self, pairs: Mapping[TopicPartition, Pair]) -> _Logs:
        giving = list(pairs)
        receiving = [self._sides(pair)[1] for pair in pairs.values()]
        there = self.receiving.cluster
        return _Logs(
            self.giving.cluster.list_offsets(giving, calls.LATEST),
            there.list_offsets(receiving, calls.EARLIEST),
            there.list_offsets(receiving, calls.LATEST, calls.READ_UNCOMMITTED),
            {},
        )

    def _translated(self, facts: Facts, pair: Pair, logs: _Logs) -> Facts:
        facts = replace(
            facts,
            giving_end=logs.giving_ends[facts.giving],
            start=logs.starts[facts.receiving],
            end=logs.ends[facts.receiving],
        )
        if facts.committed is None:
            return facts
        if self.direction is Direction.FAILBACK:
            return replace(facts, translation=self._translator.to_source(pair.target, facts.committed))
        progress = logs.progress.get(pair.target)
        if progress is None:
            return replace(facts, translation=NotCovered(None, None))
        return replace(
            facts, copied=progress.offset, translation=self._to_target(facts.committed, pair, progress)
        )

    def _to_target(self, committed: int, pair: Pair, progress: CommittedOffset) -> Translation:
        """Translate, at most up to the copy's position.

        Where the map holds nothing up to there (nothing but markers was ever copied, or its records have
        expired), the position's own metadata says where the next record will be written.
        """
        answer = self._translator.to_target(pair.source, min(committed, progress.offset))
        if isinstance(answer, NotCovered) and committed >= progress.offset:
            meta = beside(progress).meta
            if meta is not None:
                return Translated(meta.target_end)
        return answer


def _pending(receiving: TopicPartition) -> tuple[str, str]:
    return PENDING, f"a transaction commits for {receiving} there, and is not decided"


def _copied_ids(pair: Pair, progress: CommittedOffset | None) -> tuple[str, str]:
    """Return the ids of the topics that were copied: newer in the progress, after an operator's repair."""
    meta = beside(progress).meta
    if meta is None:
        return str(pair.enrolment.source_id), str(pair.enrolment.target_id)
    return meta.source_topic_id, meta.target_topic_id


def _is_there(info: TopicInfo | None, tp: TopicPartition, wanted: str) -> bool:
    return info is not None and str(info.topic_id) == wanted and tp.partition in info.partitions
