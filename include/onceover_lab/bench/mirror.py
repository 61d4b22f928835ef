"""MirrorMaker 2's settings for the benchmark: exactly-once, and tuned. Pure.

Everything that would cost it time without copying data (checkpoints, heartbeats, the way back) is off.
"""

from __future__ import annotations

from typing import Final

from onceover_lab.bench.workloads import LANES, Contender, Workload, WorkloadKind
from onceover_lab.embed.ports import LOOPBACK

_BATCH_BYTES: Final = 1024 * 1024
_FETCH_BYTES: Final = 16 * 1024 * 1024
_POLL_RECORDS: Final = 5_000

SOURCE_ALIAS: Final = "source"
TARGET_ALIAS: Final = "target"


def mirrored_topic(topic: str) -> str:
    """Return the name that MirrorMaker 2's default policy gives a topic on the target."""
    return f"{SOURCE_ALIAS}.{topic}"


def mirror_properties(workload: Workload, contender: Contender, rest_port: int) -> dict[str, str]:
    """Return the properties of a run, the contender's own on top; ``rest_port`` is a free one."""
    flow = f"{SOURCE_ALIAS}->{TARGET_ALIAS}"
    tuned = _latency_clients() if workload.kind is WorkloadKind.LATENCY else _throughput_clients()
    return {
        f"{TARGET_ALIAS}.exactly.once.source.support": "enabled",
        # Exactly-once needs the workers' REST interface: tasks are fenced through it (KIP-710).
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://{LOOPBACK}:{rest_port}",
        f"{flow}.enabled": "true",
        f"{flow}.topics": workload.topic,
        f"{TARGET_ALIAS}->{SOURCE_ALIAS}.enabled": "false",
        "emit.heartbeats.enabled": "false",
        # Its connector then refuses to start, and says so with a stack trace in the log: that is Kafka's way.
        "emit.checkpoints.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "sync.topic.configs.enabled": "true" if workload.sync_configs else "false",
        "tasks.max": str(LANES),
        f"{TARGET_ALIAS}.producer.compression.type": workload.codec,
        **tuned,
        **{f"{flow}.{key}": value for key, value in contender.properties.items()},
    }


def _throughput_clients() -> dict[str, str]:
    producer, consumer = f"{TARGET_ALIAS}.producer", f"{SOURCE_ALIAS}.consumer"
    return {
        f"{producer}.batch.size": str(_BATCH_BYTES),
        f"{producer}.linger.ms": "50",
        # Room for a full batch in flight to each partition; the defaults (1 MiB, 32 MiB) would cap it.
        f"{producer}.max.request.size": str(8 * _BATCH_BYTES),
        f"{producer}.buffer.memory": str(128 * _BATCH_BYTES),
        f"{consumer}.max.poll.records": str(_POLL_RECORDS),
        f"{consumer}.fetch.max.bytes": str(4 * _FETCH_BYTES),
        f"{consumer}.max.partition.fetch.bytes": str(_FETCH_BYTES),
        f"{consumer}.receive.buffer.bytes": str(_BATCH_BYTES),
    }


def _latency_clients() -> dict[str, str]:
    # Send at once; a fetch is answered with the first record already by default.
    return {f"{TARGET_ALIAS}.producer.linger.ms": "0"}
