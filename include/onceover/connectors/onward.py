"""Resuming a connector whose offsets were moved, and judging by them whether it goes on from there."""

from __future__ import annotations

from abc import abstractmethod

from onceover.connectors.access import Site
from onceover.connectors.answers import CONFIG_REFUSED
from onceover.connectors.foresight import quiet_hint
from onceover.connectors.keys import named
from onceover.connectors.lifecycle import TaskFailed
from onceover.connectors.manifest import WENT_ON
from onceover.connectors.model import ConnectorOutcome, Outcome
from onceover.connectors.restore import restore
from onceover.connectors.run import Run
from onceover.connectors.watching import Course, Progress, unordered
from onceover.errors import NeedsOperator


class OnwardRun(Run):
    """A run that ends with a connector going on from the offsets of the manifest."""

    @property
    @abstractmethod
    def landing(self) -> Site:
        """Where its offsets are from now on."""

    def go_on(self) -> ConnectorOutcome:
        """Resume, unless it runs, watch, and judge.

        Raises:
            TaskFailed: it cannot run; it is stopped again.
            NeedsOperator: WENT_ON_ELSEWHERE, it went back and forth; it is stopped.
            Retriable: the workers did not resume it in time.
        """
        # Of a killed run that was writing offsets back.
        self.end_own_transactions(self.landing)
        stopped = self._is_stopped()
        course = self._course(stopped=stopped)
        if stopped:
            # Of an interrupted run: whatever happened since, nothing may have gone back.
            before = course.look()
            if before.back:
                return restore(self, before)
        try:
            progress = self._resumed(course)
        except TaskFailed:
            self.tell("it has failed: stopping it")
            self.stop()
            progress = course.look()
            if not progress.back:
                raise
        return self._judge(progress)

    def _course(self, *, stopped: bool) -> Course:
        site = self.landing
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
            if error.code != CONFIG_REFUSED:
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

    def note_landing(self, step: str, *kinds: str) -> None:
        """Write down as done that the offsets are where the connector goes on, and where it will write."""
        self.manifest = self.manifest.with_landing(self.context.access.scan(self.landing).end_offsets)
        self.note(step, *kinds)

    def _quiet(self) -> str:
        hint = quiet_hint(self.view.state.config)
        return "" if hint is None else f"; {hint}"

    def _resumed(self, course: Course) -> Progress | None:
        if self._is_stopped() and not self.resume():
            return None
        return self.watch(course)

    def _is_stopped(self) -> bool:
        return self.context.access.rest.state(self.name).is_stopped

    def _judge(self, progress: Progress | None) -> ConnectorOutcome:
        where = f"its offsets are in {self.landing.topic}"
        if progress is None:
            return self.finish(
                Outcome.UNVERIFIABLE,
                f"{where}; it is {self.manifest.initial_state}, as before, so nothing shows that it goes on "
                "from them: resume it, then verify",
            )
        if progress.back:
            self.tell(f"went back: {named(progress.back)}; stopping it")
            return restore(self, progress)
        if not progress.went_on and progress.changed:
            return self.finish(
                Outcome.UNVERIFIABLE,
                f"{where}; it runs, and {unordered(progress.changed)}",
                progress,
            )
        if not progress.went_on:
            return self.finish(
                Outcome.UNVERIFIABLE,
                f"{where}; it runs and has written none within {self.context.watch_s:g} s, so nothing shows "
                f"that it goes on from them: verify later{self._quiet()}",
                progress,
            )
        went = progress.describe()
        told = f" ({went})" if went else ""
        return self.finish(Outcome.DONE, f"{where}, and it goes on from them{told}", progress)
