"""Taking a connector back to the shared offsets topic, and preparing it for workers without exactly-once.

Its own topic is the truth. The shared copy may be one transaction ahead of it, because Connect writes it
before the transaction ends, or behind: it is overwritten either way, before the configuration changes.
"""

from __future__ import annotations

from onceover.connectors.model import ConnectorOutcome, EndState, Isolation
from onceover.connectors.moving.context import HARD
from onceover.connectors.moving.resuming import ResumingRun
from onceover.connectors.offsets.scan import Scan
from onceover.connectors.planning.access import OffsetsTopic
from onceover.connectors.planning.plan import empty_refusals, unfinished, value_refusals
from onceover.connectors.planning.view import ConnectorView
from onceover.connectors.record.manifest import COPIED, Manifest
from onceover.connectors.steps import StepName, reached
from onceover.errors import NeedsOperator
from onceover.planning.plan import Refusal


class HardDowngrade(ResumingRun):
    """One connector on its way back to the shared topic."""

    @property
    def destination(self) -> OffsetsTopic:
        return self.context.access.base_site(self.view.state.config)

    @property
    def own(self) -> OffsetsTopic:
        return self.context.access.own_site(self.view.state.config, self.manifest.from_topic)

    def go(self) -> ConnectorOutcome:
        """Do what is left.

        Raises:
            OnceoverError: what ended it; run again, or roll back.
        """
        with self.alone():
            if self.view.configured is not None:
                self._return()
            return self.go_on()

    def _return(self) -> None:
        reached(StepName.BEGIN)
        self.note("begin")
        self.stop_and_fence()
        self._take_snapshot()
        self.tell(f"writing {len(self.manifest.values)} offsets to {self.destination.topic}")
        self.overwrite(self.context.access.return_sites(self.view.state.config), self.manifest.values)
        self.note_destination(COPIED, "overwrite offsets", "remove offsets")
        self.check_unchanged(self.own, self.context.access.rest.config(self.name))
        self.tell("configuring the shared topic")
        self.reconfigure(None)

    def _take_snapshot(self) -> None:
        scan = self.settled_scan(self.own)
        snapshot = scan.snapshot(self.name)
        check(*value_refusals(snapshot, scan.partitions), *empty_refusals(snapshot))
        reached(StepName.MANIFEST)
        self.manifest = self.manifest.with_snapshot(snapshot)
        self.note("snapshot")


class SoftDowngrade(ResumingRun):
    """One connector, made ready for workers that read the shared topic uncommitted.

    They would take what was aborted for real, as long as it is the last record of its key: the committed
    value is written once more behind it.
    """

    @property
    def destination(self) -> OffsetsTopic:
        access = self.context.access
        return OffsetsTopic(access.worker_cluster, access.global_topic, Isolation.READ_UNCOMMITTED)

    def prepare(self) -> ConnectorOutcome:
        """Stop it and settle its offsets; it stays stopped until the workers have been changed.

        Raises:
            OnceoverError: what ended it; run again, or roll back.
        """
        with self.alone():
            return self._prepare()

    def _prepare(self) -> ConnectorOutcome:
        reached(StepName.BEGIN)
        self.note("begin")
        self.stop_and_fence()
        self._settle(self.settled_scan(self.context.access.base_site(self.view.state.config)))
        return ConnectorOutcome(
            self.name,
            EndState.DONE,
            "stopped, and ready for workers without exactly-once: set exactly.once.source.support=disabled "
            "on every worker and in the Connect file, restart them all, then run this again",
            facts={"offsets": len(self.manifest.values)},
        )

    def _settle(self, scan: Scan) -> None:
        snapshot = scan.snapshot(self.name)
        check(*value_refusals(snapshot, scan.partitions))
        reached(StepName.MANIFEST)
        self.manifest = self.manifest.with_snapshot(snapshot)
        self.note("snapshot")
        reached(StepName.SETTLE)
        self.overwrite([self.destination], self.manifest.values)
        self.note_destination("settle", "settle offsets")

    def complete(self) -> ConnectorOutcome:
        """Resume it under workers without exactly-once, and watch it.

        Raises:
            OnceoverError: what ended it.
        """
        with self.alone():
            return self.go_on()

    def stop_exactly_once(self, tasks: int) -> None:
        """Stop it, and settle its offsets once more: its tasks may have left aborted ones behind."""
        super().stop_exactly_once(tasks)
        access, config = self.context.access, self.view.state.config
        self.fence([access.task_id(self.name, number) for number in range(tasks)])
        truth = OffsetsTopic(access.home(config), access.global_topic, Isolation.READ_COMMITTED)
        self._settle(access.scan(truth))


def downgrade_manifest(view: ConnectorView, found: Manifest | None, operation: str) -> Manifest:
    """Return the manifest of the run that goes on, or of one that begins now."""
    to_topic = view.facts.offsets_topic
    goes_on = view.configured is None if operation == HARD else not view.facts.exactly_once
    if goes_on and found is not None and unfinished(found, to_topic):
        return found
    return Manifest.begin(
        operation,
        view.name,
        (view.configured or to_topic, to_topic),
        view.initial_state,
        view.state.config,
        view.records.epochs(view.name),
        exactly_once=view.facts.exactly_once,
        behind_ms=view.newest_ms,
    )


def check(*refusals: Refusal) -> None:
    """Raise the first refusal: it came up after the connector was stopped.

    Raises:
        NeedsOperator: as it says.
    """
    for refusal in refusals:
        raise NeedsOperator(
            f"{refusal.message}; the connector stays stopped",
            code=refusal.code,
            where=refusal.object,
            resolve=refusal.resolve,
        )
