"""A lane's memory is bounded by limits.memory_per_lane, whatever the size of the batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.flows.flows import FlowProcess
from tests.support.flows.handled import handler_keys
from tests.support.flows.replica import Replica
from tests.support.raw.rawkafka import Codec, RawConnection, RawRecord, build_batch
from tests.support.session.wait import wait_until

_TIMEOUT_S = 60.0
_MIB = 1 << 20
_LANES = 2
_LIMIT_MIB = 16
# Two such batches in each of 36 partitions: far more than a lane may hold at once. Then large ones.
_PARTITIONS = 36
_MIXED: Sequence[tuple[float, int]] = ((0.95, _PARTITIONS), (0.95, _PARTITIONS), (4, 4), (8, 4))


def peak_mib(pid: int) -> float:
    """Return the most memory that the process ever had resident."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def growth_mib(
    replica: Replica, folder: Path, batches: Sequence[tuple[float, int]], *, limit_mib: int
) -> float:
    """Copy batches in a process of its own; return what its peak grew by over idling.

    ``batches`` are (size in MiB, number of partitions that get one).
    """
    partitions = max(count for _, count in batches)
    topic = replica.topic(partitions=partitions, config={"max.message.bytes": str(20 * _MIB)})

    def feed() -> int:
        for size_mib, count in batches:
            for partition in range(count):
                replica.source.batch_of_size(topic, partition, int(size_mib * _MIB))
        return sum(count for _, count in batches)

    return growth_while(replica, folder, (topic, partitions), feed, limit_mib=limit_mib)


def growth_while(
    replica: Replica,
    folder: Path,
    topic: tuple[str, int],
    feed: Callable[[], int],
    *,
    limit_mib: int,
    **changes: Any,
) -> float:
    """Copy what ``feed`` writes all at once; return what the process's peak grew by over idling.

    Args:
        topic: its name and number of partitions.
        feed: returns how many records it has written.
        changes: further keys of the flow file.
    """
    name, partitions = topic
    for partition in range(partitions):
        replica.source.plain(name, partition, replica.source.records(5))
    replica.configure(limits={"memory_per_lane": f"{limit_mib}MiB"}, lanes=_LANES, **changes)

    def caught_up(records: int) -> bool:
        entries = replica.flow.status()["partitions"]
        return len(entries) == partitions and sum(p["position"] or 0 for p in entries) == records

    log = folder / "flow.log"
    with FlowProcess(replica.flow.path, log, seconds=2 * _TIMEOUT_S, forever=True, fresh=True) as process:
        wait_until(lambda: caught_up(5 * partitions), _TIMEOUT_S, "it idles")
        idle_mib = peak_mib(process.child.pid)
        # All at once, so that every partition has something to offer to one fetch.
        process.child.pause()
        total = 5 * partitions + feed()
        process.child.resume()
        wait_until(lambda: caught_up(total), _TIMEOUT_S, "what was fed is copied")
        grown_mib = peak_mib(process.child.pid) - idle_mib
    replica.assert_same()
    return grown_mib


@pytest.mark.soak
def test_large_batches_stay_within_the_limit(replica: Replica, tmp_path: Path) -> None:
    """1, 4 and 8 MiB batches, 110 MiB in all, 16 MiB a lane: never more than both lanes' limits."""
    assert growth_mib(replica, tmp_path, _MIXED, limit_mib=_LIMIT_MIB) < _LANES * _LIMIT_MIB


@pytest.mark.soak
def test_tiny_batches_that_expand_far_pass_as_bytes(replica: Replica, tmp_path: Path) -> None:
    """Forty records of 20 MiB, a kilobyte each on the wire: merged they would take 800 MiB."""
    topic = replica.topic(config={"max.message.bytes": str(20 * _MIB)})
    record = RawRecord(b"k", bytes(20 * _MIB), (), 0)
    batch = build_batch([record], codec=Codec.ZSTD)

    def feed() -> int:
        with RawConnection(replica.source_client["bootstrap.servers"]) as connection:
            for _ in range(40):
                connection.produce(topic, 0, batch)
        return 40

    assert growth_while(replica, tmp_path, (topic, 1), feed, limit_mib=_LIMIT_MIB) < _LIMIT_MIB


@pytest.mark.soak
@pytest.mark.parametrize(("codec", "handler"), [(Codec.ZSTD, None), (Codec.LZ4, "same_batch")])
def test_batches_that_have_to_be_taken_apart_are_expanded_in_pieces(
    replica: Replica, tmp_path: Path, codec: Codec, handler: str | None
) -> None:
    """88 MiB of honest records in one batch, which the broker's times or a handler forbid to pass."""
    topic = replica.topic(
        config={"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(20 * _MIB)}
    )
    replica.target_topic(topic, config={"max.message.bytes": str(20 * _MIB)})
    record = RawRecord(b"k", bytes(100 << 10), (), 0)
    batch = build_batch([record] * 900, codec=codec)

    def feed() -> int:
        with RawConnection(replica.source_client["bootstrap.servers"]) as connection:
            connection.produce(topic, 0, batch)
        return 900

    changes = handler_keys(handler) if handler else {}
    grown_mib = growth_while(
        replica, tmp_path, (topic, 1), feed, limit_mib=_LIMIT_MIB, topics={"sync_configs": False}, **changes
    )
    assert grown_mib < _LANES * _LIMIT_MIB


@pytest.mark.soak
def test_without_the_limit_the_same_batches_take_more(replica: Replica, tmp_path: Path) -> None:
    """The bound above is one: with a generous limit the same batches go far beyond it."""
    assert growth_mib(replica, tmp_path, _MIXED, limit_mib=1024) > 1.5 * _LANES * _LIMIT_MIB


def test_one_record_larger_than_the_limit_still_passes(replica: Replica, tmp_path: Path) -> None:
    """There is no smaller way to copy it: the limit gives way for it, and no further."""
    size_mib = _LIMIT_MIB + 2
    grown_mib = growth_mib(replica, tmp_path, [(size_mib, 2)], limit_mib=_LIMIT_MIB)
    assert grown_mib < _LANES * size_mib + _LIMIT_MIB
