"""Batches that expand far, or lie: the audit names them, judges the others, and takes little memory."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import cramjam
import pytest

from onceover.audit.compare import sides
from onceover.audit.compare.sides import Sides
from onceover.audit.course.worker import compare_task, open_task
from onceover.audit.model import Range, Reason
from onceover.audit.ranges.tasks import LapsedRange, RangeDigests, Task
from onceover.audit.records import reader
from onceover.audit.records.batches import TooLarge, Unreadable, walk
from onceover.audit.records.expected import Expected, HandlerReplay
from onceover.audit.records.reader import ReadBatch, Stretch
from onceover.handlers.load import Handler
from onceover.model import TopicPartition
from tests.support.raw.hostile import bomb, expanding, seal
from tests.support.raw.rawkafka import Codec, RawRecord, encode_record, varint
from tests.support.session.memory import Peak
from tests.unit.audit.stored import batches

# With the compiled code and without it.
pytestmark = pytest.mark.usefixtures("both_ways")
MIB = 1 << 20
PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
PAIR = (TopicPartition("a", 0), TopicPartition("b", 0))
ARROW = expanding(Codec.ZSTD, 10, 1 << 20)


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_is_too_large_and_never_expanded(codec: Codec) -> None:
    """A gigabyte of zeros in one record (snappy: a tenth of it)."""
    data = bomb(codec, (100 if codec is Codec.SNAPPY else 1000) * MIB)
    list(batches(ARROW)[0].decode())
    (batch,) = batches(data)
    with Peak() as peak, pytest.raises(TooLarge, match="offset 0"):
        list(batch.decode(record_bytes=8 * MIB))
    assert peak.grown_mib < 40 + len(data) / MIB


@pytest.mark.parametrize("codec", PACKED)
def test_honest_records_are_read_however_far_their_batch_expands(codec: Codec) -> None:
    """A hundred MiB of them, a few at a time."""
    (batch,) = batches(expanding(codec, 100, MIB))
    list(batches(ARROW)[0].decode())
    with Peak() as peak:
        assert [rec.offset for rec in batch.decode(record_bytes=8 * MIB)] == list(range(100))
    assert peak.grown_mib < 48


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (varint(1 << 31), 1),
        (varint(-5) + bytes(9), 1),
        (b"\xff" * 200_000, 1),
        (encode_record(RawRecord(b"k", b"v"), 0, 0), 2),
        (encode_record(RawRecord(b"k", b"v"), 0, 0) * 2, 1),
        (encode_record(RawRecord(b"k", b"v"), 0, 0), -1),
        (encode_record(RawRecord(b"k", b"v"), 0, 0), (1 << 31) - 1),
        (encode_record(RawRecord(b"k", b"v"), 7, 0), 1),
        (varint(9) + b"\0\0\0\x01\x01" + varint(1 << 20), 1),
        (varint(6) + b"\0\0\0" + varint(100) + b"\x01\0", 1),
    ],
    ids=[
        "2 GB that are not there",
        "a negative length",
        "a number without an end",
        "one missing",
        "one too many",
        "minus one",
        "two thousand million",
        "an offset behind the batch",
        "a million headers in nine bytes",
        "a key longer than its record",
    ],
)
def test_lies_are_unreadable(payload: bytes, count: int) -> None:
    """In little time, whatever a length or a count says."""
    for codec in Codec:
        packed = payload if codec is Codec.NONE else bytes(_PACK[codec](payload))
        (batch,) = batches(seal(packed, codec=codec, count=count, last_delta=max(0, count - 1) % 1000))
        with pytest.raises(Unreadable):
            list(batch.decode())


_PACK: dict[Codec, Callable[[bytes], Any]] = {
    Codec.GZIP: cramjam.gzip.compress,
    Codec.SNAPPY: cramjam.snappy.compress_raw,
    Codec.LZ4: cramjam.lz4.compress,
    Codec.ZSTD: cramjam.zstd.compress,
}


def test_a_record_of_very_many_headers_is_too_large() -> None:
    """Each takes seventy bytes when it is taken apart, and two on the wire."""
    headers = b"\0\x01" * 3_000_000
    body = b"\0\0\0\x01\x01" + varint(3_000_000) + headers
    (batch,) = batches(seal(varint(len(body)) + body))
    with Peak() as peak, pytest.raises(TooLarge, match="headers"):
        list(batch.decode())
    assert peak.grown_mib < 30


def test_a_snappy_block_that_lies_about_its_size_is_unreadable() -> None:
    """Four gigabytes in seven bytes, raw and framed."""
    lie = b"\xff\xff\xff\xff\x0f\0a"
    framed = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(lie)) + lie
    for payload in (lie, framed):
        (batch,) = batches(seal(payload, codec=Codec.SNAPPY))
        with Peak() as peak, pytest.raises(Unreadable):
            list(batch.decode())
        assert peak.grown_mib < 10


def test_a_control_batch_without_records_says_nothing() -> None:
    """Compaction empties markers, too."""
    (batch,) = batches(seal(b"", count=0, last_delta=0, attributes=0x20))
    with pytest.raises(Unreadable):
        batch.control_type()


# ---- a whole task


def stored(value: bytes, offset: int) -> bytes:
    """Return a batch of one record."""
    return seal(encode_record(RawRecord(b"k", value), 0, 0), base_offset=offset)


class Logs:
    """Both sides' logs, read as the reader does it; ``fetch_bytes`` of a log at a time are one answer."""

    def __init__(self, source: bytes, target: bytes) -> None:
        self._logs = dict(zip(PAIR, (source, target), strict=True))

    def read_batches(self, _cluster: Any, stretch: Stretch) -> Iterator[ReadBatch]:
        found, damage = reader.readable(memoryview(self._logs[stretch.partition]))
        for batch in found:
            if batch.last_offset >= stretch.start and batch.base_offset < stretch.end:
                yield ReadBatch(batch, aborted=False)
        if damage is not None:
            raise damage


def task() -> Task:
    """Return three ranges of ten offsets each."""
    ranges = tuple(Range(PAIR[0], at, at + 10, PAIR[1], at, at + 10) for at in (0, 10, 20))
    return Task((UUID(int=1), UUID(int=2)), ranges)


def answers(monkeypatch: pytest.MonkeyPatch, source: list[bytes], target: list[bytes]) -> list[Any]:
    """Compare, with 4 MiB for a record."""
    logs = Logs(b"".join(source), b"".join(target))
    monkeypatch.setattr(sides, "read_batches", logs.read_batches)
    return list(compare_task(task(), Sides(None, None, record_bytes=4 * MIB)))  # pyrefly: ignore[bad-argument-type]


def test_a_batch_that_is_too_large_costs_its_own_range_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its counterpart has other bytes, so it would have to be taken apart; the others are compared."""
    source = [stored(b"v", at) for at in range(30)]
    target = list(source)
    source[15] = bomb(Codec.ZSTD, 20 * MIB, base_offset=15)
    first, second, third = answers(monkeypatch, source, target)
    assert isinstance(first, RangeDigests) and first.agrees
    assert isinstance(third, RangeDigests) and third.agrees
    assert isinstance(second, LapsedRange)
    assert (second.reason, second.range.source_from) == (Reason.TOO_LARGE, 10)
    assert "batch at offset 15" in second.message and "4194304 bytes" in second.message


def test_a_bomb_that_is_the_same_on_both_sides_is_compared_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is expanded for it."""
    both = [stored(b"v", at) for at in range(30)]
    both[15] = bomb(Codec.ZSTD, 2000 * MIB, base_offset=15)
    with Peak() as peak:
        assert all(
            isinstance(each, RangeDigests) and each.agrees for each in answers(monkeypatch, both, both)
        )
    assert peak.grown_mib < 10


def test_damage_costs_its_own_range_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies before it in the same answer is read, and judged."""
    source = [stored(b"v", at) for at in range(30)]
    target = list(source)
    damaged = bytearray(source[15])
    damaged[-1] ^= 1
    source[15] = bytes(damaged)
    first, second, third = answers(monkeypatch, source, target)
    assert isinstance(first, RangeDigests) and first.agrees
    assert isinstance(second, LapsedRange) and second.reason is Reason.UNREADABLE
    # The fake's one answer ends at the damage; a broker's next one would begin behind it.
    assert isinstance(third, LapsedRange)


def test_opening_a_stretch_with_a_bomb_says_why_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason crosses to the driver."""
    source = [bomb(Codec.ZSTD, 20 * MIB)] + [stored(b"v", at) for at in range(1, 10)]
    logs = Logs(b"".join(source), b"".join(stored(b"v", at) for at in range(10)))
    monkeypatch.setattr(sides, "read_batches", logs.read_batches)
    one = replace(task(), ranges=task().ranges[:1])
    opened = open_task(one, Sides(None, None, record_bytes=4 * MIB))  # pyrefly: ignore[bad-argument-type]
    assert isinstance(opened, LapsedRange) and opened.reason is Reason.TOO_LARGE


def test_handlers_are_given_large_records_few_at_a_time() -> None:
    """Two thousand small ones are a call; of a megabyte each, four."""
    sizes: list[int] = []

    def call(batch: Any) -> Any:
        sizes.append(batch.num_rows)
        return batch

    handler = Handler("tests:handler", True, call, lambda n: n, lambda _: None, lambda _: None)
    (batch,) = batches(expanding(Codec.ZSTD, 10, MIB))
    outcomes = list(HandlerReplay(handler, PAIR[0], 1).outcomes(batch.decode()))
    assert sizes == [4, 4, 2]
    assert all(isinstance(each, Expected) for each in outcomes)


def test_an_answer_is_read_up_to_its_damage() -> None:
    """The reader hands on what is whole, and the damage behind it."""
    whole = b"".join(stored(b"v", at) for at in range(3))
    found, damage = reader.readable(memoryview(whole + stored(b"v", 3)[:-1] + b"?"))
    assert [batch.base_offset for batch in found] == [0, 1, 2]
    assert isinstance(damage, Unreadable)
    assert len(list(walk(memoryview(whole)))) == 3
