"""Operations on a flow's own clusters, opened and closed for one call, as a person's command does it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from onceover.config.flow.flowfile import Flow
from onceover.groups.apply import AppliedGroups
from onceover.groups.follow import Followed, GroupFollowing
from onceover.operate.repair import Repair, RepairRequest
from onceover.operate.repairapply import Repaired
from onceover.planning.approval import Approval
from onceover.planning.operation import Caller, Pause, Tell
from onceover.seeding.apply import Seeded
from onceover.seeding.plan import SeedPlan
from onceover.topics.sync import AppliedSync
from onceover.wiring.failovers.seeding import SeedingOptions, seeder
from onceover.wiring.flows import opened
from onceover.wiring.groups import GroupRequest, group_sync
from onceover.wiring.repairs import repairer
from onceover.wiring.topics import topic_sync

Announce = Callable[[Any], None]


def ignored(plan: object) -> None:
    """Take no notice of a plan."""


def at_once(seconds: float) -> bool:
    """Go on without a pause."""
    return False


def apply_topics(flow: Flow, announce: Announce = ignored) -> AppliedSync:
    """Bring topics in line."""
    with opened(flow, topic_sync) as sync:
        return sync.apply(Caller(announce))


def apply_groups(
    flow: Flow, request: GroupRequest, announce: Announce = ignored, pause: Pause = at_once
) -> AppliedGroups:
    """Put groups in place once."""
    with opened(flow, partial(group_sync, request=request)) as sync:
        return sync.apply(Caller(announce, pause=pause))


def follow_groups(flow: Flow, request: GroupRequest, interval_s: float, pause: Pause, tell: Tell) -> Followed:
    """Keep groups in place until ``pause`` returns True."""
    with opened(flow, partial(group_sync, request=request)) as sync:
        return GroupFollowing(sync, interval_s, pause, watch=pause).apply(Caller(ignored, tell))


def plan_repair(flow: Flow, request: RepairRequest) -> Repair:
    """Return what a repair would do."""
    with opened(flow, partial(repairer, request=request)) as repair:
        return repair.plan()


def apply_repair(
    flow: Flow, request: RepairRequest, announce: Announce = ignored, approval: Approval | None = None
) -> Repaired:
    """Repair."""
    with opened(flow, partial(repairer, request=request)) as repair:
        return repair.apply(Caller(announce), approval)


def plan_seed(flow: Flow, request: SeedingOptions) -> SeedPlan:
    """Return what seeding would do."""
    with opened(flow, partial(seeder, request=request)) as seeding:
        return seeding.plan()


def apply_seed(
    flow: Flow, request: SeedingOptions, announce: Announce = ignored, approval: Approval | None = None
) -> Seeded:
    """Seed."""
    with opened(flow, partial(seeder, request=request)) as seeding:
        return seeding.apply(Caller(announce), approval)
