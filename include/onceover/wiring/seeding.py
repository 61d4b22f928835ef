"""Seeding and adoption for a flow file: what the command line and the DAG ``seed_progress`` call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from onceover.config.flowfile import Flow
from onceover.config.load import load_flow, run_dir
from onceover.config.patterns import check_typed
from onceover.errors import UsageError
from onceover.planning.approval import Approval
from onceover.planning.counted import Counted, uncounted
from onceover.planning.journal import Journal
from onceover.seeding import spec as seedspec
from onceover.seeding.adopt import MirrorMakerNames, MirrorMakerOrigin
from onceover.seeding.apply import Seeded, Seeder, SeedingRequest
from onceover.seeding.frommap import LagOrigin, MapOrigin
from onceover.seeding.origins import (
    FileOrigin,
    FlowOrigin,
    GroupOrigin,
    LogOrigin,
    Origin,
)
from onceover.seeding.plan import Choice, SeedPlan
from onceover.seeding.seamsearch import DEFAULT_LIMIT
from onceover.topics.own import StateSettings
from onceover.wiring.flows import identity, open_clusters, rules
from onceover.wiring.offsetfiles import ReadFile, read_file

SEED: Final = "seed"
ADOPT: Final = "adopt"
Announce = Callable[[SeedPlan], None]


@dataclass(frozen=True)
class Adoption:
    """Which MirrorMaker 2 is taken over; None takes what the flow file and dedicated mode imply.

    Args:
        source: MirrorMaker's alias of the source cluster; ``target`` likewise.
        offsets_topic: Connect's offsets topic on the target; ``configs_topic`` its configuration.
        group: Connect's group of workers on the target.
        workers_stay: the connector was stopped in a Connect cluster whose workers go on.
        decided: file of offsets for partitions that cannot be proven.
        window: records of a partition to compare at most.
        topics: regular expression over source topics.
    """

    source: str | None = None
    target: str | None = None
    offsets_topic: str | None = None
    configs_topic: str | None = None
    group: str | None = None
    workers_stay: bool = False
    decided: str | None = None
    window: int = DEFAULT_LIMIT
    topics: str | None = None


def plan_seed(
    flow: Flow, origin: str, choice: Choice, topics: str | None = None, *, read: ReadFile = read_file
) -> SeedPlan:
    """Return what seeding from ``origin`` (the value of ``--from``) would do. Changes nothing.

    ``read`` returns the text of the file that it may name.
    """
    with _seeder(flow, origin, choice, topics, read) as seeder:
        return seeder.plan()


def apply_seed(
    flow: Flow,
    origin: str,
    choice: Choice,
    announce: Announce,
    topics: str | None = None,
    approval: Approval | None = None,
    *,
    read: ReadFile = read_file,
    counted: Counted = uncounted,
) -> Seeded:
    """Seed the flow's progress.

    Args:
        origin: the value of ``--from``.
        announce: shown the plan before anything is done.
        topics: regular expression over source topics, None for all in scope.
        approval: what somebody has said yes to; None for what ``announce`` is shown first.
        read: returns the text of the file that the origin may name.
        counted: told meanwhile how many positions of how many are written.
    """
    with _seeder(flow, origin, choice, topics, read) as seeder, _journal(flow, SEED, approval) as journal:
        return seeder.apply(journal, announce, approval, counted)


def plan_adoption(flow: Flow, request: Adoption, *, read: ReadFile = read_file) -> SeedPlan:
    """Return what taking over a MirrorMaker 2 flow would do. Changes nothing.

    ``read`` returns the text of the file of decided offsets.
    """
    with _adopter(flow, request, read) as seeder:
        return seeder.plan()


def apply_adoption(
    flow: Flow,
    request: Adoption,
    announce: Announce,
    approval: Approval | None = None,
    *,
    read: ReadFile = read_file,
    counted: Counted = uncounted,
) -> Seeded:
    """Take over a MirrorMaker 2 flow that was stopped.

    Args:
        announce: shown the plan before anything is done.
        approval: what somebody has said yes to; None for what ``announce`` is shown first.
        read: returns the text of the file of decided offsets.
        counted: told meanwhile how many positions of how many are written.
    """
    with _adopter(flow, request, read) as seeder, _journal(flow, ADOPT, approval) as journal:
        return seeder.apply(journal, announce, approval, counted)


def _adopter(flow: Flow, request: Adoption, read: ReadFile) -> AbstractContextManager[Seeder]:
    mirror = MirrorMakerNames.dedicated(
        request.source or flow.source.alias, request.target or flow.target.alias
    )
    if request.offsets_topic and request.offsets_topic != mirror.offsets_topic:
        mirror = mirror.elsewhere(request.offsets_topic, request.configs_topic, request.group)
    mirror = replace(
        mirror,
        configs_topic=request.configs_topic or mirror.configs_topic,
        group=request.group or mirror.group,
        workers_stay=request.workers_stay,
    )
    decided = seedspec.parse_offsets(read(request.decided), request.decided) if request.decided else {}
    origin = MirrorMakerOrigin(mirror, decided, request.window)
    return open_seeder(flow, ADOPT, origin, Choice(), request.topics)


def _journal(flow: Flow, operation: str, approval: Approval | None) -> Journal:
    return Journal(run_dir(flow) / "journal" / f"{operation}.jsonl", approval)


@contextmanager
def _seeder(flow: Flow, origin: str, choice: Choice, topics: str | None, read: ReadFile) -> Iterator[Seeder]:
    spec = seedspec.parse_origin(origin)
    with ExitStack() as stack:
        named = _origin(flow, spec, stack, read)
        yield stack.enter_context(open_seeder(flow, SEED, named, choice, topics))


@contextmanager
def open_seeder(
    flow: Flow, operation: str, origin: Origin, choice: Choice, topics: str | None
) -> Iterator[Seeder]:
    """Yield what plans and applies, with both clusters open.

    Raises:
        UsageError: ``topics`` is no regular expression.
    """
    if topics is not None:
        check_typed("--topic", topics)
    state = StateSettings(flow.state.replication_factor, flow.state.map_retention_ms)
    request = SeedingRequest(operation, rules(flow), flow.topics.sync_configs, state, choice, topics)
    source, target = open_clusters(flow)
    with source, target:
        yield Seeder(identity(flow), request, origin, source, target)


def _origin(flow: Flow, spec: seedspec.OriginSpec, stack: ExitStack, read: ReadFile) -> Origin:
    match spec.kind:
        case seedspec.GROUP:
            return GroupOrigin(spec.value)
        case seedspec.TIMESTAMP:
            return LogOrigin(seedspec.parse_timestamp_ms(spec.value))
        case seedspec.FILE:
            return FileOrigin(seedspec.parse_offsets(read(spec.value), spec.value), spec.value)
        case seedspec.MAP:
            return MapOrigin(flow.handler is not None)
        case seedspec.LAG_GROUP:
            return LagOrigin()
        case seedspec.FLOW:
            return _other_flow(flow, spec.value, stack)
        case start:
            return LogOrigin(start)


def _other_flow(flow: Flow, ref: str, stack: ExitStack) -> FlowOrigin:
    other = load_flow(ref)
    if other.flow == flow.flow:
        raise UsageError(f"flow {flow.flow} cannot be seeded from itself", resolve="see `--from map`")
    source, target = open_clusters(other)
    stack.enter_context(source)
    return FlowOrigin(other.flow, stack.enter_context(target))
