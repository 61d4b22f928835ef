"""A flow file while its flow is watched: as it was when it was last in order, and what is wrong with it now.

Invariant: whatever becomes of a file that was in order once, its flow goes on being watched, as its driver
goes on with it, and what is wrong is said beside it: a typo hides nothing that waits for a person.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from onceover.config.clients.resolve import ClientConfig
from onceover.config.faults import BadConfig, Fault
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import flows_dir, listed_clash, load_flow, load_listed
from onceover.config.flow.namesakes import NameClash, clash_of
from onceover.config.flow.sides import resolve_clients
from onceover.errors import NeedsOperator, UsageError, unusable_path
from onceover.kafka.ports import Cluster
from onceover.wiring.flows import open_clients

_MS: Final = 1000


class AsRead(NamedTuple):
    """A flow file that was in order, with its clients; ``written_ms``: since when, in ms since 1970."""

    flow: Flow
    source: ClientConfig
    target: ClientConfig
    written_ms: float

    def open(self) -> tuple[Cluster, Cluster]:
        """Return source and target, not connected yet. The caller closes them."""
        return open_clients(self.source, self.target)


class WatchedFile:
    """A flow file, read again and again. Used by one thread.

    Args:
        path: the file.
        files: returns all files that are watched: two of them may say the same name.

    Attributes:
        good: as it was when it was last in order; None where it never was.
        fault: what is wrong with it now.
    """

    def __init__(self, path: Path, files: Callable[[], Sequence[Path]]) -> None:
        self._path, self._files = path, files
        self.good: AsRead | None = None
        self.fault: UsageError | NeedsOperator | None = None

    def refresh(self, *, runs: bool) -> None:
        """Read it anew.

        Args:
            runs: whether the flow that it was read as has a run that has not ended.
        """
        try:
            clash = listed_clash(self._path) or clash_of(self._path, self._files())
            self.good = self._read(clash, self.good if runs else None)
            self.fault = None if clash is None else clash.error()
        except UsageError as error:
            self.fault = error
        except OSError as error:
            self.fault = unusable_path(error)

    def in_order(self) -> AsRead:
        """Return it as it was when it was last in order.

        Raises:
            UsageError: it never was.
        """
        if self.good is None:
            raise self.fault or UsageError("the flow file was not read yet", where=str(self._path))
        return self.good

    def _read(self, clash: NameClash | None, running: AsRead | None) -> AsRead:
        if clash is not None and clash.is_refused:
            raise clash.error()
        # One that is named by its path needs no name that could be typed.
        flow = (load_listed if self._path.parent == flows_dir() else load_flow)(self._path)
        if running is not None and flow.flow != running.flow.flow:
            before = running.flow.flow
            problem = f"is {flow.flow}, and was {before}, whose run has not ended"
            fix = f"call it {before} until it has: stop it, or start it where its driver is gone"
            raise BadConfig([Fault(str(self._path), "flow", problem, fix)])
        written_ms = self._path.stat().st_mtime * _MS
        if self.good is not None and self.good.flow.sha256 == flow.sha256:
            # A deployment writes the same text anew; whoever is late by it is late all the same.
            written_ms = min(written_ms, self.good.written_ms)
        return AsRead(flow, *resolve_clients(flow), written_ms)
