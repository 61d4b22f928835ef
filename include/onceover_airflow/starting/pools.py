"""The pools of the tasks that run for long, so that they leave Airflow slots for all else: copies, audits.

Invariant: without a word of whoever deploys, tasks are in Airflow's own pool: a task in one that does not
exist would wait for ever, and say nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Final

from airflow.sdk.exceptions import AirflowRuntimeError

log = logging.getLogger(__name__)

# The name of the pool; it has to exist in Airflow.
POOL_VARIABLE: Final = "ONCEOVER_COPY_POOL"
# Its slots, for whoever waits for one; what Airflow goes by is the pool itself.
SLOTS_VARIABLE: Final = "ONCEOVER_COPY_SLOTS"
# The name of the pool of audits that a schedule begins: each is a JVM beside those of the copies.
AUDIT_POOL_VARIABLE: Final = "ONCEOVER_AUDIT_POOL"
_AIRFLOWS: Final = "default_pool"
# Runs of a DAG for each slot, and at least: nobody has so many flows that only wait for a slot.
_RUNS_A_SLOT: Final = 4
_FEWEST_RUNS: Final = 64


def copy_pool() -> str:
    """Return the pool of copies, and of whatever else has no end."""
    return os.environ.get(POOL_VARIABLE) or _AIRFLOWS


def audit_pool(*, scheduled: bool) -> str:
    """Return the pool of an audit; nobody waits for one that they have asked for."""
    return (scheduled and os.environ.get(AUDIT_POOL_VARIABLE)) or _AIRFLOWS


def most_runs() -> int:
    """Return how many runs of a DAG that people start there may be at once.

    Far more than slots: a run that waits for a slot is one of them and says so, while one beyond them is
    *queued* at Airflow, and nothing says why. It only bounds what one mistake can start.
    """
    slots = os.environ.get(SLOTS_VARIABLE, "")
    return max(_FEWEST_RUNS, _RUNS_A_SLOT * int(slots)) if slots.isdecimal() else _FEWEST_RUNS


def say_who_waits(count: Callable[[], int]) -> None:
    """Warn where the slots of the pool are taken, before a task waits for one.

    Args:
        count: asks Airflow how many tasks hold slots or wait for them.
    """
    slots = os.environ.get(SLOTS_VARIABLE, "")
    if not slots.isdecimal() or copy_pool() == _AIRFLOWS:
        return
    try:
        taken = count()
    except AirflowRuntimeError as error:
        # Only a hint is lost.
        log.info("how many copies run is not known: %s", error)
        return
    if taken >= int(slots):
        log.warning(
            "%d copies run or wait, and the pool %s has %s slots: this one waits until one of them ends. "
            "`onceover status` shows which run; give the pool more slots, and Airflow as many more "
            "(docs/deployment.md)",
            taken,
            copy_pool(),
            slots,
        )
