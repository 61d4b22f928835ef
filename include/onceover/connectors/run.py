"""What every operation on one connector is made of: each step announced, written down, and safe to repeat."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onceover.connectors.access import ConnectAccess, Site
from onceover.connectors.configtopic import CONFIG, STARTED, TARGET
from onceover.connectors.copying import check_overwritten, overwrite_entries
from onceover.connectors.lifecycle import Lifecycle, check_not_failed
from onceover.connectors.manifest import CHANGED, CONFIGURED, Manifest, ManifestStore, file_name
from onceover.connectors.model import (
    OFFSETS_TOPIC_KEY,
    PAUSED,
    RUNNING,
    STOPPED,
    ConnectorOutcome,
    ConnectorState,
    Isolation,
    Outcome,
    WorkerFacts,
)
from onceover.connectors.records import Claim
from onceover.connectors.rights import needing
from onceover.connectors.scan import Scan, records_since
from onceover.connectors.settings import Wish
from onceover.connectors.steps import StepName, reached
from onceover.connectors.view import ConnectorView, Observer
from onceover.connectors.watching import Course, Progress, watch
from onceover.connectors.write import Entry, write_in_transaction, write_plainly
from onceover.engine.leader import fence
from onceover.errors import Fenced, NeedsOperator, OnceoverError

log = logging.getLogger(__name__)

Tell = Callable[[str], None]
# Told the kinds of the plan's changes that were made.
Done = Callable[..., None]
MIGRATE: Final = "migrate"
HARD: Final = "downgrade-hard"
SOFT: Final = "downgrade-soft"
OPERATIONS: Final = (MIGRATE, HARD, SOFT)
_LEAST_WATCH_S: Final = 30.0


@dataclass(frozen=True)
class Context:
    """What the operations of one run share.

    Args:
        access: the Connect cluster.
        facts: its workers, as just asked.
        wish: what was asked for.
        tell: hears of progress, a line at a time.
    """

    access: ConnectAccess
    facts: WorkerFacts
    wish: Wish
    tell: Tell

    @property
    def store(self) -> ManifestStore:
        """Where manifests are."""
        return ManifestStore(self.access.settings.home, self.access.records)

    @property
    def observer(self) -> Observer:
        """What looks at connectors."""
        return Observer(self.access, self.facts)

    def journal_path(self, connector: str) -> Path:
        """Return the journal of a connector."""
        return self.access.settings.home / "journal" / f"{file_name(connector)}.jsonl"

    def lifecycle(self) -> Lifecycle:
        """Return what commands connectors."""
        return Lifecycle(self.access.rest, self.facts.workers, exactly_once=self.facts.exactly_once)

    @property
    def watch_s(self) -> float:
        """How long a resumed connector is watched."""
        given = self.wish.watch_s
        return max(_LEAST_WATCH_S, 2 * self.access.flush_interval_s) if given is None else given

    @property
    def settle_s(self) -> float:
        """Between the two looks that must be equal where no fence holds."""
        given = self.wish.settle_s
        return self.access.flush_interval_s if given is None else given


class Run:
    """One operation on one connector.

    Invariant: it writes offsets, and commands the connector, only while nobody else has commanded it since
    this run looked.

    Args:
        context: of the run.
        view: the connector as it was planned with.
        manifest: what this run writes down.
        done: told each change that was made.
    """

    def __init__(self, context: Context, view: ConnectorView, manifest: Manifest, done: Done) -> None:
        self.context = context
        self.view = view
        self.manifest = manifest
        self.lifecycle = context.lifecycle()
        self._done = done
        self._claim: Claim | None = None
        self._orders = view.records.orders(view.name)

    @property
    def name(self) -> str:
        return self.view.name

    def tell(self, text: str) -> None:
        """Say what happens."""
        self.context.tell(f"{self.name}: {text}")

    # ---- alone

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Take the connector over from every other run, and notice when another one does so.

        Raises:
            Fenced: another run has begun: whatever this one stumbled over is of that one's making.
            OnceoverError: as raised inside, and as ``RunRecords.claim``.
        """
        self._claim = self.context.access.records.claim(self.name)
        try:
            yield
        except Fenced:
            raise
        except OnceoverError as error:
            self._blame_another(error)
            raise
        finally:
            self._claim.close()
            self._claim = None

    def hold(self) -> None:
        """See to it that no other run has taken over.

        Raises:
            Fenced: one has.
        """
        if self._claim is not None:
            self._claim.write(self.manifest)

    def _blame_another(self, error: OnceoverError) -> None:
        try:
            self.hold()
        except Fenced as fenced:
            raise fenced from error
        except OnceoverError as silent:
            log.info("%s: whether another run has begun is not known: %s", self.name, silent)

    def note(self, step: str, *kinds: str, finished: bool = False) -> None:
        """Write a step down as done; ``kinds`` are those of the plan's changes that it made."""
        self.manifest = self.manifest.with_step(step, finished=finished)
        # First where a run that was taken over learns of it: the file may be the other's by now.
        self.hold()
        self.context.store.save(self.manifest)
        self._done(*kinds)

    # ---- not beside others

    def check_orders(self) -> None:
        """See to it that nobody has commanded the connector since this run looked.

        Raises:
            NeedsOperator: CHANGED_SINCE.
        """
        records = self.context.observer.config_records()
        now = records.orders(self.name)
        if now.get(CONFIG) != self._orders.get(CONFIG):
            raise self._changed("its configuration", self.name, "another configuration")
        if now.get(TARGET) != self._orders.get(TARGET):
            asked = records.target(self.name) or "nothing"
            raise self._changed("what is asked of it", self.name, f"{asked}, by somebody else")

    def _changed(self, what: str, where: str, seen: str) -> NeedsOperator:
        """Write down that this run is over, unless it is past the point; return the error."""
        if self.manifest.steps and not self.manifest.has_step(CONFIGURED):
            self.note(CHANGED)
        return NeedsOperator(
            f"{what} changed since this run looked at {self.name}",
            code="CHANGED_SINCE",
            where=where,
            expected="as it was, or as this run left it",
            seen=seen,
            resolve="find out who did it, then run again: it begins anew with what is there then",
        )

    @contextmanager
    def commanding(self, target: str | None = None) -> Iterator[None]:
        """Command the connector; what is this run's own doing is known afterwards, also to the next one.

        Args:
            target: the state that is asked for, in the word of the configuration topic; None for none.

        Raises:
            Fenced: another run has begun; as ``check_orders``. It was not commanded.
        """
        self.check_orders()
        self._note_orders(target or "")
        try:
            yield
        except OnceoverError:
            with suppress(OnceoverError):
                self._learn(target)
            raise
        self._learn(target)

    def _learn(self, target: str | None) -> None:
        """Take over what the command has written; what somebody else wrote, the next look sees."""
        records = self.context.observer.config_records()
        now = records.orders(self.name)
        if target is None:
            self._orders = {**self._orders, **_only(now, CONFIG)}
        elif records.target(self.name) == target:
            self._orders = {**self._orders, **_only(now, TARGET)}
        self._note_orders()

    def _note_orders(self, asking: str = "") -> None:
        self.manifest = self.manifest.with_orders(self._orders, asking)
        self.hold()
        self.context.store.save(self.manifest)

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
        """Stop the connector; as ``commanding`` and ``Lifecycle.stop``."""
        with self.commanding(STOPPED):
            self.lifecycle.stop(self.name, fence)

    def _fence_stopped(self) -> None:
        """Fence a connector that is slow to stop, but not the tasks of somebody who has resumed it."""
        self._learn(STOPPED)
        self.check_orders()
        self.fence(self.view.fence_ids)

    def fence(self, ids: Sequence[str]) -> None:
        """Take over transactional ids of its tasks: one that only seems to be gone writes nothing any more.

        Raises:
            UsageError: a right is missing.
        """
        self.tell(f"fencing {len(ids)} transactional ids of its tasks")
        cluster = self.context.access.home(self.view.state.config)
        for transactional_id in ids:
            reached(StepName.FENCE)
            with needing(cluster.config, "WRITE", f"transactional id {transactional_id}"):
                fence(cluster, transactional_id)

    def end_own_transactions(self, *sites: Site) -> None:
        """Abort what a killed run of ours left open where these are; one that still lives is fenced.

        Whoever reads to the end would wait for it until the broker aborts it, a minute later; tasks that
        start meanwhile would begin at zero. Readers of uncommitted records wait for nothing.
        """
        self.hold()
        own_id = self.context.access.own_id(self.name)
        waiting = [site.cluster for site in sites if site.isolation is Isolation.READ_COMMITTED]
        for cluster in {id(each): each for each in waiting}.values():
            with needing(cluster.config, "WRITE", f"transactional id {own_id}"):
                fence(cluster, own_id)

    def settled_scan(self, site: Site) -> Scan:
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
                code="STILL_WRITING",
                where=str(site),
                expected=f"two equal looks {settle_s:g} s apart",
                seen="another task writes: of a frozen worker, or of another Connect cluster",
                resolve="find and end it, then run again; the connector stays stopped",
            )
        return second

    def check_unchanged(self, site: Site, config: Mapping[str, str]) -> None:
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

    def write(self, site: Site, entries: list[Entry]) -> None:
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
        settings = site.cluster.config
        if site.isolation is Isolation.READ_COMMITTED:
            own_id = self.context.access.own_id(self.name)
            write_in_transaction(settings, site.topic, own_id, entries, look)
        else:
            look()
            write_plainly(settings, site.topic, entries)
        reached(StepName.COPIED)

    def overwrite(self, sites: list[Site], values: Mapping[bytes, bytes]) -> None:
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
        with self.commanding():
            self.lifecycle.configure(self.name, state.config_with(topic))
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
        with self.commanding(PAUSED if initial == PAUSED else STARTED):
            self.lifecycle.resume(self.name, initial)
        self.note("resume", "resume")
        return initial == RUNNING

    def course(self, site: Site, values: Mapping[bytes, bytes], since: Mapping[int, int]) -> Course:
        """Return the course of the connector's offsets from ``values`` at ``since`` on."""
        return Course(
            self.name,
            values,
            lambda: self.context.access.scan(site),
            lambda starts, scan: records_since(site.cluster, starts, scan),
            since,
        )

    def watch(self, course: Course) -> Progress:
        """Follow the connector's offsets for some time."""
        seconds = self.context.watch_s
        self.tell(f"watching its offsets for at most {seconds:g} s")
        return watch(course.look, self.states, seconds)

    def states(self) -> list[ConnectorState]:
        """Return the connector as every worker reports it.

        Raises:
            TaskFailed: it has failed.
        """
        states = self.lifecycle.states(self.name)
        for state in states:
            check_not_failed(state)
        return states

    def finish(
        self, outcome: Outcome, message: str, progress: Progress | None = None, *, step: str = "finish"
    ) -> ConnectorOutcome:
        """Write down that nothing is left to do, as ``step``."""
        reached(StepName.FINISH)
        self.note(step, finished=True)
        return ConnectorOutcome(
            self.name, outcome, message, facts={} if progress is None else progress.facts()
        )


def _only(orders: Mapping[str, int], what: str) -> dict[str, int]:
    return {what: orders[what]} if what in orders else {}
