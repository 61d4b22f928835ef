"""The judge, for tests that compare two real clusters: the product's own, because the demo ships it."""

from __future__ import annotations

from onceover_lab.demo.compare import compare_logs
from onceover_lab.demo.judge import compare_topics
from onceover_lab.demo.verdict import (
    CopyFault,
    CopyFaultKind,
    CopyVerdict,
    Log,
    Partition,
    PartitionVerdict,
    digest_record,
)

__all__ = [
    "CopyFault",
    "CopyFaultKind",
    "CopyVerdict",
    "Log",
    "Partition",
    "PartitionVerdict",
    "compare_logs",
    "compare_topics",
    "digest_record",
]
