"""The one fake of ``kafka.ports``: a cluster in memory, for use cases and for the edges below them.

What it claims, it is held to: ``tests/integration/around/test_fake_cluster.py`` asks it and real brokers
the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from onceover.backoff import Deadline, Patience
from onceover.config.clients.resolve import ClientConfig
from onceover.errors import OnceoverError, Retriable, UsageError
from onceover.kafka.answers import failure
from onceover.kafka.calls import READ_COMMITTED, CommittedOffset, InitResult
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.codes import KafkaCode
from onceover.kafka.each import Each
from onceover.kafka.link.channel import MAX_ANSWER_BYTES, Address, Channel, Decoder, Read, as_it_is
from onceover.kafka.link.connection import ConnectionLost
from onceover.kafka.ports import A, ClientSettings, Features, TopicInfo
from onceover.model import TopicPartition
from onceover.txn.classify import Action, Api, classify
from onceover.wire.batches.batch import Buffer
from tests.support.fakes.fakeanswers import Answers
from tests.support.fakes.fakebroker import FakeBroker
from tests.support.fakes.fakelogs import FakeLog, FakeTopic

T = TypeVar("T")
MODERN: Final = Features(transaction_version=2)
_PENDING_OFFSETS: Final = 88
_API_VERSIONS: Final = 18
_SENT: Final = {0: "Produce", 1: "Fetch"}


class FakeChannel:
    """A connection to one broker of a fake cluster: each request is answered when its answer is received."""

    client_id = "onceover"

    def __init__(self, cluster: FakeCluster, node: int) -> None:
        self.address = Address(f"{cluster.alias}-{node}", 9092)
        self.node = node
        self.closed = False
        self.hung_up = False
        self.most_in_flight = 0
        self._cluster = cluster
        self._correlation_id = 0
        self._pending: deque[tuple[bytes, Decoder]] = deque()

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    @property
    def owed_s(self) -> float:
        return float("inf")

    @property
    def usable(self) -> bool:
        return not self.closed and not self.hung_up

    @property
    def holds_bytes(self) -> bool:
        return bool(self._pending) and self.node not in self._cluster.silent

    def fileno(self) -> int:
        raise AssertionError("a silent broker is not waited for in memory")

    def next_correlation_id(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    def send(self, request: Any, response_type: Any, read: Read[Any] = as_it_is) -> None:
        version = request.API_VERSION
        flexible = response_type.flexible_version_q(version) and response_type.API_KEY != _API_VERSIONS
        skip = 1 if flexible else 0
        self._send(request, lambda frame: read(response_type.decode(frame[skip:], version=version)))

    def _send(self, request: Any, decoder: Decoder) -> None:
        correlation_id = self.next_correlation_id()
        request.with_header(correlation_id=correlation_id, client_id=self.client_id)
        self.send_frame([request.encode(framed=True, header=True)], correlation_id, decoder)

    def send_frame(
        self,
        buffers: Sequence[Buffer],
        correlation_id: int,
        decoder: Decoder,
        *,
        held_s: float = 0.0,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        frame = b"".join(bytes(each) for each in buffers)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        kind = _SENT.get(int.from_bytes(frame[4:6], "big"))
        if kind is not None:
            self._cluster.log.append(f"{kind}/{self.node}")
        self._pending.append((frame[4:], decoder))
        self.most_in_flight = max(self.most_in_flight, self.in_flight)

    def receive(self) -> Any:
        frame, decoder = self._pending.popleft()
        try:
            return decoder(memoryview(self._answer(frame)))
        except ConnectionLost:
            self.close()
            raise

    def _answer(self, frame: bytes) -> bytes:
        if self.node in self._cluster.silent or self.hung_up:
            raise ConnectionLost(f"broker {self.node} of {self._cluster.alias} does not answer")
        return Answers(self._cluster).answer(self.node, frame)

    def call(self, request: Any, response_type: Any, read: Read[T]) -> T:
        self.send(request, response_type, read)
        answer: T = self.receive()
        return answer

    def ask(self, request: Any, decoder: Callable[[memoryview], T]) -> T:
        self._send(request, decoder)
        answer: T = self.receive()
        return answer

    def readable(self, timeout_s: float) -> bool:
        return self.holds_bytes

    def allow(self, seconds: float) -> None:
        """Everything is answered at once."""

    def expire(self) -> None:
        return None

    def trim(self, most_bytes: int) -> None:
        return None

    def close(self) -> None:
        self.closed = True
        self._pending.clear()


class FakeCluster(FakeBroker):
    """A cluster in memory, as ``kafka.ports.Cluster`` has it.

    Attributes:
        away: partitions that nobody leads, and what is answered about them.
        untold: partitions of which nobody is told a position, and what is answered.
        unanswered: topics about which metadata says this instead.
        down: brokers to which there is no connection; ``silent``: those that answer nothing.
        tries: how often something is attempted before time is over.
        connections: that were opened, in order; ``forgotten``: coordinators that were.
        hastes: the patience of each that asked for less of it.
    """

    def __init__(
        self,
        alias: str = "west",
        topics: Mapping[str, FakeTopic] | None = None,
        feature: Features = MODERN,
        cluster_id: str = "",
    ) -> None:
        super().__init__(alias, feature, cluster_id)
        self.all_topics.update(topics or {})
        self.config: ClientSettings = ClientConfig(alias, {"bootstrap.servers": f"{alias}-0:9092"})
        self.patience = Patience()
        self.away: dict[TopicPartition, OnceoverError] = {}
        self.unanswered: dict[str, OnceoverError] = {}
        self.untold: dict[TopicPartition, OnceoverError] = {}
        self.down: set[int] = set()
        self.silent: set[int] = set()
        self.tries = 1
        self.connections: list[FakeChannel] = []
        self.forgotten: list[str] = []
        self.hastes: list[float] = []
        self._control: dict[int, FakeChannel] = {}

    # ---- itself

    @property
    def expected_id(self) -> str:
        return self.id

    def cluster_id(self) -> str:
        return self.id

    def keep_to(self, cluster_id: str) -> None:
        """Nobody else ever answers here."""

    def hasty(self, patience_s: float) -> FakeCluster:
        self.hastes.append(patience_s)
        made = self.another()
        made.patience = Patience(patience_s)
        return made

    def another(self) -> FakeCluster:
        made = copy(self)
        made._control = {}
        return made

    def close(self) -> None:
        self.log.append("closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def retry(
        self,
        attempt: Callable[[], T],
        deadline: Deadline | None = None,
        *,
        only: type[Retriable] = Retriable,
    ) -> T:
        for _ in range(self.tries - 1):
            try:
                return attempt()
            except only:
                continue
        return attempt()

    # ---- topics

    def topics(self, names: Sequence[str] | None = None) -> dict[str, TopicInfo]:
        return self.each_topic(names).whole()

    def each_topic(self, names: Sequence[str] | None = None) -> Each[str, TopicInfo]:
        self.log.append("Metadata")
        self.heard("Metadata", "" if names is None else " ".join(names))
        wanted = self.all_topics if names is None else dict.fromkeys(names)
        there = [name for name in wanted if name in self.all_topics]
        found = {name: self.all_topics[name].info(name) for name in there if name not in self.unanswered}
        return Each(
            found, {} if names is None else {n: self.unanswered[n] for n in there if n in self.unanswered}
        )

    def hidden_topics(self, names: Collection[str]) -> dict[str, OnceoverError]:
        answers = {name: self.unanswered[name] for name in names if name in self.unanswered}
        return {name: error for name, error in answers.items() if isinstance(error, UsageError)}

    # ---- logs

    def list_offsets(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int, isolation: int = READ_COMMITTED
    ) -> dict[TopicPartition, int]:
        return self.each_offset(partitions, timestamp_ms, isolation).whole()

    def each_offset(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int, isolation: int = READ_COMMITTED
    ) -> Each[TopicPartition, int]:
        asked = list(partitions)
        self.log.append("ListOffsets")
        self.heard("ListOffsets", f"{len(asked)} partitions")
        return self._each_log(asked, lambda tp, log: log.at(timestamp_ms, isolation))

    def each_epoch_end(self, epochs: Mapping[TopicPartition, int]) -> Each[TopicPartition, tuple[int, int]]:
        return self._each_log(epochs, lambda tp, log: log.epoch_end(epochs[tp]))

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        return self.each_epoch_end(epochs).whole()

    def each_open(
        self, producer_ids: Mapping[TopicPartition, Collection[int]]
    ) -> Each[TopicPartition, tuple[int, int]]:
        self.log.append("DescribeProducers")
        self.heard("DescribeProducers", f"{len(producer_ids)} partitions")

        def oldest(tp: TopicPartition, log: FakeLog) -> tuple[int, int]:
            named = [(first, i) for i, first in log.pending.items() if i in producer_ids[tp]]
            return min(named, default=(-1, -1))

        return self._each_log(producer_ids, oldest)

    def _each_log(
        self, partitions: Iterable[TopicPartition], read: Callable[[TopicPartition, FakeLog], T]
    ) -> Each[TopicPartition, T]:
        each: Each[TopicPartition, T] = Each()
        for tp in partitions:
            log, problem = self.log_of(tp), self._without_leader(tp)
            if log is None or problem is not None:
                each.failed[tp] = problem or self._no_leader(tp)
            else:
                each.found[tp] = read(tp, log)
        return each

    def _without_leader(self, tp: TopicPartition) -> OnceoverError | None:
        topic = self.all_topics.get(tp.topic)
        if tp in self.away or tp.topic in self.unanswered:
            return self.away.get(tp) or self.unanswered[tp.topic]
        node = -1 if topic is None else topic.leaders.get(tp.partition, 0)
        if node < 0:
            return self._no_leader(tp)
        return self._unreachable(node) if node in self.down else None

    def _no_leader(self, tp: TopicPartition) -> OnceoverError:
        text = f"{tp} has no leader on {self.alias} at the moment"
        return Retriable(text, code=KafkaCode.NO_LEADER, where=str(tp))

    # ---- groups and producers

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None, *, stable: bool = True
    ) -> dict[TopicPartition, CommittedOffset]:
        return self.each_committed(group, partitions, stable=stable).whole()

    def each_committed(
        self, group: str, partitions: Iterable[TopicPartition] | None, *, stable: bool = True
    ) -> Each[TopicPartition, CommittedOffset]:
        self.log.append("OffsetFetch" if stable else "OffsetFetch of before")
        self.heard("OffsetFetch", group)
        known, pending = self.groups.get(group, {}), self.pending(group)
        # Of all partitions, one whose first commit is pending is none yet.
        wanted = known if partitions is None else dict.fromkeys(partitions)
        for tp in wanted:
            if stable and tp in pending:
                problem = failure(self.alias, Api.OFFSET_FETCH, Action.RETRY, _PENDING_OFFSETS, str(tp))
                problem.code = KafkaCode.PENDING_OFFSETS
                raise problem
        return Each(
            {tp: known[tp] for tp in wanted if tp in known and tp not in self.untold},
            {tp: self.untold[tp] for tp in wanted if tp in self.untold},
        )

    def init_producer_id(self, transactional_id: str, timeout_ms: int) -> InitResult:
        return self.init(transactional_id)

    def fresh_producer_id(self) -> InitResult:
        return self.init(None)

    # ---- brokers

    def features(self, *, anew: bool = False) -> Features:
        return self.feature

    def open(self, node: int | None = None) -> FakeChannel:
        self.connections.append(self._reached(node))
        return self.connections[-1]

    def control(self, node: int | None = None) -> FakeChannel:
        asked = self.brokers()[0] if node is None else node
        known = self._control.get(asked)
        if known is None or not known.usable:
            known = self._control[asked] = self._reached(asked)
        return known

    def _reached(self, node: int | None) -> FakeChannel:
        asked = self.brokers()[0] if node is None else node
        if asked in self.down:
            raise self._unreachable(asked)
        return FakeChannel(self, asked)

    def _unreachable(self, node: int) -> Retriable:
        self.log.append(f"no connection/{node}")
        return Retriable(f"broker {node} of {self.alias} does not answer")

    def coordinator(self, key: str, key_type: int) -> FakeChannel:
        return self.control(self.coordinator_node(key, key_type))

    def coordinator_node(self, key: str, key_type: int) -> int:
        return self.coordinator_of(key)

    def coordinator_nodes(self, keys: Sequence[str], key_type: int) -> Each[str, int]:
        return Each({key: self.coordinator_of(key) for key in keys})

    def forget_coordinator(self, key: str, key_type: int) -> None:
        self.forgotten.append(key)

    def each_leader(
        self,
        partitions: Iterable[TopicPartition],
        api: Api,
        ask: Callable[[Channel, list[TopicPartition]], Mapping[TopicPartition, A]],
    ) -> Each[TopicPartition, A]:
        each: Each[TopicPartition, A] = Each()
        for tp in partitions:
            problem = self._without_leader(tp)
            if problem is not None:
                each.failed[tp] = problem
                continue
            node = self.all_topics[tp.topic].leaders.get(tp.partition, 0)
            for one, answer in ask(self.control(node), [tp]).items():
                action = classify(api, answer[0])
                if action is Action.OK:
                    each.found[one] = answer
                else:
                    each.failed[one] = failure(self.alias, api, action, answer[0], str(one))
        return each


class LiveOverFake(LiveCluster):
    """The concrete cluster, whose connections lead to a fake one's brokers: for what it does by itself."""

    def __init__(self, brokers: FakeCluster) -> None:
        super().__init__(brokers.config)
        self._fake = brokers

    def open(self, node: int | None = None) -> Channel:
        return self._fake.open(node)
