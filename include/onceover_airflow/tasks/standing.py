"""Where a flow stands after a run, for the tasks that report it.

Invariant: nothing is reported of a cluster that did not answer.
"""

from __future__ import annotations

import logging
from typing import Any

from onceover.errors import Retriable
from onceover_airflow.access.flowcontext import flow_at_hand
from onceover_airflow.errors import JobInterrupted, TaskFailed
from onceover_airflow.telling.report import status_table

log = logging.getLogger(__name__)


def show_standing(flow: str) -> dict[str, Any]:
    """Write the flow's partitions and notes to the log; return its entry of ``status``.

    Raises:
        JobInterrupted: a cluster does not answer for the moment; tried again.
        TaskFailed: it refuses to, or is another cluster; any other error.
    """
    from onceover.wiring.status import read_status

    with flow_at_hand(flow) as loaded:
        status = read_status(loaded)
    for line in status_table(status):
        log.info("%s", line)
    for note in status.get("notes", ()):
        log.warning("%(object)s: %(message)s; %(resolve)s", note)
    for side in ("source", "target"):
        error = status[side]["error"]
        if error is not None:
            text = f"{status[side]['alias']}: {error['message']}"
            if error["exit"] == Retriable.exit_code:
                raise JobInterrupted(text)
            raise TaskFailed(text)
    return status
