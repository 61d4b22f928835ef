"""Who is asked for first: a broker fills its answer in the order of the request until it is full."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from onceover.backoff import Patience
from onceover.kafka import calls
from onceover.kafka.link.channel import LARGEST_BATCH_BYTES
from onceover.kafka.logs import fetcher as fetcher_module
from onceover.kafka.logs.fetcher import Fetcher, Position
from onceover.model import TopicPartition
from tests.unit.kafka.logs.fetchwire import answer, partition_answer, request_in

LIMIT = 1000


class FullBroker:
    """Answers Fetch as Kafka does: in the order of the request, up to ``max_bytes``, the first batch whole.

    ``backlog`` says how large each partition's next batch is; it never runs out. Others are idle.
    """

    alias = "east"
    client_id = "onceover"
    patience = Patience()
    usable = True
    owed_s = 40.0

    def __init__(self, backlog: dict[tuple[UUID, int], int]) -> None:
        self.backlog = backlog
        self._pending: deque[tuple[Any, Callable[[memoryview], Any]]] = deque()
        self.throttle_ms = 0
        self.trimmed = 0
        self.held_s: list[float] = []
        self.shares_bytes: list[int] = []

    def open(self, _node: int) -> FullBroker:
        return self

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def next_correlation_id(self) -> int:
        return 1

    def send_frame(
        self,
        buffers: list[bytes],
        _id: int,
        decoder: Callable[[memoryview], Any],
        *,
        held_s: float,
        max_answer_bytes: int,
    ) -> None:
        assert max_answer_bytes > LARGEST_BATCH_BYTES
        self.held_s.append(held_s)
        self._pending.append((request_in(buffers), decoder))

    def receive(self) -> Any:
        request, decoder = self._pending.popleft()
        self.shares_bytes = [one.partition_max_bytes for topic in request.topics for one in topic.partitions]
        left, topics = request.max_bytes, []
        for topic in request.topics:
            partitions = []
            for one in topic.partitions:
                size = self.backlog.get((topic.topic_id, one.partition), 0)
                if size > min(left, one.partition_max_bytes) and left < request.max_bytes:
                    size = 0
                left -= size
                partitions.append(partition_answer(one.partition, bytes(size), 1 << 40))
            topics.append((topic.topic_id, partitions))
        return decoder(answer(topics, self.throttle_ms))

    def trim(self, most_bytes: int) -> None:
        self.trimmed = most_bytes

    def allow(self, seconds: float) -> None:
        assert seconds * 1000 == self.throttle_ms

    def close(self) -> None:
        self._pending.clear()


@pytest.fixture(autouse=True)
def answers_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher_module, "wait_readable", lambda connections, _timeout_s: connections)


def served(
    backlog: dict[tuple[int, int], int],
    *,
    idle: tuple[tuple[int, int], ...] = (),
    rounds: int = 40,
    max_bytes: int | None = None,
) -> dict[tuple[int, int], int]:
    """Return how often each partition (topic, number) got something."""
    broker = FullBroker({(UUID(int=topic), partition): size for (topic, partition), size in backlog.items()})
    fetcher = Fetcher(
        broker,  # pyrefly: ignore[bad-argument-type]
        isolation=calls.READ_COMMITTED,
        max_bytes=LIMIT,
        partition_max_bytes=LIMIT // 2,
    )
    for topic, partition in [*idle, *backlog]:
        fetcher.assign(TopicPartition(f"t{topic}", partition), Position(UUID(int=topic), 0, 1, 0))
    found = dict.fromkeys(backlog, 0)
    for _ in range(rounds):
        fetcher.request(max_wait_ms=1, min_bytes=1, max_bytes=max_bytes)
        answers = fetcher.poll(0.0)
        assert len(answers) == len(idle) + len(backlog), "everybody is asked for every time"
        for tp, fetched in answers:
            if fetched.records:
                found[int(tp.topic[1:]), tp.partition] += 1
    return found


@pytest.mark.parametrize(("partitions", "share_bytes"), [(1, 1000), (3, 333), (8, 125), (40, 125)])
def test_few_partitions_share_the_whole_answer(partitions: int, share_bytes: int) -> None:
    """From far away each round trip brings as much as it may; many have what makes several of them fit."""
    broker = FullBroker({})
    fetcher = Fetcher(
        broker,  # pyrefly: ignore[bad-argument-type]
        isolation=calls.READ_COMMITTED,
        max_bytes=LIMIT,
        partition_max_bytes=LIMIT // 8,
    )
    for number in range(partitions):
        fetcher.assign(TopicPartition("t", number), Position(UUID(int=1), 0, 1, 0))
    fetcher.request(max_wait_ms=1, min_bytes=1)
    fetcher.poll(0.0)
    assert broker.shares_bytes == [share_bytes] * partitions


def test_an_answer_under_way_does_not_count_for_what_is_read_again() -> None:
    """That answer begins behind what was asked for before: taken, it would skip what lies in between."""
    broker = FullBroker({(UUID(int=1), n): 10 for n in range(3)})
    fetcher = Fetcher(
        broker,  # pyrefly: ignore[bad-argument-type]
        isolation=calls.READ_COMMITTED,
        max_bytes=LIMIT,
        partition_max_bytes=LIMIT,
    )
    first, *others = partitions = [TopicPartition("t", n) for n in range(3)]
    for tp in partitions:
        fetcher.assign(tp, Position(UUID(int=1), 50, 1, 0))
    fetcher.request(max_wait_ms=1, min_bytes=1)
    fetcher.rewind(first, 7, 3)
    assert [tp for tp, _ in fetcher.poll(0.0)] == others
    assert (fetcher.positions[first].offset, fetcher.positions[first].last_fetched_epoch) == (7, 3)
    fetcher.request(max_wait_ms=1, min_bytes=1)
    assert [tp for tp, _ in fetcher.poll(0.0)] == [first, *others]


def test_a_broker_that_does_not_listen_because_of_a_quota_is_waited_for() -> None:
    """It has said for how long (KIP-219): given up in that time, its connection would only be a new one."""
    broker = FullBroker({(UUID(int=1), 0): 10})
    fetcher = Fetcher(
        broker,  # pyrefly: ignore[bad-argument-type]
        isolation=calls.READ_COMMITTED,
        max_bytes=LIMIT,
        partition_max_bytes=LIMIT,
    )
    fetcher.assign(TopicPartition("t", 0), Position(UUID(int=1), 0, 1, 0))
    for broker.throttle_ms in (90_000, 0):
        fetcher.request(max_wait_ms=500, min_bytes=1)
        fetcher.poll(0.0)
    assert broker.held_s[0] == 0.5 and 80.0 < broker.held_s[1] <= 90.5


def test_one_look_holds_little_more_than_the_limit_however_many_brokers_have_something() -> None:
    """Each gives a batch at least, however small its share; who is not read yet is read first next time."""
    brokers = {node: FullBroker({(UUID(int=1), node): 3 * LIMIT // 4}) for node in range(8)}

    class Leaders:
        alias, patience = "east", Patience()

        @staticmethod
        def open(node: int) -> FullBroker:
            return brokers[node]

    fetcher = Fetcher(
        Leaders(),  # pyrefly: ignore[bad-argument-type]
        isolation=calls.READ_COMMITTED,
        max_bytes=LIMIT,
        partition_max_bytes=LIMIT,
    )
    for node in brokers:
        fetcher.assign(TopicPartition("t", node), Position(UUID(int=1), 0, node, 0))
    seen: list[int] = []
    for _ in range(8):
        fetcher.request(max_wait_ms=1, min_bytes=1)
        found = fetcher.poll(0.0)
        assert sum(len(fetched.records) for _, fetched in found) < 2 * LIMIT
        seen += [tp.partition for tp, _ in found]
    assert {seen.count(node) for node in brokers} == {2}
    assert {broker.trimmed for broker in brokers.values()} == {2 * (LIMIT // 8)}


def test_everybody_gets_a_turn_beside_backlogs_that_fill_every_answer() -> None:
    """Two of ten fit into an answer: each gets a fifth of them."""
    turns = served({(1, n): LIMIT // 2 for n in range(10)})
    assert set(turns.values()) == {8}


def test_a_request_may_ask_for_less_than_usual() -> None:
    """The first partition that has anything still gets its batch; more than usual there never is."""
    assert sum(served({(1, n): LIMIT // 4 for n in range(8)}, rounds=1, max_bytes=1).values()) == 1
    assert sum(served({(1, n): LIMIT // 4 for n in range(8)}, rounds=1, max_bytes=9 * LIMIT).values()) == 4


def test_a_batch_above_every_limit_comes_first_some_time() -> None:
    """Kafka gives it out only to the first partition that has anything."""
    turns = served({**{(1, n): LIMIT // 4 for n in range(8)}, (1, 8): 3 * LIMIT})
    assert min(turns.values()) >= 8


def test_a_topic_is_not_held_up_by_the_partitions_of_another() -> None:
    """An idle partition stays in front, and those of its topic must not come along with it."""
    turns = served({**{(1, n): LIMIT // 2 for n in range(1, 9)}, (2, 0): LIMIT // 2}, idle=((1, 0),))
    assert min(turns.values()) >= 8
