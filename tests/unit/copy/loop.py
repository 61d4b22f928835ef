"""A copy loop over two partitions between scripted fakes of source and producer."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from onceover.copy.identity import LaneIdentity
from onceover.copy.loop import CopyLoop, CopySettings, Until
from onceover.copy.partition import PartitionCopy
from onceover.copy.review import Reviewed
from onceover.errors import MustReset
from onceover.handling.obstacles import Obstacle
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.logs.fetcher import Position
from onceover.kafka.ports import Acknowledged, Outgoing, Refused
from onceover.model import TopicPartition
from onceover.state import names
from onceover.stops.record import Stop
from onceover.wire.batches.batch import parse_header
from onceover.wire.batches.runs import Run
from onceover.wire.batches.visibility import Visible
from onceover.wire.hotpath import FetchedPartition
from onceover.wire.offsetmap import MapRecord
from tests.unit.copy.batches import TOPIC_ID, answer

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ME = LaneIdentity("f", 3, "run", 1, 2, (5, 2))
MAP, STATE = names.map_topic("f"), names.state_topic("f")
TARGET_START = 100


class FakeSource:
    """Answers what the script says, then nothing."""

    def __init__(self, script: list[list[tuple[TopicPartition, FetchedPartition]]]) -> None:
        self.positions = {tp: Position(TOPIC_ID, 0, 1, 0) for tp in (A, B)}
        self.script = script
        self.requests = 0
        self.asked_bytes: int | None = None
        self.more = False

    @property
    def waiting(self) -> bool:
        return bool(self.script)

    def request(self, *, max_wait_ms: int, min_bytes: int, max_bytes: int | None) -> None:
        assert max_wait_ms > 0 and min_bytes == 1
        self.requests += 1
        self.asked_bytes = max_bytes

    def poll(self, timeout_s: float) -> list[tuple[TopicPartition, FetchedPartition]]:
        assert timeout_s >= 0
        return self.script.pop(0)

    def answered(self) -> bool:
        return self.more

    def remove(self, partition: TopicPartition) -> None:
        self.positions.pop(partition)

    def rewind(self, partition: TopicPartition, offset: int, last_fetched_epoch: int) -> None:
        position = self.positions[partition] = self.positions.pop(partition)
        position.offset, position.last_fetched_epoch = offset, last_fetched_epoch


class LogSource(FakeSource):
    """Serves logs: of every partition, in the order of the request, what lies behind the position.

    Args:
        logs: batches, as they are while they are asked for.
        most: batches of a partition in one answer.
    """

    def __init__(self, logs: dict[TopicPartition, list[bytes]], most: int = 3) -> None:
        super().__init__([])
        self.logs = logs
        self.most = most
        self.asked: dict[TopicPartition, int] | None = None
        self.asked_most: list[int | None] = []

    @property
    def waiting(self) -> bool:
        return self.asked is not None

    def request(self, *, max_wait_ms: int, min_bytes: int, max_bytes: int | None) -> None:
        if self.asked is None:
            self.asked = {tp: position.offset for tp, position in self.positions.items()}
            self.asked_most.append(max_bytes)

    def poll(self, timeout_s: float) -> list[tuple[TopicPartition, FetchedPartition]]:
        asked, self.asked = self.asked or {}, None
        found = []
        for tp, offset in asked.items():
            headers = [(parse_header(batch), batch) for batch in self.logs[tp]]
            batches = [batch for header, batch in headers if header.next_offset > offset][: self.most]
            end = headers[-1][0].next_offset if headers else 0
            found.append((tp, answer(batches, partition=tp.partition, lso=end)))
            if batches:
                self.positions[tp] = self.positions.pop(tp)
        return found

    def answered(self) -> bool:
        return self.waiting

    def rewind(self, partition: TopicPartition, offset: int, last_fetched_epoch: int) -> None:
        super().rewind(partition, offset, last_fetched_epoch)
        if self.asked is not None:
            self.asked.pop(partition, None)


class FakeReview:
    """Takes down who is left out; decides what the test says, as soon as it is asked."""

    def __init__(self) -> None:
        self.waiting: dict[TopicPartition, int] = {}
        self.decided: list[Reviewed] = []
        self.copied: list[dict[TopicPartition, int]] = []
        self.answered: list[TopicPartition] = []

    @property
    def due(self) -> bool:
        return bool(self.waiting and self.decided)

    def unreadable(self, tp: TopicPartition, answer: FetchedPartition) -> None:
        self.waiting[tp] = answer.error_code

    def readable(self, tp: TopicPartition) -> None:
        self.answered.append(tp)

    def look(self, copied: Mapping[TopicPartition, int]) -> Reviewed:
        self.copied.append(dict(copied))
        self.waiting.clear()
        return self.decided.pop(0)


@dataclass
class FakeProducer:
    """Takes down what is asked of it; fails or refuses where the test says so."""

    fail_at: str = ""
    refuse: Callable[[Outgoing], Refused | None] = lambda _: None
    log: list[str] = field(default_factory=list)
    sent: list[Outgoing] = field(default_factory=list)
    committed: list[dict[TopicPartition, OffsetToCommit]] = field(default_factory=list)
    in_transaction: bool = False
    producer_id: int = 7
    muted_until_s: float = 0.0
    visible_at_commit: bool = True
    _ends: dict[TopicPartition, int] = field(default_factory=dict)
    _unanswered: list[Outgoing] = field(default_factory=list)
    _offsets: dict[TopicPartition, OffsetToCommit] = field(default_factory=dict)

    @property
    def pause_s(self) -> float:
        return max(0.0, self.muted_until_s - time.monotonic())

    def _note(self, what: str) -> None:
        self.log.append(what)
        if what == self.fail_at:
            raise MustReset(f"{what} failed")

    def init(self) -> bool:
        return True

    def send(self, batches: Sequence[Outgoing]) -> None:
        topics = {b.target.topic for b in batches}
        kind = "map" if topics == {MAP} else "state" if topics == {STATE} else "data"
        assert len({b.target for b in batches}) == len(batches), "one batch per partition and request"
        self.in_transaction = True
        self._note(f"send {kind}")
        self.sent += [b._replace(batch=bytearray(b.batch)) for b in batches]
        self._unanswered += batches

    def make_room(self) -> list[Acknowledged]:
        self._note("make room")
        return self._answers(3)

    def drain(self) -> list[Acknowledged]:
        self._note("drain")
        return self._answers(0)

    def _answers(self, keep: int) -> list[Acknowledged]:
        acks = []
        while len(self._unanswered) > keep:
            outgoing = self._unanswered.pop(0)
            refused = self.refuse(outgoing)
            if refused:
                refused.others = tuple(other for o in self._unanswered if (other := self.refuse(o)))
                raise refused
            base = self._ends.get(outgoing.target, TARGET_START)
            self._ends[outgoing.target] = base + outgoing.header.count
            acks.append(Acknowledged(outgoing, base))
        return acks

    def decide(self, partitions: Collection[TopicPartition], *, commit: bool) -> None:
        raise AssertionError("not while copying")

    def add_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetToCommit], *, moving: bool = True
    ) -> None:
        assert group == "onceover.f"
        self.in_transaction = True
        self._note("offsets")
        self._offsets.update(offsets)

    def commit(self) -> None:
        assert not self._unanswered, "EndTxn with answers outstanding"
        self._note("commit")
        self.committed.append(dict(self._offsets))
        self._offsets.clear()
        self.in_transaction = False

    def abort(self) -> None:
        self._note("abort")

    def close(self) -> None:
        self._note("close")

    def data(self) -> list[tuple[TopicPartition, int]]:
        """Return the data batches: source partition and first source offset."""
        return [(b.source, b.source_runs[0][0]) for b in self.sent if b.source is not None]


@dataclass
class Setting:
    """A loop over partitions A and B, and what it told whom."""

    script: list[list[tuple[TopicPartition, FetchedPartition]]] | FakeSource
    producer: FakeProducer = field(default_factory=FakeProducer)
    settings: CopySettings = field(default_factory=lambda: CopySettings(60.0, 1 << 30, None))
    look_around: Callable[[], None] = lambda: None
    stops: dict[TopicPartition, Stop] = field(default_factory=dict)
    resumed: set[TopicPartition] = field(default_factory=set)
    least_commits: int = 0
    reported: list[Mapping[TopicPartition, int]] = field(default_factory=list)
    stopped: list[TopicPartition] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source = self.script if isinstance(self.script, FakeSource) else FakeSource(self.script)
        self.review = FakeReview()
        self.partitions = {tp: partition(tp) for tp in (A, B)}
        self.loop = CopyLoop(
            me=ME,
            partitions=self.partitions,
            fetcher=self.source,
            review=self.review,
            producer=self.producer,
            settings=lambda: self.settings,
            look_around=lambda: self.look_around(),
            after_commit=self.reported.append,
            after_stops=self.stopped.extend,
            stops=self.stops,
            resumed=self.resumed,
            least_commits=self.least_commits,
        )

    def run(self, ends: dict[TopicPartition, int] | None = None, seconds: float = 60.0) -> list[MapRecord]:
        until = Until(time.monotonic() + seconds, ends)
        return [record for records in self.loop.run(until) for record in records]

    def run_script(self) -> list[MapRecord]:
        """Copy until everything of the script was answered and dealt with, however long that takes."""
        until = Until(time.monotonic() + 60)

        def look_around() -> None:
            until.stopped = not self.source.script

        self.look_around = look_around
        return [record for records in self.loop.run(until) for record in records]


def partition(tp: TopicPartition) -> PartitionCopy:
    """Return a partition that begins at offset 0."""
    return PartitionCopy(
        source=tp,
        target=tp,
        source_id=UUID(int=1),
        target_id=UUID(int=2),
        committed=0,
        leader_epoch=-1,
        target_end=TARGET_START,
        obstacle=Obstacle(),
    )


def sent(copy: PartitionCopy, visible: Sequence[Visible | Run]) -> Iterator[Outgoing]:
    """Yield the batches that a partition sends."""
    return (batch for batch in copy.outgoing(visible) if batch is not None)
