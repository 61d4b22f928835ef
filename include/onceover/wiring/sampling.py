"""What a flow's handler would do to live records of its source, from the flow file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import load_flow
from onceover.config.flow.runsettings import RunSettings
from onceover.errors import UsageError
from onceover.handlers.codes import HandlerCode
from onceover.handling.lanehandler import HandlerUse
from onceover.handling.sample import SampleOutcome, sample
from onceover.handling.sampled import document, lines
from onceover.topics.scope import in_scope
from onceover.wiring.apart import apart
from onceover.wiring.flows import open_clusters, rules
from onceover.wiring.handlers import sample_handling


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
        topics = in_scope(source.retry(source.topics), rules(flow))
        return sample(source, list(topics.values()), count, use, counts)
