"""The steps of moving a connector's offsets, by name, in their order.

Every step announces itself through ``reached`` just before its effect. The kill tests are generated from
this list: the tool is killed with -9 at each of them, and running it again must converge. In production
nobody listens.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class StepName(Enum):
    """Moments that a crash must survive."""

    PRECHECK = "precheck: look at the workers, the connector and the topics"
    BEGIN = "precheck: write down that the run begins"
    RECORD = "any: write down on the cluster how far it is: commit"
    ORDER = "stop, configure, resume: send the command to the workers"
    CREATE_TOPIC = "precheck: create the connector's topic"
    STOP = "stop: ask for it"
    STOPPED = "stop: the connector is stopped"
    FENCE = "fence: a transactional id of its tasks"
    SNAPSHOT = "snapshot: read the offsets"
    MANIFEST = "snapshot: write the manifest"
    COPY_BEGIN = "copy: write the offsets"
    COPY_COMMIT = "copy: commit"
    COPIED = "copy: committed"
    VERIFY = "verify: read what was written"
    CONFIGURE = "configure: put the connector's configuration"
    CONFIGURED = "configure: the workers have it"
    RESUME = "resume: ask for it"
    WATCH = "watch: look at the offsets"
    RESTORE = "watch: stop a connector that went back and write its offsets again"
    ROLLBACK = "rollback: put the old configuration"
    SETTLE = "downgrade: write committed values over what was aborted"
    FINISH = "end: write down that the run is done"


def _nobody(step: StepName) -> None:
    pass


_listener: Callable[[StepName], None] = _nobody


def reached(step: StepName) -> None:
    """Announce a step."""
    _listener(step)


def listen(listener: Callable[[StepName], None]) -> None:
    """Hear of every step of this process from now on."""
    global _listener
    _listener = listener
