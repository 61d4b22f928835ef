"""``onceover flow check --sample N``: what the flow's handler would do to live records.

Payload is shown to a person at a terminal, shortened, and nowhere else: not in JSON, not in a pipe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import load_flow
from onceover.config.flow.runsettings import RunSettings
from onceover.errors import UsageError
from onceover.handlers.codes import HandlerCode
from onceover.handling.handling import Handling
from onceover.handling.sample import CHANGED, FAILED, KEPT, MULTIPLIED, REMOVED, SampleOutcome, sample
from onceover.model import TopicPartition
from onceover.shown import content
from onceover.topics.scope import explain
from onceover.wire.batches.records import DecodedRecord
from onceover.wiring.apart import apart
from onceover.wiring.flows import open_clusters, rules
from onceover.wiring.handlers import sample_handling

_KINDS: Final = (KEPT, CHANGED, REMOVED, MULTIPLIED, FAILED)
_EXAMPLES: Final = 3
_SHOWN: Final = 60


@dataclass(frozen=True)
class Sampled:
    """What the handler makes of some records: for ``--json``, and as lines of text."""

    document: dict[str, Any]
    lines: list[str]


def take_sample(flow: Flow, count: int, *, payload: bool) -> Sampled:
    """Return what the handler makes of up to ``count`` records of the source; shows them with ``payload``.

    Raises:
        UsageError: the flow has no handler, or it cannot be loaded.
        Retriable: the source is away.
    """
    if flow.handler is None:
        raise UsageError(
            "a sample needs a handler",
            code=HandlerCode.NO_HANDLER,
            where=str(flow.path),
            resolve="leave --sample out",
        )
    with apart(flow, "onceover.cli.sample:sampler", {"path": str(flow.path)}) as sampler_there:
        return Sampled(*sampler_there(count, payload))


def sampler(path: str) -> Callable[[int, bool], tuple[dict[str, Any], list[str]]]:
    """Return what ``take_sample`` has done in a process of its own."""
    flow = load_flow(path)
    handling = sample_handling(flow, RunSettings.of(flow))

    def take(count: int, payload: bool) -> tuple[dict[str, Any], list[str]]:
        outcomes = _outcomes(flow, count, handling)
        return document(outcomes), list(lines(outcomes, payload=payload))

    return take


def _outcomes(
    flow: Flow, count: int, handling: Callable[[TopicPartition, int], Handling]
) -> Sequence[SampleOutcome]:
    source, target = open_clusters(flow)
    with source, target:
        which = rules(flow)
        topics = [
            info
            for name, info in sorted(source.retry(source.topics).items())
            if explain(name, which, is_internal=info.is_internal).inside
        ]
        return sample(source, topics, count, handling)


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


def _shown(partition: int, record: DecodedRecord) -> str:
    headers = "".join(f" {content(name, _SHOWN)}={content(value, _SHOWN)}" for name, value in record.headers)
    return (
        f"partition {partition} time {record.timestamp} key {content(record.key, _SHOWN)} "
        f"value {content(record.value, _SHOWN)}{headers}"
    )
