"""A flow's consumer groups as an operation, for the command line and the DAG ``sync_group_offsets``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import run_dir
from onceover.config.patterns import matcher
from onceover.groups.apply import GroupSync
from onceover.groups.decide import Allowed, Direction
from onceover.groups.forerunners import Forerunners, Promoters, promoters_of
from onceover.groups.moment import GroupMap
from onceover.groups.view import GroupReader
from onceover.kafka.ports import Cluster
from onceover.positions.translate import Translator
from onceover.topics.otherflows import OtherFlows
from onceover.topics.scope import explain
from onceover.wiring.flows import journal_of, rules
from onceover.wiring.watch import FlowWatch


@dataclass(frozen=True)
class GroupRequest:
    """What a person asks for beside the flow file.

    Args:
        direction: which way groups are moved.
        patterns: anchored regular expressions; only groups that one of them matches. Empty: all of the flow.
        allowed: what is allowed beyond moving forward.
    """

    direction: Direction = Direction.FAILOVER
    patterns: Sequence[str] = ()
    allowed: Allowed = field(default_factory=Allowed)

    def selects(self) -> Callable[[str], bool]:
        """Return what tells whether a group was asked for.

        Raises:
            UsageError: a pattern is no regular expression.
        """
        return matcher("--group", self.patterns) or (lambda _: True)


def _copy_of(topic: str, flow: Flow) -> str | None:
    verdict = explain(topic, rules(flow))
    return verdict.target_topic if verdict.inside else None


def _forerunners(source: Cluster, target: Cluster) -> Forerunners:
    """Return what asks the flows that have brought the source's topics from the target, and promoted them."""
    others = OtherFlows(source)

    def find() -> Promoters:
        here, there = source.cluster_id(), target.cluster_id()
        return promoters_of(others.read(source.topics()), others.unreadable, here, there)

    return Forerunners(source, find, run_dir, others.close)


@contextmanager
def group_sync(flow: Flow, source: Cluster, target: Cluster, request: GroupRequest) -> Iterator[GroupSync]:
    """Yield what puts the flow's groups in place on the other side."""
    with group_reader(flow, source, target, request) as reader:
        yield GroupSync(reader, request.allowed, journal_of(flow, "groups"), flow.state.replication_factor)


@contextmanager
def group_reader(
    flow: Flow, source: Cluster, target: Cluster, request: GroupRequest
) -> Iterator[GroupReader]:
    """Yield what looks at the flow's groups on both sides."""
    asked = request.selects()
    # The filter of the flow file is followed while a continuous sync runs.
    watch = FlowWatch(flow.path, begun_with=flow)
    handled = flow.handler is not None
    with Translator(target, flow.flow, run_dir(flow), handled=handled) as translator:
        reader = GroupReader(
            flow.flow,
            request.direction,
            source,
            target,
            GroupMap(translator),
            lambda name: watch.current().groups.selects(name) and asked(name),
            handled=handled,
            copies=lambda topic: _copy_of(topic, watch.current()),
            forerunners=lambda giving: _forerunners(giving, target),
        )
        try:
            yield reader
        finally:
            reader.close()
