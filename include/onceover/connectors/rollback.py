"""Taking back an interrupted run, before the connector was resumed."""

from __future__ import annotations

from onceover.connectors.access import ConnectAccess, Site
from onceover.connectors.model import RUNNING, ConnectorOutcome, Outcome
from onceover.connectors.run import MIGRATE, Run
from onceover.connectors.steps import StepName, reached


class RollbackRun(Run):
    """One connector that gets its former configuration back; no offset is touched."""

    def go(self) -> ConnectorOutcome:
        """Put the former topic back and let the connector do what it did.

        Raises:
            OnceoverError: what ended it; run again.
        """
        access, former = self.context.access, self.manifest.former
        rest = access.rest
        self.end_own_transactions(*self._written(access))
        if rest.state(self.name).offsets_topic != former:
            reached(StepName.ROLLBACK)
            self.tell(f"configuring {former or 'the global topic'}")
            self.configure(former)
        resumed = rest.state(self.name).is_stopped and self.resume()
        runs = resumed or rest.state(self.name).state == RUNNING
        doing = "runs" if runs else f"is {self.manifest.initial_state}"
        return self.finish(Outcome.DONE, f"as before the run: it {doing}, with its former configuration")

    def _written(self, access: ConnectAccess) -> list[Site]:
        """Return where the run may have left a transaction open, at which the tasks' start would stumble."""
        config = self.view.state.config
        own = access.own_site(config, self.view.topic)
        return [own] if self.manifest.operation == MIGRATE else [own, *access.return_sites(config)]
