"""Reads one topic to its end with a plain librdkafka consumer: what an audit's reading is compared with.

Run as a program, a process of its own for each cluster; its last line of output is JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from onceover.errors import Retriable
from onceover_lab.bench.workloads import PARTITIONS

_IDLE_S: Final = 30.0

_log = logging.getLogger(__name__)


def consume(bootstrap: str, topic: str, records: int) -> dict[str, Any]:
    """Read ``records`` committed records; return how many came, and when the first and the last did.

    Times are of the system's monotonic clock.

    Raises:
        Retriable: nothing came for half a minute.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-consume",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            # By default a full queue pauses its partition for a whole second.
            "fetch.queue.backoff.ms": 5,
            "logger": _log,
        }
    )
    seen, began_s, changed_s = 0, 0.0, time.monotonic()
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        while seen < records:
            messages = consumer.consume(50_000, timeout=0.1)
            now_s = time.monotonic()
            if messages:
                began_s, changed_s = began_s or now_s, now_s
            elif now_s - changed_s > _IDLE_S:
                raise Retriable(f"reading {topic} did not reach its end", seen=f"{seen} of {records} records")
            seen += sum(1 for message in messages if message.error() is None)
    finally:
        consumer.close()
    return {"records": seen, "began_s": began_s, "ended_s": changed_s}


def main() -> None:
    """Read, print what was seen."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, required=True)
    args = parser.parse_args()
    sys.stdout.write(json.dumps(consume(args.bootstrap, args.topic, args.records)) + "\n")


if __name__ == "__main__":
    main()
