"""One run of a flow's job, as a catalogue of lineage is told of it.

Invariant: nothing of it fails a job or holds one up. Events go out from a thread of their own, one behind the
other; at the end it is waited for as long as the provider waits for its own, and then no more.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from airflow.sdk.exceptions import AirflowSkipException
from openlineage.client.event_v2 import Run, RunEvent, RunState
from openlineage.client.facet_v2 import RunFacet

from onceover_airflow.lineage.about import AuditEvents, CopyEvents
from onceover_airflow.lineage.untold import LineageRun

log = logging.getLogger(__name__)

# Airflow kills a task soon after it was told to end.
_KILLED_WAIT_S: Final = 1.0
# What runs for months is told of again and again: a catalogue that was away at its start, which nobody tells
# us (the provider keeps it to itself), or that was set up anew since, would never hear of it.
AGAIN_S: Final = 900.0


@dataclass
class ToldRun(LineageRun):
    """A run that a catalogue is told of.

    Args:
        what: it is about.
        run_id: of the run, in the catalogue.
        parent: which task of Airflow it belongs to.
        producer: what the events say has made them.
        teller: takes the events.
        was_killed: tells whether the task was told to end.
        patience_s: how long the end of the run waits for the catalogue.
    """

    what: CopyEvents | AuditEvents
    run_id: str
    parent: Mapping[str, RunFacet]
    producer: str
    teller: Teller
    was_killed: Callable[[], bool]
    patience_s: float

    def __enter__(self) -> Self:
        self._tell(RunState.START)
        self.teller.start(lambda: self._events(RunState.RUNNING))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = RunState.COMPLETE if self.what.reached_its_end(error is not None) else RunState.FAIL
        if self.was_killed() or isinstance(error, AirflowSkipException):
            ended = RunState.ABORT
        self._tell(ended)
        wait_s = min(self.patience_s, _KILLED_WAIT_S) if self.was_killed() else self.patience_s
        if not self.teller.close(wait_s):
            log.warning(
                "the catalogue of lineage has not taken all events within %g s; the task goes on", wait_s
            )

    def copies(self, topics: Mapping[str, str]) -> None:
        """Tell of topics that were not told of."""
        if isinstance(self.what, CopyEvents) and topics != self.what.topics:
            self.what.topics = dict(topics)
            self._tell(RunState.RUNNING)

    def saw(self, report: Mapping[str, Any]) -> None:
        """Know what the last event is to say."""
        self.what.saw(report)

    def _tell(self, state: RunState) -> None:
        """Hand over the events of a state: what one alone cannot hold goes before it as RUNNING."""
        _or_say(partial(self._hand_over, state))

    def _hand_over(self, state: RunState) -> None:
        for event in self._events(state):
            self.teller.tell(event)

    def _events(self, state: RunState) -> Iterable[RunEvent]:
        datasets = list(self.what.datasets())
        for number, (inputs, outputs) in enumerate(datasets, start=1):
            last = number == len(datasets)
            yield RunEvent(
                eventType=state if last else RunState.RUNNING,
                eventTime=datetime.now(UTC).isoformat(),
                run=Run(runId=self.run_id, facets={**self.parent, **(self.what.facets() if last else {})}),
                job=self.what.job,
                inputs=inputs,
                outputs=outputs,
                producer=self.producer,
            )


class Teller:
    """Sends events one behind the other, in a thread that ends with the process whatever it waits for.

    Args:
        emit: sends one.
        end: lets go of the way that they went.
        again_s: how long nothing is sent until what is so is sent once more, in seconds.
    """

    def __init__(
        self, emit: Callable[[RunEvent], object], end: Callable[[], object], again_s: float = AGAIN_S
    ) -> None:
        self._emit = emit
        self._end = end
        self._again_s = again_s
        self._now: Callable[[], Iterable[RunEvent]] = tuple
        self._events: queue.SimpleQueue[RunEvent | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send, name="lineage", daemon=True)

    def start(self, now: Callable[[], Iterable[RunEvent]]) -> None:
        """Begin to send; where no thread is to be had nothing is sent.

        Args:
            now: returns the events that tell of what is so.
        """
        self._now = now
        _or_say(self._thread.start)

    def tell(self, event: RunEvent) -> None:
        """Hand an event over; returns at once."""
        self._events.put(event)

    def close(self, timeout_s: float) -> bool:
        """Wait until all was sent that can be; tell whether it was within ``timeout_s`` seconds."""
        self._events.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _send(self) -> None:
        while (events := self._next()) is not None:
            _or_say(partial(self._send_all, events))
        _or_say(self._end)

    def _send_all(self, events: Iterable[RunEvent]) -> None:
        for event in events:
            self._emit(event)

    def _next(self) -> Iterable[RunEvent] | None:
        """Return what is to be sent; None at the end."""
        try:
            event = self._events.get(timeout=self._again_s)
        except queue.Empty:
            return self._now()
        return None if event is None else (event,)


def _or_say(work: Callable[[], object]) -> None:
    """Do it; what keeps one event back is nothing that is wrong with the next."""
    try:
        work()
    except Exception as error:
        log.warning("lineage is not told: %s", type(error).__name__)
        log.debug("lineage is not told", exc_info=True)
