"""Resuming a connector whose offsets were moved, and judging by them whether it goes on from there."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import (
    OFFSETS_TOPIC_KEY,
    PAUSED,
    RUNNING,
    STOPPED,
    ConnectorOutcome,
    ConnectorState,
    EndState,
)
from onceover.connectors.moving.restore import restore
from onceover.connectors.moving.run import ConnectorRun
from onceover.connectors.moving.watching import OffsetCourse, OffsetProgress, undecided
from onceover.connectors.offsets.keys import named
from onceover.connectors.planning.access import OffsetsTopic
from onceover.connectors.planning.foresight import quiet_hint
from onceover.connectors.record.manifest import RESUMED, SETTLED, WENT_ON
from onceover.connectors.record.orders import standing
from onceover.connectors.workers.lifecycle import ConnectorFailed, described
from onceover.errors import NeedsOperator, Retriable

# What a connector does until somebody changes it.
_LASTING: Final = frozenset({RUNNING, PAUSED, STOPPED})


class ResumingRun(ConnectorRun):
    """A run that ends with a connector going on from the offsets of the manifest."""

    @property
    @abstractmethod
    def destination(self) -> OffsetsTopic:
        """Where its offsets are from now on."""

    def go_on(self) -> ConnectorOutcome:
        """Resume, unless it runs, watch, and judge.

        Raises:
            ConnectorFailed: it cannot run; it is stopped again.
            NeedsOperator: WENT_ON_ELSEWHERE, it went back and forth; it is stopped.
            Retriable: the workers did not resume it in time, or it does not run in the end.
        """
        # Of a killed run that was writing offsets back.
        self.end_own_transactions(self.destination)
        stopped = self._is_stopped()
        course = self._course(stopped=stopped)
        if stopped:
            # Of an interrupted run: whatever happened since, nothing may have gone back.
            before = course.look()
            # One that was not resumed yet deletes nothing: somebody has, and it would begin at zero there.
            if before.back or (before.ended and not self.manifest.has_step(RESUMED)):
                return restore(self, before)
        states: list[ConnectorState] = []
        try:
            progress = self._resumed(course)
            if progress is not None and not progress.back:
                # An offset may be the last one before it failed, or before somebody paused it.
                states = self.states()
        except ConnectorFailed:
            self.tell("it has failed: stopping it")
            self.stop()
            progress = course.look()
            if not progress.back:
                raise
        return self._judge(progress, states)

    def _course(self, *, stopped: bool) -> OffsetCourse:
        site = self.destination
        if self.manifest.has_step(WENT_ON) and not stopped:
            # Only a person has resumed it since: where it went on from then is what the person decided.
            decided = self.context.access.scan(site)
            return self.course(site, decided.snapshot(self.name).offsets, decided.end_offsets)
        return self.course(site, self.manifest.values, self.manifest.landed)

    def reconfigure(self, topic: str | None) -> None:
        """Give the stopped connector another offsets topic; one that is refused goes on as before.

        Raises:
            NeedsOperator: CONFIG_REFUSED, and it does what it did; or as ``configure``.
            Retriable: as ``configure``, and where it does not go on.
        """
        try:
            self.configure(topic)
        except NeedsOperator as error:
            if error.code != ConnectorCode.CONFIG_REFUSED:
                raise
            self.tell(f"refused ({error.seen}): back to what it did")
            self.resume()
            self.note("as before", finished=True)
            raise NeedsOperator(
                f"{error.message}: it has its former configuration, and does what it did",
                code=error.code,
                where=self.name,
                expected="a configuration that the workers take, as they did before it was stopped",
                seen=error.seen,
                resolve="resolve what they say, then run again",
            ) from error

    def note_destination(self, step: str, *kinds: str) -> None:
        """Write down as done that the offsets are where the connector goes on, and where it will write."""
        scan = self.context.access.scan(self.destination)
        self.manifest = self.manifest.with_destination(scan.end_offsets, scan.topic_id)
        self.note(step, *kinds)

    def states(self) -> list[ConnectorState]:
        """Return the connector as every worker reports it, which has to be as it was resumed.

        Raises:
            ConnectorFailed: it has failed.
            NeedsOperator: CONFIG_REVERTED, somebody has put another configuration.
        """
        found = super().states()
        shared = self.context.access.global_topic
        expected = None if self.destination.topic == shared else self.destination.topic
        for state in found:
            if state.own_topic(shared) != expected:
                raise NeedsOperator(
                    f"somebody has put another configuration of {self.name} since it was resumed",
                    code=ConnectorCode.CONFIG_REVERTED,
                    where=self.name,
                    expected=f"{OFFSETS_TOPIC_KEY}={expected or shared}",
                    seen=f"{OFFSETS_TOPIC_KEY}={state.own_topic(shared) or shared}",
                    # That line alone would have it go on from the topic as it is by now.
                    resolve="keep what manages its configuration away from it, and run again, which carries "
                    "its offsets along; only then correct that line where it is managed",
                )
        return found

    def _quiet(self) -> str:
        hint = quiet_hint(self.view.state.config)
        return "" if hint is None else f"; {hint}"

    def _resumed(self, course: OffsetCourse) -> OffsetProgress | None:
        if self._is_stopped():
            if not self.resume():
                return None
            self._check_mode()
        return self.watch(course)

    def _check_mode(self) -> None:
        """See to it that workers that should be without exactly-once are so.

        Those with it fence earlier tasks behind every commit of new ones, and write that down: it is known
        once tasks have begun, and not before.

        Raises:
            NeedsOperator: WORKER_MODE; the connector is stopped.
        """
        if self.context.facts.exactly_once:
            return
        records = self.context.observer.config_records()
        if not records.fenced_since_commit(self.name):
            return
        self.stop_exactly_once(records.fence_count(self.name, self.view.state.config))
        raise NeedsOperator(
            f"{self.name} runs exactly-once: its leader has fenced its tasks",
            code=ConnectorCode.WORKER_MODE,
            where=self.name,
            expected="workers without exactly-once, as the Connect file says",
            seen="workers that still have it",
            resolve="restart every worker as the Connect file says, or correct the file; then run again",
        )

    def stop_exactly_once(self, tasks: int) -> None:
        """Stop a connector whose workers should be without exactly-once; ``tasks``: how many may have run."""
        self.tell(f"its workers run up to {tasks} tasks exactly-once: stopping it")
        self.stop()

    def _is_stopped(self) -> bool:
        return self.context.access.rest.state(self.name).is_stopped

    def _judge(self, progress: OffsetProgress | None, states: Sequence[ConnectorState]) -> ConnectorOutcome:
        where = f"its offsets are in {self.destination.topic}"
        if progress is None:
            why = f" ({self.view.standing})" if self.view.standing else ""
            return self._settled(
                EndState.UNVERIFIABLE,
                f"{where}; it is {self.manifest.initial_state}, as before{why}, so nothing shows that it "
                "goes on from them: resume it, then verify",
            )
        if progress.back:
            self.tell(f"went back: {named(progress.back)}; stopping it")
            return restore(self, progress)
        if progress.went_on:
            went = progress.describe()
            told = f" ({went})" if went else ""
            stands = "" if _run(states) else self._stands()
            now = "" if _run(states) else f"; {_standing(states)}{f': {stands}' if stands else ''}"
            # It went on; that it still does, nobody can say.
            outcome = EndState.UNVERIFIABLE if stands else EndState.DONE
            return self._settled(outcome, f"{where}, and it goes on from them{told}{now}", progress)
        if not {state.state for state in states} <= _LASTING:
            raise Retriable(
                f"{self.name} does not run yet",
                code=ConnectorCode.CONNECTOR_STATE,
                where=self.name,
                expected="running, with tasks",
                seen="; ".join(sorted({described(state) for state in states})),
                resolve="look into the workers' logs, then run again",
            )
        if told := undecided(progress):
            return self._settled(
                EndState.UNVERIFIABLE,
                f"{where}; {_standing(states)}, and {told}",
                progress,
            )
        return self._settled(
            EndState.UNVERIFIABLE,
            f"{where}; {_standing(states)} and has written none within {self.context.watch_s:g} s, so "
            f"nothing shows that it goes on from them: verify later{self._quiet()}",
            progress,
        )

    def _stands(self) -> str:
        """Return who has made it stand while it was watched, and how to let it run."""
        return standing(self.context.observer.config_records(), self.manifest, self.context.facts.workers[0])

    def _settled(
        self, outcome: EndState, message: str, progress: OffsetProgress | None = None
    ) -> ConnectorOutcome:
        return self.finish(outcome, message, progress, step=SETTLED)


def _run(states: Sequence[ConnectorState]) -> bool:
    return all(state.state == RUNNING for state in states)


def _standing(states: Sequence[ConnectorState]) -> str:
    """Return what a connector does, in words for a verdict."""
    if not _run(states):
        return f"it is {', '.join(sorted({state.state for state in states}))} now"
    return "it runs" if any(state.tasks for state in states) else "it runs, without a task,"
