"""Part of the composition root: from a run's settings to its handler and its dead-letter topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from onceover.config.document import substitute
from onceover.config.faults import Invalid
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.runsettings import RunSettings
from onceover.config.home import variables
from onceover.errors import UsageError
from onceover.handlers.codes import HandlerCode
from onceover.handling.deadletter import topic_spec
from onceover.kafka.admin.topics import TopicSpec

if TYPE_CHECKING:
    from onceover.handlers.load import Handler
    from onceover.handling.lanehandler import HandlerUse, LaneHandler

# A group of batches is decompressed, made columns, handled and encoded: about five copies of it exist at
# the same time, beside the fetched bytes. Below the least, calls cost more than they carry.
_GROUP_SHARE = 32
_MIN_GROUP_BYTES = 256 << 10


def group_bytes(flow: Flow) -> int:
    """Return how much of a partition a handler is given at once, decompressed."""
    return max(_MIN_GROUP_BYTES, flow.limits.memory_per_lane_bytes // _GROUP_SHARE)


def dead_letter_of(on_bad_record: str) -> str | None:
    """Return the topic of ``dead_letter:<topic>``, None for ``stop``."""
    kind, _, topic = on_bad_record.partition(":")
    return topic if kind == "dead_letter" else None


def dead_letter_specs(run: RunSettings) -> list[TopicSpec]:
    """Return what the start creates on the target where it is missing."""
    topic = dead_letter_of(run.on_bad_record)
    return [] if topic is None else [topic_spec(topic)]


def target_partitions(flow: Flow, run: RunSettings) -> Callable[[int], int]:
    """Return how many partitions a target topic has for so many of the source.

    For the flow's own processes; others ask ``apart``.

    Raises:
        UsageError: the handler cannot be loaded.
    """
    handler = handler_of(flow, run)
    return (lambda count: count) if handler is None else handler.target_partitions


def handler_of(flow: Flow, run: RunSettings) -> Handler | None:
    """Return the flow's handler, loaded anew; None where it has none.

    Raises:
        UsageError: the handler cannot be loaded in this process.
    """
    if run.handler is None:
        return None
    # Arrow takes a quarter of a second to load, which flows without a handler do not pay.
    from onceover.handlers.load import load_handler

    return load_handler(run.handler, _arguments(str(flow.path), run.handler_args), str(flow.path))


def counts_of(path: str, handler: str, handler_args: Mapping[str, Any]) -> Callable[[int], int]:
    """Return a handler's ``target_partitions``; what the module ``apart`` has made in a child.

    Raises:
        UsageError: the handler cannot be loaded.
    """
    from onceover.handlers.load import load_handler

    return load_handler(handler, _arguments(path, handler_args), path).target_partitions


def lane_handler_of(flow: Flow, run: RunSettings) -> LaneHandler:
    """Return what one task of a lane does with records, its handler made anew.

    Raises:
        UsageError: the handler cannot be loaded in this process.
    """
    from onceover.handling.lanehandler import LaneHandler

    use = None
    handler = handler_of(flow, run)
    if handler is not None:
        from onceover.handling.forms import handler_use

        use = handler_use(handler, flow.flow, group_bytes(flow))
    return LaneHandler(flow.flow, flow.source.alias, use, dead_letter_of(run.on_bad_record))


def sample_handling(flow: Flow, run: RunSettings) -> tuple[HandlerUse, Callable[[int], int]]:
    """Return how a lane uses the handler, and how many target partitions there are for so many of the source.

    Raises:
        UsageError: the flow has no handler, or it cannot be loaded.
    """
    use = lane_handler_of(flow, run).use
    if use is None:
        raise UsageError("the flow has no handler", code=HandlerCode.NO_HANDLER, where=str(flow.path))
    return use, target_partitions(flow, run)


def _arguments(path: str, handler_args: Mapping[str, Any]) -> dict[str, object]:
    """Return ``handler_args`` with every ``${NAME}`` replaced, in the process that uses them (G10)."""
    try:
        return dict(substitute(dict(handler_args), variables()))
    except Invalid as error:
        problem, fix = error.problem, error.fix
    # Outside the handler: an exception's context must not carry text from the environment.
    raise UsageError(problem, code=HandlerCode.HANDLER, where=f"{path}: handler_args", resolve=fix)
