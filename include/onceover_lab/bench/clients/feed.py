"""Writes the records of a workload with librdkafka: the source's data, and the ceiling's copy.

Run as a program (``python -m onceover_lab.bench.clients.feed``) it is the ceiling: a process of its own, so
that its CPU time is measured like that of the systems under test.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Producer

from onceover.errors import Retriable
from onceover_lab.bench.clients.payload import make_pool
from onceover_lab.bench.workloads import PARTITIONS, shares

# Records of one partition handed over at once: enough to fill its batch.
_CHUNK_RECORDS: Final = 1_000
_CHUNK_BYTES: Final = 1024 * 1024
_QUEUED_BYTES: Final = 128 * 1024 * 1024
_STALL_TIMEOUT_S: Final = 60.0

_log = logging.getLogger(__name__)


def producer_config(bootstrap: str, codec: str) -> dict[str, Any]:
    """Return the settings of the feeding producer: large batches, nothing twice."""
    return {
        "bootstrap.servers": bootstrap,
        "compression.type": codec,
        "queue.buffering.max.messages": 10_000_000,
        "queue.buffering.max.kbytes": 2 * _QUEUED_BYTES // 1024,
        # Errors only: a broker that has just started makes librdkafka warn and retry, which is no news.
        "log_level": 3,
        "logger": _log,
        "linger.ms": 50,
        "batch.size": 1024 * 1024,
        "batch.num.messages": 100_000,
        # A resend after a slow answer would otherwise be a duplicate.
        "enable.idempotence": True,
    }


def feed(config: Mapping[str, Any], topic: str, *, record_bytes: int, records: int) -> None:
    """Produce ``records`` records, evenly over the partitions, and wait until all are acknowledged.

    Raises:
        Retriable: the cluster took nothing for a minute.
    """
    producer = Producer(dict(config))
    messages = [{"key": p.key, "value": p.value} for p in make_pool(record_bytes)]
    chunk_records = max(1, min(_CHUNK_RECORDS, _CHUNK_BYTES // record_bytes))
    queued_limit = max(chunk_records, _QUEUED_BYTES // record_bytes)
    sent = [0] * PARTITIONS
    wanted = shares(records)
    position = 0
    while sent != wanted:
        for partition in range(PARTITIONS):
            count = min(chunk_records, wanted[partition] - sent[partition], len(messages) - position)
            chunk = messages[position : position + count]
            if chunk:
                _wait_for_room(producer, queued_limit)
                accepted = producer.produce_batch(topic, chunk, partition=partition)
                if accepted != count:
                    raise Retriable(f"{topic}:{partition} took {accepted} of {count} records")
                sent[partition] += count
            position = (position + count) % len(messages)
    _drain(producer, 0)


def _wait_for_room(producer: Producer, queued_limit: int) -> None:
    producer.poll(0)
    if len(producer) >= queued_limit:
        _drain(producer, queued_limit)


def _drain(producer: Producer, below: int) -> None:
    left, deadline = len(producer), time.monotonic() + _STALL_TIMEOUT_S
    while (now_left := len(producer)) > below:
        if now_left < left:
            left, deadline = now_left, time.monotonic() + _STALL_TIMEOUT_S
        if time.monotonic() > deadline:
            raise Retriable(
                f"no record was acknowledged for {_STALL_TIMEOUT_S:.0f} s", seen=f"{left} waiting"
            )
        producer.poll(0.01)


def main(argv: list[str] | None = None) -> None:
    """Feed one topic, as told by the arguments."""
    parser = argparse.ArgumentParser(prog="onceover_lab.bench.clients.feed")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--codec", required=True)
    parser.add_argument("--record-bytes", type=int, required=True)
    parser.add_argument("--records", type=int, required=True)
    args = parser.parse_args(argv)
    feed(
        producer_config(args.bootstrap, args.codec),
        args.topic,
        record_bytes=args.record_bytes,
        records=args.records,
    )


if __name__ == "__main__":
    main()
