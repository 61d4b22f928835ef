"""Taking back an interrupted run, before the connector was resumed."""

from __future__ import annotations

from onceover.connectors.model import RUNNING, ConnectorOutcome, Outcome
from onceover.connectors.run import Run
from onceover.connectors.steps import StepName, reached


class RollbackRun(Run):
    """One connector that gets its former configuration back; no offset is touched."""

    def go(self) -> ConnectorOutcome:
        """Put the former topic back and let the connector do what it did.

        Raises:
            OnceoverError: what ended it; run again.
        """
        rest, former = self.context.access.rest, self.manifest.former
        if rest.state(self.name).offsets_topic != former:
            reached(StepName.ROLLBACK)
            self.tell(f"configuring {former or 'the global topic'}")
            self.configure(former)
        resumed = rest.state(self.name).is_stopped and self.resume()
        runs = resumed or rest.state(self.name).state == RUNNING
        doing = "runs" if runs else f"is {self.manifest.initial_state}"
        return self.finish(Outcome.DONE, f"as before the run: it {doing}, with its former configuration")
