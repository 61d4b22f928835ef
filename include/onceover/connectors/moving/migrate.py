"""Moving one connector's offsets to a topic of its own (KIP-618), live.

Order matters, and each step has its reason: the topic is there and ours to write before the connector stops;
the fence comes before the snapshot, because a frozen worker's task may write after a stop; the copy is
committed and read back before the workers are told, because a task that finds the topic empty, or cannot
read it to its end, begins at zero; and the shared topic is looked at again before that, because it still is
the truth.
"""

from __future__ import annotations

from onceover.connectors.model import ConnectorOutcome
from onceover.connectors.moving.context import MIGRATE
from onceover.connectors.moving.resuming import ResumingRun
from onceover.connectors.planning.access import OffsetsTopic
from onceover.connectors.planning.copying import check_copy, check_unused, copy_entries
from onceover.connectors.planning.plan import unfinished, value_refusals
from onceover.connectors.planning.view import COPY_RIGHTS, OWN_PATIENCE_S, ConnectorView
from onceover.connectors.record.manifest import COPIED, Manifest
from onceover.connectors.rights import check_topic
from onceover.connectors.steps import StepName, reached
from onceover.errors import NeedsOperator
from onceover.kafka.admin.topics import Admin


class MigrationRun(ResumingRun):
    """One connector on its way to its own topic."""

    @property
    def own(self) -> OffsetsTopic:
        return self.context.access.own_site(self.view.state.config, self.view.topic)

    @property
    def destination(self) -> OffsetsTopic:
        return self.own

    @property
    def base(self) -> OffsetsTopic:
        return self.context.access.base_site(self.view.state.config)

    def go(self) -> ConnectorOutcome:
        """Do what is left.

        Raises:
            OnceoverError: what ended it; run again, or roll back.
        """
        with self.alone():
            if self.view.configured != self.view.topic:
                self._move()
            return self.go_on()

    def _move(self) -> None:
        reached(StepName.BEGIN)
        self.note("begin")
        self._create_topic()
        self.stop_and_fence()
        self._take_snapshot()
        self._copy()
        reached(StepName.VERIFY)
        self._verify()
        self.check_unchanged(self.base, self.context.access.rest.config(self.name))
        self.tell(f"configuring {self.view.topic}")
        self.reconfigure(self.view.topic)

    def _create_topic(self) -> None:
        site, spec = self.own, self.view.spec
        if self.view.own is None and spec is not None:
            self.tell(f"creating topic {site.topic}")
            reached(StepName.CREATE_TOPIC)
            Admin(site.cluster).make_topics([spec])
            self.note("create", "create topic")
        check_topic(site.cluster, site.topic, COPY_RIGHTS)

    def _take_snapshot(self) -> None:
        scan = self.settled_scan(self.base)
        snapshot = scan.snapshot(self.name)
        for refusal in value_refusals(snapshot, scan.partitions):
            raise NeedsOperator(
                refusal.message, code=refusal.code, where=refusal.object, resolve=refusal.resolve
            )
        reached(StepName.MANIFEST)
        self.manifest = self.manifest.with_snapshot(snapshot)
        self.note("snapshot")

    def _copy(self) -> None:
        site, values = self.own, self.manifest.values
        # A transaction that is open here is a killed run's own: the producer of the same id aborts it. So
        # what is there is read without waiting for it.
        scan = self.context.observer.uncommitted(site)
        check_unused(None if self.view.own is None else self.view.own.scan, scan, self.name)
        entries = copy_entries(values, scan.snapshot(self.name), self.name, scan.partitions)
        self.tell(f"copying {len(values)} offsets to {site.topic}")
        self.write(site, entries)
        self.note(COPIED, "copy offsets", "remove stale offsets")

    def _verify(self) -> None:
        view = self.context.observer.topic_view(self.own, OWN_PATIENCE_S)
        check_copy(self.manifest.values, view.scan, self.name, view.policy)
        self.note_destination("verify")


def migration_manifest(view: ConnectorView, found: Manifest | None) -> Manifest:
    """Return the manifest of the run that goes on, or of one that begins now."""
    if view.configured == view.topic and found is not None and unfinished(found, view.topic):
        return found
    return Manifest.begin(
        MIGRATE,
        view.name,
        (view.facts.offsets_topic, view.topic),
        view.initial_state,
        view.state.config,
        view.records.epochs(view.name),
        exactly_once=view.facts.exactly_once,
        behind_ms=view.newest_ms,
    )
