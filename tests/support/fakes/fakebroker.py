"""What the brokers of one cluster hold, in memory: topics, groups, transactions, and faults."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple
from uuid import UUID

from onceover.kafka.calls import CommittedOffset, InitResult
from onceover.kafka.link.connection import ConnectionLost
from onceover.kafka.ports import Features
from onceover.model import TopicPartition
from tests.support.fakes.fakelogs import FakeLog, FakeTopic

LOST: Final = "the connection is lost"
UNKNOWN_ID: Final = 49
FENCED: Final = 90
_NOT_LEADER: Final = 6


@dataclass
class Transaction:
    """What one has written to, and the positions that it will commit, by group."""

    partitions: set[TopicPartition] = field(default_factory=set)
    offsets: dict[str, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)


class Taken(NamedTuple):
    """A batch that a log has taken, as its header names the producer."""

    partition: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


class FakeBroker:
    """Brokers, seen from behind: logs, groups, transactions.

    Attributes:
        all_topics: by name; ``groups``: what is committed, by group.
        codes: by request, what the next answers to it say instead (``LOST``: the connection is gone); for
            OffsetCommit and OffsetFetch by request and group: ``OffsetFetch billing``.
        faults: what a leader says about a partition, until it is taken out again.
        spared: of a partition with a fault, how many answers more are without it.
        unread: topics that are there, and groups, that we may not READ, as brokers tell of them.
        defaults: what brokers set for topics that do not, beside Kafka's own.
        log: what was asked, in order.
        heard: told of a request and of what it is about; what it raises is the answer.
        undecided: of groups, how many answers more say that an open transaction will commit their positions.
        produce_version: the newest that brokers speak; ``newest``: by broker and API key, where it differs.
        throttle_ms: of the next answers to Produce.
        produced_by: the versions of Produce, in order.
        batches: what was produced, in order; ``sizes``: of each, refused ones among them.
    """

    def __init__(self, alias: str, features: Features, cluster_id: str = "") -> None:
        self.alias = alias
        self.id = cluster_id or f"{alias}-id"
        self.feature = features
        self.produce_version = 13
        self.produced_by: list[int] = []
        self.all_topics: dict[str, FakeTopic] = {}
        self.groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self.codes: dict[str, deque[int | str]] = defaultdict(deque)
        self.faults: dict[TopicPartition, int] = {}
        self.spared: dict[TopicPartition, int] = {}
        self.unread: set[str] = set()
        self.defaults: dict[str, str] = {}
        self.log: list[str] = []
        self.heard: Callable[[str, str], None] = lambda _request, _subject: None
        self.undecided: dict[str, int] = {}
        self.newest: dict[int, dict[int, int]] = defaultdict(dict)
        self.throttle_ms: deque[int] = deque()
        self.batches: list[Taken] = []
        self.sizes: list[int] = []
        self.nodes: set[int] = set()
        self._coordinators: dict[str, int] = {}
        self.owners: dict[str, tuple[int, int]] = {}
        self.open_now: dict[str, Transaction] = defaultdict(Transaction)
        self._ids, self._fresh_ids, self._topic_ids = count(40), count(901), count(7001)

    # ---- what tests arrange and look at

    def add_topic(
        self, name: str, topic_id: UUID, ends: Iterable[int] = (0,), leaders: Mapping[int, int] | None = None
    ) -> FakeTopic:
        """Make a topic whose logs are empty and end at these offsets."""
        made = FakeTopic(topic_id, [FakeLog(start=end, end=end) for end in ends], leaders=dict(leaders or {}))
        self.all_topics[name] = made
        return made

    def make_topic(self, name: str, partitions: int) -> FakeTopic:
        """Make a topic as somebody who asks for it does: empty, with an id that no other has."""
        return self.add_topic(name, UUID(int=next(self._topic_ids)), ends=[0] * partitions)

    def log_of(self, tp: TopicPartition) -> FakeLog | None:
        """Return a partition's log; None where there is none."""
        topic = self.all_topics.get(tp.topic)
        return topic.logs[tp.partition] if topic is not None and tp.partition < len(topic.logs) else None

    def code_of(self, tp: TopicPartition, node: int) -> int:
        """Return what a broker says about a partition: that another leads it, or a fault; 0 is OK."""
        topic = self.all_topics.get(tp.topic)
        led = topic is None or topic.leaders.get(tp.partition, 0) == node
        if led and self.spared.get(tp, 0):
            self.spared[tp] -= 1
            return 0
        return self.faults.get(tp, 0) if led else _NOT_LEADER

    def brokers(self) -> list[int]:
        """Return every broker that there is."""
        led = {n for t in self.all_topics.values() for n in t.leaders.values() if n >= 0}
        return sorted(self.nodes or led or {0})

    def coordinates(self, key: str, node: int) -> None:
        """Let a broker be the coordinator of a group or transactional.id from now on."""
        self._coordinators[key] = node

    def coordinator_of(self, key: str) -> int:
        """Return the broker that coordinates it; the first one where nothing else was said."""
        return self._coordinators.get(key, self.brokers()[0])

    def ended(self) -> dict[str, list[int]]:
        """Return where the logs of all topics end."""
        return {name: [log.end for log in topic.logs] for name, topic in self.all_topics.items()}

    def asked(self) -> list[str]:
        """Return the requests in order, those about metadata left out."""
        return [request for request in self.log if request != "Metadata"]

    def next(self, request: str) -> int:
        """Take down a request; return the code that was put there for it, or lose the connection."""
        self.log.append(request)
        return self.put_there(request)

    def put_there(self, request: str) -> int:
        """Return the code that was put there for a request."""
        code = self.codes[request].popleft() if self.codes[request] else 0
        if isinstance(code, str):
            raise ConnectionLost(code)
        return code

    def pending(self, group: str) -> set[TopicPartition]:
        """Return of which partitions an open transaction will commit the group's position."""
        return {tp for each in self.open_now.values() for tp in each.offsets.get(group, ())}

    # ---- who may produce

    def init(self, transactional_id: str | None) -> InitResult:
        """Answer InitProducerId: what an older holder has left open is aborted, and its epoch is over."""
        self.heard("InitProducerId", transactional_id or "")
        code = self.next("InitProducerId" if transactional_id else "InitProducerId without an id")
        if transactional_id is None:
            return InitResult(code, next(self._fresh_ids), 0)
        if code:
            return InitResult(code, -1, -1)
        known = self.owners.get(transactional_id)
        if known is not None:
            self.decide(transactional_id, commit=False)
        owner = (next(self._ids), 0) if known is None else (known[0], known[1] + 1)
        self.owners[transactional_id] = owner
        return InitResult(0, *owner)

    def decide(self, transactional_id: str, *, commit: bool) -> None:
        """End a transaction: markers to where it has written, positions to where they belong."""
        done = self.open_now.pop(transactional_id, Transaction())
        for tp in sorted(done.partitions):
            log = self.log_of(tp)
            if log is not None:
                log.decide(self.owners[transactional_id][0], commit=commit)
        if commit:
            for group, offsets in done.offsets.items():
                self.groups.setdefault(group, {}).update(offsets)

    def refused(self, transactional_id: str, owner: tuple[int, int], fenced: int = FENCED) -> int:
        """Return the code for who does not, or no longer, own a transactional.id; 0 for its owner."""
        known = self.owners.get(transactional_id)
        return UNKNOWN_ID if known is None else 0 if known == owner else fenced
