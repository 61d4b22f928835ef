"""Deleting a topic of the old source behind its export, and making it again: empty, and as it was.

Invariant: what is deleted is the very topic that was exported, by its id, and only where everything that
speaks for it was asked again a moment before: of some topics together, as each answer tells of all of them,
and of each topic's own log right before it is deleted. How it was made stands in the journal of drills before
it is deleted: whoever is killed in between leaves to the next run what is to be made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final
from uuid import UUID

from onceover.backoff import Backoff, Deadline
from onceover.drills import chain as chains
from onceover.drills.codes import DrillCode
from onceover.drills.journal import DrillJournal
from onceover.drills.leaving.watch import Ends, SourceWatch
from onceover.drills.orphans.exporttopic import ExportExtent, OrphanTopic
from onceover.drills.orphans.looks import OrphanLook, TopicShape
from onceover.drills.orphans.plan import (
    CREATE,
    DELETE,
    OrphansPlan,
    partitions_of,
)
from onceover.drills.orphans.positions import PositionReader
from onceover.drills.orphans.promoted import PromotedTopics
from onceover.drills.orphans.refusals import not_taken, only_here_refusal, unfit
from onceover.errors import NeedsOperator, NotNow, OnceoverError
from onceover.kafka.admin.topicfacts import topic_facts
from onceover.kafka.admin.topics import Admin, TopicSpec, await_leaders
from onceover.kafka.codes import KafkaCode
from onceover.kafka.ports import Cluster
from onceover.planning.operation import Caller
from onceover.state.records.value import MALFORMED

_WATCH_S: Final = 60.0
_GONE_S: Final = 60.0
# Topics that are asked about together, and how long the answers are good for.
_TOGETHER: Final = 50
_GOOD_S: Final = 10.0


def unmade_topics(entries: Iterable[chains.JournalEntry]) -> dict[str, TopicShape]:
    """Return the topics that were about to be deleted, and of which nothing says that they were made again.

    Pure. They may still be there.
    """
    found: dict[str, TopicShape] = {}
    for entry in entries:
        said = entry.said
        topic, step, state = said.get("topic"), said.get("step"), said.get("state")
        if entry.what != chains.STEP or not isinstance(topic, str):
            continue
        if (step, state) in {(CREATE, "done"), (DELETE, "kept")}:
            found.pop(topic, None)
        elif (step, state) == (DELETE, "running") and "config" in said:
            try:
                found[topic] = TopicShape.from_json(said)
            except MALFORMED:
                continue
    return found


def shapes_of(source: Cluster, topics: Collection[str]) -> dict[str, TopicShape]:
    """Return how topics are made that are there.

    Raises:
        UsageError: not authorized.
        Retriable: the source is away.
    """
    infos = source.retry(lambda: source.topics(sorted(topics))) if topics else {}
    seen = Admin(source).topic_configs(sorted(infos))
    for error in seen.failures.values():
        raise error
    return {
        name: TopicShape(
            str(info.topic_id),
            len(info.partitions),
            source.retry(lambda name=name: topic_facts(source, name)).replication_factor,
            dict(seen.overrides[name]),
        )
        for name, info in infos.items()
        if name in seen.overrides
    }


Untaken = Callable[[Collection[str]], Mapping[str, str]]


@dataclass(frozen=True)
class TopicRebuild:
    """Rebuilds topics for one drill.

    Args:
        topics: what was promoted on the old source; ``export`` what it was exported to.
        proven: what the export held when it was read back; None where it was not.
        positions: looks at the groups of both sides.
        untaken: tells of some topics why the flow the other way would not copy them back as they are.
        plan: that was approved.
        drills: the flow's journal of drills; ``drill`` the one that runs.
        caller: hears of it.
        quiet_s: how long nobody may write before a topic is deleted.
    """

    topics: PromotedTopics
    export: OrphanTopic
    proven: ExportExtent | None
    positions: PositionReader
    untaken: Untaken
    plan: OrphansPlan
    drills: DrillJournal
    drill: str
    caller: Caller
    quiet_s: float

    @property
    def _source(self) -> Cluster:
        return self.topics.source

    def ready(self, topics: Mapping[str, Sequence[OrphanLook]]) -> Iterator[tuple[str, TopicShape]]:
        """Yield the topics that may be deleted now, one after the other, each with how it is made.

        Raises:
            NeedsOperator: ORPHANS_GROWN, LOG_CHANGED, LED_BACK, NOT_COPIED, EXPORT_UNFIT, GROUPS_LEFT,
                SWITCHOVER_UNSET: one of those that are asked about together has to stay, and none of them
                was yielded yet.
        """
        left = list(topics)
        while left:
            shapes = self._asked({topic: topics[topic] for topic in left[:_TOGETHER]})
            good = Deadline(_GOOD_S)
            for topic, shape in shapes.items():
                yield topic, shape
                left.remove(topic)
                if good.passed:
                    break

    def _asked(self, topics: Mapping[str, Sequence[OrphanLook]]) -> dict[str, TopicShape]:
        """Return how topics are made that nobody has written to for a moment, and that may be deleted."""
        source, looks = self._source, list(chain.from_iterable(topics.values()))
        _unchanged(SourceWatch(source, list(topics), self.caller.pause), partitions_of(looks))
        self.caller.pause(self.quiet_s)
        made = shapes_of(source, topics)
        shapes = {topic: self._shape(made.get(topic), topic, looks) for topic, looks in topics.items()}
        self._check_export(shapes)
        for error in Admin(source).try_create(_specs(shapes), validate_only=True).values():
            # Who may not make it again does not delete it.
            if error.code != KafkaCode.TOPIC_EXISTS:
                raise error
        self._check_again(looks)
        return shapes

    def delete(self, topic: str, looks: Sequence[OrphanLook], shape: TopicShape) -> None:
        """Delete a topic that is ready for it.

        Raises:
            NeedsOperator: ORPHANS_GROWN, LOG_CHANGED, EXPORT_DIFFERS: it stays.
        """
        source, ends = self._source, partitions_of(looks)
        watch = SourceWatch(source, [topic], self.caller.pause)
        offsets = sum(look.end - look.start for look in looks)
        said = {"step": DELETE, "topic": topic, "offsets": offsets}
        self.drills.append(self.drill, chains.STEP, {**said, **shape.document(), "state": "running"})
        try:
            _unchanged(watch, ends)
            self._check_proven(topic)
        except OnceoverError:
            self.drills.append(self.drill, chains.STEP, {**said, "state": "kept"})
            raise
        Admin(source).delete_topic(topic, UUID(shape.topic_id))
        self._await_gone(topic, shape.topic_id)
        self.drills.append(self.drill, chains.STEP, {**said, "state": "done"})
        self.caller.tell(f"{topic} on {source.alias} is deleted")

    def create(self, topic: str, shape: TopicShape) -> None:
        """Make a topic that was deleted, as it was, with nothing in it.

        Raises:
            NeedsOperator: LOG_CHANGED, somebody else has made it; or the source does not take it so.
        """
        source = self._source
        for error in Admin(source).try_create(_specs({topic: shape})).values():
            raise _another(topic, source.alias) if error.code == KafkaCode.TOPIC_EXISTS else error
        await_leaders(source, {topic: shape.partitions})
        self.drills.append(self.drill, chains.STEP, {"step": CREATE, "topic": topic, "state": "done"})
        self.caller.tell(f"{topic} on {source.alias} is made again, empty: {shape}")

    def _shape(self, shape: TopicShape | None, topic: str, looks: Sequence[OrphanLook]) -> TopicShape:
        if shape is None or (shape.topic_id, shape.partitions) != (looks[0].topic_id, len(looks)):
            raise NeedsOperator(
                f"{topic} on {self._source.alias} is another one than was exported",
                code=DrillCode.LOG_CHANGED,
                where=topic,
                expected=f"topic id {looks[0].topic_id}, {len(looks)} partitions",
                seen="no such topic" if shape is None else f"topic id {shape.topic_id}, {shape.partitions}",
                resolve="find out who has deleted it, or added partitions; then plan again",
            )
        return shape

    def _check_export(self, shapes: Mapping[str, TopicShape]) -> None:
        factor = self.export.factor()
        for topic, shape in shapes.items():
            if factor is not None and factor >= shape.replication_factor:
                continue
            place = self.export.place.topic
            refusal = unfit(place, factor or 0, topic, shape.replication_factor)
            raise NeedsOperator(
                f"{topic}: {refusal.message}",
                code=DrillCode.EXPORT_UNFIT,
                where=topic,
                resolve=refusal.resolve,
            )

    def _check_proven(self, topic: str) -> None:
        """Return where the export that was read back is still there, whole."""
        now = self.export.extent()
        if self.proven is not None and now is not None and now.holds(self.proven):
            return
        place = self.export.place.topic
        raise NeedsOperator(
            f"{topic} stays: {place} was deleted, made anew or cut since it was read back",
            code=DrillCode.EXPORT_DIFFERS,
            where=place,
            expected="no export that was read back" if self.proven is None else str(self.proven),
            seen="no such topic" if now is None else str(now),
            resolve="find out who did that; then run it again: what was never copied is exported again",
        )

    def _check_again(self, looks: Sequence[OrphanLook]) -> None:
        """Ask everything again that was asked when it was planned: that may have been days ago."""
        then = {look.source: (look.topic_id, look.cut) for look in looks}
        topics = {tp.topic for tp in then}
        now = {look.source: (look.topic_id, look.cut) for look in self.topics.again(topics)}
        for topic in sorted({tp.topic for tp in then.keys() | now.keys() if then.get(tp) != now.get(tp)}):
            raise NeedsOperator(
                f"{topic} stays: what of it was copied is not what it was a moment ago",
                code=DrillCode.LOG_CHANGED,
                where=topic,
                resolve="find out who moves the flow's progress, or has made the topic anew; then plan again",
            )
        for topic, why in self.untaken(topics).items():
            # Asked now: the flow the other way is another file, which whoever planned this need not own.
            refusal = not_taken(self.plan.place, topic, topic, why)
            raise NeedsOperator(
                f"{topic}: {refusal.message}", code=refusal.code, where=topic, resolve=refusal.resolve
            )
        self._check_positions(looks)

    def _check_positions(self, looks: Sequence[OrphanLook]) -> None:
        """Return where no group has a position in the topics alone that nobody was shown."""
        view = self.plan.view
        now = self.positions.read({look.source: view.copy_of(look.source) for look in looks})
        for error in now.unheard:
            raise error
        for topic, only_here in now.found.items():
            others = [each for each in only_here if each not in self.plan.forgotten]
            if not others:
                continue
            refusal = only_here_refusal(self.plan.flow, topic, others)
            raise NeedsOperator(
                f"{topic}: {refusal.message}", code=refusal.code, where=topic, resolve=refusal.resolve
            )

    def _await_gone(self, topic: str, topic_id: str) -> None:
        source, deadline, backoff = self._source, Deadline(_GONE_S), Backoff(cap_s=0.5)
        while True:
            info = source.retry(lambda: source.topics([topic])).get(topic)
            if info is None:
                return
            if str(info.topic_id) != topic_id:
                raise _another(topic, source.alias)
            backoff.pause(deadline, NotNow(f"{topic} is being deleted", where=source.alias))


def _specs(shapes: Mapping[str, TopicShape]) -> list[TopicSpec]:
    return [
        TopicSpec(topic, shape.partitions, shape.replication_factor, shape.config)
        for topic, shape in shapes.items()
    ]


def _another(topic: str, alias: str) -> NeedsOperator:
    return NeedsOperator(
        f"{topic} was deleted on {alias}, and somebody else has made it anew at once",
        code=DrillCode.LOG_CHANGED,
        where=topic,
        resolve="stop who writes there, or switch `auto.create.topics.enable` off; see what it holds, delete "
        "it, and run again: it is made again as it was",
    )


def _unchanged(watch: SourceWatch, ends: Ends) -> None:
    """Return where nothing stands behind what was exported.

    Raises:
        NeedsOperator: ORPHANS_GROWN, LOG_CHANGED.
        Retriable: the old source is away.
    """
    try:
        watch.check(ends, Deadline(_WATCH_S))
    except NeedsOperator as error:
        if error.code != DrillCode.FENCE_LEAKS:
            raise
        raise NeedsOperator(
            f"more was written since the export: {error.message}; the topic stays",
            code=DrillCode.ORPHANS_GROWN,
            where=error.where,
            expected="logs that end where the export ends",
            seen=error.seen,
            resolve="stop who writes there, then run it again: it exports what has come since",
        ) from error
