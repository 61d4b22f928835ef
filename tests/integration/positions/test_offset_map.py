"""The offset map says where every single source offset went, checked against both logs record by record (G7).

The logs are read by ordinary clients, which know nothing of the map; expected answers come from them alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import pytest

from onceover.state import names
from onceover.wire.offsetlookup import NotCovered, Translated, arrange, merge, translate, translate_back
from onceover.wire.offsetmap import MapRecord, decode_map_key, decode_map_value, receipt
from tests.support.flows.replica import Replica, read_records
from tests.support.raw.adversary import COMPACT_AT_ONCE, Traffic
from tests.support.raw.rawkafka import Codec

Make = Callable[[Replica], str]


def plain(replica: Replica) -> str:
    topic = replica.topic()
    for codec in Codec:
        replica.source.plain(topic, 0, replica.source.records(20), codec)
        replica.source.tiny_batches(topic, 0, 10)
        replica.copy(seconds=0.2)
    return topic


def transactional(replica: Replica) -> str:
    # Fetches of 256 KiB, a transaction of our own for each: several in one run of the lane.
    replica.configure(limits={"memory_per_lane": "8MiB"}, transaction={"max_bytes": "64KiB"})
    topic = replica.topic()
    for _ in range(10):
        transaction = replica.source.transaction(topic)
        transaction.send(0, [replica.source.record(value=bytes(20_000)) for _ in range(7)])
        transaction.commit()
    return topic


def aborted(replica: Replica) -> str:
    topic = replica.topic()
    for _ in range(4):
        replica.source.interleaved(topic, 0)
        replica.copy(seconds=0.2)
    last = replica.source.transaction(topic)
    last.send(0, replica.source.records(3))
    last.abort()
    return topic


def compacted(replica: Replica) -> str:
    topic = replica.topic(config=COMPACT_AT_ONCE)
    replica.target_topic(topic)
    replica.source.holes(topic, codec=Codec.LZ4)
    replica.source.empty_batch(topic)
    replica.stop_compaction(topic)
    return topic


def reencoded(replica: Replica) -> str:
    topic = replica.topic(config={"message.timestamp.type": "LogAppendTime", "max.message.bytes": "4000000"})
    replica.target_topic(topic, config={"max.message.bytes": "50000"})
    for number in range(4):
        replica.source.plain(topic, 0, [replica.source.record(value=bytes(3000)) for _ in range(40)])
        replica.source.plain(topic, 0, replica.source.records(5), Codec(number))
    return topic


def small(replica: Replica) -> str:
    """Batches of 16 KB that are not compressed, and a marker behind each eighth."""
    topic = replica.topic()
    for _ in range(3):
        for _ in range(8):
            replica.source.plain(topic, 0, [replica.source.record(value=bytes(1000)) for _ in range(15)])
        transaction = replica.source.transaction(topic)
        transaction.send(0, replica.source.records(2))
        transaction.commit()
    return topic


def mixed(replica: Replica) -> str:
    topic = replica.topic()
    with Traffic(replica.source.bootstrap, {topic: 1}, seed=5, pause_s=0.002):
        for _ in range(3):
            replica.copy(seconds=0.3)
    return topic


def read_map(replica: Replica, topic: str) -> list[MapRecord]:
    """Return the map records of the topic's only partition, in lookup order."""
    found = []
    for partition in range(names.MAP_PARTITIONS):
        for seen in read_records(replica.target_client, names.map_topic(replica.name), partition).values():
            assert seen.key is not None and seen.value is not None
            record = decode_map_value(decode_map_key(seen.key), seen.value)
            if record.source.topic == topic:
                found.append(record)
    return arrange(found)


# In the mixed one is all of the others but holes and what was encoded anew.
@pytest.mark.parametrize(
    "make",
    [
        *(pytest.param(each, marks=pytest.mark.soak) for each in (plain, transactional, aborted)),
        compacted,
        reencoded,
        small,
        mixed,
    ],
)
def test_every_offset_is_where_the_map_says(replica: Replica, make: Make) -> None:
    """Both ways, marker and aborted and compacted offsets included, merged or not; receipts add up."""
    topic = make(replica)
    replica.copy()
    replica.assert_same(topic)
    source, target = replica.source_records(topic), replica.target_records(topic)
    records = read_map(replica, topic)
    position = replica.partition_status(topic)["position"]
    check_receipts(replica, records, position, len(target))
    for lookup in (records, merge(records)):
        check_forwards(lookup, list(source), list(target), position)
        check_backwards(lookup, list(source), list(target))


def check_receipts(replica: Replica, records: list[MapRecord], position: int, copied: int) -> None:
    """One receipt a transaction, ranges without gaps, and as many records as the target holds."""
    receipts = [receipt(replica.name, record) for record in records]
    assert sum(int(r["records"]) for r in receipts) == copied
    borders = [(record.source_start, record.source_end) for record in records]
    assert [0, *(end for _, end in borders)] == [*(start for start, _ in borders), position]
    assert all(record.bytes > 0 for record in records if record.records)
    assert all(record.begin_ms <= record.commit_ms for record in records)


def check_forwards(records: list[MapRecord], source: list[int], target: list[int], position: int) -> None:
    """A reader that starts at the answer first meets what a source reader would, and no smaller one does."""
    for offset in range(position + 1):
        index = bisect_left(source, offset)
        expected = target[index - 1] + 1 if index else 0
        assert translate(records, offset) == Translated(expected), f"source offset {offset}"
    assert isinstance(translate(records, position + 1), NotCovered)


def check_backwards(records: list[MapRecord], source: list[int], target: list[int]) -> None:
    """The same from the target's side, the markers of our own transactions included."""
    for offset in range(target[-1] + 2):
        index = bisect_left(target, offset)
        expected = source[index - 1] + 1 if index else 0
        assert translate_back(records, offset) == Translated(expected), f"target offset {offset}"
