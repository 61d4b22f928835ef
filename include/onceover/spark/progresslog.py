"""A line a minute in the driver's log: how fast the flow copies, and how far behind it is.

In a thread with connections of its own, read from the clusters: the driver's loop, whose sign of life
others wait for, is never held up, and a cluster that is away costs a line and nothing else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any, Final

from onceover.ages import age_text
from onceover.clock import now_ms
from onceover.config.flow.flowfile import Flow
from onceover.errors import OnceoverError
from onceover.kafka.ports import Cluster
from onceover.operate.status import flow_status, stopped_partitions
from onceover.planning.background import begin
from onceover.positions.rate import Rate, RateMeter
from onceover.wiring.flows import open_clusters

log = logging.getLogger(__name__)

INTERVAL_S: Final = 60.0
_NAMED: Final = 3
_MEGABYTE: Final = 1_000_000


class ProgressLog:
    """Logs until it is closed. Use as a context manager.

    Args:
        flow: what is copied.
        interval_s: between two lines.
    """

    def __init__(self, flow: Flow, interval_s: float = INTERVAL_S) -> None:
        self._flow = flow
        self._interval_s = interval_s
        self._over = threading.Event()
        # Daemon: a cluster that does not answer must not keep a run from ending.
        self._thread = threading.Thread(target=self._run, name="onceover-progress", daemon=True)

    def __enter__(self) -> ProgressLog:
        begin(self._thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _run(self) -> None:
        source, target = open_clusters(self._flow)
        with source, target:
            meter = RateMeter(target, self._flow.flow, now_ms)
            self._try(meter.measure)
            while not self._over.wait(self._interval_s):
                self._try(lambda: self._tell(meter, source, target))

    def _tell(self, meter: RateMeter, source: Cluster, target: Cluster) -> None:
        rate = target.retry(meter.measure)
        status = flow_status(self._flow.flow, source, target)
        if not self._over.is_set():
            level = logging.WARNING if stopped_partitions(status) else logging.INFO
            log.log(level, "%s", progress_line(rate, status))

    def _try(self, step: Any) -> None:
        try:
            step()
        except OnceoverError as error:
            # The driver says what this means for the run.
            log.debug("no progress is shown: %s", error)


def progress_line(rate: Rate, status: Mapping[str, Any]) -> str:
    """Return what a person wants to know of a running copy."""
    line = (
        f"{status['flow']}: {rate.records / rate.seconds:,.0f} records/s, "
        f"{rate.bytes / rate.seconds / _MEGABYTE:,.1f} MB/s, {rate.transactions:,} transactions in "
        f"{rate.seconds:.0f} s; {_lag(status)}"
    )
    stopped = stopped_partitions(status)
    if not stopped:
        return line
    names = [s["topic"] if s["partition"] is None else f"{s['topic']}:{s['partition']}" for s in stopped]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    listed = ", ".join(names[:_NAMED])
    return f"{line}; {len(names)} stopped: {listed}{more}, see onceover status {status['flow']}"


def _lag(status: Mapping[str, Any]) -> str:
    lag, oldest_s = status["lag_offsets"], status["oldest_missing_s"]
    text = "lag unknown" if lag is None else f"lag {lag:,} offsets"
    return text if oldest_s is None else f"{text}, oldest missing {age_text(oldest_s)}"
