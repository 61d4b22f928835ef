"""What a person wants to know before saying yes: how long a connector stands, and what waits for it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from onceover.connectors.model import PAUSED, RUNNING, STOPPED, ConnectorOffsets, ConnectorPlan
from onceover.connectors.offsets.keys import snapshot_state
from onceover.connectors.planning import debezium
from onceover.connectors.planning.view import ConnectorView

# Measured on an idle cluster: the stop, the looks at topics, one transaction, a change of configuration that
# has to last for some seconds, the start.
STANDSTILL_S: Final = 7.0
_MIRROR: Final = "org.apache.kafka.connect.mirror."
_UNMOVED: Final = ("CheckpointConnector", "HeartbeatConnector")


def foreseen(
    plan: ConnectorPlan, view: ConnectorView, settle_s: float, *, stays_stopped: bool = False
) -> ConnectorPlan:
    """Return a plan that also says how long the connector stands still, and what that means for its system.

    Args:
        settle_s: between the two looks that have to be equal; 0 where a fence holds.
        stays_stopped: the plan does not end with a resume.
    """
    if not plan.changes:
        return plan
    stops = any(change.what == "stop" for change in plan.changes)
    stands = stays_stopped or view.initial_state == STOPPED
    outage_s = STANDSTILL_S + settle_s if stops and view.initial_state == RUNNING and not stands else None
    state = _snapshot_of(view.own_offsets() if view.configured else view.base_offsets())
    return replace(
        plan,
        outage_s=outage_s,
        snapshot=state,
        notes=(*plan.notes, *_notes(view, outage_s, state, stays_stopped=stays_stopped)),
        warnings=(*plan.warnings, *_warnings(view, stands=stands, stops=stops)),
    )


def quiet_hint(config: Mapping[str, str]) -> str | None:
    """Return why a connector may write no new offset although all is well; None where nothing is known."""
    if _plugin(config).startswith(_MIRROR) and _plugin(config).endswith(_UNMOVED):
        return (
            "it writes the same offset for ever and does not go by it: nothing ever shows that it goes on "
            "(unverifiable, exit code 3), and nothing can be lost by that"
        )
    return debezium.silence(config)


def _notes(
    view: ConnectorView, outage_s: float | None, state: str | None, *, stays_stopped: bool
) -> Iterator[str]:
    if stays_stopped:
        yield (
            f"stays {STOPPED} after it, until the workers are without exactly-once and this command is run "
            "again"
        )
    elif view.initial_state == STOPPED:
        yield f"is {STOPPED}, and stays so: resume it, then verify"
    elif view.initial_state == PAUSED:
        # After a stop the workers start none for it (4.3.0); a pause alone leaves them standing.
        yield f"is {PAUSED}, and stays so; its tasks begin again when it is resumed: resume it, then verify"
    elif outage_s is not None:
        yield f"stands still for about {outage_s:.0f} s, longer where its tasks do not end at once"
    if state is not None:
        yield f"its snapshot is {state}"


def _warnings(view: ConnectorView, *, stands: bool, stops: bool) -> Iterator[str]:
    config = view.state.config
    yield from debezium.start_warnings(config)
    yield from debezium.standing_warnings(config, stops=stops, stands=stands)
    hint = quiet_hint(config)
    if hint is not None and not stands and view.initial_state == RUNNING:
        yield hint


def _snapshot_of(offsets: ConnectorOffsets | None) -> str | None:
    states = {snapshot_state(value) for value in offsets.offsets.values()} if offsets else set()
    known = sorted(state for state in states if state is not None)
    return ", ".join(known) or None


def _plugin(config: Mapping[str, str]) -> str:
    return config.get("connector.class", "")
