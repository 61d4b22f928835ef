"""Translating offsets between source and target : exact, or "not covered"; never a guess (G7).

A source partition's own pair is the target partition of the same number. With a handler its records may be
in others as well: each pair then has an answer of its own, and what a reader of a shared target partition
meets besides are records of other source partitions.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from onceover.backoff import Deadline
from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka import calls
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.each import Each, answers_in_time
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition, lane_of
from onceover.positions.fresh import AGAIN_S, STALE_S, FreshMap
from onceover.positions.store import MapStore, PairRow
from onceover.state import names
from onceover.state.codes import StateCode
from onceover.state.read import read_leader
from onceover.state.records.enrolment import Enrolment, PlacedProgress, read_enrolments
from onceover.state.records.layout import Layout, layout_in, never_started
from onceover.state.records.progress import beside, copied_between
from onceover.wire.offsetlookup import (
    Covered,
    NotCovered,
    Translated,
    Translation,
    bridge,
    translate,
    translate_back,
)
from onceover.wire.offsetmap import MapRecord

log = logging.getLogger(__name__)

NO_MAP: Final = "the offset map holds nothing about this partition"
SOURCE_RECREATED: Final = "the source topic was deleted and created anew since it was copied"
UNREAD: Final = "the record of the offset map that tells about it cannot be read"
RECREATED: Final = "the target topic was deleted and created anew since it was copied"
DELETED: Final = "the target topic was deleted since it was copied"
# A partition without a leader must not keep those waiting who ask about others.
_PATIENCE_S: Final = 5.0
_EXACTLY_ONCE: Final = "exactly_once"
_NAMED: Final = 5
PROMOTED: Final = "a switchover has promoted the copy, and clients have written there since"
BESIDE: Final = "it lies before where the flow went on: others may have written there"
BEYOND: Final = "the target's log does not reach it, or a transaction is open there"
UNTOLD: Final = "the flow has copied further than the offset map tells: the map has lost its last records"


class Translator:
    """Translation by the flow's offset map. Not thread-safe.

    Answers are as of the last ``refresh``; the first question, and one that is not covered, read what they
    need by themselves, the latter once a second at most. What cannot be read, of the map or of the target's
    logs, is an error for those who ask about it (``Retriable``, or ``NeedsOperator`` for a damaged record),
    and takes nothing from other partitions.

    Args:
        target: the flow's target; belongs to the caller. The source is not needed, and may be gone.
        flow: its name.
        home: folder of the flow's files, where the index is kept (``ONCEOVER_HOME/<flow>``); None reads the
            one partition of the map topic that is needed, each time a translator is made.
        handled: the flow has a handler, so that the records of any source partition may be anywhere.
    """

    def __init__(self, target: Cluster, flow: str, home: Path | None, *, handled: bool = False) -> None:
        self._target = target
        self._flow = flow
        self._map = FreshMap(target, flow, home)
        self._handled = handled
        self._by_target: dict[str, Enrolment] = {}
        self._by_source: dict[str, Enrolment] = {}
        self._progress: dict[TopicPartition, CommittedOffset] = {}
        self._topics: Mapping[str, TopicInfo] = {}
        # Topics that the target does not tell about: mostly those that may not be described.
        self._unseen: Mapping[str, OnceoverError] = {}
        self._layout: Layout | None = None
        # Partitions of the map that were read to their ends after the progress that is known here.
        self._shown: set[int] = set()
        # By partition of the map: LSOs up to which it tells everything, and when they were asked for.
        self._settled: dict[int, _Settled] = {}
        # Partitions of the target that did not answer a moment ago.
        self._silent: dict[TopicPartition, OnceoverError] = {}
        self._silent_s = -math.inf

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the index."""
        self._map.close()

    def refresh(self) -> None:
        """Read the flow's state, its topics and all that is new in the map.

        Raises:
            UsageError: the flow was never started, or the index cannot be kept.
            Retriable: the target is away.
        """
        self._read_state()
        self._settled.clear()
        self._silent.clear()
        self._map.refresh()

    # ---- answers

    def to_target(
        self,
        source: TopicPartition,
        offset: int,
        *,
        target: TopicPartition | None = None,
        progress: CommittedOffset | None = None,
    ) -> Translation:
        """Return the smallest target offset from which a reader first meets what a source reader would.

        Args:
            source: partition of the source.
            offset: next offset that a source reader would read.
            target: another target partition than that of the same number (handlers): the answer for the
                records that went there.
            progress: of the partition, where it was read since the last ``refresh``.

        Raises:
            UsageError: the partition is not part of the flow, ``offset`` is negative, or the target topic may
                not be described (NOT_AUTHORIZED).
            Retriable: the target is away.
        """
        enrolment = self.enrolment(source=source)
        _check(offset)
        own = enrolment.target_of(source)
        refused = self._refused(enrolment, own)
        if refused is not None:
            return refused

        def look_up() -> Translation:
            return self._look_up(source, own, target or own, offset, back=False)

        found = self._asked(source, look_up)
        partition = lane_of(source, names.MAP_PARTITIONS)
        if partition not in self._shown and self._is_hidden(found, own, offset):
            self._map.settle(partition)
            self._shown.add(partition)
            found = look_up()
        if target is None or target == own:
            return self._at_the_position(
                found, source, progress or self._progress.get(own), offset, back=False
            )
        return found

    def to_source(
        self, target: TopicPartition, offset: int, *, source: TopicPartition | None = None
    ) -> Translation:
        """Return the smallest source offset for a target offset.

        Behind the last copied record, up to the end of the target's log, there are only markers and aborted
        attempts: offsets there translate to where the map ends. Not with ``at_least_once``, where records
        that no map record speaks of yet can be there; not behind the promotion of the copy; and not before
        the place where the flow went on the last time.

        Args:
            target: partition of the target.
            offset: next offset that a target reader would read.
            source: another source partition than that of the same number (handlers).

        Raises:
            UsageError: the partition is not part of the flow, ``offset`` is negative, or the target topic may
                not be described (NOT_AUTHORIZED).
            Retriable: the target is away, or a transaction does not end.
        """
        enrolment = self.enrolment(target=target)
        _check(offset)
        own = TopicPartition(enrolment.source, target.partition)
        refused = self._refused(enrolment, target)
        if refused is not None:
            return refused
        promoted = enrolment.promoted if enrolment.is_promoted else None
        if promoted is not None and offset > promoted.ends.get(target.partition, 0):
            return NotCovered(None, None, PROMOTED)
        asked = source or own
        pair_of = enrolment.target_of(asked)
        found = self._asked(asked, lambda: self._look_up(asked, pair_of, target, offset, back=True))
        if isinstance(found, NotCovered) and found.end is not None and offset > found.end:
            found = self._behind_the_end(asked, pair_of, target, offset)
        if pair_of == target:
            return self._at_the_position(found, asked, self._progress.get(target), offset, back=True)
        return found

    def copied_on(self, source: TopicPartition, offset: int) -> int | None:
        """Return up to where the flow has copied on from a source offset without a gap; None: it has not.

        Of an offset that ``to_target`` does not answer for, as no kept record follows: none stands between.
        """
        own = self.enrolment(source=source).target_of(source)
        pairs = [pair for pair in self._of_source(source) if pair.target == own]

        def runs(store: MapStore) -> list[Covered]:
            # What a record says that cannot be read is not known to be nothing.
            return [run for pair in pairs if not store.has_unread(pair) for run in store.runs(pair)]

        return next((run.end for run in self._map.ask(runs) or () if run.start <= offset < run.end), None)

    def placed(self, target: TopicPartition) -> PlacedProgress | None:
        """Return where the flow began to write to a target partition the last time, None where none is kept.

        What stands before it, and is none of its copies, may be anybody's.

        Raises:
            UsageError: the partition is not part of the flow.
        """
        return self.enrolment(target=target).placed.get(target.partition)

    def ids_between(self, target: TopicPartition) -> tuple[str, str]:
        """Return the ids of the topics that a target partition was copied between, by source and target.

        Raises:
            UsageError: the partition is not part of the flow.
        """
        enrolment = self.enrolment(target=target)
        return copied_between(enrolment, target.partition, beside(self._progress.get(target)).meta)

    def targets_of(self, source: TopicPartition) -> list[TopicPartition]:
        """Return the target partitions with records of ``source``: its own first, then others (handlers)."""
        own = self.enrolment(source=source).target_of(source)
        found = {pair.target for pair in self._of_source(source)}
        return [own, *sorted(found - {own})]

    def holds(self, source: TopicPartition) -> bool:
        """Tell whether the map says anything about ``source``, about the topics as they are now."""
        return bool(self._of_source(source))

    def sources_of(self, target: TopicPartition) -> list[TopicPartition]:
        """Return the source partitions with records in ``target``: that of the same number first.

        Raises:
            UsageError: the partition is not part of the flow.
            Retriable: what the map says about it cannot be read now; with a handler that is any part of it.
        """
        enrolment = self.enrolment(target=target)
        own = TopicPartition(enrolment.source, target.partition)
        for partition in range(names.MAP_PARTITIONS):
            try:
                self._map.need(partition)
            except (Retriable, NeedsOperator) as error:
                # Without a handler each source partition's records are in its own target partition alone.
                if self._handled or partition == lane_of(own, names.MAP_PARTITIONS):
                    raise
                log.debug("not looked at for other sources of %s: %s", target, error)
        found = self._map.ask(lambda store: self._live(store, store.pairs(target=target))) or []
        others = sorted(pair.source for pair in found if pair.source != own)
        # A handler may have given the target more partitions than the source has.
        return [own, *others] if own.partition in enrolment.start else others

    def enrolment(
        self, *, source: TopicPartition | None = None, target: TopicPartition | None = None
    ) -> Enrolment:
        """Return the topic that a partition belongs to.

        Raises:
            UsageError: the flow does not copy it.
        """
        if self._layout is None:
            self._read_state()
        asked = source or target
        if source is not None:
            found = self._by_source.get(source.topic)
            if found is not None and source.partition in found.start:
                return found
        if target is not None:
            found = self._by_target.get(target.topic)
            if found is not None and self._has(found, target):
                return found
        raise self._unknown(asked, "source" if source else "target")

    def _has(self, enrolment: Enrolment, target: TopicPartition) -> bool:
        info = self._topics.get(target.topic)
        return target.partition in enrolment.start or (
            info is not None and target.partition in info.partitions
        )

    # ---- looking up

    def _look_up(
        self, source: TopicPartition, own: TopicPartition, target: TopicPartition, offset: int, *, back: bool
    ) -> Translation:
        question = _Question(source, own, target, offset, back, self._since(source))
        return self._map.ask(question.ask) or NotCovered(None, None, NO_MAP)

    def _of_source(self, source: TopicPartition) -> list[PairRow]:
        self._map.need(lane_of(source, names.MAP_PARTITIONS))
        return self._map.ask(lambda store: self._live(store, store.pairs(source=source))) or []

    def _live(self, store: MapStore, pairs: Iterable[PairRow]) -> list[PairRow]:
        """Return the pairs of which the map says something about the topics as they are now."""
        return [
            pair
            for pair in pairs
            if store.span(pair._replace(since=self._since(pair.source))) or store.has_unread(pair)
        ]

    def _since(self, source: TopicPartition) -> int:
        enrolment = self._by_source.get(source.topic)
        return 0 if enrolment is None else enrolment.since.get(source.partition, 0)

    def _asked(self, source: TopicPartition, look_up: Callable[[], Translation]) -> Translation:
        """Look up in what is at hand; read what is new when that does not cover it."""
        partition = lane_of(source, names.MAP_PARTITIONS)
        self._map.need(partition)
        found = look_up()
        if isinstance(found, NotCovered) and self._map.renew(partition):
            found = look_up()
        return found

    def _is_hidden(self, found: Translation, own: TopicPartition, offset: int) -> bool:
        """Tell whether an offset was copied, so that a transaction may hide what the map tells of it."""
        if not isinstance(found, NotCovered) or (found.end is not None and offset <= found.end):
            return False
        committed = self._progress.get(own)
        return committed is not None and offset < committed.offset

    def _at_the_position(
        self,
        found: Translation,
        source: TopicPartition,
        progress: CommittedOffset | None,
        offset: int,
        *,
        back: bool,
    ) -> Translation:
        """Answer by the copy's own position what the map does not tell.

        Nothing but markers was copied up to there, or nothing at all, or what tells of it has expired: where
        the next record will be written stands beside the position. With a handler it may go elsewhere.
        """
        meta = beside(progress).meta
        if not isinstance(found, NotCovered) or progress is None or meta is None:
            return found
        here, there = (meta.target_end, progress.offset) if back else (progress.offset, meta.target_end)
        if offset != here or (self._handled and not self.holds(source)):
            return found
        return Translated(there)

    def _behind_the_end(
        self, source: TopicPartition, own: TopicPartition, target: TopicPartition, offset: int
    ) -> Translation:
        """Answer for an offset behind the last record of the map, if the target's log reaches it."""
        lso = self._decided(lane_of(source, names.MAP_PARTITIONS), target, offset)
        found = self._look_up(source, own, target, offset, back=True)
        if not isinstance(found, NotCovered) or found.end is None or offset <= found.end:
            return found
        if offset > lso:
            return found._replace(why=BEYOND)
        if found.why == UNREAD:
            return found
        if self._layout is None or self._layout.delivery != _EXACTLY_ONCE:
            return found
        placed = self.placed(target) if own == target else None
        if placed is not None and placed.target_end > found.end:
            # Nothing was copied since: from the last copy up to there somebody else may have written.
            known = offset >= placed.target_end
            return Translated(placed.offset) if known else found._replace(why=BESIDE)
        if self._ends_early(source, own):
            return found._replace(why=UNTOLD)
        return self._look_up(source, own, target, found.end, back=True)

    def _ends_early(self, source: TopicPartition, own: TopicPartition) -> bool:
        """Tell whether what was copied last is not in the map: then its end is not the copy's.

        Both are committed together, and the position was read first: an unclean election has taken it.
        """
        committed = self._progress.get(own)
        if committed is None:
            return False
        found = self._look_up(source, own, own, committed.offset, back=False)
        return isinstance(found, NotCovered) and found.end is not None and found.end < committed.offset

    def _decided(self, partition: int, target: TopicPartition, offset: int) -> int:
        """Return up to where ``target`` is decided and a partition of the map tells everything that it can.

        Raises:
            Retriable: one of the two cannot be read now.
        """
        settled = self._settled.get(partition)
        if settled is None or settled.is_old_for(target, offset):
            # In this order: of every transaction whose end an LSO has passed, the map record is in the log
            # already, and reading to the high watermark waits until it can be read.
            ends = self._ends(target)
            self._map.settle(partition)
            settled = self._settled[partition] = _Settled(ends, time.monotonic())
        if target in settled.ends.failed:
            raise settled.ends.failed[target]
        return settled.ends.found[target]

    def _ends(self, target: TopicPartition) -> Each[TopicPartition, int]:
        """Return the LSOs of ``target`` and, with it, of all others: most readers stand at the end."""
        if time.monotonic() - self._silent_s > AGAIN_S:
            self._silent.clear()
        every = {TopicPartition(info.name, p) for info in self._topics.values() for p in info.partitions}
        each = answers_in_time(
            self._target.retry,
            sorted({target, *every} - self._silent.keys()),
            lambda some: self._target.each_offset(some, calls.LATEST),
            Deadline(_PATIENCE_S),
        )
        if each.failed:
            self._silent.update(each.failed)
            self._silent_s = time.monotonic()
        return Each(each.found, dict(self._silent))

    def _refused(self, enrolment: Enrolment, target: TopicPartition) -> NotCovered | None:
        """Tell whether what the map says is about another topic of the same name, or one that is gone.

        A topic that is not seen is neither: its answer is raised.
        """
        info = self._topics.get(target.topic)
        committed = self._progress.get(
            enrolment.target_of(TopicPartition(enrolment.source, target.partition))
        )
        copied = copied_between(enrolment, target.partition, beside(committed).meta)
        if copied[0] != str(enrolment.source_id):
            return NotCovered(None, None, SOURCE_RECREATED)
        if info is None:
            if (unseen := self._unseen.get(target.topic)) is not None:
                raise unseen
            return NotCovered(None, None, DELETED)
        return None if str(info.topic_id) == copied[1] else NotCovered(None, None, RECREATED)

    # ---- reading

    def _read_state(self) -> None:
        target, group = self._target, names.progress_group(self._flow)
        values = target.retry(lambda: read_leader(target, self._flow))
        layout = layout_in(values)
        if layout is None:
            raise never_started(self._flow, self._target.alias)
        self._layout = layout
        self._by_target = read_enrolments(values)
        self._by_source = {e.source: e for e in self._by_target.values()}
        self._shown.clear()
        self._progress = target.retry(lambda: target.committed(group, None, stable=False))
        wanted = sorted(self._by_target)
        # One that may not be described is unknown; the others are answered about.
        each: Each[str, TopicInfo] = target.retry(lambda: target.each_topic(wanted)) if wanted else Each()
        self._topics, self._unseen = each.found, each.failed

    def _unknown(self, asked: TopicPartition | None, side: str) -> UsageError:
        topics = self._by_source if side == "source" else self._by_target
        known = topics.get(asked.topic) if asked else None
        if known is not None:
            expected = f"a partition from 0 to {max(known.start)}"
        else:
            expected = f"one of {len(topics)} {side} topics: {_shown(sorted(topics))}"
        return UsageError(
            f"{asked} is not part of flow {self._flow} on its {side}",
            code=StateCode.NOT_ENROLLED,
            expected=expected,
            resolve=f"`onceover status {self._flow}` lists what is copied",
        )


class _Settled(NamedTuple):
    """LSOs of the target up to which a partition of the map tells everything."""

    ends: Each[TopicPartition, int]
    at_s: float

    def is_old_for(self, target: TopicPartition, offset: int) -> bool:
        """Tell whether a newer answer could be another one."""
        if target in self.ends.failed:
            return time.monotonic() - self.at_s > AGAIN_S
        return self.ends.found.get(target, -1) < offset and (
            target not in self.ends.found or time.monotonic() - self.at_s > STALE_S
        )


class _Question(NamedTuple):
    """What is asked of the store; ``own`` is the target partition of the same number as ``source``."""

    source: TopicPartition
    own: TopicPartition
    target: TopicPartition
    offset: int
    back: bool
    since: int

    def ask(self, store: MapStore) -> Translation | None:
        """Answer from one state of the store; None where it holds nothing of the pair."""
        with store.snapshot():
            pairs = {pair.target: pair._replace(since=self.since) for pair in store.pairs(source=self.source)}
            own, pair = pairs.get(self.own), pairs.get(self.target)
            if pair is None or own is None:
                return None
            if pair != own and store.has_unread(pair):
                # What is not said of such a pair would mean that nothing went there.
                return NotCovered(None, None, UNREAD)
            if pair != own:
                return self._in(bridge(list(store.records(pair)), store.runs(own)))
            found = self._in(store.around(pair, self.offset, back=self.back))
            span = store.span(pair)
            unread = store.ends_unread(pair)
        if isinstance(found, Translated) or span is None:
            return found
        bounds = span[2:] if self.back else span[:2]
        return NotCovered(*bounds, UNREAD) if unread and self.offset > bounds[1] else NotCovered(*bounds)

    def _in(self, records: Sequence[MapRecord]) -> Translation:
        return (translate_back if self.back else translate)(records, self.offset)


def _check(offset: int) -> None:
    if offset < 0:
        raise UsageError(f"{offset} is no offset", expected="0 or more")


def _shown(topics: list[str]) -> str:
    return ", ".join(topics[:_NAMED]) + (", ..." if len(topics) > _NAMED else "")
