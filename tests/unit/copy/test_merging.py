"""Small batches are copied as a few large ones: the same records, map and evidence; nobody stops for it."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

import crc32c
import pytest

from onceover.copy.partition import MERGING
from onceover.copy.returns import Returns
from onceover.errors import MustReset
from onceover.handling.obstacles import Obstacle
from onceover.kafka.ports import Outgoing, Refused
from onceover.wire.batches.batch import CONTROL, parse_header
from onceover.wire.batches.kernel import Policy
from onceover.wire.batches.runs import Run, seen
from onceover.wire.batches.visibility import AbortedTransaction, Visible
from onceover.wire.offsetmap import Segment
from onceover.wire.progress import CopiedBatch
from tests.support.raw.hostile import seal
from tests.support.raw.rawkafka import Codec, RawRecord, build_batch, encode_record
from tests.unit.copy.batches import answer, stored
from tests.unit.copy.loop import TARGET_START, A, B, FakeProducer, Setting, partition
from tests.unit.copy.test_partition import skipped, take, values, visible

PER_BATCH = 15
# So that what a unit test makes is a run however short it is.
EVERY = Policy(1 << 30, 1 << 30, 1 << 30, 1, 1 << 30, 1 << 30)


def small(base: int, *, epoch: int = 3, codec: Codec = Codec.NONE, attributes: int = 0) -> bytes:
    """Return what a producer with default settings sends of records of 1 KB: 16 KB."""
    rng = random.Random(base)
    records = [RawRecord(b"k", rng.randbytes(1000), timestamp_ms=1_000 + base + n) for n in range(PER_BATCH)]
    batch = bytearray(build_batch(records, codec=codec, extra_attributes=attributes))
    struct.pack_into(">q", batch, 0, base)
    struct.pack_into(">i", batch, 12, epoch)
    return bytes(batch)


def marker(base: int) -> bytes:
    """Return a commit marker."""
    batch = bytearray(seal(b"\x12\x00\x00\x00\x08\x00\x00\x00\x01\x00", attributes=CONTROL, base_offset=base))
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    return bytes(batch)


def contents(out: Sequence[Outgoing]) -> list[bytes | None]:
    """Return all values, in order."""
    return [value for one in out for value in values(one)]


def test_small_batches_that_are_not_compressed_go_out_as_few() -> None:
    """Half a megabyte each; map, position and evidence are those of the last batch of the source."""
    batches = [small(PER_BATCH * n, epoch=n) for n in range(40)]
    setting = Setting([[(A, answer(batches, lso=600))]])
    [record] = setting.run({A: 600, B: 0})
    out = [one for one in setting.producer.sent if one.source is not None]
    assert [one.header.count for one in out] == [34 * PER_BATCH, *[PER_BATCH] * 6]
    assert all(one.header.size_bytes < 600_000 for one in out)
    assert contents(out) == [
        value for one in batches for value in contents(take(partition(A), *visible(one)))
    ]
    assert record.segments == (Segment(0, TARGET_START, 600),)
    copy, last = setting.partitions[A], parse_header(batches[-1])
    assert (copy.position, copy.leader_epoch) == (600, 39)
    meta = copy.metadata(3, (5, 2))
    assert meta.batch == CopiedBatch(last.base_offset, 600, last.size_bytes, last.crc)
    assert setting.source.positions[A].offset == 600 and setting.source.positions[A].last_fetched_epoch == 39


@pytest.mark.usefixtures("codec_path")
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_batches_of_several_records_that_are_compressed_pass_as_bytes(codec: Codec) -> None:
    """To compress them again would cost more than it saves."""
    batches = visible(*(small(PER_BATCH * n, codec=codec) for n in range(12)))
    assert [one.batch for one in take(partition(A), *batches)] == [one.batch for one in batches]


@pytest.mark.usefixtures("codec_path")
def test_few_batches_pass_as_bytes() -> None:
    """A gentle stream is not held up, and audited by its bytes."""
    batches = visible(*(small(PER_BATCH * n) for n in range(7)))
    assert [one.batch for one in take(partition(A), *batches)] == [one.batch for one in batches]


def test_without_the_compiled_code_they_pass_as_bytes(codec_path: str) -> None:
    """Python would take longer to merge them than it takes to send them."""
    out = take(partition(A), *visible(*(small(PER_BATCH * n) for n in range(12))))
    assert len(out) == (1 if codec_path == "compiled" else 12)


def test_a_run_is_copied_from_the_position_on() -> None:
    """It lies inside its first batch, or has gone on meanwhile."""
    for position in (0, 1, 14, 15, 100):
        copy = partition(A)
        copy.committed = copy.position = position
        [one] = take(copy, *visible(*(small(PER_BATCH * n) for n in range(8))))
        assert one.source_runs == ((position, 8 * PER_BATCH - position),)


@pytest.mark.parametrize("damaged", [0, 5, 11])
@pytest.mark.parametrize("kind", [small, marker])
def test_what_comes_before_damage_in_a_run_is_copied(damaged: int, kind: Callable[[int], bytes]) -> None:
    """The stop names the damaged batch, also where nobody would have missed it."""
    bases = [PER_BATCH * n for n in range(12)]
    batches = [bytearray(kind(base) if n == damaged else small(base)) for n, base in enumerate(bases)]
    batches[damaged][-1] ^= 1
    setting = Setting([[(A, answer(map(bytes, batches), lso=180))]])
    setting.run({A: 180, B: 0})
    out = [one for one in setting.producer.sent if one.source is not None]
    assert [first for one in out for first, _ in one.source_runs] == bases[:damaged]
    assert setting.partitions[A].stopped and setting.partitions[A].position == PER_BATCH * damaged
    assert setting.stopped == [A]


def test_an_answer_of_which_transactions_were_aborted_is_read_batch_by_batch() -> None:
    """Whose batches these are is known to the one that reads them."""
    batches = memoryview(bytearray(b"".join(stored(n) for n in range(20))))
    for aborted in ([], [AbortedTransaction(0, 9)]):
        runs = [isinstance(one, Run) for one in seen(batches, aborted, 0, MERGING)]
        assert runs == ([True] if not aborted else [False] * 20)


def test_what_expands_too_far_at_once_goes_out_as_shorter_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither batch by batch nor by Python; the next answer's runs are as short from the beginning."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("by Python")

    monkeypatch.setattr("onceover.copy.partition.reencode_run", refuse)
    rng, copy = random.Random(3), partition(A)
    words = [rng.randbytes(20) for _ in range(30)]
    batches, lengths = [], []
    for n in range(1_500):
        value = b"".join(rng.choices(words, k=150))
        batch = bytearray(build_batch([RawRecord(b"k", value, timestamp_ms=1_000)], codec=Codec.LZ4))
        struct.pack_into(">q", batch, 0, n)
        batches.append(bytes(batch))
    for half in (batches[:750], batches[750:]):
        out = take(copy, *seen(memoryview(bytearray(b"".join(half))), (), 0, copy.merging))
        assert contents(out) == [
            value for one in half for value in contents(take(partition(A), *visible(one)))
        ]
        lengths.append([one.header.count for one in out])
    assert max(map(len, lengths)) < 20
    # Found out once: the second half's runs fit at once.
    first = next(one for one in seen(memoryview(bytearray(b"".join(half))), (), 0, copy.merging))
    assert isinstance(first, Run) and first.merged(0, 1 << 19) is not None


@pytest.mark.usefixtures("codec_path")
def test_a_record_with_attributes_of_its_own_stays_in_its_batch() -> None:
    """One of their bits means LogAppendTime to librdkafka, which goes by the batch then."""
    for odd in (0, 5, 19):
        batches = []
        for n in range(20):
            record = bytearray(encode_record(RawRecord(b"k", b"v%d" % n, timestamp_ms=0), 0, 0))
            # Behind its length, of one byte.
            record[1] = 8 if n == odd else 0
            batch = bytearray(seal(bytes(record), base_offset=n))
            struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
            batches.append(bytes(batch))
        out = take(partition(A), *visible(*batches))
        assert contents(out) == [b"v%d" % n for n in range(20)]
        [alone] = [one for one in out if one.source_runs[0][0] <= odd < sum(one.source_runs[-1])]
        assert bytes(alone.batch) == batches[odd]


@pytest.mark.parametrize(("most_bytes", "refusals"), [(1 << 20, 0), (100_000, 1), (15_000, 2), (2_000, 4)])
def test_a_topic_that_takes_less_is_copied_after_a_few_refusals(most_bytes: int, refusals: int) -> None:
    """Its max.message.bytes was lowered: below what was merged, below a batch of the source even. What one
    partition has found out of what was merged, its neighbours need not."""
    batches = [small(PER_BATCH * n) for n in range(40)]

    def refuse(outgoing: Outgoing) -> Refused | None:
        is_taken = outgoing.source is None or len(outgoing.batch) <= most_bytes
        return None if is_taken else Refused(outgoing, 10, "too large")

    obstacles, refused, records = {A: Obstacle(), B: Obstacle()}, 0, []
    for _ in range(10):
        # As the lane does: all is read again from what is committed, and what was refused is kept.
        script = [(tp, answer(batches, lso=600, partition=tp.partition)) for tp in (A, B)]
        setting = Setting([script], FakeProducer(refuse=refuse))
        for tp, copy in setting.partitions.items():
            copy.obstacle = obstacles[tp]
        try:
            records += setting.run({A: 600, B: 600})
        except MustReset:
            refused += 1
            continue
        break
    assert [copy.position for copy in setting.partitions.values()] == [600, 600]
    assert refused == refusals
    assert [tuple(each.segments) for each in records] == [(Segment(0, TARGET_START, 600),)] * 2


def test_what_was_refused_is_not_merged_again() -> None:
    """A run that was read before it was refused is taken apart."""
    copy = partition(A)
    batches = visible(*(small(PER_BATCH * n) for n in range(12)))
    copy.obstacle = Obstacle(max_batch_bytes=100_000)
    assert not copy.merges
    assert [one.header.count for one in take(copy, *batches)] == [PER_BATCH] * 12


def test_a_record_that_a_broker_refuses_and_does_not_name_is_found() -> None:
    """What was merged with it is copied up to it, whether it is to stop its partition or not."""
    bad = 77

    def refuse(batch: Outgoing) -> Refused | None:
        offsets = [first + n for first, count in batch.source_runs for n in range(count)]
        return Refused(batch, 87, "not valid") if bad in offsets else None

    obstacle = Obstacle()
    for _ in range(10):
        script = [[(A, answer([small(PER_BATCH * n) for n in range(12)], lso=180))]]
        setting = Setting(script, FakeProducer(refuse=refuse))
        setting.partitions[A].obstacle = obstacle
        try:
            setting.run({A: 180, B: 0})
        except MustReset:
            continue
        break
    assert (setting.partitions[A].position, setting.partitions[A].stopped) == (bad, True)


def test_skipped_batches_and_runs_keep_their_order() -> None:
    """Whatever lies between them."""
    data = [small(PER_BATCH * n) for n in range(8)]
    tail = [stored(121 + n) for n in range(9)]
    copy = partition(A)
    mixed = [*visible(*data), skipped(stored(120)), *visible(*tail)]
    out = take(copy, *mixed)
    assert [one.source_runs for one in out] == [((0, 120),), ((121, 9),)]
    assert copy.position == 130


def test_a_run_is_let_go_between_two_commits() -> None:
    """While pausing, the partition says when its position is behind what it gave."""
    copy = partition(A)
    copy.pausing = True
    stream = copy.outgoing(visible(*(small(PER_BATCH * n) for n in range(8))))
    assert isinstance(next(stream), Outgoing)
    assert next(stream) is None and copy.position == 120


def as_run(answer_: Sequence[Visible]) -> Sequence[Visible | Run]:
    """Return the same batches as a run."""
    data = b"".join(bytes(one.batch) for one in answer_ if one.batch is not None)
    return list(seen(memoryview(bytearray(data)), (), 0, EVERY))


def looked_into(
    numbers: Sequence[int], shape: Callable[[list[Visible]], Sequence[Visible | Run]]
) -> tuple[int, ...]:
    """Return what is found in a log of batches of one record each, ten to an answer, six seconds apart."""
    now_s = [100.0]
    returns = Returns(lambda: now_s[0], lambda: 0.0)
    for start in range(0, len(numbers), 10):
        batches = []
        for offset in range(start, start + 10):
            record = RawRecord(b"k", b"%d" % numbers[offset], timestamp_ms=numbers[offset])
            batch = bytearray(build_batch([record]))
            struct.pack_into(">q", batch, 0, offset)
            batches.append(Visible(parse_header(batch), memoryview(batch)))
        now_s[0] += 6
        if offsets := returns.look(A, shape(batches)):
            return offsets
    return ()


@pytest.mark.parametrize("size", [7, 40, 1 << 30])
def test_records_that_come_back_in_runs_are_found(size: int) -> None:
    """A ring of small batches is one; a log whose timestamps only grow is none."""
    numbers = [number % size for number in range(1_000)]
    found = looked_into(numbers, as_run)
    assert found == looked_into(numbers, list)
    assert bool(found) == (size < 1_000)
