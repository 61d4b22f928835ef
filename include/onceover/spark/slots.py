"""Whether Spark has a slot for each lane: all lanes run at the same time, or the flow stands still.

A master without free workers goes on without executors after a minute, and says nothing of it but in its
log: a task that waits looks like one that copies.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import SparkSession

from onceover.errors import Retriable
from onceover.spark.codes import SparkCode

# An executor that died is replaced within seconds, on a busy cluster within a minute.
PATIENCE_S: Final = 90.0
# Asking costs a few calls into the JVM.
_INTERVAL_S: Final = 5.0
_DRIVER: Final = "driver"


def slots_of(spark: SparkSession) -> int:
    """Return how many tasks can run at the same time now, on executors that have registered.

    Not Spark's ``defaultParallelism``, which is never below 2 on a cluster, whatever is there.
    """
    context: Any = spark.sparkContext
    if context.master.startswith("local"):
        return int(context.defaultParallelism)
    executors = context._jsc.sc().statusStore().executorList(True)
    each = [executors.apply(number) for number in range(executors.size())]
    return sum(int(e.totalCores()) for e in each if e.id() != _DRIVER)


def too_few(slots: int, lanes: int) -> Retriable:
    """Return the error for a cluster that has no room; others give theirs back, so it may pass."""
    return Retriable(
        f"Spark has {slots} slots, but each of the flow's {lanes} lanes needs one at the same time",
        code=SparkCode.TOO_FEW_SLOTS,
        expected=f"{lanes} cores or more on registered executors",
        seen=str(slots),
        resolve="add workers, or wait until other applications end; or lower `lanes` in the flow file",
    )


class SlotWatch:
    """Looks, now and then, whether the lanes still have their slots.

    Args:
        slots: returns how many there are.
        lanes: how many are needed.
        clock: monotonic seconds.
    """

    def __init__(
        self, slots: Callable[[], int], lanes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._slots, self._lanes, self._clock = slots, lanes, clock
        self._next_s = clock()
        self._short_since_s: float | None = None

    def check(self) -> None:
        """Ask when it is time to.

        Raises:
            Retriable: TOO_FEW_SLOTS, for longer than a lost executor takes to be replaced.
        """
        now_s = self._clock()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _INTERVAL_S
        slots = self._slots()
        if slots >= self._lanes:
            self._short_since_s = None
            return
        if self._short_since_s is None:
            self._short_since_s = now_s
        if now_s - self._short_since_s >= PATIENCE_S:
            raise too_few(slots, self._lanes)
