"""What the operations of one run on connectors share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onceover.connectors.model import WorkerFacts
from onceover.connectors.planning.access import ConnectAccess
from onceover.connectors.planning.view import Observer
from onceover.connectors.record.manifest import Manifest, ManifestStore, file_name
from onceover.connectors.settings import ConnectorRequest
from onceover.connectors.workers.lifecycle import Lifecycle
from onceover.planning.operation import Tell

# Told the kinds of the plan's changes that were made.
MarkDone = Callable[..., None]
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
        request: what was asked for.
        tell: hears of progress, a line at a time.
    """

    access: ConnectAccess
    facts: WorkerFacts
    request: ConnectorRequest
    tell: Tell

    @property
    def store(self) -> ManifestStore:
        """Where manifests are."""
        return ManifestStore(self.access.settings.home, self.access.records)

    def runs(self, name: str) -> list[Manifest]:
        """Return the newest run of each kind for a connector.

        Raises:
            As ``ManifestStore.load``.
        """
        runs = [self.store.load(name, operation) for operation in OPERATIONS]
        return [run for run in runs if run is not None]

    def newest(self, name: str) -> Manifest | None:
        """Return the newest run for a connector, of whichever kind; errors as of ``runs``."""
        return newest_of(self.runs(name))

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
        given = self.request.watch_s
        return max(_LEAST_WATCH_S, 2 * self.access.flush_interval_s) if given is None else given

    @property
    def settle_s(self) -> float:
        """Between the two looks that must be equal where no fence holds."""
        given = self.request.settle_s
        return self.access.flush_interval_s if given is None else given


def newest_of(runs: Iterable[Manifest]) -> Manifest | None:
    """Return the run that began last, None without any."""
    return max(runs, key=lambda run: run.begun_ms, default=None)
