"""``onceover flow check --sample N``: what the flow's handler would do to live records.

Payload is shown to a person at a terminal, shortened, and nowhere else: not in JSON, not in a pipe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from onceover.config.flowfile import Flow
from onceover.config.runsettings import RunSettings
from onceover.engine.sample import CHANGED, FAILED, KEPT, MULTIPLIED, REMOVED, Outcome, sample
from onceover.engine.scope import explain
from onceover.errors import UsageError
from onceover.wire.records import Record
from onceover.wiring.flows import open_clusters, rules
from onceover.wiring.treatments import sample_handling

_KINDS: Final = (KEPT, CHANGED, REMOVED, MULTIPLIED, FAILED)
_EXAMPLES: Final = 3
_SHOWN: Final = 60


def take_sample(flow: Flow, count: int) -> list[Outcome]:
    """Return what the flow's handler makes of up to ``count`` records of the source.

    Raises:
        UsageError: the flow has no handler, or it cannot be loaded.
        Retriable: the source is away.
    """
    if flow.handler is None:
        raise UsageError(
            "a sample needs a handler", code="NO_HANDLER", where=str(flow.path), resolve="leave --sample out"
        )
    handling = sample_handling(flow, RunSettings.of(flow))
    source, target = open_clusters(flow)
    with source, target:
        which = rules(flow)
        topics = [
            info
            for name, info in sorted(source.retry(source.topics).items())
            if explain(name, which, is_internal=info.is_internal).inside
        ]
        return sample(source, topics, count, handling)


def document(outcomes: Sequence[Outcome]) -> dict[str, Any]:
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


def lines(outcomes: Sequence[Outcome], *, payload: bool) -> Iterator[str]:
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


def _examples(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the first few of every kind that is worth a look."""
    seen: Counter[str] = Counter()
    chosen = []
    for outcome in outcomes:
        seen[outcome.kind] += 1
        if outcome.kind != KEPT and seen[outcome.kind] <= _EXAMPLES:
            chosen.append(outcome)
    return chosen


def _shown(partition: int, record: Record) -> str:
    headers = "".join(f" {_short(name)}={_short(value)}" for name, value in record.headers)
    return (
        f"partition {partition} time {record.timestamp} key {_short(record.key)} "
        f"value {_short(record.value)}{headers}"
    )


def _short(content: bytes | None) -> str:
    """Return printable text of at most 60 characters; control characters never reach the terminal."""
    if content is None:
        return "null"
    text = "".join(c if c.isprintable() else "." for c in content[: 4 * _SHOWN].decode("utf-8", "replace"))
    return f'"{text}"' if len(text) <= _SHOWN else f'"{text[: _SHOWN - 1]}…"'
