"""Limits of the source that were lowered since: what it took before them still has to reach the copy."""

from __future__ import annotations

import time

from tests.support.flows.replica import Replica, alter_config, topic_config
from tests.support.raw.rawkafka import Codec, RawRecord

_LARGE = b"x" * 1_500_000
_TAKES_MUCH = {"max.message.bytes": "4000000"}
_DAY_MS = 24 * 3600_000
_MIB = 1 << 20


def test_what_a_lowered_limit_of_the_source_refuses_now_is_copied_all_the_same(replica: Replica) -> None:
    """Copies that are there keep the wider limit; one that is created now never gets the narrow one.

    A lowered segment size is a limit as well: a batch has to fit into a segment.
    """
    future = {"message.timestamp.after.max.ms": str(10 * _DAY_MS)}
    size, segment = (replica.topic(name, config=_TAKES_MUCH) for name in ("size", "segment"))
    time_ahead = replica.topic("ahead", config=future)
    assert replica.copy().records == 0
    born = replica.topic("born", config=_TAKES_MUCH)
    large = RawRecord(key=b"k", value=_LARGE, headers=(), timestamp_ms=1_700_000_000_000)
    for topic in (size, segment):
        replica.source.plain(topic, 0, [large])
    replica.source.plain(born, 0, [large._replace(value=_LARGE[:500_000])])
    ahead_ms = time.time_ns() // 1_000_000 + 5 * _DAY_MS
    replica.source.plain(time_ahead, 0, [large._replace(value=b"v", timestamp_ms=ahead_ms)])
    source = replica.source_client
    for topic in (size, born):
        alter_config(source, topic, {"max.message.bytes": "100000"})
    alter_config(source, segment, {"segment.bytes": str(_MIB)})
    alter_config(source, time_ahead, {"message.timestamp.after.max.ms": "3600000"})
    # Unpacked by the target, it is too large as one batch, and each of its records is not.
    swells = replica.topic("swells")
    replica.source.plain(swells, 0, [large._replace(value=_LARGE[:100_000])] * 20, Codec.GZIP)
    alter_config(source, swells, {"compression.type": "uncompressed"})
    assert replica.copy().records == 24
    assert {topic_config(replica.target_client, swells)["compression.type"]} == {"uncompressed"}
    assert not [p["stop"] for p in replica.flow.status()["partitions"] if p["stop"]]
    replica.assert_same()
    there = {topic: topic_config(replica.target_client, topic) for topic in (size, segment, time_ahead, born)}
    assert there[size]["max.message.bytes"] == "4000000"
    assert there[segment]["segment.bytes"] == "4000000"
    assert there[time_ahead]["message.timestamp.after.max.ms"] == str(10 * _DAY_MS)
    # The broker's default, which is wider than what the source says now.
    assert int(there[born]["max.message.bytes"]) > 100_000
