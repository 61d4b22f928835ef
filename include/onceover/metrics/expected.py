"""What a flow file asks for, as samples: whether somebody copies, by when, and how late it may be. Pure.

Invariant: whoever ended a run on purpose is taken at their word. A flow is wanted between two runs only where
its file says when the next one begins, and the last one came to its own end.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from onceover.config.flow.flowfile import Flow
from onceover.config.values import CONTINUOUS, longest_wait, next_time
from onceover.metrics import catalogue as m
from onceover.metrics.figures import Figures
from onceover.metrics.fromstatus import Entry
from onceover.state.codes import StateCode
from onceover.state.records.layout import DONE
from onceover.state.records.runstate import RunState

_ACTIVE: Final = (RunState.STARTING, RunState.RUNNING, RunState.GONE, RunState.FAILED)
# A driver that is gone never said that it ended: who is to be told of it is told by these samples alone.
_UNENDED: Final = (RunState.STARTING, RunState.RUNNING, RunState.GONE)
_BETWEEN: Final = (RunState.NOT_STARTED, RunState.ENDED, RunState.FENCED)
# What a run takes to catch up is within half of what it waits for.
_WAITS: Final = 1.5
_LIMIT_S: Final = 300.0
_MS: Final = 1000


def add_expected(figures: Figures, entry: Entry, flow: Flow, file_ms: float) -> None:
    """Add what the flow file asks for.

    Args:
        entry: what ``status`` says of the flow.
        flow: its file.
        file_ms: when that was written, in ms since 1970: nobody can have started the flow by it before.
    """
    name, rpo_ms = flow.flow, flow.objectives.rpo.age_ms
    figures.put(m.OBJECTIVE_RTO, flow.objectives.rto_ms / _MS, name)
    figures.put(m.OBJECTIVE_RPO, None if rpo_ms is None else rpo_ms / _MS, name)
    figures.put(m.LAG_LIMIT, lag_limit_s(flow), name)
    figures.put(m.WANTED, wanted(entry, flow), name)
    figures.put(m.RUN_DUE, run_due_s(entry, flow, file_ms), name)
    figures.put(m.AUDIT_WAIT, _seconds(longest_wait(flow.schedules.audit)), name)


def is_unended(state: RunState) -> bool:
    """Tell whether the newest run has not ended: its flow is looked at, whatever becomes of its file."""
    return state in _UNENDED


def lag_limit_s(flow: Flow) -> float:
    """Return how old the oldest missing record may be, in seconds."""
    if flow.objectives.rpo.age_ms is not None:
        return flow.objectives.rpo.age_ms / _MS
    wait_s = _seconds(longest_wait(flow.schedules.replicate))
    return max(_LIMIT_S, _WAITS * (wait_s or 0.0))


def wanted(entry: Entry, flow: Flow) -> float | None:
    """Return 1 where somebody is to copy, else 0; None where nobody knows how the newest run stands."""
    run: dict[str, Any] = entry["run"]
    state = RunState(run["state"])
    if state is RunState.UNKNOWN:
        return None
    interrupted = state is RunState.FENCED and any(n["code"] == StateCode.FENCED for n in entry["needs"])
    between = run["ended"] == DONE and longest_wait(flow.schedules.replicate) is not None
    return float(state in _ACTIVE or interrupted or (state is RunState.ENDED and between))


def run_due_s(entry: Entry, flow: Flow, file_ms: float) -> float | None:
    """Return when ``schedules.replicate`` has the next run begin, in seconds since 1970; None where one has
    begun and not ended, and where it has none begin.
    """
    run, schedule = entry["run"], flow.schedules.replicate
    if run["state"] not in _BETWEEN:
        return None
    since_s = max(run["since_ms"] or 0, file_ms) / _MS
    if schedule == CONTINUOUS:
        return since_s
    due = next_time(schedule, flow.flow, datetime.fromtimestamp(since_s, UTC))
    return None if due is None else due.timestamp()


def _seconds(wait: timedelta | None) -> float | None:
    return None if wait is None else wait.total_seconds()
