"""Seeding and adoption of a flow as operations, for the command line and the DAG ``seed_progress``."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import load_flow
from onceover.config.patterns import check_typed
from onceover.drills.leaving.fences import shut
from onceover.drills.switching.switchover import check_brought_over
from onceover.errors import UsageError
from onceover.kafka.ports import Cluster
from onceover.planning.operation import wait
from onceover.seeding import spec as seedspec
from onceover.seeding.adopt import MirrorMakerNames, MirrorMakerOrigin
from onceover.seeding.apply import Seeder, SeedingRequest
from onceover.seeding.frommap import LagOrigin, MapOrigin
from onceover.seeding.origins import (
    FileOrigin,
    FlowOrigin,
    GroupOrigin,
    LogOrigin,
    Origin,
)
from onceover.seeding.plan import Choice
from onceover.seeding.promoted import PromotedOrigin, records_that_may_count
from onceover.seeding.seamsearch import DEFAULT_LIMIT
from onceover.topics.own import StateSettings
from onceover.wiring.failovers.drills import drill_journal, enrolled_of
from onceover.wiring.failovers.fences import let_in
from onceover.wiring.flows import identity, journal_of, open_clusters, rules
from onceover.wiring.offsetfiles import ReadFile, read_file

SEED: Final = "seed"
ADOPT: Final = "adopt"


@dataclass(frozen=True)
class AdoptionOptions:
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


@dataclass(frozen=True)
class SeedingOptions:
    """What is asked for.

    Args:
        origin: the value of ``--from``.
        choice: the operator's answers.
        topics: regular expression over source topics, None for all in scope.
    """

    origin: str
    choice: Choice
    topics: str | None = None


@contextmanager
def seeder(
    flow: Flow, source: Cluster, target: Cluster, request: SeedingOptions, *, read: ReadFile = read_file
) -> Iterator[Seeder]:
    """Yield what seeds the flow's progress; ``read`` returns the text of the file that the origin may name.

    Raises:
        UsageError: the origin is none, or the topics are no regular expression.
    """
    spec = seedspec.parse_origin(request.origin)
    with ExitStack() as stack:
        origin = _origin(flow, source, target, spec, stack, read)
        yield _seeder(flow, source, target, SEED, origin, request.choice, request.topics)


@contextmanager
def adopter(
    flow: Flow, source: Cluster, target: Cluster, request: AdoptionOptions, *, read: ReadFile = read_file
) -> Iterator[Seeder]:
    """Yield what takes over a MirrorMaker 2 flow that was stopped; ``read`` returns the text of the file of
    decided offsets.

    Raises:
        UsageError: that file is not in order, or the topics are no regular expression.
    """
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
    yield _seeder(flow, source, target, ADOPT, origin, Choice(), request.topics)


def _seeder(
    flow: Flow,
    source: Cluster,
    target: Cluster,
    operation: str,
    origin: Origin,
    choice: Choice,
    topics: str | None,
) -> Seeder:
    if topics is not None:
        check_typed("--topic", topics)
    state = StateSettings(flow.state.replication_factor, flow.state.map_retention_ms)
    request = SeedingRequest(operation, rules(flow), flow.topics.sync_configs, state, choice, topics)
    return Seeder(identity(flow), request, origin, source, target, journal_of(flow, operation))


def _origin(
    flow: Flow,
    source: Cluster,
    target: Cluster,
    spec: seedspec.OriginSpec,
    stack: ExitStack,
    read: ReadFile,
) -> Origin:
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
        case seedspec.PROMOTED:
            promoted = _another(flow, spec.value, "`--from promoted:` takes the flow the other way")
            written = partial(records_that_may_count, target)
            return PromotedOrigin(promoted.flow, written, _PromotedFences(promoted, source))
        case start:
            return LogOrigin(start)


@dataclass(frozen=True)
class _PromotedFences:
    """Fences of the flow whose copies were promoted; its journal is on this flow's ``source``."""

    flow: Flow
    source: Cluster

    def shut(self) -> Collection[str]:
        """Return what everybody is kept off."""
        with drill_journal(self.flow, self.source, wait) as journal:
            return shut(journal.read())

    def lift(self, topics: Collection[str]) -> None:
        """Let in whoever is kept off, with the clients of that flow, which has made the fence."""
        with drill_journal(self.flow, self.source, wait) as journal:
            enrolled = [e for e in enrolled_of(self.flow, self.source) if e.source in topics]
            check_brought_over(self.flow.flow, journal.read(), enrolled)
        let_in(self.flow, topics, wait, which=shut)


def _another(flow: Flow, ref: str, meant: str) -> Flow:
    other = load_flow(ref)
    if other.flow == flow.flow:
        raise UsageError(f"flow {flow.flow} cannot be seeded from itself", resolve=meant)
    return other


def _other_flow(flow: Flow, ref: str, stack: ExitStack) -> FlowOrigin:
    other = _another(flow, ref, "see `--from map`")
    source, target = open_clusters(other)
    stack.enter_context(source)
    return FlowOrigin(other.flow, stack.enter_context(target))
