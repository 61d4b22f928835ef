"""Every kind of batch a broker serves, made on purpose, copied, and compared by record (docs/facts.md).

One test per row of the table. Where passing bytes through is the promise, the target's payload is compared
as bytes; where a batch has to be encoded anew, the test shows that it was.
"""

from __future__ import annotations

import random
import struct
import time
from typing import NoReturn

import crc32c
import pytest

from onceover.model import TopicPartition
from onceover.operate.repair import RepairRequest
from tests.support.flows.operations import apply_repair
from tests.support.flows.replica import Replica, alter_config, topic_config
from tests.support.raw.adversary import COMPACT_AT_ONCE, EPOCH_MS, Traffic
from tests.support.raw.rawkafka import (
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchView,
    Codec,
    RawRecord,
    build_batch,
)
from tests.support.session.wait import wait_until

_CODEC_BITS = 0x07
_HEADER_BYTES = 61
_CLEANER_TIMEOUT_S = 60.0


def data_payloads(batches: list[tuple[BatchView, bytes]]) -> list[bytes]:
    """Return the payload bytes of all batches but control and empty ones."""
    return [payload for batch, payload in batches if not batch.is_control and batch.record_count]


def assert_passed_through(replica: Replica, topic: str) -> None:
    """Both sides hold the same records, in batches whose compressed bytes are the same."""
    replica.assert_same(topic)
    source = data_payloads(replica.source.payloads(topic, 0))
    assert data_payloads(replica.target.payloads(topic, 0)) == source
    assert source


@pytest.fixture
def passing_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding anew can yield the very same bytes; here it fails instead."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a batch was encoded anew that could have passed")

    monkeypatch.setattr("onceover.copy.partition.reencode", refuse)
    monkeypatch.setattr("onceover.copy.partition.reencode_run", refuse)
    monkeypatch.setattr("onceover.wire.batches.runs.Run.merged", refuse)


def skip_to(replica: Replica, topic: str, offset: int) -> None:
    """Do what ``onceover partition skip-to`` does."""
    flow = replica.flow.watch.flow
    request = RepairRequest("skip-to", TopicPartition(topic, 0), offset)
    assert not apply_repair(flow, request).plan.refused


@pytest.mark.usefixtures("passing_only")
# Whatever the codec, a batch passes as it is: one of them, and none, in each run.
@pytest.mark.parametrize(
    "codec",
    [
        Codec.NONE,
        Codec.ZSTD,
        *(pytest.param(each, marks=pytest.mark.soak) for each in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)),
    ],
    ids=lambda codec: codec.name.lower(),
)
def test_every_codec_passes_byte_for_byte(replica: Replica, codec: Codec) -> None:
    """v2, any codec, idempotent or not, null and empty keys, values and headers, duplicate header names."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(20), codec)
    replica.source.idempotent(topic, 0, replica.source.records(20), codec)
    replica.source.every_null_and_empty(topic, 0, codec)
    replica.copy()
    assert_passed_through(replica, topic)


@pytest.mark.usefixtures("passing_only")
def test_header_names_that_are_no_text_pass(replica: Replica) -> None:
    """Header names are bytes for a broker, and for the copy."""
    topic = replica.topic()
    replica.source.not_utf8_headers(topic, 0)
    replica.copy()
    assert_passed_through(replica, topic)


def test_tiny_batches_keep_their_order(replica: Replica) -> None:
    """One record each: at most one batch per partition may be in a request."""
    topic = replica.topic()
    replica.source.tiny_batches(topic, 0, 150)
    replica.copy()
    replica.assert_same(topic)


def lz4_blocks(frame: bytes) -> int:
    """Return how many blocks a frame without checksums or a size has."""
    at, blocks = 7, 0
    while size := int.from_bytes(frame[at : at + 4], "little") & 0x7FFFFFFF:
        at, blocks = at + 4 + size, blocks + 1
    return blocks


def test_single_records_that_share_little_stay_as_they_are_compressed(replica: Replica) -> None:
    """One of LZ4 in each batch: together in a batch, and a block of its own each, as the brokers read it.

    The first run tells what compressing them together gains.
    """
    topic = replica.topic()
    rng = random.Random(1)
    for number in range(700):
        value = rng.randbytes(700) + b"%d " % number * 60
        replica.source.idempotent(topic, 0, [replica.source.record(value=value)], Codec.LZ4)
    replica.copy()
    replica.assert_same(topic)
    batches = [(b.record_count, frame) for b, frame in replica.target.payloads(topic, 0) if not b.is_control]
    merged = [(count, lz4_blocks(frame)) for count, frame in batches if count > 1]
    assert merged[0][1] < 8, "compressed together"
    assert len(merged) > 1 and all(count == blocks for count, blocks in merged[1:])


def test_a_target_that_takes_them_together_only_gets_them_so(replica: Replica) -> None:
    """As they are compressed a run of records is too large for it; that costs one aborted transaction."""
    topic = replica.topic()
    replica.target_topic(topic, 1, {"max.message.bytes": "230000"})
    rng = random.Random(2)
    words = [rng.randbytes(9) for _ in range(400)]
    for _ in range(900):
        value = rng.randbytes(560) + b"".join(rng.choices(words, k=50))
        replica.source.idempotent(topic, 0, [replica.source.record(value=value)], Codec.LZ4)
    replica.copy()
    replica.assert_same(topic)
    batches = [(b.record_count, frame) for b, frame in replica.target.payloads(topic, 0) if not b.is_control]
    assert all(count > 100 and lz4_blocks(frame) < 8 for count, frame in batches)


def test_records_with_attributes_of_their_own_keep_their_times(replica: Replica) -> None:
    """Brokers take them; to librdkafka, which reads them here, one bit means the batch's largest time."""
    topic = replica.topic()
    for number in range(12):
        batch = bytearray(build_batch([RawRecord(b"k", b"%d" % number, timestamp_ms=EPOCH_MS + number)]))
        # Behind the batch's header and the record's length.
        batch[_HEADER_BYTES + 1] = 8
        struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
        replica.source.as_it_is(topic, 0, bytes(batch))
    replica.copy()
    replica.assert_same(topic)
    times = [seen.timestamp_ms for seen in replica.target_records(topic).values()]
    assert times == [EPOCH_MS + number for number in range(12)]


@pytest.mark.parametrize(
    "most_bytes",
    [
        pytest.param(1 << 20, id="default"),
        pytest.param(100_000, id="less than is merged", marks=pytest.mark.soak),
    ],
)
def test_small_batches_that_are_not_compressed_arrive_as_few(replica: Replica, most_bytes: int) -> None:
    """A request takes one batch of a partition; where the topic takes less, they pass as they are."""
    topic = replica.topic(partitions=4)
    replica.target_topic(topic, 4, {"max.message.bytes": str(most_bytes)})
    for partition in range(4):
        for _ in range(20):
            records = [replica.source.record(value=bytes(1000)) for _ in range(15)]
            replica.source.plain(topic, partition, records)
    replica.copy()
    replica.assert_same(topic)
    merged = most_bytes > 400_000
    for partition in range(4):
        batches = [b for b in replica.target.batches(topic, partition) if not b.is_control]
        assert [b.record_count for b in batches] == ([300] if merged else [15] * 20)


@pytest.mark.usefixtures("passing_only")
def test_committed_transactions_pass_and_their_markers_do_not(replica: Replica) -> None:
    """The markers on the target are our own; the source's would be refused (error 87)."""
    topic = replica.topic()
    transaction = replica.source.transaction(topic)
    for codec in Codec:
        transaction.send(0, replica.source.records(5), codec)
    transaction.commit()
    replica.source.plain(topic, 0, replica.source.records(2))
    replica.copy()
    assert_passed_through(replica, topic)
    assert all(b.attributes & TRANSACTIONAL for b in replica.target.batches(topic, 0))


def test_aborted_records_between_committed_ones_are_left_out(replica: Replica) -> None:
    """Two transactions and a plain producer take turns; one aborts."""
    topic = replica.topic()
    kept = sum(replica.source.interleaved(topic, 0).total() for _ in range(3))
    assert replica.copy().records == kept
    replica.assert_same(topic)


def test_an_abort_that_began_before_the_position_is_still_one(replica: Replica) -> None:
    """A copy that begins in the middle of an aborted transaction leaves its rest out too."""
    topic = replica.topic()
    replica.copy()
    dropped = replica.source.transaction(topic)
    dropped.send(0, replica.source.records(3))
    replica.source.plain(topic, 0, replica.source.records(2))
    middle = dropped.send(0, replica.source.records(3))
    replica.source.plain(topic, 0, replica.source.records(2))
    dropped.abort()
    skip_to(replica, topic, middle)
    assert replica.copy().records == 2
    skipped = sorted(replica.source_records(topic))[:2]
    expected = [seen for offset, seen in replica.source_records(topic).items() if offset not in skipped]
    assert list(replica.target_records(topic).values()) == expected


@pytest.mark.parametrize(
    "commits", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["commit", "abort"]
)
def test_records_behind_an_open_transaction_wait_for_its_end(replica: Replica, commits: bool) -> None:
    """They are reported as open, not as lag; a commit brings them, an abort only what others wrote."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(4))
    undecided = replica.source.transaction(topic)
    undecided.send(0, replica.source.records(3))
    replica.source.plain(topic, 0, replica.source.records(2))
    assert replica.copy().records == 4
    status = replica.partition_status(topic)
    assert (status["open_offsets"], status["lag_offsets"], status["position"]) == (5, 0, 4)
    assert status["oldest_open_s"] > 0.0, "by the first record of the transaction, which nobody can read yet"
    if commits:
        undecided.commit()
    else:
        undecided.abort()
    assert replica.copy().records == (5 if commits else 2)
    replica.assert_same(topic)
    assert replica.partition_status(topic)["open_offsets"] == 0


def test_holes_after_compaction_are_encoded_anew(replica: Replica) -> None:
    """A batch with holes cannot pass: the broker refuses it, or worse takes it with a faked count."""
    topic = replica.topic(config=COMPACT_AT_ONCE)
    replica.target_topic(topic)
    for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
        replica.source.holes(topic, codec=codec)
    replica.stop_compaction(topic)
    holes = [b for b in replica.source.batches(topic, 0) if b.has_holes and b.record_count]
    assert len(holes) >= 2
    replica.copy()
    replica.assert_same(topic)
    assert not any(b.has_holes for b in replica.target.batches(topic, 0))


def test_a_batch_that_compaction_emptied_only_moves_the_position(replica: Replica) -> None:
    """An idempotent producer's last batch stays in the log without records; passed, it is refused (87)."""
    topic = replica.topic(config=COMPACT_AT_ONCE)
    replica.target_topic(topic)
    empty = replica.source.empty_batch(topic)
    replica.stop_compaction(topic)
    assert any(
        b.base_offset == empty.base_offset and not b.record_count for b in replica.source.batches(topic, 0)
    )
    replica.copy()
    replica.assert_same(topic)
    status = replica.partition_status(topic)
    assert status["position"] == status["lso"] > empty.base_offset


def test_tombstones_survive_a_source_that_was_about_to_drop_them(replica: Replica) -> None:
    """The delete horizon (attribute bit 6) is the source's business: kept, the target would drop them too."""
    topic = replica.topic(config=COMPACT_AT_ONCE)
    # Three centuries: on a slow machine the target's cleaner was there before we had looked.
    replica.target_topic(topic, config={"cleanup.policy": "compact", "min.compaction.lag.ms": str(10**13)})
    aged = replica.source.aged_tombstone(topic)
    replica.copy()
    assert aged.attributes & DELETE_HORIZON
    assert not any(b.attributes & DELETE_HORIZON for b in replica.target.batches(topic, 0))
    assert None in {seen.value for seen in replica.target_records(topic).values()}
    # Now the target's own cleaner looks at them, and gives them the target's own horizon.
    alter_config(replica.target_client, topic, COMPACT_AT_ONCE)

    def cleaned() -> bool:
        replica.source.plain(topic, 0, [replica.source.record(key=b"fresh")])
        replica.copy()
        return any(b.attributes & DELETE_HORIZON for b in replica.target.batches(topic, 0))

    wait_until(cleaned, _CLEANER_TIMEOUT_S, "the target's cleaner has seen the tombstone")
    deleted = [seen for seen in replica.target_records(topic).values() if seen.key == b"deleted"]
    assert [seen.value for seen in deleted] == [None]


@pytest.mark.parametrize(
    "codec", [pytest.param(Codec.NONE, marks=pytest.mark.soak), Codec.ZSTD], ids=["none", "zstd"]
)
def test_append_time_becomes_each_records_own_timestamp(replica: Replica, codec: Codec) -> None:
    """LogAppendTime -> CreateTime: passed as it is, a reader would see the producer's times instead."""
    topic = replica.topic(config={"message.timestamp.type": "LogAppendTime"})
    replica.source.plain(topic, 0, replica.source.records(10), codec)
    replica.source.idempotent(topic, 0, replica.source.records(5), codec)
    replica.copy()
    replica.assert_same(topic)
    batches = replica.target.batches(topic, 0)
    assert not any(b.attributes & LOG_APPEND_TIME for b in batches)
    assert all(seen.timestamp_ms > EPOCH_MS + 86_400_000 for seen in replica.target_records(topic).values())


def test_append_time_on_both_sides_keeps_everything_but_the_time(replica: Replica) -> None:
    """LogAppendTime -> LogAppendTime: the bit of the source is refused (32), the target sets its own."""
    append_time = {"message.timestamp.type": "LogAppendTime"}
    topic = replica.topic(config=append_time)
    replica.target_topic(topic)
    replica.copy()
    # As somebody may set it on a topic that is copied already; before, it would be refused.
    alter_config(replica.target_client, topic, append_time)
    replica.source.plain(topic, 0, replica.source.records(10), Codec.LZ4)
    replica.copy()
    source, target = replica.source_records(topic), replica.target_records(topic)
    assert [s[:4] for s in target.values()] == [s[:4] for s in source.values()]
    data = [b for b in replica.target.batches(topic, 0) if not b.is_control]
    assert all(b.attributes & LOG_APPEND_TIME for b in data)


@pytest.mark.parametrize(
    "codec", [pytest.param(Codec.SNAPPY, marks=pytest.mark.soak), Codec.LZ4], ids=["snappy", "lz4"]
)
def test_a_start_inside_a_batch_takes_its_tail_only(replica: Replica, codec: Codec) -> None:
    """topics.start names a time that lies in the middle of a batch."""
    topic = replica.topic()
    stamps = [EPOCH_MS + 1000 * n for n in range(10)]
    replica.source.plain(topic, 0, [replica.source.record(timestamp_ms=stamp) for stamp in stamps], codec)
    replica.source.plain(topic, 0, replica.source.records(3, timestamp_ms=stamps[-1]), codec)
    replica.configure(topics={"start": "timestamp:2024-01-01T00:00:06Z"})
    replica.copy()
    expected = list(replica.source_records(topic).values())[6:]
    assert list(replica.target_records(topic).values()) == expected


def test_skipping_into_a_batch_takes_its_tail_only(replica: Replica) -> None:
    """`partition skip-to` names an offset in the middle of a batch."""
    topic = replica.topic()
    replica.copy()
    middle = replica.source.straddling(topic, 0, Codec.LZ4)
    skip_to(replica, topic, middle)
    assert replica.copy().records == 5
    expected = [seen for offset, seen in replica.source_records(topic).items() if offset >= middle]
    assert list(replica.target_records(topic).values()) == expected


@pytest.mark.usefixtures("passing_only")
def test_timestamps_far_in_the_past_are_kept(replica: Replica) -> None:
    """Retention goes by record timestamps: the topic's own retention has to be there before the records."""
    topic = replica.topic()
    replica.source.extreme_timestamps(topic, 0)
    replica.copy()
    assert_passed_through(replica, topic)
    assert topic_config(replica.target_client, topic)["retention.ms"] == "-1"


def test_a_timestamp_beyond_the_targets_limit_stops_at_that_record(replica: Replica) -> None:
    """The broker refuses the whole batch (32) and names a record: what lies before it is copied."""
    topic = replica.topic(config={"message.timestamp.after.max.ms": str(86_400_000)})
    replica.target_topic(topic)
    ahead_ms = int(time.time() * 1000) + 2 * 3_600_000
    replica.source.plain(topic, 0, replica.source.records(4))
    records = replica.source.records(6)
    records[3] = records[3]._replace(timestamp_ms=ahead_ms)
    bad = replica.source.plain(topic, 0, records, Codec.LZ4) + 3
    assert replica.copy().records == bad
    stop = replica.stop_of(topic)
    assert stop["code"] == "RECORD_REFUSED" and f"offset {bad}" in stop["message"]
    assert f"skip-to {replica.name} {topic}:0 {bad + 1}" in stop["resolve"]
    skip_to(replica, topic, bad + 1)
    assert replica.copy().records == 2
    expected = [seen for offset, seen in replica.source_records(topic).items() if offset != bad]
    assert list(replica.target_records(topic).values()) == expected


def test_batches_over_the_targets_limit_are_split(replica: Replica) -> None:
    """Error 10: the records fit, their batch does not."""
    topic = replica.topic(config={"max.message.bytes": "4000000"})
    replica.target_topic(topic, config={"max.message.bytes": "100000"})
    big = [replica.source.record(value=bytes([n]) * 10_000) for n in range(30)]
    replica.source.plain(topic, 0, replica.source.records(5))
    replica.source.plain(topic, 0, big)
    replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    replica.assert_same(topic)
    assert max(b.size_bytes for b in replica.target.batches(topic, 0)) <= 100_000


def test_one_record_over_the_limit_stops_its_partition_alone(replica: Replica) -> None:
    """The others go on, the records before it are copied, and `status` names the very offset."""
    topic = replica.topic(partitions=2, config={"max.message.bytes": "4000000"})
    replica.target_topic(topic, partitions=2, config={"max.message.bytes": "100000"})
    replica.source.plain(topic, 0, replica.source.records(7))
    bad = replica.source.batch_of_size(topic, 0, 200_000)
    for partition in (0, 1):
        replica.source.plain(topic, partition, replica.source.records(5))
    assert replica.copy().records == 7 + 5
    stop = replica.stop_of(topic)
    assert stop["code"] == "RECORD_TOO_LARGE" and f"offset {bad}" in stop["message"]
    assert replica.partition_status(topic)["position"] == bad
    assert replica.partition_status(topic, 1)["state"] == "caught_up"
    alter_config(replica.target_client, topic, {"max.message.bytes": "4000000"})
    assert replica.copy().records == 1 + 5
    replica.assert_same(topic)


@pytest.mark.parametrize("batch_size", [12, 1], ids=["one_batch", "tiny_batches"])
def test_a_null_key_stops_before_a_compacted_target(replica: Replica, batch_size: int) -> None:
    """Refused with 87, also within a run of tiny batches that is copied as one; an empty key is a key."""
    topic = replica.topic()
    replica.target_topic(topic, config={"cleanup.policy": "compact"})
    good = [RawRecord(b"key-%d" % n if n % 2 else b"", b"v", timestamp_ms=EPOCH_MS) for n in range(10)]
    records = [*good, RawRecord(None, b"null", timestamp_ms=EPOCH_MS), good[0]]
    for first in range(0, len(records), batch_size):
        replica.source.plain(topic, 0, records[first : first + batch_size], Codec.LZ4)
    assert replica.copy().records == 10
    stop = replica.stop_of(topic)
    assert stop["code"] == "RECORD_REFUSED" and "offset 10" in stop["message"]
    assert [seen.key for seen in replica.target_records(topic).values()] == [r.key for r in good]


def test_a_target_with_its_own_compression_recompresses(replica: Replica) -> None:
    """The copy passes; the broker does the rest, records stay the same."""
    topic = replica.topic()
    replica.target_topic(topic, config={"compression.type": "zstd"})
    for codec in Codec:
        replica.source.plain(topic, 0, replica.source.records(10), codec)
    replica.copy()
    replica.assert_same(topic)
    data = [b for b in replica.target.batches(topic, 0) if not b.is_control]
    assert {b.attributes & _CODEC_BITS for b in data} == {Codec.ZSTD}


def test_everything_mixed_survives_many_short_runs(replica: Replica) -> None:
    """Two topics, two lanes, all kinds at once; every run begins anew in the middle of what goes on."""
    topics = {replica.topic("a", partitions=2): 2, replica.topic("b", partitions=2): 2}
    copied = 0
    with Traffic(replica.source.bootstrap, topics, seed=7) as traffic:
        for number in range(4):
            for topic in topics:
                replica.source.interleaved(topic, number % 2)
                replica.source.every_null_and_empty(topic, 1, Codec(number))
            copied += replica.copy(seconds=0.4).records
    assert traffic.total > 0
    copied += replica.copy().records
    replica.assert_same()
    on_target = [replica.target_records(topic, p) for topic, count in topics.items() for p in range(count)]
    assert sum(map(len, on_target)) == copied
