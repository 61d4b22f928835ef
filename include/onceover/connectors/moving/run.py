"""What every operation on one connector is made of: each step announced, written down, and safe to repeat."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import (
    OFFSETS_TOPIC_KEY,
    RUNNING,
    STOPPED,
    ConnectorOutcome,
    ConnectorState,
    EndState,
    Isolation,
)
from onceover.connectors.moving.holding import HeldRun
from onceover.connectors.moving.watching import OffsetCourse, OffsetProgress, watch
from onceover.connectors.offsets.configtopic import CONFIG, TARGET
from onceover.connectors.offsets.scan import Scan, records_since
from onceover.connectors.offsets.write import Entry, write_in_transaction, write_plainly
from onceover.connectors.planning.access import OffsetsTopic
from onceover.connectors.planning.copying import check_overwritten, overwrite_entries
from onceover.connectors.record.manifest import CONFIGURED, RESUMED
from onceover.connectors.record.orders import asked_for
from onceover.connectors.rights import needing
from onceover.connectors.steps import StepName, reached
from onceover.connectors.workers.lifecycle import check_not_failed
from onceover.errors import NeedsOperator
from onceover.state.fencing import fence


class ConnectorRun(HeldRun):
    """One operation on one connector, in steps that each operation puts together.

    Invariant and arguments as of ``HeldRun``.
    """

    # ---- standing still

    def stop_and_fence(self) -> None:
        """Stop the connector, and make sure that no task of it can write any more.

        Raises:
            Retriable: it did not stop in time.
            NeedsOperator: CHANGED_SINCE, somebody else has commanded it.
            UsageError: a right is missing.
        """
        config = self.view.state.config
        self.end_own_transactions(self.context.access.own_site(config, self.view.topic))
        self.tell("stopping")
        self.stop(self._fence_stopped if self.view.fence_ids else None)
        self.note("stop", "stop")
        self.check_orders()
        if self.view.fence_ids:
            self.fence(self.view.fence_ids)
            self.note("fence", "fence")
        self.check_orders()

    def stop(self, fence: Callable[[], None] | None = None) -> None:
        """Stop the connector; as ``ordering`` and ``Lifecycle.stop``."""
        reached(StepName.STOP)
        with self.ordering(TARGET, STOPPED) as taken:
            self.lifecycle.stop(self.name, fence, taken)

    def _fence_stopped(self) -> None:
        """Fence a connector that is slow to stop, but not the tasks of somebody who has resumed it."""
        self.check_orders()
        self.fence(self.view.fence_ids)

    def fence(self, ids: Sequence[str]) -> None:
        """Take over transactional ids of its tasks: one that only seems to be gone writes nothing any more.

        Raises:
            Fenced: another run has begun: the tasks may be those that it has resumed, and go on.
            UsageError: a right is missing.
        """
        self.tell(f"fencing {len(ids)} transactional ids of its tasks")
        cluster = self.context.access.home(self.view.state.config)
        for transactional_id in ids:
            reached(StepName.FENCE)
            self.hold()
            with needing(cluster.config, "WRITE", f"transactional id {transactional_id}"):
                fence(cluster, transactional_id)

    def end_own_transactions(self, *sites: OffsetsTopic) -> None:
        """Abort what a killed run of ours left open where these are; one that still lives is fenced.

        Whoever reads to the end would wait for it until the broker aborts it, half a minute later; tasks that
        start meanwhile would begin at zero. Readers of uncommitted records wait for nothing.
        """
        self.hold()
        own_id = self.context.access.own_id(self.name)
        waiting = [site.cluster for site in sites if site.isolation is Isolation.READ_COMMITTED]
        for cluster in {id(each): each for each in waiting}.values():
            with needing(cluster.config, "WRITE", f"transactional id {own_id}"):
                fence(cluster, own_id)

    def settled_scan(self, site: OffsetsTopic) -> Scan:
        """Read a topic once nobody can write a connector's offsets any more.

        Raises:
            NeedsOperator: STILL_WRITING, two reads a flush interval apart differ.
        """
        reached(StepName.SNAPSHOT)
        first = self.context.access.scan(site)
        if self.context.facts.exactly_once:
            return first
        # Nothing fences a task without exactly-once. One that a worker gave up on still commits once.
        settle_s = self.context.settle_s
        self.tell(f"waiting {settle_s:g} s to see that nobody writes: without exactly-once nothing fences")
        time.sleep(settle_s)
        self.lifecycle.check_alive(self.name)
        second = self.context.access.scan(site)
        if second.snapshot(self.name).values != first.snapshot(self.name).values:
            raise NeedsOperator(
                f"offsets of {self.name} change although it is stopped",
                code=ConnectorCode.STILL_WRITING,
                where=str(site),
                expected=f"two equal looks {settle_s:g} s apart",
                seen="another task writes: of a frozen worker, or of another Connect cluster",
                resolve="find and end it, then run again; the connector stays stopped",
            )
        return second

    def check_unchanged(self, site: OffsetsTopic, config: Mapping[str, str]) -> None:
        """See to it that offsets and configuration are those of the manifest, and the connector is stopped.

        Raises:
            NeedsOperator: CHANGED_SINCE, and what.
        """
        self.check_orders()
        self.lifecycle.check_alive(self.name)
        now = self.context.access.scan(site).snapshot(self.name)
        same_config = self.manifest.has_config(config) and (
            (config.get(OFFSETS_TOPIC_KEY) or None) == self.manifest.former
        )
        if now.offsets == self.manifest.values and same_config:
            return
        if not same_config:
            raise self._changed("its configuration", self.name, "another configuration")
        raise self._changed("its offsets", str(site), "other offsets")

    # ---- changing

    def write(self, site: OffsetsTopic, entries: list[Entry]) -> None:
        """Write offsets, unless somebody else was at the connector: then nothing is written.

        For readers of what is committed in one transaction; for readers that also take what was aborted
        without one: an attempt that fails must not leave anything that they would believe.

        Raises:
            Fenced: another run has begun.
            NeedsOperator: CHANGED_SINCE.
            OnceoverError: as ``write_in_transaction``.
        """

        def look() -> None:
            self.hold()
            self.check_orders()

        reached(StepName.COPY_BEGIN)
        if site.isolation is Isolation.READ_COMMITTED:
            own_id = self.context.access.own_id(self.name)
            write_in_transaction(site.cluster, site.topic, own_id, entries, look)
        else:
            look()
            write_plainly(site.cluster, site.topic, entries)
        reached(StepName.COPIED)

    def overwrite(self, sites: list[OffsetsTopic], values: Mapping[bytes, bytes]) -> None:
        """Make shared topics say ``values``, and check that their readers see them."""
        for site in sites:
            self.end_own_transactions(site)
            scan = self.context.access.scan(site)
            entries = overwrite_entries(values, scan, self.name)
            if entries:
                self.write(site, entries)
            reached(StepName.VERIFY)
            check_overwritten(values, self.context.access.scan(site), self.name)

    def configure(self, topic: str | None) -> None:
        """Give the stopped connector another offsets topic, None for the shared one; keep the rest."""
        state = self.context.access.rest.state(self.name)
        reached(StepName.CONFIGURE)
        config = state.config_with(topic)
        with self.ordering(CONFIG, config) as taken:
            self.lifecycle.configure(self.name, config, taken)
        reached(StepName.CONFIGURED)
        self.note(CONFIGURED, f"set {OFFSETS_TOPIC_KEY}")

    # ---- going on

    def resume(self) -> bool:
        """Bring the connector back to what it did; False where it does not run then."""
        initial = self.manifest.initial_state
        if initial == STOPPED:
            return False
        self.tell("resuming")
        reached(StepName.RESUME)
        with self.ordering(TARGET, asked_for(initial)) as taken:
            self.lifecycle.resume(self.name, initial, taken)
        self.note(RESUMED, "resume")
        return initial == RUNNING

    def course(
        self, site: OffsetsTopic, values: Mapping[bytes, bytes], since: Mapping[int, int]
    ) -> OffsetCourse:
        """Return the course of the connector's offsets from ``values`` at ``since`` on."""
        return OffsetCourse(
            self.name,
            values,
            lambda: self.context.access.scan(site),
            lambda starts, scan: records_since(site.cluster, starts, scan),
            since,
        )

    def watch(self, course: OffsetCourse) -> OffsetProgress:
        """Follow the connector's offsets for some time."""
        seconds = self.context.watch_s
        self.tell(f"watching its offsets for at most {seconds:g} s")
        return watch(course.look, self.states, seconds)

    def states(self) -> list[ConnectorState]:
        """Return the connector as every worker reports it.

        Raises:
            ConnectorFailed: it has failed.
        """
        states = self.lifecycle.states(self.name)
        for state in states:
            check_not_failed(state)
        return states

    def finish(
        self,
        outcome: EndState,
        message: str,
        progress: OffsetProgress | None = None,
        *,
        step: str = "finish",
    ) -> ConnectorOutcome:
        """Write down that nothing is left to do, as ``step``."""
        reached(StepName.FINISH)
        self.note(step, finished=True)
        return ConnectorOutcome(
            self.name, outcome, message, facts={} if progress is None else progress.facts()
        )
