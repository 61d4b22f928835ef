"""Groups whose committed offsets lie where a log cleaner has left nothing, on either side (G6, G7).

The cleaner works on each side by itself, before the copy and after it, so that most offsets of both logs
hold no record, and seldom the same ones. What a record was is told by its key and value, which occur once.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from onceover.groups.decide import Direction
from onceover.wiring.groups import GroupRequest
from tests.support.flows.groups import commit_all, committed_all, first_read
from tests.support.flows.operations import apply_groups
from tests.support.flows.replica import Replica, alter_config, read_records
from tests.support.raw.adversary import COMPACT_AT_ONCE, EPOCH_MS, Adversary
from tests.support.raw.rawkafka import BatchView, Codec, RawRecord

_KEYS: Final = 7

Identity = tuple[bytes | None, bytes | None]
Log = dict[Identity, int]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals and indexes of the test's own."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))


def test_a_group_inside_a_compacted_range_goes_on_with_the_first_unread_record(replica: Replica) -> None:
    """A group for every offset, there and back; some of them read by real members."""
    topic = replica.topic()
    replica.target_topic(topic)
    numbers = count()
    written: Log = {}
    arrived: Log = {}
    write(replica.source, topic, numbers)
    written |= log_of(replica.source_client, topic)
    compact(replica.source_client, topic)
    replica.source.await_batch(topic, 0, has_holes)
    replica.stop_compaction(topic)
    write(replica.source, topic, numbers)
    written |= log_of(replica.source_client, topic)
    replica.copy()
    arrived |= log_of(replica.target_client, topic)
    compact_both(replica, topic)
    written |= log_of(replica.source_client, topic)
    arrived |= log_of(replica.target_client, topic)
    left = log_of(replica.source_client, topic), log_of(replica.target_client, topic)
    assert all(len(log) < len(arrived) < len(written) for log in left)

    check(replica, topic, Direction.FAILOVER, written, left[1])
    check(replica, topic, Direction.FAILBACK, arrived, left[0])


def write(source: Adversary, topic: str, numbers: count[int]) -> None:
    """Write few keys again and again: plain, in committed transactions, and in aborted ones."""
    for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
        source.plain(topic, 0, records(numbers, 6), codec)
        kept, dropped = source.transaction(topic), source.transaction(topic)
        kept.send(0, records(numbers, 3), codec)
        dropped.send(0, records(numbers, 2), codec)
        dropped.abort()
        kept.commit()


def records(numbers: count[int], wanted: int) -> list[RawRecord]:
    """Return records that never come again; a second apart, so that the log rolls between batches."""
    drawn = [next(numbers) for _ in range(wanted)]
    return [
        RawRecord(b"key-%d" % (n % _KEYS), b"value-%d" % n, timestamp_ms=EPOCH_MS + n * 1000) for n in drawn
    ]


def log_of(client: Mapping[str, str], topic: str) -> Log:
    """Return what an ordinary reader meets, and where."""
    return {(seen.key, seen.value): offset for offset, seen in read_records(client, topic).items()}


def has_holes(batch: BatchView) -> bool:
    """Tell whether the cleaner took some records of the batch."""
    return batch.has_holes and batch.record_count > 0


def compact(client: Mapping[str, str], topic: str) -> None:
    """Let the cleaner begin."""
    alter_config(client, topic, COMPACT_AT_ONCE)


def compact_both(replica: Replica, topic: str) -> None:
    """Let both cleaners work on what was copied; then nothing changes any more, and everything is copied."""
    before = log_of(replica.source_client, topic), log_of(replica.target_client, topic)
    for client in (replica.source_client, replica.target_client):
        compact(client, topic)

    def cleaned() -> bool:
        now = log_of(replica.source_client, topic), log_of(replica.target_client, topic)
        return all(old.keys() - new.keys() for old, new in zip(before, now, strict=True))

    with replica.running():
        replica.source.await_batch(topic, 0, lambda _: cleaned())
    for on_target in (False, True):
        replica.stop_compaction(topic, on_target=on_target)
    replica.copy()


def check(replica: Replica, topic: str, direction: Direction, given: Log, there: Log) -> None:
    """Commit every offset on the giving side, move, and compare what is read first with what is unread.

    ``given`` says where each record was on the giving side, also those that the cleaner took there;
    ``there`` what is left on the receiving side.
    """
    ways = replica.source_client, replica.target_client
    here, over = ways if direction is Direction.FAILOVER else reversed(ways)
    end = max(given.values()) + 1
    groups = {f"{replica.name}-{direction}-{offset}": offset for offset in range(end + 1)}
    commit_all(here, topic, {name: {0: offset} for name, offset in groups.items()})
    request = GroupRequest(direction, patterns=[f"{replica.name}-{direction}-.*"])
    assert apply_groups(replica.flow.watch.flow, request).exit_code == 0
    moved = {name: found[0][0] for name, found in committed_all(over, topic, groups).items()}
    for name, offset in groups.items():
        unread = {at for record, at in there.items() if given[record] >= offset}
        assert {at for at in there.values() if at >= moved[name]} == unread, (name, moved[name])
    empty = sorted(set(range(end)) - set(log_of(here, topic).values()))
    for offset in empty[:: len(empty) // 3]:
        unread = {at for record, at in there.items() if given[record] >= offset}
        assert first_read(over, f"{replica.name}-{direction}-{offset}", topic) == min(unread)
