"""What the command line asks of a running flow, through the state topic: stop, look again.

A request names the run it is meant for; another run ignores it, so an old request never stops a new
start. The leader takes requests back when they are done.
"""

from __future__ import annotations

import time

from onceover.engine import names
from onceover.engine.layout import Layout
from onceover.engine.leader import now_ms
from onceover.engine.statelog import StateLog
from onceover.errors import NeedsOperator, Retriable
from onceover.kafka.cluster import Cluster
from onceover.kafka.notes import NoteWriter
from onceover.model import TopicPartition

_POLL_S = 0.1


def read_layout(target: Cluster, flow: str) -> Layout | None:
    """Return the flow's layout, None when the flow was never started.

    Raises:
        Retriable: the target is not reachable.
    """
    topic = names.state_topic(flow)
    if topic not in target.retry(lambda: target.topics([topic])):
        return None
    state = StateLog(target, topic, names.STATE_LEADER)
    try:
        value = target.retry(lambda: state.catch_up(wait=False)).get(names.LAYOUT)
    finally:
        state.close()
    return None if value is None else Layout.from_json(value)


def stop_request(run: str) -> dict[str, object]:
    """Return the value of a request to stop ``run``; another run ignores it."""
    return {"v": 1, "run": run, "at_ms": now_ms()}


def request_stop(target: Cluster, flow: str, *, wait_s: float) -> dict[str, object]:
    """Ask the running flow to finish its open transactions and end; wait for it.

    Returns:
        generation, and whether it has ended within ``wait_s``.

    Raises:
        NeedsOperator: the flow was never started, or does not answer in time.
    """
    layout = read_layout(target, flow)
    if layout is None:
        raise NeedsOperator(
            f"flow {flow} has never been started on {target.alias}",
            code="NOT_STARTED",
            resolve=f"`onceover replicate {flow}` starts it",
        )
    if layout.ended_at_ms is not None:
        return {"generation": layout.generation, "stopped": True, "was_running": False}
    notes = NoteWriter(target.config, TopicPartition(names.state_topic(flow), names.STATE_OTHERS))
    state = StateLog(target, names.state_topic(flow), names.STATE_LEADER)
    try:
        notes.write(names.REQUEST_STOP, stop_request(layout.run))
        if _ended(target, state, layout, wait_s):
            return {"generation": layout.generation, "stopped": True, "was_running": True}
        # Nobody is left to take it back, and it must not lie about.
        notes.write(names.REQUEST_STOP, None)
    finally:
        notes.close()
        state.close()
    raise Retriable(
        f"flow {flow} did not end within {wait_s:.0f} s",
        code="NO_ANSWER",
        where=f"generation {layout.generation}, started on {layout.host}",
        resolve=f"see `onceover status {flow}`: if its driver was killed there is nothing to stop",
    )


def _ended(target: Cluster, state: StateLog, asked: Layout, wait_s: float) -> bool:
    deadline_s = time.monotonic() + wait_s
    while time.monotonic() < deadline_s:
        values = target.retry(lambda: state.catch_up(wait=False))
        now = Layout.from_json(values[names.LAYOUT])
        if now.run != asked.run or now.ended_at_ms is not None:
            return True
        time.sleep(_POLL_S)
    return False


def request_resume(target: Cluster, flow: str, partition: TopicPartition) -> None:
    """Ask the owning lane to look at a stopped partition again."""
    notes = NoteWriter(target.config, TopicPartition(names.state_topic(flow), names.STATE_OTHERS))
    try:
        notes.write(names.resume_key(*partition), {"v": 1, "at_ms": now_ms()})
    finally:
        notes.close()
