"""A flow's consumer groups, planned, applied and followed: what the command line and the DAG call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from onceover.config.flowfile import Flow
from onceover.config.load import run_dir
from onceover.config.patterns import compiled
from onceover.engine.approval import Approval
from onceover.engine.groupapply import Announce, Applied, GroupSync, Pause
from onceover.engine.groupfollow import Followed, follow
from onceover.engine.groupmap import GroupMap
from onceover.engine.groupplan import Approves, GroupPlan
from onceover.engine.groups import Allowed, Direction
from onceover.engine.groupview import GroupReader
from onceover.engine.journal import Journal
from onceover.engine.scope import explain
from onceover.engine.translate import Translator
from onceover.wiring.flows import FlowWatch, open_clusters, rules


@dataclass(frozen=True)
class GroupWish:
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
        wanted = [compiled("--group", pattern) for pattern in self.patterns]
        return lambda name: not wanted or any(pattern.fullmatch(name) for pattern in wanted)


def plan_groups(flow: Flow, wish: GroupWish) -> GroupPlan:
    """Return what ``groups apply`` would do. Changes nothing."""
    with _opened(flow, wish) as sync:
        return sync.plan()


def apply_groups(flow: Flow, wish: GroupWish, announce: Announce, pause: Pause) -> Applied:
    """Put the flow's groups in place on the other side, once.

    Args:
        announce: shown the plan before anything is done.
        pause: waits so many seconds; True when it was asked to stop meanwhile.
    """
    with _opened(flow, wish) as sync:
        return sync.apply(announce, pause)


def follow_groups(
    flow: Flow, wish: GroupWish, interval_s: float, pause: Pause, tell: Callable[[str], None]
) -> Followed:
    """Keep the flow's groups in place on the other side until ``pause`` returns True."""
    with _opened(flow, wish) as sync:
        return follow(sync, interval_s, pause, tell)


def _copy_of(topic: str, flow: Flow) -> str | None:
    verdict = explain(topic, rules(flow))
    return verdict.target_topic if verdict.inside else None


@contextmanager
def _opened(flow: Flow, wish: GroupWish) -> Iterator[GroupSync]:
    asked = wish.selects()
    # The filter of the flow file is followed while a continuous sync runs.
    watch = FlowWatch(flow.path)
    home = run_dir(flow)
    source, target = open_clusters(flow)
    with (
        source,
        target,
        Translator(target, flow.flow, home, handled=flow.handler is not None) as translator,
        Journal(home / "journal" / "groups.jsonl", wish.approval) as journal,
    ):
        reader = GroupReader(
            flow.flow,
            wish.direction,
            source,
            target,
            GroupMap(translator),
            lambda name: watch.current().groups.selects(name) and asked(name),
            handled=flow.handler is not None,
            copies=lambda topic: _copy_of(topic, watch.current()),
        )
        try:
            yield GroupSync(reader, wish.allowed, journal, flow.state.replication_factor, wish.approves)
        finally:
            reader.close()
