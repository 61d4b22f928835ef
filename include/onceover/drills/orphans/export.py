"""Exporting what an old source holds alone, and giving its topic free to be copied anew.

Invariant: nothing is removed that does not stand in the export: a topic is deleted only behind an export that
was read back, from the topic and from the file, and only where its log ends where that export ends, looked at
twice while nobody wrote. What is exported stands in the topic once, however often this was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from onceover.drills import chain as chains
from onceover.drills.chain import DrillResult
from onceover.drills.codes import DrillCode
from onceover.drills.journal import DrillJournal
from onceover.drills.orphans.exporttopic import (
    ExportedOrphan,
    ExportExtent,
    OrphanOrigin,
    OrphanTopic,
    SourceUnread,
    missing_from,
)
from onceover.drills.orphans.files import OrphanFile, path_in, put_orphans
from onceover.drills.orphans.looks import OrphanLook, OrphanView
from onceover.drills.orphans.plan import (
    CREATE,
    DELETE,
    EXPORT,
    FORGET,
    NOTHING,
    WRITE,
    HeldPart,
    OrphansPlan,
    exit_code,
    origin_of,
    orphaned,
    plan_orphans,
    topic_of,
)
from onceover.drills.orphans.positions import PositionReader, PositionsOnlyHere
from onceover.drills.orphans.promoted import unread_partition
from onceover.drills.orphans.rebuild import TopicRebuild, Untaken, shapes_of, unmade_topics
from onceover.drills.orphans.tally import OrphanTally
from onceover.drills.orphans.terms import OrphanPlace, RebuildTerms
from onceover.drills.orphans.view import OrphanReader
from onceover.drills.running import changed, new_drill
from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.exitstatus import OK
from onceover.kafka.logs.between import records_between
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.planning.approval import Approval
from onceover.planning.journal import Journal, OpenJournal
from onceover.planning.operation import Caller
from onceover.planning.plan import Change, Refusal
from onceover.shown import lined
from onceover.wire.batches.records import DecodedRecord

_NAMED: Final = 3
_OF_TOPIC: Final = (DELETE, FORGET, CREATE)


@dataclass(frozen=True)
class OrphansExported:
    """What was done.

    Args:
        plan: what it did.
        drill: its id in the journal of drills; None where there was nothing to do.
        written: how many records were written now; ``held`` how many orphans the topic holds.
        file: that was written.
        rebuilt: topics that were deleted and made again empty, to be copied anew.
        unread: partitions that could not be exported now.
    """

    plan: OrphansPlan
    drill: str | None = None
    written: int = 0
    held: int = 0
    file: OrphanFile | None = None
    rebuilt: tuple[str, ...] = ()
    unread: tuple[Refusal, ...] = ()

    @property
    def exit_code(self) -> int:
        """3 when somebody has to decide something, 5 when waiting may help, else 0."""
        return exit_code(self.waiting)

    @property
    def waiting(self) -> Sequence[Refusal]:
        """What is left, and why."""
        return (*self.plan.refused, *self.unread)

    @property
    def counts(self) -> Mapping[str, Any]:
        """Names, ids and counts."""
        return {
            "flow": self.plan.flow,
            "drill": self.drill,
            "written": self.written,
            "orphans": self.held,
            "rebuilt": len(self.rebuilt),
        }

    def document(self) -> dict[str, Any]:
        """Return the plan, and what became of it."""
        return {
            **self.plan.document(),
            "refused": [refusal.document() for refusal in self.waiting],
            "applied": self.drill is not None,
            "drill": self.drill,
            "written": self.written,
            "exported": self.held,
            "export": None if self.file is None else self.file.document(),
            "rebuilt": list(self.rebuilt),
        }

    def describe(self) -> str:
        """Return it as text; the plan was shown before."""
        place = self.plan.place
        if self.drill is None:
            return "nothing was changed"
        lines = []
        if self.file is not None:
            lines = [
                f"exported: {self.written} records now; {self.held} stand in {place.topic}, read back",
                f"file: {self.file.path}, {self.file.records} records, SHA-256 {self.file.sha256}",
            ]
        lines += [f"deleted, and made again empty: {topic} on {place.source}" for topic in self.rebuilt]
        if self.rebuilt and place.back:
            lines.append(f"{commands.lead_back(place.back, place.flow)} has it copied anew")
        lines += [f"  left: {r.object}: {r.message}; {r.resolve}" for r in self.waiting]
        return lined(lines)


@dataclass(frozen=True)
class OrphanParts:
    """What it is made of; the caller opens and closes it.

    Args:
        source: the old source.
        reader: looks at it; ``topic`` is what is exported to.
        untaken: tells of some topics why the flow the other way, as its file is now, would not copy them back
            as they are; nothing of one that it does.
        positions: looks at the groups of both sides.
        place: where everything is; ``folder`` of the file.
        drills: the flow's journal of drills: one drill of a flow runs at a time.
        journal: opens what everything is written down in.
        quiet_s: how long nobody may write before a topic is deleted.
        about: what the journal of drills holds of who runs this.
    """

    source: Cluster
    reader: OrphanReader
    topic: OrphanTopic
    untaken: Untaken
    positions: PositionReader
    place: OrphanPlace
    folder: Path
    drills: DrillJournal
    journal: OpenJournal
    quiet_s: float
    about: Mapping[str, Any] = field(default_factory=dict)


class OrphanExport:
    """Plans and applies one. Not thread-safe.

    Args:
        parts: what it works with.
        rebuild: delete topics with orphans behind the export, and make them again empty.
        forgets: tells of which groups positions may go with them that stand nowhere else.
    """

    def __init__(self, parts: OrphanParts, *, rebuild: bool, forgets: Callable[[str], bool]) -> None:
        self._parts, self._rebuild, self._forgets = parts, rebuild, forgets

    def plan(self) -> OrphansPlan:
        """Return what would be done now. Changes nothing.

        Raises:
            UsageError: NOT_STARTED, NOTHING_CHOSEN.
            NeedsOperator: FOREIGN_CLUSTER; EXPORT_DIFFERS, what stands in the topic is no export;
                EXPORT_UNFIT, nothing would be kept there.
            Retriable: a cluster is away.
        """
        self._parts.topic.check_fit()
        view = self._parts.reader.read()
        wanted = {origin_of(look): look for look in view.looks}
        held: dict[OrphanOrigin, HeldPart] = {}
        for one in self._parts.topic.read():
            look = wanted.get(one.origin)
            if look is not None and one.record.offset >= look.first_wanted:
                known = held.get(one.origin, NOTHING)
                held[one.origin] = HeldPart(known.records + 1, one.record.offset)
        terms = self._terms(view) if self._rebuild else None
        unmade = unmade_topics(self._parts.drills.read())
        return plan_orphans(self._parts.place, view, held, rebuild=terms, unmade=unmade)

    def _terms(self, view: OrphanView) -> RebuildTerms:
        topics, parts = orphaned(view), self._parts
        copies = {look.source: view.copy_of(look.source) for looks in topics.values() for look in looks}
        return RebuildTerms(
            shapes_of(parts.source, topics),
            parts.untaken(topics),
            parts.topic.factor(),
            parts.positions.read(copies) if copies else PositionsOnlyHere(),
            self._forgets,
        )

    def apply(self, caller: Caller, approval: Approval | None = None) -> OrphansExported:
        """Do what a plan computed now says, as ``planning.operation`` has it.

        Raises:
            NeedsOperator: DRILL_RUNS; PLAN_CHANGED; EXPORT_DIFFERS; of a topic that stays what
                ``TopicRebuild.ready`` and ``delete`` say.
            Others as ``plan``.
        """
        plan = self.plan()
        caller.announce(plan)
        approved = approval or Approval.of(plan.items)
        approved.check(plan.items, plan.title)
        if not plan.changes:
            return OrphansExported(plan, file=self._file_again())
        drills, drill = self._parts.drills, new_drill()
        with self._parts.journal(approval) as journal, journal.applying(plan):
            drills.begin(drill, self._begun(plan, approved))
            with drills.heartbeat(drill):
                result = DrillResult.REFUSED
                try:
                    self._check_again(plan)
                    result = DrillResult.FAIL
                    done = self._done(plan, drill, journal, caller)
                except BaseException:
                    # What has gone wrong says more than that a journal cannot be reached.
                    with suppress(OnceoverError):
                        drills.append(drill, chains.ENDED, {"result": result})
                    raise
                result = DrillResult.PASS if done.exit_code == OK else DrillResult.PARTLY
                drills.append(drill, chains.ENDED, {"result": result})
        return done

    def _check_again(self, plan: OrphansPlan) -> None:
        """Ask again, with the journal ours, what was planned while others could still begin.

        Raises:
            NeedsOperator: PLAN_CHANGED.
        """
        then = {look.source: (look.topic_id, look.cut) for look in plan.view.looks}
        now = self._parts.reader.topics.cuts({tp.topic for tp in then})
        others = {tp.topic for tp, at in then.items() if now.get(tp) != at}
        unmade = unmade_topics(self._parts.drills.read())
        others |= {topic for topic in plan.remade if unmade.get(topic) != plan.shapes[topic]}
        if others:
            named = ", ".join(sorted(others)[:_NAMED])
            raise changed(plan.flow, f"{named} ({len(others)} topics) were led back, or made again or anew")

    def _file_again(self) -> OrphanFile | None:
        """Write the file where it is missing, of what the topic holds; return it where it was."""
        if path_in(self._parts.folder).is_file():
            return None
        orphans = self._parts.topic.read()
        first = next(orphans, None)
        return None if first is None else put_orphans(self._parts.folder, chain([first], orphans))

    def _begun(self, plan: OrphansPlan, approved: Approval) -> dict[str, Any]:
        who = self._parts.about if approved.consent is None else approved.consent.document()
        return {
            "mode": "orphans",
            "plan_id": plan.plan_id,
            "orphans": plan.orphans,
            "rebuild": list(plan.rebuild[:_NAMED]),
            "forgotten": len(plan.forgotten),
            "approval": {"id": approved.id, **who},
        }

    def _done(self, plan: OrphansPlan, drill: str, journal: Journal, caller: Caller) -> OrphansExported:
        changes = {(c.what, c.object): c for c in plan.changes}
        written, held, file, unread = 0, 0, None, dict[TopicPartition, Refusal]()
        proven: ExportExtent | None = None
        if any(what == WRITE for what, _ in changes):
            written = self._exported(plan, drill, caller, unread)
            # Before it is read back: all of this is read.
            proven = self._parts.topic.extent()
            held, file = self._read_back(plan, unread)
            left = {str(tp) for tp in unread}
            journal.done(
                *(c for (what, of), c in changes.items() if what in (EXPORT, WRITE) and of not in left)
            )
            caller.tell(f"{held} orphans stand in {plan.place.topic} and in {file.path}, read back")
            numbers = {"written": written, "orphans": held, "sha256": file.sha256}
            self._parts.drills.append(drill, chains.STEP, {"step": EXPORT, "state": "done", **numbers})
        rebuild = TopicRebuild(
            self._parts.reader.topics,
            self._parts.topic,
            proven,
            self._parts.positions,
            self._parts.untaken,
            plan,
            self._parts.drills,
            drill,
            caller,
            self._parts.quiet_s,
        )
        rebuilt = self._rebuilt(plan, rebuild, journal, {tp.topic for tp in unread})
        return OrphansExported(plan, drill, written, held, file, rebuilt, tuple(unread.values()))

    def _rebuilt(
        self, plan: OrphansPlan, rebuild: TopicRebuild, journal: Journal, kept: Collection[str]
    ) -> tuple[str, ...]:
        """Delete topics and make them again; return which."""
        changes: dict[str, list[Change]] = {}
        for change in plan.changes:
            if change.what in _OF_TOPIC:
                changes.setdefault(topic_of(change), []).append(change)
        done: list[str] = []
        looks = {topic: looks for topic, looks in orphaned(plan.view).items() if topic not in kept}
        remade = ((topic, plan.shapes[topic]) for topic in plan.remade if topic not in kept)
        ready = rebuild.ready({topic: looks[topic] for topic in plan.rebuild if topic in looks})
        for topic, shape in chain(remade, ready):
            self._go_on(rebuild.drill)
            if topic not in plan.remade:
                rebuild.delete(topic, looks[topic], shape)
            rebuild.create(topic, shape)
            journal.done(*changes[topic])
            done.append(topic)
        return tuple(done)

    # ---- the export

    def _exported(
        self, plan: OrphansPlan, drill: str, caller: Caller, unread: dict[TopicPartition, Refusal]
    ) -> int:
        """Write what is not in the topic yet; return how many records that was.

        Args:
            unread: is told of partitions that the source does not give.
        """
        topic = self._parts.topic
        topic.prepare()
        held = sum(part.records for part in plan.held.values())
        writer, total, done = topic.writer(), plan.orphans - held, [0]

        def told(more: int) -> None:
            done[0] += more
            caller.counted(done[0], max(total, done[0]))
            self._go_on(drill)

        try:
            writer.begin()
            for look in plan.view.looks:
                origin = origin_of(look)
                first = max(look.first_wanted, writer.next.get(origin, 0))
                try:
                    writer.write(origin, self._of_source(look, first), told)
                except SourceUnread as failed:
                    unread[look.source] = self._unread(look, failed)
            writer.settle()
        finally:
            writer.close()
        return done[0]

    def _unread(self, look: OrphanLook, failed: SourceUnread) -> Refusal:
        # Where it is the whole cluster, nothing is worth being tried any more.
        self._parts.source.each_topic([look.source.topic])
        return unread_partition(look.source, self._parts.source.alias, failed.error)

    def _go_on(self, drill: str) -> None:
        """Return where nobody wants the drill to end, and it is still this one that runs.

        Raises:
            Fenced: DRILL_TAKEN_OVER.
            NeedsOperator: DRILL_ABORTED; what was exported stays.
        """
        self._parts.drills.check(drill)
        if chains.is_asked_to_end(self._parts.drills.read(), drill):
            raise NeedsOperator(
                "somebody wants the drill to end; what was exported until now stays",
                code=DrillCode.DRILL_ABORTED,
                resolve="run it again when there is time for it: it goes on from there",
            )

    def _of_source(self, look: OrphanLook, first: int) -> Iterator[DecodedRecord]:
        """Yield the committed records of a partition, up to where it was decided when it was looked at.

        Raises:
            SourceUnread: it does not give them.
        """
        if first >= look.stable:
            return
        try:
            self._check_same(look)
            yield from records_between(self._parts.source, look.source, first, look.stable)
        except (Retriable, NeedsOperator, UsageError) as error:
            raise SourceUnread(error) from error

    def _check_same(self, look: OrphanLook) -> None:
        """Return where the topic is still the one that was looked at; it is read by its name.

        Raises:
            NeedsOperator: LOG_CHANGED.
        """
        topic, source = look.source.topic, self._parts.source
        info = source.retry(lambda: source.topics([topic])).get(topic)
        seen = None if info is None else str(info.topic_id)
        if seen != origin_of(look).topic_id:
            raise NeedsOperator(
                f"{topic} on {source.alias} was deleted, or made anew, since it was looked at",
                code=DrillCode.LOG_CHANGED,
                where=str(look.source),
                expected=f"topic id {origin_of(look).topic_id}",
                seen=f"topic id {seen}",
                resolve="run it again",
            )

    # ---- the proof

    def _read_back(self, plan: OrphansPlan, unread: dict[TopicPartition, Refusal]) -> tuple[int, OrphanFile]:
        """Read the topic, write the file from it, read that; return how many orphans both hold.

        Args:
            unread: partitions that are not proven; others may come to it.

        Raises:
            NeedsOperator: EXPORT_DIFFERS.
        """
        wanted = {origin_of(look): look for look in plan.view.looks}
        tallies = {origin: OrphanTally() for origin in wanted}
        total = [0]

        def counted(one: ExportedOrphan) -> ExportedOrphan:
            total[0] += 1
            look = wanted.get(one.origin)
            if look is not None and one.record.offset >= look.first_wanted:
                tallies[one.origin].add(one.record)
            return one

        file = put_orphans(self._parts.folder, map(counted, self._parts.topic.read()))
        if file.records != total[0]:
            raise _differs(plan.place, f"{total[0]} records in the file", f"{file.records}")
        for origin, look in wanted.items():
            if look.source in unread:
                continue
            try:
                self._check(plan.place, look, origin, tallies[origin])
            except SourceUnread as failed:
                unread[look.source] = self._unread(look, failed)
        return sum(each.records for each in tallies.values()), file

    def _check(self, place: OrphanPlace, look: OrphanLook, origin: OrphanOrigin, held: OrphanTally) -> None:
        if (held.records, held.digest) == (look.tally.records, look.tally.digest):
            return
        # What was compacted, or has expired, since an earlier run is in the export alone.
        mine = (o.record for o in self._parts.topic.read() if o.origin == origin)
        first = missing_from(self._of_source(look, look.first_wanted), mine)
        if first is not None:
            seen = f"{held.records} records; {look.source} offset {first} is missing, or another one"
            raise _differs(place, f"{look.tally.records} records of {look.source}", seen)


def _differs(place: OrphanPlace, expected: str, seen: str) -> NeedsOperator:
    return NeedsOperator(
        "what was exported is not what the old source holds; nothing was removed",
        code=DrillCode.EXPORT_DIFFERS,
        where=place.topic,
        expected=expected,
        seen=seen,
        resolve="find out who else writes to the topic, or has changed the source; then run again",
    )
