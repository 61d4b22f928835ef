"""Stopping, configuring and resuming a connector, and waiting until the workers agree that it is so.

Invariant: ``stop`` and ``configure`` return only when every worker that can be heard has reported a stopped
connector without tasks for some seconds on end: after a change of configuration its status flips for about a
second (measured). Where none can be heard nothing is reported, and nothing returns. Without exactly-once, a
worker that cannot be heard ends the run: nothing would fence it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from onceover.backoff import Deadline
from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import (
    FAILED_STATE,
    OFFSETS_TOPIC_KEY,
    PAUSED,
    RUNNING,
    UNASSIGNED,
    ConnectorState,
)
from onceover.connectors.steps import StepName, reached
from onceover.connectors.workers.masking import masked
from onceover.connectors.workers.rest import ConnectRest
from onceover.errors import NeedsOperator, Retriable, UsageError

# Tasks get task.shutdown.graceful.timeout.ms (5 s); a worker that froze is given up after its session and
# rebalance timeouts (10 s and 60 s).
_PATIENCE_S: Final = 120.0
# A stop that nothing holds up takes a second, and 5 s where a task does not end by itself.
_SLOW_S: Final = 20.0
STABLE_S: Final = 2.0
_RESTART_S: Final = 10.0
# Tasks come in a rebalance of their own, a second after the connector; one that looks for work first needs
# longer. Some never get one: MirrorMaker's without a group, a topic, or heartbeats.
_IDLE_S: Final = 30.0
# Until a worker that has just been started knows what its topics say.
_START_S: Final = 30.0
_POLL_S: Final = 0.25
# Characters of a line that people read; a context of Debezium has thousands.
_LONGEST_CAUSE: Final = 400
# What every worker has to report, and for how many seconds on end.
Way: TypeAlias = tuple[Callable[[ConnectorState], bool], float]
Taken: TypeAlias = Callable[[], None]


def _unheard() -> None:
    pass


class ConnectorFailed(NeedsOperator):
    """The connector or one of its tasks has failed."""


class Lifecycle:
    """One Connect cluster's connectors, commanded.

    Every command takes ``taken``: called once the workers have said yes, before anything is waited for.

    Args:
        rest: belongs to the caller.
        urls: every worker.
        exactly_once: whether a worker that falls silent can be fenced.
        patience_s: for one change of state.
        stable_s: how long it must have lasted.
        idle_s: how long a connector has to run without a task until it is believed to have nothing to do.
    """

    def __init__(
        self,
        rest: ConnectRest,
        urls: tuple[str, ...],
        *,
        exactly_once: bool,
        patience_s: float = _PATIENCE_S,
        stable_s: float = STABLE_S,
        idle_s: float = _IDLE_S,
    ) -> None:
        self._rest = rest
        self._urls = urls
        self._silent: set[str] = set()
        self._exactly_once = exactly_once
        self._patience_s = patience_s
        self._stable_s = stable_s
        self._idle_s = idle_s

    def states(self, name: str) -> list[ConnectorState]:
        """Return the connector as every worker reports it that can be heard: at least one.

        Raises:
            NeedsOperator: without exactly-once, a worker is silent.
            Retriable: no worker answers.
        """
        problem = Retriable(f"no worker tells of {name}", code=ConnectorCode.WORKER_UNREACHABLE, where=name)
        # One that was silent is not waited for at every look, as the connector may stand still meanwhile; but
        # where the others are silent now, nobody else can tell.
        passed_over = [url for url in self._urls if url in self._silent]
        for urls in ([url for url in self._urls if url not in self._silent], passed_over):
            found = []
            for url in urls:
                try:
                    found.append(self._state(name, url))
                except Retriable as error:
                    problem = error
                    self._pass_over(url, error)
                else:
                    self._silent.discard(url)
            if found:
                return found
        raise problem

    def _pass_over(self, url: str, error: Retriable) -> None:
        """Leave a silent worker out for now.

        Raises:
            NeedsOperator: without exactly-once.
        """
        if not self._exactly_once:
            raise NeedsOperator(
                f"{error.message}: it may be frozen, still run tasks, and nothing can fence them "
                "without exactly-once",
                code=error.code,
                where=url,
                expected="an answer of every worker",
                seen=error.seen,
                resolve="end or continue that worker, then run again",
            ) from error
        self._silent.add(url)

    def _state(self, name: str, url: str) -> ConnectorState:
        """Return the connector as one worker reports it, which may just be starting.

        Raises:
            UsageError: NO_CONNECTOR, no worker knows it.
            Retriable: this worker is silent, or does not know yet what others know.
        """
        deadline = Deadline(min(_START_S, self._patience_s))
        while True:
            try:
                return self._rest.state(name, url)
            except (Retriable, UsageError) as error:
                if error.code not in (ConnectorCode.NO_CONNECTOR, ConnectorCode.WORKER_STARTING):
                    raise
                last = error
            if not deadline.passed:
                time.sleep(_POLL_S)
                continue
            if isinstance(last, UsageError) and not self._is_known(name):
                raise last
            raise Retriable(
                f"the worker at {url} does not tell of {name}, which others know",
                code=ConnectorCode.WORKER_STARTING,
                where=url,
                seen=last.seen,
                resolve="wait until it has started, then run again",
            ) from last

    def _is_known(self, name: str) -> bool:
        for url in self._urls:
            try:
                self._rest.state(name, url)
            except (Retriable, UsageError):
                continue
            return True
        return False

    def stop(self, name: str, fence: Callable[[], None] | None = None, taken: Taken = _unheard) -> None:
        """Stop a connector; return when it has no task left.

        Args:
            fence: ends transactions of its tasks. Called when it takes long: a worker that has to read the
                offsets before it can say "stopped" waits for a frozen task's transaction (measured).

        Raises:
            Retriable: it did not stop in time.
        """
        reached(StepName.ORDER)
        self._rest.stop(name)
        taken()
        # It takes no other state by itself.
        if any(state.state == FAILED_STATE for state in self.states(name)):
            self._rest.restart_failed(name)
        what = "stopped, without tasks"
        try:
            self._await(name, _is_stopped, what, patience_s=self._patience_s if fence is None else _SLOW_S)
        except Retriable:
            if fence is None:
                raise
            fence()
            self._await(name, _is_stopped, what)
        reached(StepName.STOPPED)

    def configure(self, name: str, config: Mapping[str, str], taken: Taken = _unheard) -> None:
        """Put the configuration of a stopped connector; return when every worker has it.

        Raises:
            NeedsOperator: CONFIG_REFUSED; nothing was changed.
            Retriable: the workers did not take it in time; they may have it or not.
        """
        reached(StepName.ORDER)
        self._rest.put_config(name, config)
        taken()
        topic = config.get(OFFSETS_TOPIC_KEY)
        self._await(
            name,
            lambda state: state.is_stopped and state.config.get(OFFSETS_TOPIC_KEY) == topic,
            f"stopped, with {OFFSETS_TOPIC_KEY}={topic}",
        )

    def resume(self, name: str, initial_state: str, taken: Taken = _unheard) -> None:
        """Bring a stopped connector back to what it did; return when it does, with tasks or without any work.

        Raises:
            ConnectorFailed: it has failed.
            Retriable: it did not begin in time.
        """
        reached(StepName.ORDER)
        if initial_state == PAUSED:
            self._rest.pause(name)
            taken()
            self._await(name, lambda state: state.state == PAUSED, "paused")
            return
        self._rest.resume(name)
        taken()
        self._begin_anew(name)
        self._await_one(name, "running, with tasks", (runs, 0.0), (_idles, self._idle_s))

    def _begin_anew(self, name: str) -> None:
        """Restart what has failed; return once the workers no longer tell of it, or have had time to."""
        if not self._has_failed(name):
            return
        self._rest.restart_failed(name)
        # They learn of it from a topic: until then the status is that of before. One that fails anew at once
        # may never be seen to have done anything else.
        deadline = Deadline(min(_RESTART_S, self._patience_s))
        while self._has_failed(name) and not deadline.passed:
            time.sleep(_POLL_S)

    def _has_failed(self, name: str) -> bool:
        return any(state.has_failed for state in self.states(name))

    def check_alive(self, name: str) -> None:
        """See to it that it is still stopped everywhere.

        Raises:
            NeedsOperator: NOT_STOPPED, somebody has resumed it.
        """
        deadline = Deadline(min(_RESTART_S, self._patience_s))
        states = self.states(name)
        # A worker that has not read of it yet, or a configuration that has just been changed.
        while any(state.state == UNASSIGNED for state in states) and not deadline.passed:
            time.sleep(_POLL_S)
            states = self.states(name)
        for state in states:
            if not state.is_stopped:
                raise NeedsOperator(
                    f"{name} is not stopped any more",
                    code=ConnectorCode.NOT_STOPPED,
                    where=name,
                    expected="stopped, without tasks, until this run resumes it",
                    seen=described(state),
                    resolve="find out who resumed it, then run again",
                )

    def _await(
        self,
        name: str,
        wanted: Callable[[ConnectorState], bool],
        what: str,
        patience_s: float | None = None,
    ) -> None:
        self._await_one(name, what, (wanted, self._stable_s), patience_s=patience_s)

    def _await_one(self, name: str, what: str, *ways: Way, patience_s: float | None = None) -> None:
        """Wait until every worker has reported one of several things for as long as that takes."""
        limit_s = self._patience_s if patience_s is None else patience_s
        deadline = Deadline(limit_s)
        since: dict[Way, float] = {}
        while True:
            states = self.states(name)
            now = time.monotonic()
            since = {way: since.get(way, now) for way in ways if all(map(way[0], states))}
            if any(now - began >= way[1] for way, began in since.items()):
                return
            if deadline.passed:
                raise Retriable(
                    f"{name} did not become {what} within {limit_s:g} s",
                    code=ConnectorCode.CONNECTOR_STATE,
                    where=name,
                    expected=what,
                    seen="; ".join(sorted({described(state) for state in states})),
                    resolve="look into the workers' logs, then run again",
                )
            time.sleep(_POLL_S)


def _is_stopped(state: ConnectorState) -> bool:
    return state.is_stopped


def runs(state: ConnectorState) -> bool:
    """Tell whether a connector and all its tasks, at least one, run.

    Raises:
        ConnectorFailed: it, or one of them, has failed.
    """
    check_not_failed(state)
    return state.state == RUNNING and bool(state.tasks) and all(t.state == RUNNING for t in state.tasks)


def _idles(state: ConnectorState) -> bool:
    return state.state == RUNNING and not state.tasks


def failure_of(state: ConnectorState) -> str:
    """Return why a connector, or a task of it, has failed: what the trace begins and ends with, no value."""
    traces = [state.trace] if state.state == FAILED_STATE else []
    traces += [task.trace for task in state.tasks if task.state == FAILED_STATE]
    return _causes(masked(next(filter(None, traces), "no trace"), state.config))


def check_not_failed(state: ConnectorState) -> None:
    """Raise ``ConnectorFailed`` when the connector or a task has failed."""
    if state.has_failed:
        raise ConnectorFailed(
            f"{state.name} has failed",
            code=ConnectorCode.TASK_FAILED,
            where=state.name,
            seen=failure_of(state),
            resolve="resolve what the trace says, then run again, or take it back with rollback",
        )


def described(state: ConnectorState) -> str:
    """Return state and tasks in a line."""
    tasks = ", ".join(f"{task.id} {task.state}" for task in state.tasks)
    return f"{state.state}, tasks: {tasks or 'none'}"


def _causes(trace: str) -> str:
    """Return the first line of a Java trace and of its last cause: they name topic and right."""
    lines = trace.strip().splitlines()
    causes = [line for line in lines if line.startswith("Caused by:")]
    return "; ".join(dict.fromkeys(_shortened(line) for line in (lines[0], *causes[-1:])))


def _shortened(line: str) -> str:
    """Return beginning and end of a line: Debezium prints its whole state before it says what is wrong."""
    half = _LONGEST_CAUSE // 2
    return line if len(line) <= _LONGEST_CAUSE else f"{line[:half]} ... {line[-half:]}"
