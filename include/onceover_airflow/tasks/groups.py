"""The tasks of the DAG ``sync_group_offsets``.

Invariant: a group is moved back, or over somebody else's commits, only where a person was shown exactly that
move, from where the group stands, and approved it; whatever else has come meanwhile is left alone and
reported.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowSkipException

from onceover_airflow.access.flowcontext import flow_at_hand
from onceover_airflow.approvals.approval import table
from onceover_airflow.approvals.markdown import code, plain
from onceover_airflow.errors import TaskFailed
from onceover_airflow.tasks.operation import OperationTasks, judge
from onceover_airflow.telling.assets import proven_uri

if TYPE_CHECKING:
    from airflow.sdk import Context

    from onceover.groups.plan import GroupPlan
    from onceover.planning.operation import Operation, Outcome, Pause
    from onceover.wiring.groups import GroupRequest

log = logging.getLogger(__name__)

# Outlet under which the flows' groups are announced: which flow it is, is known at run time only.
SYNCED_ALIAS: Final = "onceover_groups_synced"
ONCE: Final = "once"
FOLLOW_INTERVAL_S: Final = 10.0


class GroupTasks(OperationTasks["GroupPlan"]):
    """Plan, approve and apply where a flow's consumer groups go on on the other side."""

    plan_task = "plan_groups"
    approve_task = "approve_moves"
    apply_task = "apply_groups"
    subject = "Flow {{ params.flow }}: groups that would skip or repeat records"

    @contextmanager
    def opened(self, name: str, context: Context) -> Iterator[Operation[GroupPlan, Outcome]]:
        """Yield the flow's groups, put in place once or for a while, with both clusters open."""
        from onceover.config.units import parse_duration_ms
        from onceover.groups.follow import GroupFollowing
        from onceover.wiring import flows, groups

        until, making = (
            context["params"]["until"],
            partial(groups.group_sync, request=_request(context["params"])),
        )
        with flow_at_hand(name) as flow, flows.opened(flow, making) as sync:
            if until == ONCE:
                yield sync
            else:
                pause = _until(time.monotonic() + parse_duration_ms(until) / 1000)
                yield GroupFollowing(sync, FOLLOW_INTERVAL_S, pause)

    def wants_asking(self, context: Context) -> bool:
        """Tell whether the form wants a person asked: in scheduled runs nobody is."""
        return super().wants_asking(context) and bool(context["params"]["approve"])

    def question(self, planned: GroupPlan) -> str:
        """Return the moves that may skip or repeat records, as Markdown."""
        rows = [
            (plain(c.what), code(c.object), plain(c.from_), plain(c.to), plain(_risk(c.risk, c.records)))
            for c in (row.change for row in planned.risky)
        ]
        lines = table(("change", "of", "from", "to", "offsets"), rows)
        lines.append("Offsets are as of now; groups move. **Reject** writes nothing at all, for no group.")
        return "\n".join(lines)

    def finish(self, name: str, context: Context, outcome: Outcome) -> dict[str, Any]:
        """Announce the asset when every group of the flow is in place; return the counts.

        Raises:
            AirflowSkipException: the flow has no groups, so nothing is in place.
            JobInterrupted: a cluster does not answer; tried again, which goes on from there.
            TaskFailed: a group waits for somebody's decision, or no group is called as the form says.
        """
        params, counts = context["params"], {"flow": name, **outcome.counts}
        for refusal in outcome.waiting:
            log.warning("left alone: %s: %s; %s", refusal.object, refusal.message, refusal.resolve)
        judge(f"groups of flow {name}", outcome)
        if not counts["positions"]:
            raise _nobody(name, params["group"])
        if params["group"]:
            log.info(
                "not announced: the asset stands for all groups of the flow, and only some were asked for"
            )
            return counts
        uri = synced_uri(name, params)
        context["outlet_events"][AssetAlias(SYNCED_ALIAS)].add(Asset(uri), extra=counts)
        log.info("synced: %s", uri)
        return counts


GROUPS: Final = GroupTasks()


def _request(params: Mapping[str, Any]) -> GroupRequest:
    from onceover.groups.decide import Allowed, Direction
    from onceover.wiring.groups import GroupRequest

    patterns = [params["group"]] if params["group"] else []
    return GroupRequest(Direction(params["direction"]), patterns, Allowed(rewind=params["allow_rewind"]))


def synced_uri(flow: str, params: Mapping[str, Any]) -> str:
    """Return the asset of a flow's groups on the side that receives them."""
    with flow_at_hand(flow) as loaded:
        receiving = loaded.target if params["direction"] == "failover" else loaded.source
        return proven_uri(receiving.alias, f"{loaded.flow}.groups")


def _nobody(flow: str, pattern: str | None) -> Exception:
    """Return how the task ends when there was no position to put in place."""
    if pattern:
        return TaskFailed(
            f"flow {flow}: no group that {pattern} matches has offsets in the flow's topics; "
            f"to resolve: correct the pattern; all groups: onceover groups plan {flow}"
        )
    return AirflowSkipException(
        f"flow {flow}: no consumer group has offsets in the flow's topics: nothing was put in place"
    )


def _until(at_s: float) -> Pause:
    def pause(seconds: float) -> bool:
        left_s = max(0.0, at_s - time.monotonic())
        time.sleep(min(seconds, left_s))
        return time.monotonic() >= at_s

    return pause


def _risk(risk: str, records: int | None) -> str:
    return f"{risk} {'an unknown number' if records is None else records}"
