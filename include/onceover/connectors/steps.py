"""The steps of moving a connector's offsets, by name, in their order.

Each is announced just before its effect (``onceover.announce``).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from onceover.announce import Announcer


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


_announcer: Final[Announcer[StepName]] = Announcer()
reached = _announcer.reached
listen = _announcer.listen
