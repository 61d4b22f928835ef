"""The latency reader: waiting for a start is no latency, and every record is accounted for."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from onceover.errors import Retriable
from onceover_lab.bench.clients import latency
from onceover_lab.bench.clients.latency import LatencyReader
from onceover_lab.bench.workloads import DEFAULT, PARTITIONS, WorkloadKind

WORKLOAD = replace(
    next(w for w in DEFAULT if w.kind is WorkloadKind.LATENCY), rate_per_s=1000, records=50, warm_up_s=0.01
)
STAMP = struct.Struct(">qq")


class Clock:
    """Goes on by a millisecond with each record: a busy machine has no say in it."""

    def __init__(self) -> None:
        self.now_ns = 20_000_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns

    def monotonic(self) -> float:
        return self.now_ns / 1e9


class Message:
    def __init__(self, sent_ns: int, sequence: int) -> None:
        self._value = STAMP.pack(sent_ns, sequence)

    def error(self) -> None:
        return None

    def value(self) -> bytes:
        return self._value


class Consumer:
    """Serves ``backlog`` old records first, then fresh ones, sent just now; ``repeat`` comes twice."""

    def __init__(self, backlog: int, repeat: int | None = None) -> None:
        self.clock = Clock()
        self.backlog = backlog
        self.repeat = repeat
        self.served = 0

    def assign(self, partitions: list[Any]) -> None:
        assert len(partitions) == PARTITIONS

    def poll(self, _timeout_s: float) -> Message:
        self.clock.now_ns += 1_000_000
        sequence = self.served
        self.served += 1
        if self.repeat is not None and sequence > self.repeat:
            sequence -= 1
        age_ns = 10_000_000_000 if sequence < self.backlog else 0
        return Message(self.clock.now_ns - age_ns, sequence)


class Target:
    def end_offsets(self, _topic: str, partitions: int) -> dict[int, int]:
        return dict.fromkeys(range(partitions), 0)


class Producer:
    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    def stop(self) -> int:
        return self.consumer.served


def patched(monkeypatch: pytest.MonkeyPatch, consumer: Consumer) -> LatencyReader:
    monkeypatch.setattr(latency, "Consumer", lambda _config: consumer)
    monkeypatch.setattr(latency, "time", consumer.clock)
    return LatencyReader("127.0.0.1:1", Target(), "topic", WORKLOAD)  # pyrefly: ignore[bad-argument-type]


def read(monkeypatch: pytest.MonkeyPatch, consumer: Consumer) -> Any:
    return patched(monkeypatch, consumer).measure(Producer(consumer), lambda: None)  # pyrefly: ignore[bad-argument-type]


def test_backlog_of_the_start_up_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds old records arrive first: none of their latencies is kept."""
    arrivals = read(monkeypatch, Consumer(backlog=500))
    assert arrivals.latencies_ms
    assert max(arrivals.latencies_ms) < 5_000
    assert arrivals.from_s >= arrivals.first_s + WORKLOAD.warm_up_s
    assert arrivals.to_s - arrivals.from_s == pytest.approx(0.05)


def test_record_that_arrives_twice_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Retriable, match="record 7 reached topic twice"):
        read(monkeypatch, Consumer(backlog=0, repeat=7))


def test_the_longest_standstill_behind_a_kill_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is killed may copy on for a moment: that it does is not that it is back."""
    consumer = Consumer(backlog=5)
    reader = patched(monkeypatch, consumer)
    killed_ns: list[int] = []
    poll = consumer.poll

    def standing(timeout_s: float) -> Message | None:
        # Half a second after the kill, and for four seconds.
        if killed_ns and 500_000_000 <= consumer.clock.now_ns - killed_ns[0] < 4_500_000_000:
            consumer.clock.now_ns += 100_000_000
            return None
        return poll(timeout_s)

    monkeypatch.setattr(consumer, "poll", standing)
    back_s = reader.measure_return(
        Producer(consumer),  # pyrefly: ignore[bad-argument-type]
        lambda: None,
        lambda: killed_ns.append(consumer.clock.now_ns),
    )
    assert back_s == pytest.approx(4.0, abs=0.2)
