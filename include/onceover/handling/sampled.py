"""A sample in words and as a document: what a handler would do to records, in numbers and examples. Pure.

Invariant: contents are shown to a person who asked for them, shortened, and nowhere else: in no document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from onceover.handling.sample import CHANGED, FAILED, KEPT, MULTIPLIED, REMOVED, SampleOutcome
from onceover.shown import record
from onceover.wire.batches.records import DecodedRecord

_KINDS: Final = (KEPT, CHANGED, REMOVED, MULTIPLIED, FAILED)
_EXAMPLES: Final = 3
_SHOWN: Final = 60


def document(outcomes: Sequence[SampleOutcome]) -> dict[str, Any]:
    """Return counts, offsets and names of changed fields; never payload."""
    counts = Counter(outcome.kind for outcome in outcomes)
    written = sum(len(outcome.outputs) for outcome in outcomes)
    return {
        "records": len(outcomes),
        "written": written,
        **{kind: counts[kind] for kind in _KINDS},
        "examples": [
            {
                "topic": one.source.topic,
                "partition": one.source.partition,
                "offset": one.record.offset,
                "kind": one.kind,
                "fields": list(one.fields),
                "target_partitions": [placed.partition for placed in one.outputs],
                "failure": one.failure,
            }
            for one in _examples(outcomes)
        ],
    }


def lines(outcomes: Sequence[SampleOutcome], *, payload: bool) -> Iterator[str]:
    """Yield the sample as text, with ``payload`` (shortened) or without."""
    counts = Counter(outcome.kind for outcome in outcomes)
    shown = ", ".join(f"{counts[kind]} {kind}" for kind in _KINDS)
    written = sum(len(outcome.outputs) for outcome in outcomes)
    yield f"  sample  {len(outcomes)} records read, {written} would be written: {shown}"
    for one in _examples(outcomes):
        what = one.failure if one.failure is not None else ", ".join(one.fields)
        yield f"    {one.source} offset {one.record.offset}: {one.kind}{f' ({what})' if what else ''}"
        if payload:
            yield f"      - {_shown(one.source.partition, one.record)}"
            yield from (f"      + {_shown(placed.partition, placed.record)}" for placed in one.outputs)


def _examples(outcomes: Sequence[SampleOutcome]) -> list[SampleOutcome]:
    """Return the first few of every kind that is worth a look."""
    seen: Counter[str] = Counter()
    chosen = []
    for outcome in outcomes:
        seen[outcome.kind] += 1
        if outcome.kind != KEPT and seen[outcome.kind] <= _EXAMPLES:
            chosen.append(outcome)
    return chosen


def _shown(partition: int, rec: DecodedRecord) -> str:
    shown = record(rec.key, rec.value, rec.headers, _SHOWN)
    return f"partition {partition} time {rec.timestamp} {shown}"
