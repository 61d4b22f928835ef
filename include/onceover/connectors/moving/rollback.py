"""Taking back an interrupted run, before the connector was resumed."""

from __future__ import annotations

from onceover.connectors.model import ConnectorOutcome, EndState
from onceover.connectors.moving.context import MIGRATE
from onceover.connectors.moving.run import ConnectorRun
from onceover.connectors.planning.access import ConnectAccess, OffsetsTopic
from onceover.connectors.steps import StepName, reached
from onceover.connectors.workers.lifecycle import described


class RollbackRun(ConnectorRun):
    """One connector that gets its former configuration back; no offset is touched."""

    def go(self) -> ConnectorOutcome:
        """Put the former topic back and let the connector do what it did.

        Raises:
            ConnectorFailed: it has its former configuration, and does not run with it.
            OnceoverError: what ended it; run again.
        """
        with self.alone():
            return self._go()

    def _go(self) -> ConnectorOutcome:
        access, former = self.context.access, self.manifest.former
        rest = access.rest
        self.end_own_transactions(*self._written(access))
        state = rest.state(self.name)
        if state.offsets_topic != former:
            if not state.is_stopped:
                # It failed after the run had stopped it, and is meant to stand still.
                self.stop()
            reached(StepName.ROLLBACK)
            self.tell(f"configuring {former or 'the shared topic'}")
            self.configure(former)
        # Also where it seems to run: it may have failed meanwhile, or be about to obey the stop.
        self.resume()
        now = described(rest.state(self.name))
        return self.finish(EndState.DONE, f"as before the run, with its former configuration: {now}")

    def _written(self, access: ConnectAccess) -> list[OffsetsTopic]:
        """Return where the run may have left a transaction open, at which the tasks' start would stumble."""
        config = self.view.state.config
        own = access.own_site(config, self.view.topic)
        return [own] if self.manifest.operation == MIGRATE else [own, *access.return_sites(config)]
