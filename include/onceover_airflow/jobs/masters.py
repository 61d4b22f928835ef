"""Which Spark masters a form may name.

Invariant: whoever may start a DAG does not choose the machine to which a driver with a flow's credentials
connects, and from which it takes workers: that is the flow file's, or the administrator's, to say.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from onceover.errors import UsageError
from onceover_airflow.codes import AirflowCode

if TYPE_CHECKING:
    from onceover.config.flow.flowfile import Flow

# Of Airflow's workers and its DAG processor; blanks between them, as an address may hold commas.
MASTERS_VARIABLE: Final = "ONCEOVER_SPARK_MASTERS"
_LOCAL: Final = "local"


def allowed_masters() -> list[str]:
    """Return the masters that forms may name beside ``local`` and the flow file's own."""
    return os.environ.get(MASTERS_VARIABLE, "").split()


def check_master(master: str, flow: Flow) -> None:
    """Refuse a master that nobody but the form names.

    Raises:
        UsageError: MASTER_NOT_ALLOWED.
    """
    if not master or master.startswith(_LOCAL):
        return
    allowed = [_LOCAL, flow.spark.master, *allowed_masters()]
    if master not in allowed:
        raise UsageError(
            f"a form may not send flow {flow.flow} to the Spark master {master}",
            code=AirflowCode.MASTER_NOT_ALLOWED,
            expected=f"one of: {', '.join(dict.fromkeys(allowed))}",
            resolve=f"an administrator adds it to {MASTERS_VARIABLE} of Airflow's workers, or the flow file "
            "names it as spark.master",
        )
