"""What a flow's handler would do to live records of its source, from the flow file."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import load_flow
from onceover.config.flow.runsettings import RunSettings
from onceover.errors import UsageError
from onceover.handlers.codes import HandlerCode
from onceover.handling.lanehandler import HandlerUse
from onceover.handling.sample import SampleOutcome, sample
from onceover.handling.sampled import document, lines
from onceover.kafka.ports import Cluster
from onceover.topics.scope import Rules, explain, in_scope
from onceover.wiring.apart import apart
from onceover.wiring.flows import open_clusters, rules
from onceover.wiring.handlers import sample_handling

# How an expression that means one topic is written.
_DOT: Final = re.compile(r"\\\.|\[\.\]")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


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
    with apart(flow, "onceover.wiring.sampling:sampler", {"path": str(flow.path)}) as sampler_there:
        return Sampled(*sampler_there(count, payload))


def sampler(path: str) -> Callable[[int, bool], tuple[dict[str, Any], list[str]]]:
    """Return what ``take_sample`` has done in a process of its own."""
    flow = load_flow(path)
    use, counts = sample_handling(flow, RunSettings.of(flow))

    def take(count: int, payload: bool) -> tuple[dict[str, Any], list[str]]:
        outcomes = _outcomes(flow, count, use, counts)
        return document(outcomes), list(lines(outcomes, payload=payload))

    return take


def _outcomes(
    flow: Flow, count: int, use: HandlerUse, counts: Callable[[int], int]
) -> Sequence[SampleOutcome]:
    source, target = open_clusters(flow)
    with source, target:
        which = rules(flow)
        topics = in_scope(source.retry(source.topics), which)
        _check_seen(source, which, topics)
        return sample(source, list(topics.values()), count, use, counts)


def _check_seen(source: Cluster, which: Rules, topics: Collection[str]) -> None:
    """Refuse a sample that is smaller than was asked for, or empty, for want of a right.

    Brokers leave out what may not be described; of names they say so. That others are missing nobody tells.

    Raises:
        UsageError: a topic that the flow file names may not be described; or none is there, or shown.
    """
    named = {name for pattern in which.include if _NAME.fullmatch(name := _DOT.sub(".", pattern))}
    unseen = [name for name in sorted(named - set(topics)) if explain(name, which).inside]
    for error in source.retry(lambda: source.hidden_topics(unseen)).values():
        raise error
    if not topics:
        raise UsageError(
            f"{source.alias} shows no topic of the flow: there is none yet, or DESCRIBE is missing on them",
            code=HandlerCode.NO_SAMPLE,
            where=source.alias,
            expected="a topic to read records from",
            resolve="grant the flow's principal DESCRIBE and READ on its topics (docs/operations.md), or "
            "make them first; `--explain` has all topics that are shown",
        )
