"""What the command line asks of a running flow, through the state topic: stop, look again.

A request names the run, or the stop, that it is meant for; any other ignores it, so an old request never
stops a new start, and no two machines' clocks are compared. Who asks takes back only their own, and only what
was not answered: what was stays, for whoever starts that very run anew because it was killed as it ended.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

from onceover.backoff import Deadline
from onceover.clock import now_ms
from onceover.errors import Fenced, Retriable
from onceover.kafka import calls
from onceover.kafka.ports import Cluster
from onceover.kafka.produce.notes import NoteWriter
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.state import names
from onceover.state.committed import told_beside
from onceover.state.log import StateLog
from onceover.state.read import read_layout
from onceover.state.records.layout import Layout, layout_in, never_started
from onceover.stops.codes import RequestCode
from onceover.stops.record import Stop, readable_stop, stopped_in

_POLL_S = 0.1
# How long the progress group is asked for, which a run that lives is stopped without.
_BESIDE_S = 10.0


def stop_request(run: str) -> dict[str, object]:
    """Return the value of a request to stop ``run``; another run ignores it."""
    # The id tells two people's requests apart.
    return {"v": 1, "run": run, "at_ms": now_ms(), "id": secrets.token_hex(8)}


def asks_to_stop(request: object, run: str) -> bool:
    """Tell whether what stands in the state asks ``run`` to stop; what is no request asks for nothing."""
    return isinstance(request, Mapping) and request.get("run") == run


def asked_to_end(values: Mapping[str, Any], run: str) -> bool:
    """Tell whether ``run`` is to finish what it has begun, by a person's wish or its leader's.

    Args:
        values: of the state.
    """
    return any(asks_to_stop(values.get(key), run) for key in (names.REQUEST_STOP, names.REQUEST_FINISH))


def asked_to_look_again(values: Mapping[str, Any]) -> frozenset[tuple[str, int]]:
    """Return the requests to look again at partitions, each with the time that tells it from a later one.

    Args:
        values: of the state; whoever wrote what is no request ends nobody's work with it.
    """
    asked = {key: value for key, value in values.items() if key.startswith(names.RESUME_PREFIX)}
    times = {key: value.get("at_ms") for key, value in asked.items() if isinstance(value, Mapping)}
    return frozenset((key, at_ms) for key, at_ms in times.items() if type(at_ms) is int)


def unanswered(requests: Mapping[str, Any], stops: Mapping[str, Any]) -> set[TopicPartition]:
    """Return the target partitions that somebody has asked to look again at, and whose lane has not.

    A lane answers with another stop, or with none: who asked spoke of the one that still stands.

    Args:
        requests: values of the state, requests among them.
        stops: the same, for the stops: those of transactions that are decided.
    """
    asked = {tp: requests.get(names.resume_key(*tp)) for tp in stopped_in(stops)}
    standing = {tp: readable_stop(stops, tp) for tp, request in asked.items() if request is not None}
    return {tp for tp, stop in standing.items() if stop is not None and stop.is_meant_by(asked[tp])}


def request_stop(target: Cluster, flow: str, *, wait_s: float) -> dict[str, object]:
    """Ask the running flow to finish its open transactions and end; wait for it.

    Returns:
        generation, and whether it has ended within ``wait_s``.

    Raises:
        UsageError: the flow was never started.
        NotNow: the state is told as of before what has copied: of whom to ask it tells nothing.
        Fenced: that run is over, but a newer one has taken over from it and goes on.
        Retriable: it does not end in time.
    """
    layout = _newest(target, flow)
    if layout is None:
        raise never_started(flow, target.alias)
    if layout.ended_at_ms is not None:
        _ask_who_begins_again(target, flow, layout)
        layout = read_layout(target, flow) or layout
    if _is_over(layout):
        return {"generation": layout.generation, "stopped": True, "was_running": False}
    asking = _Asking(target, layout, names.state_topic(flow))
    try:
        now = asking.until_over(wait_s)
    finally:
        asking.close()
    if now is None:
        raise Retriable(
            f"flow {flow} did not end within {wait_s:.0f} s",
            code=RequestCode.NO_ANSWER,
            where=f"generation {layout.generation}, started on {layout.host}",
            resolve=f"see `onceover status {flow}`: if its driver was killed there is nothing to stop",
        )
    if not _is_over(now):
        raise Fenced(
            f"generation {layout.generation} of flow {flow} is over, but another start has taken over and "
            "goes on: the flow has not stopped",
            code=RequestCode.TAKEN_OVER,
            expected=f"generation {layout.generation}, ended",
            seen=f"generation {now.generation}, started on {now.host}",
            resolve=f"{commands.command('stop', flow)} asks that one; nothing to do if it was meant",
        )
    return {"generation": layout.generation, "stopped": True, "was_running": True}


def _newest(target: Cluster, flow: str) -> Layout | None:
    """Return the newest layout; none of before what has copied.

    One that has not ended is believed where nobody tells what has copied: that the group's coordinator is
    away may be why the run is to stop.

    Raises:
        NotNow: it is of before.
        Retriable: the target is away, or nobody tells whether somebody else copies.
    """
    newest, silent = 0, None
    try:
        newest = told_beside(target, flow, Deadline(_BESIDE_S))
    except Retriable as error:
        silent = error
    layout = read_layout(target, flow, newest)
    if silent is not None and (layout is None or _is_over(layout)):
        raise silent
    return layout


def _ask_who_begins_again(target: Cluster, flow: str, ended: Layout) -> None:
    """Leave a request for who starts a run anew by themselves, within seconds or at their next try.

    Nobody waits for them: perhaps there is nobody. A start that a person makes ignores it. However the run
    has ended: its driver may be killed before its command hears of it.
    """
    _write(target, flow, names.REQUEST_STOP, stop_request(ended.run))


def _write(target: Cluster, flow: str, key: str, value: dict[str, object]) -> None:
    notes = NoteWriter(target, TopicPartition(names.state_topic(flow), names.STATE_OTHERS))
    try:
        notes.write(key, value)
    finally:
        notes.close()


def _is_over(layout: Layout) -> bool:
    """Tell whether nobody copies, nor will before the next start."""
    return layout.ended_at_ms is not None or layout.seized


class _Asking:
    """One person's request to stop a run. There is one place for all: who finds it taken waits along."""

    def __init__(self, target: Cluster, run: Layout, topic: str) -> None:
        self._target, self._run = target, run
        self._own = stop_request(run.run)
        self._notes = NoteWriter(target, TopicPartition(topic, names.STATE_OTHERS))
        self._requests = StateLog(target, topic, names.STATE_OTHERS, calls.READ_UNCOMMITTED)
        self._state = StateLog(target, topic, names.STATE_LEADER)

    def until_over(self, wait_s: float) -> Layout | None:
        """Return the newest layout once the run is over, None when it does not end in time."""
        deadline_s, over = time.monotonic() + wait_s, False
        try:
            while time.monotonic() < deadline_s:
                standing = self._standing()
                now = self._layout()
                if over := _is_over(now):
                    return now
                if now.run != self._run.run:
                    if self._run.run not in now.follows:
                        return now
                    # Killed, and started anew by who had begun it: it is that one which was meant.
                    self._run, self._own = now, stop_request(now.run)
                if not asks_to_stop(standing, self._run.run):
                    self._notes.write(names.REQUEST_STOP, self._own)
                time.sleep(_POLL_S)
            return None
        finally:
            # Answered, it stays: who starts the run anew, should its driver be killed as it ends, looks for
            # it. Unanswered, nobody may be left to take it back, and it must not lie about.
            if not over and self._standing() == self._own:
                self._notes.write(names.REQUEST_STOP, None)

    def close(self) -> None:
        """Close all connections."""
        self._notes.close()
        self._requests.close()
        self._state.close()

    def _standing(self) -> object:
        return self._target.retry(self._requests.catch_up).get(names.REQUEST_STOP)

    def _layout(self) -> Layout:
        # Where somebody has emptied the topic, nobody has said that the run is over.
        return layout_in(self._target.retry(lambda: self._state.catch_up(wait=False))) or self._run


def resume_request(stop: Stop) -> dict[str, object]:
    """Return the value of a request to look again at a partition whose newest stop is ``stop``."""
    return {"v": 1, "at_ms": now_ms(), "stop": stop.name}


def request_resume(target: Cluster, flow: str, partition: TopicPartition, stop: Stop) -> None:
    """Ask the owning lane to look again at a partition whose newest stop is ``stop``."""
    _write(target, flow, names.resume_key(*partition), resume_request(stop))
