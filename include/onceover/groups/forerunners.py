"""Where a group goes on that has committed nothing since the copy that it reads was promoted.

It stands before everything that a flow the other way has copied back. The flow that wrote the copy, the
forerunner, knows which source offset each place of it stands for.

Invariant: reads only. An answer is exact (G7), by the forerunner's own offset map, and only of what it alone
had written by the promotion, between the very topics that are copied back; anything else is no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.groups.decide import Direction, Remembered
from onceover.groups.memory import GroupMemory
from onceover.groups.moment import GroupMap
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.positions.translate import Translator
from onceover.state.records.enrolment import Enrolment, PlacedProgress
from onceover.wire.offsetlookup import NotCovered, Translated, Translation


class ForerunnersMap(Protocol):
    """The offset map of the flow that wrote the copy, from its source to its target."""

    def ids_between(self, target: TopicPartition) -> tuple[str, str]:
        """Return the ids of the topics that a target partition was copied between."""

    def placed(self, target: TopicPartition) -> PlacedProgress | None:
        """Return where the flow began to write to a target partition the last time."""

    def is_one_to_one(self, source: TopicPartition) -> bool:
        """Tell whether all that was copied from ``source`` is in one partition, which holds nothing else."""

    def to_source(self, target: TopicPartition, offset: int) -> Translation:
        """Return the counterpart of a target offset."""

    def to_target(self, source: TopicPartition, offset: int) -> Translation:
        """Return the counterpart of a source offset."""


class FollowingMap(Protocol):
    """The offset map of the flow that copies back."""

    def to_target(self, source: TopicPartition, offset: int) -> Translation:
        """Return the counterpart of a source offset."""

    def copied_on(self, source: TopicPartition, offset: int) -> int | None:
        """Return up to where everything behind a source offset was copied, without a kept record."""


class GroupPlace(NamedTuple):
    """Where a group stands.

    Args:
        group: its name; ``at`` what it has committed on the giving side.
        current: what it has committed on the receiving side, None where nothing is.
    """

    group: str
    at: int
    current: int | None


class ForerunnersAnswer(NamedTuple):
    """What a forerunner tells: its name, where the group goes on, and what it has written for the group."""

    flow: str
    translation: Translation
    remembered: Remembered | None = None


class PromotedPair(NamedTuple):
    """A topic that a flow has promoted, and the one that it was copied from."""

    target: str
    source: str


class Promoters(NamedTuple):
    """What flows have promoted on a cluster, by flow; ``unread`` why it is not known of one."""

    promoted: Mapping[str, Collection[PromotedPair]]
    unread: Retriable | None = None


class ReadFlow(Protocol):
    """A flow as its state on a cluster describes it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def clusters(self) -> tuple[str | None, str | None]:
        """Ids of its source and target, each None where its state does not tell."""

    @property
    def enrolments(self) -> Collection[Enrolment]:
        """Its topics."""


def promoters_of(
    flows: Iterable[ReadFlow], unreadable: Mapping[str, OnceoverError], giving: str, receiving: str
) -> Promoters:
    """Return what the flows have promoted that copied from the receiving side to the giving one. Pure.

    Args:
        flows: whose state is on the giving side; ``unreadable`` why that of others cannot be read.
        giving: id of the cluster that groups come from; ``receiving`` of the one that they go to.
    """
    promoted = {
        flow.name: {PromotedPair(e.target, e.source) for e in flow.enrolments if e.promoted is not None}
        for flow in flows
        if flow.clusters == (receiving, giving)
    }
    # The one that counts may be among those that do not answer now.
    away = (
        Retriable(f"what flow {name} has promoted is not known: {error.message}", where=error.where)
        for name, error in unreadable.items()
        if isinstance(error, Retriable)
    )
    return Promoters(promoted, next(away, None))


@dataclass(frozen=True)
class _Forerunner:
    flow: str
    translator: Translator
    moment: GroupMap
    memory: GroupMemory


@dataclass
class Forerunners:
    """Asks them, as of one moment, each only about what it has promoted itself. Not thread-safe.

    Any number of flows may have promoted copies on a cluster, for other teams: what is the matter with one
    of them, which may be deleted while we look, is nothing to who reads other topics.

    Args:
        cluster: where their state and copies are, the source of the flow the other way; of the caller.
        find: tells who has promoted what there.
        home: returns the folder of a flow's files.
        done: is called when it is closed.
    """

    cluster: Cluster
    find: Callable[[], Promoters]
    home: Callable[[str], Path]
    done: Callable[[], object]
    _opened: dict[str, _Forerunner] = field(default_factory=dict)
    _now: Promoters | None = None
    _fresh: set[str] = field(default_factory=set)

    def refresh(self) -> None:
        """Let the next question look anew; without a question nothing is looked at."""
        self._now = None
        self._fresh.clear()

    def close(self) -> None:
        """Close what was opened."""
        for each in self._opened.values():
            each.memory.close()
            each.translator.close()
        self._opened.clear()
        self._fresh.clear()
        self.done()

    def answer(
        self,
        sides: tuple[TopicPartition, TopicPartition],
        ids: tuple[str, str],
        standing: GroupPlace,
        following: FollowingMap,
    ) -> ForerunnersAnswer | None:
        """Return where a group goes on; None where no flow has promoted the partition.

        Args:
            sides: the giving partition and the receiving one; ``ids`` those of their topics.
            following: the map of the flow that copies from one to the other.

        Raises:
            Retriable: what a forerunner knows cannot be read now, or who it is.
        """
        if self._now is None:
            self._now = self.cluster.retry(self.find)
        copied, found = PromotedPair(sides[0].topic, sides[1].topic), None
        for flow, promoted in self._now.promoted.items():
            if copied not in promoted:
                continue
            try:
                answer = _answer(self._read(flow), sides, ids, standing, following)
            except (UsageError, NeedsOperator) as error:
                # Also where it was deleted since it was found: what it knew is not known any more.
                answer = ForerunnersAnswer(flow, NotCovered(None, None, error.message))
            if answer is not None and isinstance(answer.translation, Translated):
                return answer
            # Of a flow under its former name something may be on record, too.
            found = found or answer
        if found is None and self._now.unread is not None:
            raise self._now.unread
        return found

    def _read(self, flow: str) -> _Forerunner:
        """Return a forerunner that knows what there is at this moment."""
        each = self._opened.get(flow)
        if each is None:
            # Its flow file may be gone: whether it had a handler, its whole map tells.
            translator = Translator(self.cluster, flow, self.home(flow), handled=True)
            each = _Forerunner(flow, translator, GroupMap(translator), GroupMemory(self.cluster, flow))
            self._opened[flow] = each
        if flow not in self._fresh:
            self.cluster.retry(each.moment.refresh)
            self.cluster.retry(each.memory.read)
            self._fresh.add(flow)
        return each


def _answer(
    each: _Forerunner,
    sides: tuple[TopicPartition, TopicPartition],
    ids: tuple[str, str],
    standing: GroupPlace,
    following: FollowingMap,
) -> ForerunnersAnswer | None:
    giving, receiving = sides
    record = _promoted(each.translator, giving)
    if record is None or record.source != receiving.topic:
        return None
    end = 0 if record.promoted is None else record.promoted.ends.get(giving.partition, 0)
    found = counterpart_before(each.moment, end, sides, ids, standing, following)
    remembered = None
    if _is_between(each.moment, giving, ids):
        # Its offsets mean other records in other topics of these names.
        remembered = each.memory.of(Direction.FAILOVER, standing.group).get(giving)
    return ForerunnersAnswer(each.flow, found, remembered)


def counterpart_before(
    known: ForerunnersMap,
    end: int,
    sides: tuple[TopicPartition, TopicPartition],
    ids: tuple[str, str],
    standing: GroupPlace,
    following: FollowingMap,
) -> Translation:
    """Return where a group goes on that stands in what a forerunner has written. Pure, but for what it asks.

    Args:
        known: what that flow knows; ``end`` of its copy when that was promoted.
        sides: the giving partition and the receiving one; ``ids`` those of their topics.
    """
    giving, receiving = sides
    if not _is_between(known, giving, ids):
        return NotCovered(None, None, "it was copied between other topics of these names")
    if not known.is_one_to_one(receiving):
        return NotCovered(None, None, "a handler has spread it over several partitions")
    if standing.at > end:
        return NotCovered(None, None, f"nothing is told of what is behind offset {end}")
    found = _told_of(known, giving, standing.at)
    if isinstance(found, NotCovered):
        # Of what clients wrote the flow the other way has brought no record from there on: the place behind
        # that, where the forerunner has gone on, is the same one.
        on = following.copied_on(giving, standing.at)
        found = found if on is None or on > end else _told_of(known, giving, on)
    if isinstance(found, Translated) and found == known.to_source(giving, end):
        # Nothing that it has copied follows before the promotion: the next record is one of the clients'.
        found = following.to_target(giving, end)
    if isinstance(found, NotCovered) or standing.current is None:
        return found
    # Behind the last record before a gap there are several positions, all of which are the same place.
    here = known.to_target(receiving, standing.current) == Translated(standing.at)
    return Translated(standing.current) if here else found


def _told_of(known: ForerunnersMap, giving: TopicPartition, at: int) -> Translation:
    """Return what a place of the copy stands for, by what the forerunner alone has written."""
    found, placed = known.to_source(giving, at), known.placed(giving)
    if placed is not None and _passes_over(at, found, placed):
        return NotCovered(None, None, f"others may have written between {at} and {placed.target_end}")
    return found


def _passes_over(at: int, found: Translation, placed: PlacedProgress) -> bool:
    """Tell whether a place before a later way out is answered by what that one has copied.

    Between what was copied before and the place where it went on, clients have written.
    """
    return isinstance(found, Translated) and at < placed.target_end and found.offset >= placed.offset


def _is_between(known: ForerunnersMap, giving: TopicPartition, ids: tuple[str, str]) -> bool:
    """Tell whether a forerunner has copied between the very topics that are copied back."""
    return known.ids_between(giving) == (ids[1], ids[0])


def _promoted(translator: Translator, giving: TopicPartition) -> Enrolment | None:
    """Return the record of a partition that was promoted; None where the flow has nothing to say of it."""
    with suppress(UsageError):
        record = translator.enrolment(target=giving)
        return record if record.is_promoted else None
    return None
