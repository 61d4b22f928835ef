"""The judge, for tests that compare two real clusters: the product's own, because the demo ships it."""

from __future__ import annotations

from onceover.demo.compare import compare_logs
from onceover.demo.judge import compare_topics
from onceover.demo.verdict import Finding, Kind, Log, Partition, PartitionVerdict, Verdict, digest_record

__all__ = [
    "Finding",
    "Kind",
    "Log",
    "Partition",
    "PartitionVerdict",
    "Verdict",
    "compare_logs",
    "compare_topics",
    "digest_record",
]
