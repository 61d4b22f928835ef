"""A source that was put back from an older copy of its disks, and has grown past what was copied (G1, G7).

Both lives of such a log bear the same leader epochs, and every offset is there again: only the records tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceover.config.home import HOME_VARIABLE
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.brokers.disks import restart
from tests.support.flows.groups import commit
from tests.support.flows.replica import Replica, alter_config, delete_before
from tests.support.flows.scene import Capture
from tests.support.flows.waysout import Command, follow
from tests.support.raw.adversary import COMPACT_AT_ONCE, EPOCH_MS, Adversary
from tests.support.raw.rawkafka import DELETE_HORIZON, RawRecord

OPERATOR = 3
PARTED = "SOURCE_DIVERGED"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes and journals of the test's own."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "var"))


@pytest.fixture
def lonely(
    start_cluster: ClusterFactory, target_cluster: SharedCluster, tmp_path: Path, unique_name: str
) -> Iterator[tuple[Replica, KafkaCluster]]:
    """A flow from a cluster whose disk may be put back."""
    source = start_cluster("source")
    with Replica(tmp_path, unique_name, source.client, target_cluster.client) as replica:
        yield replica, source


def transact(writer: Adversary, topic: str, records: int) -> None:
    """Write in a committed transaction: the last batch is its marker."""
    transaction = writer.transaction(topic)
    transaction.send(0, writer.records(records))
    transaction.commit()


def left_alone(replica: Replica, capsys: Capture) -> dict[str, tuple[str, str]]:
    """Return code and reason of the group's positions that a plan leaves alone, by topic."""
    _, plan = replica.command(capsys, "groups", "plan", str(replica.flow.path))
    rows: list[dict[str, Any]] = plan["positions"]
    return {p["topic"]: (p["code"], p["reason"]) for p in rows if p["decision"] == "left alone"}


def test_a_source_that_was_put_back_and_has_grown_again_is_noticed(
    lonely: tuple[Replica, KafkaCluster], tmp_path: Path, capsys: Capture
) -> None:
    """Nothing is copied behind a history that is gone, no group moved by it; what lost nothing goes on."""
    replica, source = lonely
    plain, marked, spared = (replica.topic(name) for name in ("plain", "marked", "spared"))
    writer = replica.source
    for topic in (plain, spared):
        writer.plain(topic, 0, writer.records(10))
    transact(writer, marked, 3)
    replica.copy()
    restart(source, keep=tmp_path / "kept")
    writer.reconnect(plain, marked, spared)
    writer.plain(plain, 0, writer.records(4))
    transact(writer, marked, 3)
    assert replica.copy().records == 7
    copied = [seen.value for seen in replica.target_records(plain).values()]
    restart(source, restore=tmp_path / "kept")
    writer.reconnect(plain, marked, spared)
    for records in (3, 3):
        writer.plain(plain, 0, writer.records(records))
        transact(writer, marked, records)
    writer.plain(spared, 0, writer.records(2))
    for topic, offset in ((plain, 12), (marked, 5), (spared, 10)):
        commit(replica.source_client, f"{replica.name}-g", topic, {0: offset})
    told = left_alone(replica, capsys)
    assert {topic: code for topic, (code, _) in told.items()} == {plain: PARTED, marked: PARTED}
    assert replica.copy().records == 2
    assert {topic: replica.stop_of(topic).get("code") for topic in (plain, marked, spared)} == {
        plain: PARTED,
        marked: PARTED,
        spared: None,
    }
    told = left_alone(replica, capsys)
    assert told.keys() == {plain, marked} and all("is stopped" in reason for _, reason in told.values())
    # They part where the disk was copied, which nothing but the records tells.
    for topic, offset in ((plain, 10), (marked, 4)):
        follow(capsys, Command(f"onceover partition skip-to {replica.name} {topic}:0 {offset}"))
    assert replica.copy().records == 12
    assert not left_alone(replica, capsys)
    now = [seen.value for seen in replica.source_records(plain).values()]
    assert [seen.value for seen in replica.target_records(plain).values()] == copied + now[10:]
    replica.assert_same(spared)


def test_what_brokers_do_to_a_log_by_themselves_stops_nothing(replica: Replica) -> None:
    """The last batch that was copied loses records to compaction, is marked or removed by it, or expires."""
    writer = replica.source
    cleaned, expired, marked = (
        replica.topic("cleaned", 3),
        replica.topic("expired", 2),
        replica.topic("marked"),
    )
    rewritten, removed, horizon = range(3)
    keyed = [RawRecord(b"key-%d" % n, b"old", timestamp_ms=EPOCH_MS) for n in range(5)]
    newer = [record._replace(value=b"new") for record in keyed]
    writer.plain(cleaned, rewritten, [*keyed, RawRecord(b"once", b"kept", timestamp_ms=EPOCH_MS)])
    writer.plain(cleaned, removed, keyed)
    writer.plain(cleaned, horizon, [RawRecord(b"deleted", None, timestamp_ms=EPOCH_MS)])
    for partition in (0, 1):
        writer.plain(expired, partition, writer.records(4))
    transact(writer, marked, 3)
    aborted = writer.transaction(marked)
    aborted.send(0, writer.records(2))
    aborted.abort()
    assert replica.copy().records == 6 + 5 + 1 + 8 + 3
    alter_config(replica.source_client, cleaned, COMPACT_AT_ONCE)
    for partition in (rewritten, removed):
        writer.plain(cleaned, partition, newer)
    writer.await_batch(cleaned, rewritten, lambda batch: batch.base_offset == 0 and batch.has_holes)
    writer.await_batch(cleaned, removed, lambda _: writer.batches(cleaned, removed)[0].base_offset > 0)
    writer.await_batch(cleaned, horizon, lambda b: b.base_offset == 0 and bool(b.attributes & DELETE_HORIZON))
    # Up to the position, and up to the last record before it, in the middle of its batch.
    delete_before(replica.source_client, expired, 4, 0)
    delete_before(replica.source_client, expired, 3, 1)
    last = [RawRecord(b"last", b"value", timestamp_ms=EPOCH_MS)]
    everywhere = [*((cleaned, p) for p in range(3)), (expired, 0), (expired, 1), (marked, 0)]
    for topic, partition in everywhere:
        writer.plain(topic, partition, last)
    replica.copy()
    assert [replica.partition_status(*one)["stop"] for one in everywhere] == [None] * len(everywhere)
    for topic, partition in everywhere:
        *_, newest = replica.target_records(topic, partition).values()
        assert newest.value == last[0].value
