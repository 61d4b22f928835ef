"""End-to-end latency at a gentle rate: from the producer's call to a read_committed consumer's return.

Producer and consumer are in this process, so that one monotonic clock times both ends.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from onceover.errors import Retriable
from onceover_lab.bench.clients.payload import make_pool
from onceover_lab.bench.clients.topics import Topics
from onceover_lab.bench.findings.figures import Arrivals
from onceover_lab.bench.workloads import Workload

_STAMP: Final = struct.Struct(">qq")  # monotonic time in ns, sequence number
_START_TIMEOUT_S: Final = 180.0
_ARRIVAL_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.1
# Whatever was killed is gone by then, and whoever notices has noticed.
_SETTLED_S: Final = 15.0
# At 500 records/s each partition has one every few milliseconds; this is no standstill.
_FLOWING_S: Final = 1.0

_log = logging.getLogger(__name__)


class PacedProducer:
    """A thread that sends one record every ``1 / rate_per_s`` s, in turn to each partition."""

    def __init__(self, bootstrap: str, workload: Workload) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": workload.codec,
                "linger.ms": 0,
                "enable.idempotence": True,
                "logger": _log,
            }
        )
        self._topic = workload.topic
        self._partitions = workload.partitions
        self._interval_s = 1 / workload.rate_per_s
        self._pool = make_pool(workload.record_bytes - _STAMP.size, pool_bytes=1024 * 1024)
        self._sent = 0
        self._error: BufferError | KafkaException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, name="paced-producer", daemon=True)
        self._thread.start()

    @property
    def sent(self) -> int:
        """Records handed to the client so far."""
        return self._sent

    def stop(self) -> int:
        """Send no more, await the acknowledgements, return the number of records sent. Safe to call again.

        Raises:
            Retriable: a record could not be sent, or was not acknowledged in 30 s.
        """
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise Retriable("a paced record could not be sent to the source", seen=str(self._error))
        left = self._producer.flush(_ARRIVAL_TIMEOUT_S)
        if left:
            raise Retriable("the source did not acknowledge the paced records", seen=f"{left} waiting")
        return self._sent

    def _send(self) -> None:
        try:
            self._send_paced()
        except (BufferError, KafkaException) as error:
            self._error = error

    def _send_paced(self) -> None:
        next_s = time.monotonic()
        while not self._stop.is_set():
            payload = self._pool[self._sent % len(self._pool)]
            value = _STAMP.pack(time.monotonic_ns(), self._sent) + payload.value
            self._producer.produce(self._topic, value, payload.key, partition=self._sent % self._partitions)
            self._producer.poll(0)
            self._sent += 1
            next_s += self._interval_s
            self._stop.wait(max(0.0, next_s - time.monotonic()))


class LatencyReader:
    """Reads the target topic read_committed and keeps account of every sequence number."""

    def __init__(self, bootstrap: str, target: Topics, topic: str, workload: Workload) -> None:
        self._target = target
        self._topic = topic
        self._partitions = workload.partitions
        self._warm_up_s = workload.warm_up_s
        self._measure_s = workload.records / workload.rate_per_s
        self._consumer = Consumer(_consumer_config(bootstrap))
        self._latencies: list[tuple[int, float]] = []
        self._received: set[int] = set()
        self._last = -1

    def close(self) -> None:
        self._consumer.close()

    def measure(self, producer: PacedProducer, check_alive: Callable[[], None]) -> Arrivals:
        """Read until the measured span is over and everything that was sent has arrived.

        Raises:
            Retriable: the first record, or one of the sent ones, did not arrive in time, or one came twice.
        """
        first_s, from_s = self._warm_up(check_alive)
        to_s = from_s + self._measure_s
        self._read_until(to_s, check_alive)
        sent = producer.stop()
        self._read_rest(sent)
        kept = sorted(latency for sent_ns, latency in self._latencies if from_s <= sent_ns / 1e9 < to_s)
        return Arrivals(kept, first_s, from_s, to_s)

    def measure_return(
        self, producer: PacedProducer, check_alive: Callable[[], None], kill: Callable[[], None]
    ) -> float:
        """Kill the copying system while records flow; return for how long a partition then stood still.

        That is the longest time without a record of any partition from the kill on: what is killed may copy
        on for a moment, and stand still thereafter.

        Raises:
            Retriable: one stood still for three minutes, or a record was lost or came twice.
        """
        _, from_s = self._warm_up(check_alive)
        self._read_until(from_s, check_alive)
        kill()
        killed_s = time.monotonic()
        arrived = dict.fromkeys(range(self._partitions), killed_s)
        still_s, now_s = 0.0, killed_s
        while now_s < killed_s + _SETTLED_S or now_s - min(arrived.values()) > _FLOWING_S:
            came, now_s = self._read_one(), time.monotonic()
            if came:
                partition = self._last % self._partitions
                still_s, arrived[partition] = max(still_s, now_s - arrived[partition]), now_s
            check_alive()
            if now_s - min(arrived.values()) > _START_TIMEOUT_S:
                raise Retriable(f"{self._topic} stood still for {_START_TIMEOUT_S:.0f} s")
        self._read_rest(producer.stop())
        return still_s

    def _warm_up(self, check_alive: Callable[[], None]) -> tuple[float, float]:
        """Return when the first record arrived, and when the measuring may begin."""
        self._await_topic(check_alive)
        first_s = self._read_past(0, check_alive)
        # What was sent before has waited for the system's start: that is start-up, not latency.
        caught_up_s = self._read_past(round(first_s * 1e9), check_alive)
        return first_s, caught_up_s + self._warm_up_s

    def _read_until(self, until_s: float, check_alive: Callable[[], None]) -> None:
        while time.monotonic() < until_s:
            self._read_one()
            check_alive()

    def _await_topic(self, check_alive: Callable[[], None]) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while len(self._target.end_offsets(self._topic, self._partitions)) < self._partitions:
            check_alive()
            if time.monotonic() > deadline:
                raise Retriable(f"{self._topic} did not appear on the target in {_START_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_S)
        self._consumer.assign([TopicPartition(self._topic, p, 0) for p in range(self._partitions)])

    def _read_past(self, sent_ns: int, check_alive: Callable[[], None]) -> float:
        """Read until a record arrives that was sent after ``sent_ns``; return when it did."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._read_one() or self._latencies[-1][0] <= sent_ns:
            check_alive()
            if time.monotonic() > deadline:
                raise Retriable(f"{self._topic} was not caught up with in {_START_TIMEOUT_S:.0f} s")
        return time.monotonic()

    def _read_rest(self, sent: int) -> None:
        deadline = time.monotonic() + _ARRIVAL_TIMEOUT_S
        while len(self._received) < sent:
            self._read_one()
            if time.monotonic() > deadline:
                raise Retriable(
                    f"not every record reached {self._topic} in {_ARRIVAL_TIMEOUT_S:.0f} s",
                    expected=f"{sent} records",
                    seen=f"{len(self._received)} records",
                )

    def _read_one(self) -> bool:
        message = self._consumer.poll(_POLL_S)
        now_ns = time.monotonic_ns()
        if message is None:
            return False
        if message.error() is not None:
            raise KafkaException(message.error())
        sent_ns, sequence = _STAMP.unpack_from(message.value())
        if sequence in self._received:
            raise Retriable(f"record {sequence} reached {self._topic} twice")
        self._received.add(sequence)
        self._last = sequence
        self._latencies.append((sent_ns, (now_ns - sent_ns) / 1e6))
        return True


def _consumer_config(bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "bench-latency",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "logger": _log,
    }
