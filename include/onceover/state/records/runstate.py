"""How the run of a flow stands: starting, running, ended, failed, gone or fenced. Pure.

Invariant: a driver that shows no sign of life and has not said that it ended is never taken for one that
runs, nor for one that ended in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from onceover.ages import age_text
from onceover.state.codes import StateCode
from onceover.state.fencing import START_DEADLINE_S
from onceover.state.records.layout import FAILED, Layout
from onceover.state.records.value import mapping, record

# The driver shows a sign of life every 5 s; three missed ones and it counts as gone.
SILENT_AFTER_MS: Final = 20_000
# Fencing older lanes, the first discovery and Spark's start come before the first sign of life.
_STARTING_MS: Final = START_DEADLINE_S * 1000


class RunState(StrEnum):
    """NOT_STARTED: never. STARTING: no sign of life yet. RUNNING: shows signs of life. ENDED: was asked to,
    or was done. FAILED: ended with an error. GONE: silent, and never said that it ended. FENCED: an
    operator's change stopped everybody, and nobody has started since. PROMOTED: likewise, by a switchover
    that has given all that the flow had copied to clients. UNKNOWN: the target does not answer.
    """

    NOT_STARTED = "not_started"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"
    GONE = "gone"
    FENCED = "fenced"
    PROMOTED = "promoted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRun:
    """The newest run of a flow.

    Args:
        state: how it stands.
        since_ms: since when, in ms since 1970; of a driver that is gone, its last sign of life.
        started_ms: when it started.
        host: where; ``pid`` of its driver, where that is known.
        ended: ``done``, ``asked`` or ``failed``; None while it has not ended, or when it did not say.
        error: what it failed with.
        passes: whether that passes by itself.
        interrupted: of a fenced one, whether there is a copy that has to be started again.
        begun_by: which run of a DAG has begun it; None where it was none.
    """

    state: RunState
    since_ms: int | None = None
    started_ms: int | None = None
    host: str | None = None
    pid: int | None = None
    ended: str | None = None
    error: str | None = None
    passes: bool = False
    interrupted: bool = False
    begun_by: str | None = None

    @property
    def lives(self) -> bool:
        """Whether somebody copies, or is about to."""
        return self.state in (RunState.STARTING, RunState.RUNNING)

    def document(self, now_ms: float) -> dict[str, Any]:
        """Return the ``run`` object of ``status``."""
        return {
            "state": str(self.state),
            "since_ms": self.since_ms,
            "since_s": None if self.since_ms is None else _seconds(now_ms, self.since_ms),
            "started_ms": self.started_ms,
            "host": self.host,
            "pid": self.pid,
            "ended": self.ended,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class _Beat:
    run: str
    at_ms: int
    pid: int
    # When the source has answered the driver last; older releases did not say.
    source_ms: int = 0


def read_heartbeat(value: object) -> dict[str, Any] | None:
    """Return the newest sign of life in a state value; None where there is none.

    Raises:
        NeedsOperator: STATE_UNREADABLE, it is something else.
    """
    return None if value is None else asdict(record(_Beat, mapping(value, "heartbeat"), "heartbeat"))


def run_of(
    layout: Layout | None, heartbeat: Mapping[str, Any] | None, now_ms: float, *, promoted: bool = False
) -> FlowRun:
    """Return how the run stands.

    Args:
        layout: the flow's newest.
        heartbeat: the newest sign of life, of whichever run.
        now_ms: the time, in ms since 1970.
        promoted: whether all that the flow has copied was given to clients.
    """
    if layout is None:
        return FlowRun(state=RunState.NOT_STARTED)
    own = heartbeat if heartbeat is not None and heartbeat["run"] == layout.run else None
    since_ms = layout.started_at_ms if own is None else own["at_ms"]
    ended = layout.ended_at_ms is not None
    if layout.ended_at_ms is not None:
        state = RunState.FAILED if layout.ended_why == FAILED else RunState.ENDED
        since_ms = layout.ended_at_ms
    elif layout.seized:
        state = RunState.PROMOTED if promoted else RunState.FENCED
    elif own is None or not layout.ready:
        state = RunState.STARTING if now_ms - since_ms < _STARTING_MS else RunState.GONE
    else:
        state = RunState.RUNNING if now_ms - since_ms < SILENT_AFTER_MS else RunState.GONE
    return FlowRun(
        state=state,
        since_ms=layout.started_at_ms if state is RunState.RUNNING else since_ms,
        started_ms=layout.started_at_ms,
        host=layout.host,
        pid=None if own is None or ended else own["pid"],
        ended=layout.ended_why,
        error=layout.ended_error,
        passes=layout.ended_passes,
        interrupted=state is RunState.FENCED and layout.interrupted,
        begun_by=layout.begun_by,
    )


def driver_entry(layout: Layout | None, heartbeat: Mapping[str, Any] | None, now_ms: float) -> Any:
    """Return the ``driver`` object of ``status``: the newest sign of life, None where there is none."""
    if (
        heartbeat is None
        or layout is None
        or heartbeat["run"] != layout.run
        or layout.ended_at_ms is not None
    ):
        return None
    silent_ms = max(0, int(now_ms) - heartbeat["at_ms"])
    return {
        "host": layout.host,
        "pid": heartbeat["pid"],
        "silent_ms": silent_ms,
        "alive": silent_ms < SILENT_AFTER_MS,
    }


def source_heard_ms(layout: Layout | None, heartbeat: Mapping[str, Any] | None) -> int | None:
    """Return when the source has answered the newest run's driver last; None where nobody has told."""
    if heartbeat is None or layout is None or heartbeat["run"] != layout.run:
        return None
    return heartbeat.get("source_ms") or None


def run_need(flow: str, run: FlowRun, now_ms: float) -> dict[str, Any] | None:
    """Return why the run needs a person, None where it does not."""
    start = f"`onceover replicate {flow}` starts it again: it goes on where it was"
    ago = "" if run.since_ms is None else age_text(_seconds(now_ms, run.since_ms))
    where = f"on {run.host}" if run.pid is None else f"{run.pid} on {run.host}"
    if run.state is RunState.GONE:
        message = f"its driver {where} is gone: no sign of life for {ago}, and it never said that it ended"
        return {"code": StateCode.DRIVER_GONE, "message": message, "resolve": start}
    if run.state is RunState.FAILED:
        message = f"its run on {run.host} failed {ago} ago: {run.error or 'it did not say why'}"
        resolve = start if run.passes else f"correct the cause, then {start}"
        return {"code": StateCode.RUN_FAILED, "message": message, "resolve": resolve}
    if run.state is RunState.FENCED and run.interrupted:
        message = f"a change of its progress {ago} ago fenced a copy that had not ended, and nobody copies"
        return {"code": StateCode.FENCED, "message": message, "resolve": start}
    return None


def describe_run(run: Mapping[str, Any]) -> str:
    """Return the ``run`` object in words, for people."""
    state, ago = run["state"], "" if run["since_s"] is None else age_text(run["since_s"])
    if state == RunState.ENDED:
        how = {"done": "it was done", "asked": "it was asked to"}.get(run["ended"] or "")
        return f"ended {ago} ago" + (f": {how}" if how else "")
    words = {
        RunState.NOT_STARTED: "not started yet",
        RunState.STARTING: f"starting since {ago}",
        RunState.RUNNING: f"running for {ago} on {run['host']}",
        RunState.FAILED: f"failed {ago} ago",
        RunState.GONE: f"gone: no sign of life for {ago}",
        RunState.FENCED: f"waits for its next start since {ago}: its progress was changed by hand",
        RunState.PROMOTED: f"over since {ago}: a switchover has given all of its copies to clients",
    }
    return words.get(state, "not known")


def _seconds(now_ms: float, at_ms: int) -> float:
    return round(max(0.0, (now_ms - at_ms) / 1000), 3)
