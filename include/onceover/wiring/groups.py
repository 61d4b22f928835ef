"""A flow's consumer groups, planned, applied and followed: what the command line and the DAG call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from onceover.config.flowfile import Flow
from onceover.config.load import run_dir
from onceover.config.patterns import check_typed
from onceover.groups.apply import Announce, AppliedGroups, GroupSync, Pause
from onceover.groups.decide import Allowed, Direction
from onceover.groups.follow import Followed, follow
from onceover.groups.moment import GroupMap
from onceover.groups.plan import Approves, GroupPlan
from onceover.groups.view import GroupReader
from onceover.namematch import names_whole
from onceover.planning.approval import Approval
from onceover.planning.counted import Counted, uncounted
from onceover.planning.journal import Journal
from onceover.positions.translate import Translator
from onceover.topics.scope import explain
from onceover.wiring.flows import FlowWatch, open_clusters, rules


@dataclass(frozen=True)
class GroupRequest:
    """What a person asks for beside the flow file.

    Args:
        direction: which way groups are moved.
        patterns: anchored regular expressions; only groups that one of them matches. Empty: all of the flow.
        allowed: what is allowed beyond moving forward.
        approves: asked about each row that may skip, repeat or remove something; None approves all.
        approval: behind ``approves``, for the journal.
    """

    direction: Direction = Direction.FAILOVER
    patterns: Sequence[str] = ()
    allowed: Allowed = field(default_factory=Allowed)
    approves: Approves | None = None
    approval: Approval | None = None

    def selects(self) -> Callable[[str], bool]:
        """Return what tells whether a group was asked for.

        Raises:
            UsageError: a pattern is no regular expression.
        """
        wanted = [check_typed("--group", pattern) for pattern in self.patterns]
        return lambda name: not wanted or any(names_whole(pattern, name) for pattern in wanted)


def plan_groups(flow: Flow, request: GroupRequest) -> GroupPlan:
    """Return what ``groups apply`` would do. Changes nothing."""
    with _opened(flow, request) as sync:
        return sync.plan()


def apply_groups(
    flow: Flow, request: GroupRequest, announce: Announce, pause: Pause, counted: Counted = uncounted
) -> AppliedGroups:
    """Put the flow's groups in place on the other side, once.

    Args:
        announce: shown the plan before anything is done.
        pause: waits so many seconds; True when it was asked to stop meanwhile.
        counted: told meanwhile how many groups of how many are done with.
    """
    with _opened(flow, request) as sync:
        return sync.apply(announce, pause, counted)


def follow_groups(
    flow: Flow, request: GroupRequest, interval_s: float, pause: Pause, tell: Callable[[str], None]
) -> Followed:
    """Keep the flow's groups in place on the other side until ``pause`` returns True."""
    with _opened(flow, request) as sync:
        return follow(sync, interval_s, pause, tell)


def _copy_of(topic: str, flow: Flow) -> str | None:
    verdict = explain(topic, rules(flow))
    return verdict.target_topic if verdict.inside else None


@contextmanager
def _opened(flow: Flow, request: GroupRequest) -> Iterator[GroupSync]:
    asked = request.selects()
    # The filter of the flow file is followed while a continuous sync runs.
    watch = FlowWatch(flow.path)
    home = run_dir(flow)
    source, target = open_clusters(flow)
    with (
        source,
        target,
        Translator(target, flow.flow, home, handled=flow.handler is not None) as translator,
        Journal(home / "journal" / "groups.jsonl", request.approval) as journal,
    ):
        reader = GroupReader(
            flow.flow,
            request.direction,
            source,
            target,
            GroupMap(translator),
            lambda name: watch.current().groups.selects(name) and asked(name),
            handled=flow.handler is not None,
            copies=lambda topic: _copy_of(topic, watch.current()),
        )
        try:
            yield GroupSync(reader, request.allowed, journal, flow.state.replication_factor, request.approves)
        finally:
            reader.close()
