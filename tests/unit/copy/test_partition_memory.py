"""One partition under copy never expands more than it may: by bytes, in pieces, or not at all."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from itertools import islice

import cramjam
import pytest

from onceover.copy.loop import CopySettings
from onceover.handling.deadletter import DeadLetter
from onceover.handling.obstacles import Blocked, Obstacle, RecordProblem
from onceover.kafka.logs.fetcher import Position
from onceover.kafka.ports import Acknowledged, Outgoing
from onceover.model import TopicPartition
from onceover.stops.record import Stop
from onceover.wire.batches.batch import BatchTooLarge, CorruptBatch
from onceover.wire.batches.unpack import RECORD_BYTES, Ceiling
from onceover.wire.hotpath import FetchedPartition
from tests.support.raw.hostile import bomb, compressed, seal
from tests.support.raw.rawkafka import LOG_APPEND_TIME, Codec, RawRecord, encode_record
from tests.support.session.memory import Peak
from tests.unit.copy.batches import TOPIC_ID, answer, stored
from tests.unit.copy.loop import TARGET_START, A, B, Setting, partition, sent
from tests.unit.copy.test_partition import take, values, visible

MIB = 1 << 20
pytestmark = pytest.mark.usefixtures("codec_path")
STOP = Stop("RECORD_REFUSED", "m", "e", "s", "r", 5)
# Of the records below, two.
TWO = Ceiling(3 * RECORD_BYTES, MIB)


def stamped(count: int, base_offset: int = 0) -> bytes:
    """Return a batch that has to be re-encoded: the broker's time is on every record."""
    records = b"".join(encode_record(RawRecord(b"k", b"v%d" % n), n, 0) for n in range(count))
    return seal(records, count=count, base_offset=base_offset, attributes=LOG_APPEND_TIME)


def test_tiny_bombs_pass_as_the_bytes_they_are() -> None:
    """Ten of them, a few kilobytes in all, stand for a gigabyte."""
    bombs = visible(*(bomb(Codec.ZSTD, 100 * MIB, base_offset=n) for n in range(10)))
    copy = partition(A)
    take(partition(A), *visible(*(bomb(Codec.ZSTD, MIB, base_offset=n) for n in range(10))))  # loads Arrow
    with Peak() as peak:
        out = take(copy, *bombs)
    assert [one.batch for one in out] == [one.batch for one in bombs]
    assert copy.position == 10
    assert peak.grown_mib < 10


def test_a_bomb_among_tiny_batches_keeps_few_of_them_from_being_merged() -> None:
    """They are tried again by halves; order and offsets stay."""
    batches = [stored(n) for n in range(64)]
    batches[40] = bomb(Codec.ZSTD, MIB, base_offset=40)
    copy = partition(A)
    out = take(copy, *visible(*batches))
    assert [first + n for one in out for first, count in one.source_runs for n in range(count)] == list(
        range(64)
    )
    assert len(out) <= 3 + 16
    assert copy.position == 64


def test_many_tiny_batches_that_expand_a_little_are_merged_by_parts() -> None:
    """Nothing is wrong with them: together they are more than is worth expanding at once."""
    batches = [bomb(Codec.ZSTD, 20_000, base_offset=n) for n in range(64)]
    assert len(take(partition(A), *visible(*batches))) == 4


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("plain", [0, 8])
def test_merged_batches_are_not_stored_plain_because_one_of_them_was(codec: Codec, plain: int) -> None:
    """Two producers with different settings: 200 bytes became 400 KB, for every partition of an answer."""
    batches = [bomb(codec, 50_000, base_offset=n) for n in range(9)]
    batches[plain] = stored(plain)
    [one] = take(partition(A), *visible(*batches))
    assert one.source_runs == ((0, 9),)
    assert len(one.batch) <= sum(map(len, batches))


def test_a_partition_does_not_hold_what_it_has_merged() -> None:
    """It is let go as soon as it is acknowledged, not when the partition has its next turn."""
    batches = [stored(n) for n in range(9)]
    stream = partition(A).outgoing(visible(*batches))
    merged = next(stream)
    assert merged is not None
    holders = [holder for holder in gc.get_referrers(merged.batch) if holder is not merged]
    assert not holders
    assert not list(stream)


@pytest.mark.parametrize("round_bytes", [1, 250, MIB])
def test_a_round_ends_where_enough_was_made_anew(round_bytes: int) -> None:
    """However many partitions an answer has; everybody has had a turn before somebody has the next."""
    tps = [TopicPartition("t", n) for n in range(5)]
    counts = dict(zip(tps, [3, 1, 4, 2, 4], strict=True))
    answers = [
        (tp, answer([stamped(3, 3 * n) for n in range(count)], partition=tp.partition))
        for tp, count in counts.items()
    ]
    setting, sizes = spread(tps, answers, round_bytes)
    setting.run({tp: 3 * count for tp, count in counts.items()})
    order = setting.producer.data()
    assert [first for _, first in order] == sorted(first for _, first in order)
    assert sorted(order) == [(tp, 3 * n) for tp, count in counts.items() for n in range(count)]
    assert all(sum(round_[:-1]) < round_bytes for round_ in sizes)


def test_what_passes_as_bytes_ends_no_round() -> None:
    """It lies in the receive buffer: more requests would free nothing."""
    tps = [TopicPartition("t", n) for n in range(5)]
    setting, sizes = spread(tps, [(tp, answer([stored(0)], partition=tp.partition)) for tp in tps], 1)
    setting.run(dict.fromkeys(tps, 1))
    assert [len(round_) for round_ in sizes] == [5]


def spread(
    tps: list[TopicPartition], answers: list[tuple[TopicPartition, FetchedPartition]], round_bytes: int
) -> tuple[Setting, list[list[int]]]:
    """Return a setting over many partitions, and the sizes of the batches in each round that it sends."""
    setting, sizes = Setting([answers]), []
    setting.source.positions = {tp: Position(TOPIC_ID, 0, 1, 0) for tp in tps}
    setting.loop.partitions = {tp: partition(tp) for tp in tps}
    setting.loop.round_bytes = round_bytes
    send = setting.producer.send

    def counted(batches: Sequence[Outgoing]) -> None:
        if batches[0].source is not None:
            sizes.append([len(one.batch) for one in batches])
        send(batches)

    setting.producer.send = counted  # pyrefly: ignore[method-assign]
    return setting, sizes


def test_damage_that_the_checksum_does_not_see_passes_with_its_batch() -> None:
    """The producer wrote it so: readers of both sides meet the same bytes, and its neighbours are copied."""
    batches = [stored(n) for n in range(9)]
    batches[4] = seal(b"no record", base_offset=4)
    copy = partition(A)
    out = take(copy, *visible(*batches))
    assert [bytes(one.batch) for one in out] == batches
    assert copy.position == 9


def test_a_large_batch_is_reencoded_in_pieces() -> None:
    """The position stands behind what was yielded, so that a stop in between loses and repeats nothing."""
    copy = partition(A)
    copy.ceiling = TWO
    seen, target = [], TARGET_START
    for one in sent(copy, visible(stamped(7, base_offset=3))):
        seen.append((copy.position, values(one), one.source_runs))
        copy.acknowledged(Acknowledged(one, target))
        target += one.header.count
    assert seen == [
        (0, [b"v0", b"v1"], ((3, 2),)),
        (5, [b"v2", b"v3"], ((5, 2),)),
        (7, [b"v4", b"v5"], ((7, 2),)),
        (9, [b"v6"], ((9, 1),)),
    ]
    assert copy.position == 10
    [record] = copy.map_records(3, 1, (5, 2), 10, 20)
    assert [tuple(segment) for segment in record.segments] == [(3, TARGET_START, 7)]


@pytest.mark.parametrize("position", [0, 4, 5, 6, 9])
def test_pieces_before_the_position_are_left_out(position: int) -> None:
    """The committed position lies inside a batch that comes in pieces."""
    copy = partition(A)
    copy.ceiling = TWO
    copy.committed = copy.position = position
    out = take(copy, *visible(stamped(7, base_offset=3)))
    assert [value for one in out for value in values(one)] == [
        b"v%d" % n for n in range(7) if n + 3 >= position
    ]
    assert copy.position == 10


def test_a_barrier_in_a_later_piece_is_where_it_stops() -> None:
    """Everything before it goes out, nothing behind it is looked at."""
    copy = partition(A)
    copy.ceiling = TWO
    copy.obstacle = Obstacle(barrier=5, stop=STOP)
    stream = sent(copy, visible(stamped(7)))
    out = list(islice(stream, 3))
    assert [value for one in out for value in values(one)] == [b"v0", b"v1", b"v2", b"v3", b"v4"]
    with pytest.raises(Blocked):
        next(stream)
    assert copy.position == 5


def test_diverted_records_leave_from_the_piece_they_are_in() -> None:
    """Each record goes to one of both topics, once."""
    copy = partition(A)
    copy.ceiling = TWO
    copy.dead_letter = DeadLetter("f", "east", A, copy.source_id, TopicPartition("dead", 0))
    copy.obstacle = Obstacle(
        divert={2: RecordProblem("RECORD_REFUSED", "m"), 6: RecordProblem("RECORD_REFUSED", "m")}
    )
    out = take(copy, *visible(stamped(7)))
    assert offsets(out, A) == [0, 1, 3, 4, 5]
    assert offsets(out, TopicPartition("dead", 0)) == [2, 6]


@pytest.mark.parametrize("settings", [CopySettings(60.0, 1 << 30, None), CopySettings(0.0, 1 << 30, None)])
def test_one_partition_at_a_time_expands_a_batch_in_pieces(settings: CopySettings) -> None:
    """Each holds what is left of its last piece; a commit in between does not begin another one, either."""
    answers = [answer([stamped(7)], partition=number, lso=7) for number in (0, 1)]
    setting = Setting([list(zip((A, B), answers, strict=True))], settings=settings)
    for copy in setting.partitions.values():
        copy.ceiling = TWO
    setting.run({A: 7, B: 7})
    expected = [(tp, first) for tp in (A, B) for first in (0, 2, 4, 6)]
    assert setting.producer.data() == expected


def test_neighbours_go_on_as_soon_as_a_batch_in_pieces_is_through() -> None:
    """Not only behind everything that its partition has; also where it stops half-way."""
    whole = [stored(0, 2), stamped(3, 2), stamped(3, 5), stored(8, 2)]
    cut = [seal(stamped(5)[61:-1], count=5, attributes=LOG_APPEND_TIME)]
    in_turn = [(A, 0), (B, 0), (A, 2), (A, 4), (B, 2), (A, 5), (A, 7), (B, 4), (A, 8)]
    for batches, expected in ((whole, in_turn), (cut, [(A, 0), (A, 2), (B, 0), (B, 2), (B, 4)])):
        plain = [stored(0, 2), stored(2, 2), stored(4, 2)]
        setting = Setting([[(A, answer(batches, lso=10)), (B, answer(plain, partition=1, lso=6))]])
        setting.partitions[A].ceiling = TWO
        setting.run({A: 10, B: 6})
        assert setting.producer.data() == expected


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_what_was_expanded_is_not_held_while_batches_are_sent(codec: Codec) -> None:
    """A lane's partitions take their batches one after the other, and send them together."""
    records = encode_record(RawRecord(b"k", bytes(4 * MIB)), 0, 0)
    payload = compressed(codec, records, 0)
    batch = seal(payload, codec=codec, attributes=LOG_APPEND_TIME)
    copies = [partition(A) for _ in range(20)]
    for copy in copies:
        copy.ceiling = Ceiling(8 * MIB, 8 * MIB)
    next(sent(partition(A), visible(stamped(1))))
    with Peak() as peak:
        streams = [sent(copy, visible(batch)) for copy in copies]
        first = [next(stream) for stream in streams]
    assert len(first) == 20
    assert peak.grown_mib < 40


def offsets(out: list[Outgoing], target: TopicPartition) -> list[int]:
    """Return the source offsets of what goes to ``target``."""
    runs = [run for one in out if one.target == target for run in one.source_runs]
    return [first + n for first, count in runs for n in range(count)]


def test_a_record_that_takes_too_much_stops_at_its_offset() -> None:
    """Those before it are copied; what a person leaves out is the rest of the batch."""
    contents = [bytes(1 << 15)] * 3 + [bytes(MIB)]
    records = b"".join(encode_record(RawRecord(b"k", value), n, 0) for n, value in enumerate(contents))
    payload = bytes(cramjam.zstd.compress(records))
    batch = seal(payload, codec=Codec.ZSTD, count=4, attributes=LOG_APPEND_TIME)
    copy = partition(A)
    copy.ceiling = Ceiling(1 << 16, 1 << 18)
    stream = sent(copy, visible(batch))
    assert offsets(list(islice(stream, 3)), A) == [0, 1, 2]
    with pytest.raises(BatchTooLarge) as caught:
        next(stream)
    assert (copy.position, caught.value.behind) == (3, 4)


def test_damage_in_a_later_piece_stops_behind_what_was_copied() -> None:
    """The same for a batch that cannot be taken apart."""
    records = b"".join(encode_record(RawRecord(b"k", b"v"), n, 0) for n in range(5))
    batch = seal(records + b"\x01", count=6, attributes=LOG_APPEND_TIME)
    copy = partition(A)
    copy.ceiling = TWO
    with pytest.raises(CorruptBatch):
        take(copy, *visible(batch))
    assert copy.position == 4
