"""Batches that mean harm, in the logs of real brokers, go through a lane and through the audit.

A broker reads little of what it need not decompress or renumber; what it refuses is put into its log behind
its back. All of it either passes us as the bytes it is, or stops its partition; neighbours are copied, memory
stays bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from onceover.audit.model import Reason
from onceover.wire.batches.batch import parse_header
from onceover_lab.embed.kafka import KafkaCluster
from tests.integration.copying.test_memory import peak_mib
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.flows.flows import FlowProcess
from tests.support.flows.handled import handler_keys
from tests.support.flows.replica import Replica
from tests.support.raw.hostile import bombs, catalogue, placed
from tests.support.raw.rawkafka import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BrokerRefused,
    Codec,
    RawConnection,
    RawRecord,
    build_batch,
    iter_batches,
)
from tests.support.session.memory import Peak
from tests.support.session.wait import wait_until
from tests.support.worlds.contentaudit import audit, partition

_TIMEOUT_S = 90.0
# Of a flow's log, where it does not settle.
_TOLD_CHARACTERS: Final = 4000
_MIB = 1 << 20
_LANES = 2
_LIMIT_MIB = 16
_PACKED = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
_TAKES_MUCH: Final = {"max.message.bytes": str(20 * _MIB)}
# What brokers of 4.3 store as it comes (tried): offsets of records that are not compressed, what follows a
# gzip stream, and a length that wraps around in 32 bits, are not looked at.
_ACCEPTED: Final = {
    "a delta twice",
    "deltas that fall",
    "a delta behind the batch",
    "a negative delta",
    "a value of 2 GB",
    "half a million headers",
    "gzip with bytes behind",
    "a zstd window of 128 MiB",
    *(f"a bomb of {codec.name}" for codec in _PACKED),
    *(f"far expanding {codec.name}" for codec in _PACKED),
}
# Of these, what does not hold together when it is taken apart.
_UNREADABLE: Final = {
    "a delta behind the batch",
    "a negative delta",
    "a value of 2 GB",
}
# What becomes of a log's batches that no broker has looked at: the target's looks at them. Where it names a
# record, the stop does.
_REFUSED: Final = {
    "a header without a name",
    "a key longer than its record",
    "a million headers in nine bytes",
    "a timestamp of 64 bits",
    "bytes behind the headers",
    "minus one header",
}
_DAMAGED: Final = {
    "a codec that there is not",
    "a last delta that is too small",
    "a length of nothing",
    "a length without an end",
    "a negative last delta",
    "a negative length",
    "a record of 2 GB that is not there",
    "a snappy block of minus one byte",
    "bytes left over",
    "framed snappy that says 4 GB",
    "garbage",
    "half a gzip",
    "lz4 that is none",
    "minus one record",
    "nothing at all",
    "nothing, and a record",
    "one record too few",
    "one record too many",
    "snappy that says 4 GB",
    "two thousand million records",
    "zstd that is lz4",
    "zstd with bytes behind",
}
_STOPS: Final = {
    **dict.fromkeys(_REFUSED, "RECORD_REFUSED"),
    **dict.fromkeys(_DAMAGED, "SOURCE_DAMAGED"),
    **{f"a bomb of {codec.name}, stamped": "MEMORY_TOO_SMALL" for codec in _PACKED},
}
# What a bomb expands to, where it is large.
_MUCH_MIB: Final = 40
_MORE_MIB: Final = 200
# More than an audit expands of one record.
_TOO_LARGE_MIB: Final = 80
# What beginning anew after every refusal takes, with a broker that was away: no payload.
_BESIDE_MIB: Final = 16
# A part of it is Arrow, which is loaded by then or not.
_AUDIT_MIB: Final = 80
# Records on either side of the hostile batch.
_GOOD: Final = 3


def much() -> dict[str, bytes]:
    """Return all of it, bombs as large as one likes."""
    return {**catalogue(), **bombs(_MORE_MIB)}


class Hostile:
    """A topic with one hostile batch in each partition, between honest ones, and a partition without."""

    def __init__(self, replica: Replica, batches: Mapping[str, bytes], **config: str) -> None:
        self.replica = replica
        self.batches = batches
        self.clean = len(batches)
        self.topic = replica.topic(partitions=self.clean + 1, config={**_TAKES_MUCH, **config})
        self.names: dict[int, str] = {}
        for number in range(self.clean + 1):
            replica.source.plain(self.topic, number, self._honest())

    def _honest(self) -> list[RawRecord]:
        return self.replica.source.records(_GOOD)

    def produce(self) -> None:
        """Offer the hostile batches to the broker, and write honest ones behind them."""
        for number, (name, batch) in enumerate(self.batches.items()):
            if self._taken(number, batch):
                self.names[number] = name
            self.replica.source.plain(self.topic, number, self._honest())
        self.replica.source.plain(self.topic, self.clean, self._honest())

    def _taken(self, number: int, batch: bytes) -> bool:
        # A broker hangs up on what makes it fail.
        with RawConnection(self.replica.source_client["bootstrap.servers"]) as connection:
            try:
                connection.produce(self.topic, number, batch)
            except BrokerRefused:
                return False
        return True

    def plant(self, cluster: KafkaCluster) -> None:
        """Put them into the broker's log as a broker without any check would: most are refused otherwise."""
        node = cluster.nodes[0]
        node.stop()
        for number, (name, batch) in enumerate(self.batches.items()):
            self.names[number] = name
            behind = _GOOD + max(0, parse_header(batch).last_offset_delta) + 1
            (log,) = (node.data / f"{self.topic}-{number}").glob("*.log")
            with log.open("ab") as file:
                file.write(placed(batch, _GOOD) + placed(build_batch(self._honest()), behind))
        node.start()
        self.replica.source.reconnect(self.topic)
        self.replica.source.plain(self.topic, self.clean, self._honest())

    def status(self) -> dict[int, dict[str, Any]]:
        """Return what ``status`` says of each partition."""
        return {p["partition"]: p for p in self.replica.flow.status()["partitions"]}

    def unsettled(self) -> dict[int, Any]:
        """Return what ``status`` says of the partitions that are neither copied nor stopped."""
        found = self.status()
        done = {
            n for n, p in found.items() if p["stop"] or (p["lso"] is not None and p["position"] == p["lso"])
        }
        return {number: found.get(number) for number in range(self.clean + 1) if number not in done}

    def await_settled(self, log: Path, what: str) -> None:
        """Wait until every partition is copied or stopped; say which ones are not, and what the flow says."""
        try:
            wait_until(lambda: not self.unsettled(), _TIMEOUT_S, what)
        except TimeoutError as error:
            told = log.read_text()[-_TOLD_CHARACTERS:]
            raise AssertionError(f"{error}: {self.unsettled()}\n{told}") from error

    def run(self, log: Path, feed: Callable[[], None]) -> float:
        """Let the flow run in a process of its own until all that ``feed`` writes is settled.

        Returns what its memory grew by.
        """
        with FlowProcess(self.replica.flow.path, log, seconds=2 * _TIMEOUT_S, forever=True) as process:
            self.await_settled(log, "it idles")
            idle_mib = peak_mib(process.child.pid)
            # All at once, so that every partition has something to offer to one fetch.
            process.child.pause()
            feed()
            process.child.resume()
            self.await_settled(log, "every partition is copied or stopped")
            return peak_mib(process.child.pid) - idle_mib

    def stops(self) -> dict[str, str]:
        """Return the code of every stopped partition, by what is wrong with its batch."""
        found = {n: p["stop"] for n, p in self.status().items() if p["stop"]}
        for number, stop in found.items():
            assert self.names.get(number), f"a partition without a hostile batch is stopped: {stop}"
            assert self.status()[number]["position"] == _GOOD, "what comes before it is copied, no more"
        return {self.names[n]: stop["code"] for n, stop in found.items()}

    def contents(self, client: Mapping[str, str], number: int) -> list[tuple[int, int, bytes]]:
        """Return codec, count and payload of a partition's batches, as bytes."""
        found: list[tuple[int, int, bytes]] = []
        offset = 0
        with RawConnection(client["bootstrap.servers"]) as connection:
            # An answer ends with its segment, and old timestamps make many segments.
            while data := connection.fetch_bytes(self.topic, number, offset, max_bytes=30 * _MIB):
                at = 0
                for batch in iter_batches(data):
                    payload = data[at + HEADER_BYTES : at + batch.size_bytes]
                    if not batch.is_control and batch.record_count:
                        found.append((batch.attributes & 7, batch.record_count, payload))
                    at += batch.size_bytes
                    offset = batch.last_offset + 1
        return found


def test_whatever_is_in_a_log_is_copied_or_stops_its_partition(
    start_cluster: ClusterFactory, target_cluster: SharedCluster, tmp_path: Path, unique_name: str
) -> None:
    """The others go on, memory stays bounded, and the audit says of every partition what can be said."""
    source = start_cluster("source")
    with Replica(tmp_path, unique_name, source.client, target_cluster.client) as replica:
        replica.configure(limits={"memory_per_lane": f"{_LIMIT_MIB}MiB"}, lanes=_LANES)
        stamped = {f"{k}, stamped": v for k, v in bombs(_MUCH_MIB, attributes=LOG_APPEND_TIME).items()}
        hostile = Hostile(replica, {**catalogue(), **stamped})
        grown_mib = hostile.run(tmp_path / "flow.log", lambda: hostile.plant(source))
        stops = hostile.stops()
        copied = hostile.names.keys() - {n for n, name in hostile.names.items() if name in stops}
        copied |= {hostile.clean}
        with Peak() as peak:
            content = audit(replica.flow.watch.flow)
        found = {n: partition(content, hostile.topic, n) for n in range(hostile.clean + 1)}
        sides = {n: [hostile.contents(c, n) for c in (source.client, target_cluster.client)] for n in copied}

    assert stops == _STOPS
    for number, (here, there) in sides.items():
        name = hostile.names.get(number, "")
        # What is stamped is compressed anew; beside it lies what was aborted when a neighbour was refused.
        assert name in stamped or set(here) <= set(there), name
    for number, result in found.items():
        assert result.findings == (), hostile.names.get(number)
        reasons = {each.reason for each in result.unverifiable}
        assert reasons == (set() if number in copied else {Reason.STOPPED}), hostile.names.get(number)
    assert grown_mib < _LANES * _LIMIT_MIB + _BESIDE_MIB
    assert peak.grown_mib < _AUDIT_MIB


@pytest.mark.soak
def test_what_a_broker_takes_passes_as_the_bytes_it_is(replica: Replica, tmp_path: Path) -> None:
    """Nothing of it is taken apart, and the target's broker takes it just as the source's did."""
    replica.configure(limits={"memory_per_lane": f"{_LIMIT_MIB}MiB"}, lanes=_LANES)
    hostile = Hostile(replica, much())
    grown_mib = hostile.run(tmp_path / "flow.log", hostile.produce)
    assert set(hostile.names.values()) == _ACCEPTED
    assert hostile.stops() == {}
    for number in range(hostile.clean + 1):
        here, there = (hostile.contents(c, number) for c in (replica.source_client, replica.target_client))
        assert here == there, hostile.names.get(number)
    assert grown_mib < _LANES * _LIMIT_MIB + _BESIDE_MIB


@pytest.mark.soak
@pytest.mark.parametrize("handler", [None, "same", "same_batch"])
def test_what_has_to_be_taken_apart_is_copied_or_stopped(
    replica: Replica, tmp_path: Path, handler: str | None
) -> None:
    """By the broker's times, which have to be written into the records, or by a handler of either form."""
    changes = handler_keys(handler) if handler else {}
    replica.configure(
        limits={"memory_per_lane": f"{_LIMIT_MIB}MiB"},
        lanes=_LANES,
        topics={"sync_configs": False},
        **changes,
    )
    hostile = Hostile(replica, much(), **{"message.timestamp.type": "LogAppendTime"})
    replica.target_topic(hostile.topic, hostile.clean + 1, _TAKES_MUCH)
    grown_mib = hostile.run(tmp_path / "flow.log", hostile.produce)
    # Broker time: what a record says about its own is not looked at any more.
    assert set(hostile.names.values()) == _ACCEPTED | {"a timestamp of 64 bits"}
    damaged = {"a delta twice", "deltas that fall", "a delta behind the batch", "a negative delta"}
    damaged |= {"gzip with bytes behind"}
    expected = dict.fromkeys(damaged, "SOURCE_DAMAGED")
    expected |= dict.fromkeys((f"a bomb of {codec.name}" for codec in _PACKED), "MEMORY_TOO_SMALL")
    if handler:
        # Without one, a record's content is copied unread.
        expected["a value of 2 GB"] = "SOURCE_DAMAGED"
        expected["half a million headers"] = "MEMORY_TOO_SMALL"
    assert hostile.stops() == expected
    for number in set(range(hostile.clean)) - hostile.names.keys():
        assert sum(count for _, count, _ in hostile.contents(replica.target_client, number)) == 2 * _GOOD
    assert grown_mib < _LANES * _LIMIT_MIB + _BESIDE_MIB


@pytest.mark.soak
def test_an_audit_survives_what_it_has_to_take_apart(replica: Replica, tmp_path: Path) -> None:
    """The target's broker compresses anew, so that only what is gzip already has the same bytes there."""
    replica.configure(topics={"sync_configs": False})
    # A broker that takes apart several of the large ones at once dies of it.
    hostile = Hostile(replica, {**catalogue(), **bombs(_TOO_LARGE_MIB)})
    replica.target_topic(
        hostile.topic, hostile.clean + 1, {**_TAKES_MUCH, "compression.type": "gzip", "retention.ms": "-1"}
    )
    hostile.run(tmp_path / "flow.log", hostile.produce)
    stopped = hostile.stops()
    with Peak() as peak:
        content = audit(replica.flow.watch.flow)
    for number in range(hostile.clean + 1):
        result = partition(content, hostile.topic, number)
        name = hostile.names.get(number, "")
        reasons = {each.reason for each in result.unverifiable}
        assert result.findings == (), f"{name}: nothing that is there differs"
        if name in stopped:
            assert Reason.STOPPED in reasons
        elif name in {"a bomb of LZ4", "a bomb of ZSTD"} or name == "half a million headers":
            assert reasons == {Reason.TOO_LARGE}
        elif name in _UNREADABLE:
            assert reasons == {Reason.UNREADABLE}, name
        else:
            assert reasons == set(), name
    assert peak.grown_mib < 400
