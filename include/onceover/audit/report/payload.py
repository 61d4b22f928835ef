"""Showing the records of findings, when a person asked for it.

Invariant: text is printable and short, and never made unless it was asked for (G10).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from onceover.audit.checks.evidence import RecordLooks
from onceover.audit.model import Finding, Side
from onceover.audit.records.batches import Unreadable
from onceover.audit.records.recordhash import AuditedRecord
from onceover.model import TopicPartition
from onceover.shown import record

# Each costs a request or two; nobody reads more.
MAX_SHOWN: Final = 200
_SHOWN_CHARACTERS: Final = 200


def with_payload(findings: Iterable[Finding], look: RecordLooks) -> Iterator[Finding]:
    """Yield the findings, the first ones with their records on both sides as text.

    Raises:
        Retriable: a cluster is away.
    """
    for index, finding in enumerate(findings):
        if index >= MAX_SHOWN:
            yield finding
            continue
        parts = [
            f"{side}: {_record(look, side, tp, offset)}"
            for side, tp, offset in (
                (Side.SOURCE, finding.source, finding.source_offset),
                (Side.TARGET, finding.target, finding.target_offset),
            )
            if tp is not None and offset is not None
        ]
        yield replace(finding, payload="; ".join(parts))


def _record(look: RecordLooks, side: Side, tp: TopicPartition, offset: int) -> str:
    try:
        rec = look.first(side, tp, offset)
    except Unreadable as error:
        return f"not readable: {error.message}"
    return "not visible to readers" if rec is None or rec.offset != offset else _shown(rec)


def _shown(rec: AuditedRecord) -> str:
    return f"time {rec.timestamp_ms} {record(rec.key, rec.value, rec.headers, _SHOWN_CHARACTERS)}"
