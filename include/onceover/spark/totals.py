"""What a run has copied, by the observed metrics of its query."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener


class Totals(StreamingQueryListener):
    """Adds up what the query's observed metrics say; called from Spark's own thread.

    Args:
        on_batch: called when a batch is over.
    """

    def __init__(self, on_batch: Callable[[], None]) -> None:
        self._on_batch = on_batch
        self._lock = threading.Lock()
        self.records = self.bytes = self.transactions = 0

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to note."""

    def onQueryProgress(self, event: Any) -> None:
        """Add one batch."""
        self._on_batch()
        observed = event.progress.observedMetrics.get("receipts")
        if observed is None:
            return
        row = observed.asDict()
        with self._lock:
            self.records += row["records"] or 0
            self.bytes += row["bytes"] or 0
            self.transactions += row["transactions"] or 0

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to note."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to note."""
