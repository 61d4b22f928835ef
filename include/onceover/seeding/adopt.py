"""Taking over a running MirrorMaker 2 flow: where it stands is found by comparing both sides.

MirrorMaker stores the last source offset that it has copied, in Kafka Connect's own topic on the target.
Without exactly-once it may have written more than it stored, and after a restart it repeats. So the stored
offset is only looked at; what is believed is the content: ``seeding.seam``. Nobody may write meanwhile: its
workers must be gone, its transactional ids are fenced, and two looks some time apart must be equal, the first
also to the ends that the copies had when they were listed: up to there they are compared.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

from onceover.errors import NeedsOperator, UsageError
from onceover.kafka import calls
from onceover.kafka.codes import KafkaCode
from onceover.kafka.groups.admin import GroupAdmin
from onceover.kafka.groups.calls import ListedGroup
from onceover.kafka.logs.between import read_topic
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.planning.plan import Change, Refusal
from onceover.seeding.codes import SeedingCode
from onceover.seeding.origins import FlowClusters, check_in_scope, seats_of, unread
from onceover.seeding.plan import Seat, SeatedTopic, SeedOffset, SeedOffsets, risk_of
from onceover.seeding.seam import Finding, NoSeam, Seam
from onceover.seeding.seamsearch import DEFAULT_LIMIT, SeamSearch
from onceover.state.fencing import fence
from onceover.wire.mirrormaker import (
    SourceConnector,
    SourceOffset,
    decode_offset_sync,
    decode_source_connector,
    decode_source_offset,
    decode_task,
)

# Longer than a produce request of a worker that is dying takes; a frozen one without exactly-once is not
# found by any wait.
SETTLE_S: Final = 2.0
CONNECTOR: Final = "MirrorSourceConnector"
_WITHOUT_MEMBERS: Final = ("empty", "dead")
_OFFSETS: Final = "offsets"
# As MirrorMaker calls them (KIP-716).
_TARGET: Final = "target"
_SIDES: Final = ("source", _TARGET)
_RUNBOOK: Final = "see docs/adopting-mirrormaker.md"


@dataclass(frozen=True)
class MirrorMakerNames:
    """What a MirrorMaker 2 calls its things.

    Args:
        source: its alias of the source cluster; ``target`` likewise.
        offsets_topic: Connect's offsets on the target; ``configs_topic`` its configuration.
        group: Connect's group of workers on the target; also what transactional ids begin with.
        workers_stay: the connector runs in a Connect cluster whose workers go on without it.
    """

    source: str
    target: str
    offsets_topic: str
    configs_topic: str
    group: str
    workers_stay: bool = False

    @classmethod
    def dedicated(cls, source: str, target: str) -> MirrorMakerNames:
        """Return the names of MirrorMaker in dedicated mode."""
        topics = f"mm2-offsets.{source}.internal", f"mm2-configs.{source}.internal"
        return cls(source, target, *topics, f"{source}-mm2")

    def elsewhere(self, offsets_topic: str, configs_topic: str | None, group: str | None) -> MirrorMakerNames:
        """Return the names of a MirrorMaker that keeps its offsets in another topic: in a Connect cluster.

        Args:
            configs_topic: None where the offsets' own name says it.
            group: of the workers. Not to be guessed: a group that does not exist looks like one that stopped.

        Raises:
            UsageError: the group, or the topic, has to be named.
        """
        if group is None:
            raise UsageError(
                f"whose offsets {offsets_topic} holds is not known",
                expected="the group of the workers (group.id), to see whether they run",
                seen="another offsets topic than that of MirrorMaker's dedicated mode, and no group",
                resolve=f"name it with `--connect-group`; {_RUNBOOK}",
            )
        if configs_topic is None:
            if offsets_topic.count(_OFFSETS) != 1:
                raise UsageError(
                    f"how the configuration topic beside {offsets_topic} is called is not known",
                    expected="its name (config.storage.topic), to see which tasks have to be fenced",
                    resolve=f"name it with `--configs-topic`; {_RUNBOOK}",
                )
            configs_topic = offsets_topic.replace(_OFFSETS, "configs")
        return replace(self, offsets_topic=offsets_topic, configs_topic=configs_topic, group=group)

    def syncs_topic(self, *, on_target: bool) -> str:
        """Return the topic of offset syncs: on the source, or on the target where MirrorMaker was told so."""
        return f"mm2-offset-syncs.{self.source if on_target else self.target}.internal"

    def transactional_id(self, connector: str, task: int) -> str:
        """Return what a task writes with under exactly-once."""
        return f"{self.group}-{connector}-{task}"


@dataclass(frozen=True)
class _Look:
    """Ends of the logs that MirrorMaker writes, at one moment; 0 where there is no such log.

    Args:
        written: high watermarks of the copies and of MirrorMaker's offsets.
        stable: last stable offsets of the copies.
        stored: where the newest entry under each of its keys is, in an offsets topic that it shares.
    """

    written: Mapping[TopicPartition, int]
    stable: Mapping[TopicPartition, int]
    stored: Mapping[tuple[TopicPartition, bytes], int]

    def differs_from(self, seats: Iterable[Seat]) -> bool:
        """Tell whether any copy has another end than it had when its seat was read."""
        return any(self.stable[seat.target] != seat.target_end for seat in seats)

    def held_up(self, seats: Iterable[Seat]) -> set[TopicPartition]:
        """Return the source partitions whose copies hold more than a reader of committed records sees."""
        return {seat.source for seat in seats if self.stable[seat.target] < self.written[seat.target]}


@dataclass
class MirrorMakerOrigin:
    """Where MirrorMaker 2 stands. Used for one operation.

    Args:
        mirror: its names.
        decided: offsets that the operator names for partitions that cannot be proven.
        limit: records of a partition that are compared at most.
        settle_s: seconds between the two looks that must be equal.
    """

    mirror: MirrorMakerNames
    decided: Mapping[TopicPartition, int] = field(default_factory=dict)
    limit: int = DEFAULT_LIMIT
    settle_s: float = SETTLE_S
    _tasks: dict[str, int] = field(default_factory=dict, init=False)
    _is_fenced: bool = field(default=False, init=False)

    def read(self, place: FlowClusters, topics: Sequence[SeatedTopic]) -> SeedOffsets:
        """Name the seam of every partition that MirrorMaker has copied.

        Raises:
            NeedsOperator: MM2_UNKNOWN, there is no such MirrorMaker.
            UsageError: whether it runs may not be looked at.
        """
        check_in_scope(self.decided, topics, "--decided", place.left_out)
        running = self._running(place.target)
        if running is not None:
            return SeedOffsets(remarks=(running,))
        # Of all topics: one that nobody has written to yet is where a worker that is left over may begin.
        seats = list(seats_of(topics))
        first, looked_s = self._look(place.target, seats), time.monotonic()
        if first.differs_from(seats):
            return SeedOffsets(remarks=(self._still_writing(),))
        stored, connectors = read_stored(place.target, self.mirror)
        self._tasks = read_tasks(place.target, self.mirror, connectors)
        wanted = [seat for topic in topics for seat in _seats_copied(topic, stored)]
        search = SeamSearch(place.source, place.target, _Anchors(place, self.mirror).of, self.limit)
        # What the fence aborts holds up nobody.
        held = first.held_up(wanted) if self._is_fenced or not self._tasks else set()
        answers = {
            seat.source: self._answer(place.flow, search, seat, stored.get(seat.source), held)
            for seat in wanted
        }
        time.sleep(max(0.0, looked_s + self.settle_s - time.monotonic()))
        if self._look(place.target, seats) != first:
            return SeedOffsets(remarks=(self._still_writing(),))
        return SeedOffsets(
            {tp: answer for tp, answer in answers.items() if isinstance(answer, SeedOffset)},
            {tp: answer for tp, answer in answers.items() if isinstance(answer, Refusal)},
            remarks=() if self._tasks else (self._nothing_to_fence(),),
        )

    def changes(self) -> Sequence[Change]:
        """Return the fencing of each connector's tasks."""
        return [
            Change(
                "fence",
                f"{self.mirror.group}-{connector}-0..{tasks - 1}",
                "MirrorMaker's",
                "fenced",
                "no task of it that is left somewhere can commit a transaction any more",
            )
            for connector, tasks in sorted(self._tasks.items())
            if tasks
        ]

    def prepare(self, place: FlowClusters) -> None:
        """Fence every transactional id that a task may hold; an open transaction is aborted by that.

        Raises:
            NeedsOperator: the target refuses it.
        """
        for connector, tasks in self._tasks.items():
            for task in range(tasks):
                name = self.mirror.transactional_id(connector, task)
                try:
                    fence(place.target, name)
                except NeedsOperator as error:
                    raise NeedsOperator(
                        f"MirrorMaker's transactional id {name} cannot be fenced: {error.message}",
                        code=error.code,
                        resolve=f"grant the flow's principal WRITE on transactional ids with the prefix "
                        f"{self.mirror.group}- on {place.target.alias}",
                    ) from error
        self._is_fenced = True

    # ---- is it running

    def _running(self, target: Cluster) -> Refusal | None:
        if self.mirror.workers_stay:
            return None
        group = self._workers(target)
        if group is None or group.state in _WITHOUT_MEMBERS:
            return None
        return Refusal(
            self.mirror.group,
            SeedingCode.MM2_RUNNING,
            f"MirrorMaker runs: its workers' group {self.mirror.group} on {target.alias} is {group.state}",
            "stop all its workers, then plan again; a killed one is forgotten after 10 seconds",
        )

    def _workers(self, target: Cluster) -> ListedGroup | None:
        """Return the workers' group, None when there is none; one that is only not shown is an error."""
        admin = GroupAdmin(target)
        listing = admin.groups()
        found = listing.groups.get(self.mirror.group)
        if found is not None:
            return found
        for unheard in listing.unheard:
            raise unheard
        try:
            # Brokers leave out of the list what may not be described; asked for itself, they say so.
            admin.committed(self.mirror.group)
        except UsageError as error:
            raise UsageError(
                f"whether MirrorMaker runs cannot be seen: {error.message}",
                code=error.code,
                where=f"group {self.mirror.group} on {target.alias}",
                resolve="grant the flow's principal DESCRIBE on that group",
            ) from error
        return None

    def _still_writing(self) -> Refusal:
        return Refusal(
            self.mirror.group,
            SeedingCode.MM2_WRITES,
            f"somebody writes: the target's topics, or {self.mirror.offsets_topic}, grew while they were "
            "looked at",
            "stop MirrorMaker, and every other producer to these topics, then plan again",
        )

    def _nothing_to_fence(self) -> Refusal:
        return Refusal(
            self.mirror.group,
            SeedingCode.MM2_TASKS_UNKNOWN,
            f"{self.mirror.configs_topic} tells of no task: no transactional id of MirrorMaker's is fenced",
            "make sure that all its workers have ended for good",
            blocks=False,
        )

    def _look(self, target: Cluster, seats: Sequence[Seat]) -> _Look:
        """Return where everything ends now that MirrorMaker writes, or would write."""
        # Workers that stay have other connectors, which never stand still.
        shared = self.mirror.workers_stay
        own = None if shared else target.topics([self.mirror.offsets_topic]).get(self.mirror.offsets_topic)
        offsets = [TopicPartition(own.name, p) for p in own.partitions] if own else []
        # All of them: asked by name, one that is not there yet may be one that may not be described.
        topics = target.topics()
        copies = [seat.target for seat in seats]
        there = [tp for tp in copies if tp.topic in topics and tp.partition in topics[tp.topic].partitions]
        written = target.list_offsets(offsets + there, calls.LATEST, calls.READ_UNCOMMITTED)
        stable = target.list_offsets(there, calls.LATEST)
        missing = dict.fromkeys(copies, 0)
        newest = {(each.log, each.key): each.at for each in _entries(target, self.mirror)} if shared else {}
        return _Look({**missing, **written}, {**missing, **stable}, newest)

    # ---- one partition

    def _answer(
        self, flow: str, search: SeamSearch, seat: Seat, stored: int | None, held: Collection[TopicPartition]
    ) -> SeedOffset | Refusal:
        try:
            return (
                self._decided(search, seat, stored, held)
                or _kept(flow, seat)
                or self._seat(search, seat, stored, held)
            )
        except UsageError as error:
            # Of both sides all is compared that may be read.
            if error.code != KafkaCode.NOT_AUTHORIZED:
                raise
            return unread(seat.source, "what both sides hold of it", error)

    def _decided(
        self, search: SeamSearch, seat: Seat, stored: int | None, held: Collection[TopicPartition]
    ) -> SeedOffset | None:
        """Return what the operator has decided, with what is known of where the copy ends."""
        offset = self.decided.get(seat.source)
        if offset is None:
            return None
        said = "decided by the operator"
        if seat.position is not None:
            # Progress stays as it is: a run has copied up to there, whatever was decided before it.
            way = "leave it out of the `--decided` file: it has its progress already"
            return SeedOffset(offset, said, named=True, otherwise=way)
        way = f"correct the offset in the `--decided` file: name one from {seat.start} to {seat.end}"
        known, risk, records = "", None, None
        if seat.target_end and isinstance(seam := _compared(search, seat, held), Seam):
            known = f"; the copy is proven to end before source offset {seam.offset}"
            risk, records = risk_of(offset, seam.offset)
        elif seat.target_end and stored is not None:
            known = (
                f"; not proven: MirrorMaker has stored that it copied up to {stored}, or went on behind it"
            )
            ahead = offset - (stored + 1)
            risk, records = ("skip", ahead) if ahead > 0 else ("repeat", None)
        return SeedOffset(offset, said + known, risk, records, named=True, otherwise=way)

    def _seat(
        self, search: SeamSearch, seat: Seat, stored: int | None, held: Collection[TopicPartition]
    ) -> SeedOffset | Refusal:
        if seat.source in held:
            return _open_transaction(seat)
        if seat.target_end == 0:
            return _nothing_copied(seat, stored)
        if seat.start == seat.end and (stored is None or stored < seat.end):
            return SeedOffset(seat.end, "the source holds nothing any more that could be missing", "none")
        finding = search.find(seat)
        if isinstance(finding, NoSeam):
            return _unproven(seat, finding)
        if stored is not None and finding.offset <= stored:
            return _behind_stored(seat, finding, stored)
        return SeedOffset(finding.offset, _proof(finding, stored), "none")


@dataclass
class _Anchors:
    """MirrorMaker's offset syncs, read when they are needed for the first time."""

    place: FlowClusters
    mirror: MirrorMakerNames

    def of(self, source: TopicPartition) -> Mapping[int, int]:
        """Return source offsets by target offset."""
        return self._read.get(source, {})

    @cached_property
    def _read(self) -> dict[TopicPartition, dict[int, int]]:
        syncs_on = read_syncs_on(self.place.target, self.mirror)
        if syncs_on not in _SIDES:
            return {}
        on_target = syncs_on == _TARGET
        cluster = self.place.target if on_target else self.place.source
        # The newest per partition only: older ones may speak of a target topic that is gone.
        found: dict[TopicPartition, dict[int, int]] = {}
        for _, record in read_topic(cluster, self.mirror.syncs_topic(on_target=on_target)):
            if record.key is not None and record.value is not None:
                sync = decode_offset_sync(record.key, record.value)
                found[TopicPartition(sync.topic, sync.partition)] = {sync.downstream: sync.upstream}
        return found


def read_syncs_on(target: Cluster, mirror: MirrorMakerNames) -> str | None:
    """Return on which side MirrorMaker keeps its offset syncs, by its own configuration; None if not known.

    It is not guessed: on the other side the topic of that name is by default that of a MirrorMaker the other
    way, whose partitions may be called the same. Among identical records its offsets prove what is not true.
    """
    connectors: dict[bytes, SourceConnector | None] = {}
    for _, record in read_topic(target, mirror.configs_topic):
        if record.key is not None:
            connectors[record.key] = decode_source_connector(record.key, record.value)
    aliases = mirror.source, mirror.target
    sides = {c.syncs_on for c in connectors.values() if c is not None and (c.source, c.target) == aliases}
    return sides.pop() if len(sides) == 1 else None


class _Entry(NamedTuple):
    """What MirrorMaker has stored of a partition, in which log of its offsets topic, and at which offset."""

    log: TopicPartition
    at: int
    key: bytes
    said: SourceOffset


def _entries(target: Cluster, mirror: MirrorMakerNames) -> Iterator[_Entry]:
    """Yield what MirrorMaker has stored, out of all that is in its offsets topic; nothing without one."""
    for tp, record in read_topic(target, mirror.offsets_topic):
        said = None if record.key is None else decode_source_offset(record.key, record.value)
        if record.key is not None and said is not None and said.cluster == mirror.source:
            yield _Entry(tp, record.offset, record.key, said)


def read_stored(target: Cluster, mirror: MirrorMakerNames) -> tuple[dict[TopicPartition, int], set[str]]:
    """Return the last copied source offsets that MirrorMaker has stored, and the connectors that did.

    Where several connectors know a partition, the highest offset counts.

    Raises:
        NeedsOperator: there is no such topic, or it is of another kind.
    """
    if mirror.offsets_topic not in target.topics([mirror.offsets_topic]):
        raise NeedsOperator(
            f"there is no topic {mirror.offsets_topic} on {target.alias}",
            code=SeedingCode.MM2_UNKNOWN,
            expected="the offsets of MirrorMaker's connectors",
            resolve=f"name MirrorMaker's alias of the source, or the topic itself; {_RUNBOOK}",
        )
    # By the key's bytes and the log that it is in: the same key can be in two of them when the partition
    # count has changed, and nobody knows then which is newer.
    newest: dict[tuple[TopicPartition, bytes], int | None] = {}
    places: dict[bytes, TopicPartition] = {}
    connectors = {CONNECTOR}
    for log, _, key, said in _entries(target, mirror):
        newest[log, key] = said.offset
        places[key] = TopicPartition(said.topic, said.partition)
        connectors.add(said.connector)
    stored: dict[TopicPartition, int] = {}
    for (_, key), offset in newest.items():
        if offset is not None:
            stored[places[key]] = max(offset, stored.get(places[key], offset))
    return stored, connectors


def read_tasks(target: Cluster, mirror: MirrorMakerNames, connectors: set[str]) -> dict[str, int]:
    """Return how many tasks each of these connectors has had at most, as far as it is on record.

    Raises:
        NeedsOperator: there is no such topic: nobody would know whom to fence.
    """
    if mirror.configs_topic not in target.topics([mirror.configs_topic]):
        raise NeedsOperator(
            f"there is no topic {mirror.configs_topic} on {target.alias}",
            code=SeedingCode.MM2_UNKNOWN,
            expected="the configuration of MirrorMaker's connectors, which tells of the tasks to fence",
            resolve=f"name it with `--configs-topic`; where it was deleted, create an empty one once all "
            f"workers have ended for good; {_RUNBOOK}",
        )
    tasks: dict[str, int] = {}
    for _, record in read_topic(target, mirror.configs_topic):
        known = None if record.key is None else decode_task(record.key, record.value)
        if known is not None and known[0] in connectors:
            tasks[known[0]] = max(known[1], tasks.get(known[0], 0))
    return tasks


def _kept(flow: str, seat: Seat) -> SeedOffset | None:
    """Return what is the flow's already: what was copied since is not MirrorMaker's."""
    if seat.position is None:
        return None
    way = f"adoption leaves progress as it is: see {commands.command('status', flow)} for what to do"
    return SeedOffset(seat.position, "has progress already", otherwise=way)


def _compared(search: SeamSearch, seat: Seat, held: Collection[TopicPartition]) -> Finding | None:
    """Return what comparing a copy tells whose end somebody has decided; None where it cannot be compared."""
    if seat.source in held:
        return None
    with suppress(NeedsOperator):
        return search.find(seat)
    return None


def _seats_copied(topic: SeatedTopic, stored: Mapping[TopicPartition, int]) -> tuple[Seat, ...]:
    """Return the topic's seats if MirrorMaker has copied any of it."""
    copied = any(seat.target_end or seat.source in stored for seat in topic.seats)
    return topic.seats if copied else ()


def _nothing_copied(seat: Seat, stored: int | None) -> SeedOffset | Refusal:
    if stored is None:
        return SeedOffset(seat.start, "MirrorMaker has copied nothing of it yet", "none")
    return Refusal(
        str(seat.source),
        SeedingCode.TARGET_EMPTY,
        f"MirrorMaker has stored that it copied up to source offset {stored}, but {seat.target} is empty: it "
        "was deleted and created anew",
        "decide where it begins with `--decided FILE`",
    )


def _open_transaction(seat: Seat) -> Refusal:
    return Refusal(
        str(seat.source),
        SeedingCode.MM2_WRITES,
        f"a transaction is open in {seat.target} that is not MirrorMaker's, or that nobody has fenced: what "
        f"was written there from offset {seat.target_end} on cannot be compared yet",
        "end it (`kafka-transactions.sh` lists and aborts those that hang), or wait until it has timed out, "
        "then plan again",
    )


def _unproven(seat: Seat, finding: NoSeam) -> Refusal:
    return Refusal(
        str(seat.source),
        finding.code,
        f"where its copy ends cannot be proven: {finding.message}",
        "decide with `--decided FILE` (topic,partition,offset: the next source offset to copy), or widen the "
        f"comparison with `--window`; {_RUNBOOK}",
    )


def _behind_stored(seat: Seat, seam: Seam, stored: int) -> Refusal:
    return Refusal(
        str(seat.source),
        SeedingCode.BEHIND_STORED,
        f"MirrorMaker has stored that it copied up to source offset {stored}, but the target's last record "
        f"is the source's at offset {seam.offset - 1}: the target has lost records, or they were filtered",
        "decide with `--decided FILE`: the offset after the target's last record copies the missing ones",
    )


def _proof(seam: Seam, stored: int | None) -> str:
    last = seam.offset - 1
    parts = [f"proven: the target's last {seam.compared} records are the source's up to offset {last}"]
    if stored is None:
        parts.append("MirrorMaker has stored no offset of it")
    elif last == stored:
        parts.append("as MirrorMaker has stored")
    else:
        parts.append(f"MirrorMaker has stored {stored} and wrote {last - stored} offsets further")
    if seam.repeated:
        parts.append(f"{seam.repeated} of them repeat others, as MirrorMaker left them")
    return "; ".join(parts)
