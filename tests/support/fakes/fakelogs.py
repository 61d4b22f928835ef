"""Logs of partitions in memory: real batches, transactions, a start that moves, a cleaner."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from types import SimpleNamespace
from typing import Protocol
from uuid import UUID

from onceover.kafka import calls
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.wire.batches.batch import parse_header
from onceover.wire.batches.records import decode
from tests.support.raw.mutations import Content
from tests.unit.audit.stored import ABORT, COMMIT, marker, stored

_INTERNAL = {"__consumer_offsets", "__transaction_state"}
_HEADER_BYTES = 61
_NOTHING = Content(None, None, (), 0)
_CORRUPT_MESSAGE = 2


@dataclass
class Stored:
    """One batch of a log; ``kind`` of a marker, None of data. ``raw``: as a producer has sent it.

    ``damaged``: its checksum does not match; ``refused``: the broker cannot read it itself, either.
    """

    base: int
    last: int
    records: dict[int, Content]
    producer: int = -1
    kind: int | None = None
    damaged: bool = False
    refused: bool = False
    raw: bytes = b""

    def contents(self) -> dict[int, Content]:
        """Return its records by their offsets."""
        return _decoded(self.raw, self.base) if self.raw else self.records

    def encode(self) -> bytes:
        """Return it as a broker stores it."""
        if self.kind is not None:
            return marker(self.kind, base=self.base, producer=self.producer)
        if self.raw:
            return struct.pack(">q", self.base) + self.raw[8:]
        # A batch that lost its last record is kept, as an empty one.
        records = self.records or {self.base: _NOTHING}
        data = bytearray(
            stored(
                list(records.values()),
                base=self.base,
                producer=self.producer,
                transactional=self.producer >= 0,
                deltas=[offset - self.base for offset in records],
            )
        )
        if not self.records:
            del data[_HEADER_BYTES:]
            struct.pack_into(">i", data, 8, _HEADER_BYTES - 12)
            struct.pack_into(">i", data, 57, 0)
        # Cleaning keeps a batch's last offset, also where its record is gone.
        struct.pack_into(">i", data, 23, self.last - self.base)
        found = _checked(bytes(data))
        return found[:-1] + bytes([found[-1] ^ 1]) if self.damaged else found


def _decoded(raw: bytes, base: int) -> dict[int, Content]:
    at_zero = struct.pack(">q", 0) + raw[8:]
    return {
        base + each.offset: Content(each.key, each.value, each.headers, each.timestamp)
        for each in decode(parse_header(at_zero), at_zero)
    }


def _checked(data: bytes) -> bytes:
    import crc32c

    return data[:17] + struct.pack(">I", crc32c.crc32c(data[21:])) + data[21:]


@dataclass
class FakeLog:
    """One partition's log.

    Attributes:
        past_end: where it ended when the broker that answers for it was frozen, or cut off: another one leads
            it by now, and takes what is written.
        past_answers: so many more of its answers are of then, until it hears of that.
    """

    batches: list[Stored] = field(default_factory=list)
    start: int = 0
    end: int = 0
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first and last offset
    pending: dict[int, int] = field(default_factory=dict)  # first offset, by producer
    cleaned: bool = False
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])  # leader epoch, where it begins
    past_end: int = 0
    past_answers: int = 0

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min([self.end, *self.pending.values()])

    def _shown(self, end: int) -> int:
        """Return the end that the broker that is asked tells, where ``end`` is the true one."""
        if self.past_answers <= 0:
            return end
        self.past_answers -= 1
        return min(end, self.past_end)

    def append(self, contents: Sequence[Content], producer: int = -1) -> list[int]:
        """Append one batch; of a producer it belongs to its open transaction. Return the offsets."""
        offsets = list(range(self.end, self.end + len(contents)))
        if producer >= 0:
            self.pending.setdefault(producer, self.end)
        self.batches.append(
            Stored(self.end, offsets[-1], dict(zip(offsets, contents, strict=True)), producer)
        )
        self.end = offsets[-1] + 1
        return offsets

    def take(self, batch: bytes, count: int, producer: int = -1) -> int:
        """Append a batch as a producer sends it; return the offset of its first record."""
        base, self.end = self.end, self.end + count
        if producer >= 0:
            self.pending.setdefault(producer, base)
        self.batches.append(Stored(base, self.end - 1, {}, producer, raw=batch))
        return base

    def decide(self, producer: int, *, commit: bool) -> None:
        """End a producer's transaction."""
        first = self.pending.pop(producer, self.end)
        if not commit:
            self.aborted.append((producer, first, self.end))
        self.batches.append(Stored(self.end, self.end, {}, producer, COMMIT if commit else ABORT))
        self.end += 1

    def lose_end(self, end: int) -> None:
        """Lose what lies from there on, as to an unclean election: batches are lost as a whole."""
        self.batches = [each for each in self.batches if each.last < end]
        self.aborted = [each for each in self.aborted if each[1] < end]
        self.end = end

    def expire(self, start: int) -> None:
        """Move the log's start; a batch goes when all of it is behind."""
        self.start = min(max(start, self.start), self.end)
        self.batches = [each for each in self.batches if each.last >= self.start]

    def lose(self, batches: int) -> None:
        """Lose the last batches to an unclean election: the log goes on there in the next leader epoch.

        Where that is the middle of a transaction, the rest of it is lost, too.
        """
        end = self.batches[-batches].base if batches <= len(self.batches) else self.start
        spans, open_at = list[tuple[int, int]](), dict[int, int]()
        for each in self.batches:
            if each.producer >= 0:
                open_at.setdefault(each.producer, each.base)
                if each.kind is not None:
                    spans.append((open_at.pop(each.producer), each.last))
        for first, last in reversed(spans):
            if first < end <= last:
                end = first
        self.batches = [each for each in self.batches if each.base < end]
        self.aborted = [each for each in self.aborted if each[1] < end]
        self.pending = {producer: first for producer, first in self.pending.items() if first < end}
        self.end = end
        self.epochs.append((self.epochs[-1][0] + 1, end))

    def clean(self, *, tombstones: bool) -> None:
        """Do what a log cleaner may: remove records that a later one of their key supersedes."""
        self.cleaned = True
        visible = dict(self.visible())
        latest = {content.key: offset for offset, content in visible.items()}
        # The newest segment is left alone, so that a log never ends without a batch.
        for batch in self.batches[:-1]:
            for offset, content in list(batch.records.items()):
                if offset not in visible:
                    continue
                is_old = latest[content.key] != offset
                if is_old or (tombstones and content.value is None):
                    del batch.records[offset]

    def visible(self) -> Iterator[tuple[int, Content]]:
        """Yield what a reader of committed records sees, by offset; damaged batches included."""
        for batch in self.batches:
            for offset, content in batch.contents().items():
                hidden = any(p == batch.producer and a <= offset < b for p, a, b in self.aborted)
                if self.start <= offset < self.stable and not hidden:
                    yield offset, content

    def fetch(
        self, offset: int, isolation: int = calls.READ_COMMITTED
    ) -> tuple[int, bytes, list[tuple[int, int]]]:
        """Return an error, the batches from an offset on, and the aborted transactions among them."""
        end = self._shown(self.stable if isolation == calls.READ_COMMITTED else self.end)
        found = [each for each in self.batches if each.last >= offset and each.base < end]
        if found and found[0].refused:
            return _CORRUPT_MESSAGE, b"", []
        found = list(takewhile(lambda each: not each.refused, found))
        known = self.aborted if isolation == calls.READ_COMMITTED else []
        aborted = [(producer, first) for producer, first, last in known if last >= offset]
        return 0, b"".join(each.encode() for each in found), aborted

    def at(self, timestamp_ms: int, isolation: int) -> int:
        """Return the offset of a time, which no marker has, or one of the ends; -1 where there is none."""
        if timestamp_ms == calls.EARLIEST:
            return self.start
        if timestamp_ms == calls.LATEST:
            return self._shown(self.stable if isolation == calls.READ_COMMITTED else self.end)
        return next((o for o, content in self.visible() if content.timestamp_ms >= timestamp_ms), -1)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return the newest leader epoch up to this one, and where it ends; -1 and -1 without one."""
        begins = [*(start for _, start in self.epochs[1:]), self.end]
        known = [(each, end) for (each, _), end in zip(self.epochs, begins, strict=True) if each <= epoch]
        return known[-1] if known and epoch <= self.epochs[-1][0] else (-1, -1)


@dataclass
class FakeTopic:
    """A topic: its id, its configuration, its partitions; broker 0 leads what ``leaders`` does not name."""

    id: UUID
    logs: list[FakeLog]
    config: dict[str, str] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)
    internal: bool = False

    def info(self, name: str) -> TopicInfo:
        """Return it as metadata shows it."""
        led = {
            number: PartitionInfo(self.leaders.get(number, 0), log.epochs[-1][0])
            for number, log in enumerate(self.logs)
        }
        return TopicInfo(name, self.id, led, is_internal=self.internal or name in _INTERNAL)


class HasTopics(Protocol):
    """A cluster whose topics are in memory."""

    all_topics: dict[str, FakeTopic]


class FakeAdmin:
    """Answers for ``kafka.admin.topics.Admin`` what a snapshot asks it for."""

    def __init__(self, cluster: HasTopics) -> None:
        self._topics = cluster.all_topics

    def topic_configs(self, names: Iterable[str], *, standing: Collection[str]) -> SimpleNamespace:
        """Return the topics' own configuration: they inherit nothing."""
        held = {name: self._topics[name].config for name in names}
        return SimpleNamespace(
            failures={},
            standing={
                name: {key: config[key] for key in standing if key in config} for name, config in held.items()
            },
        )
