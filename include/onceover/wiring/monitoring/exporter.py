"""What `onceover metrics` answers: every flow is looked at again and again, each in a thread of its own.

Invariants: a scrape waits for no cluster and no file, only for what was seen last; whatever is wrong with one
flow, however long its clusters are silent, costs no other one its samples. What was seen too long ago is left
out, and `onceover_look_fresh` says so: an old figure is never taken for one of now.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from onceover.backoff import Patience
from onceover.clock import now_ms
from onceover.config.flow.namesakes import name_said
from onceover.errors import NeedsOperator, OnceoverError, Retriable
from onceover.metrics.canary.thread import CanaryThread
from onceover.metrics.expected import add_expected, is_unended
from onceover.metrics.figures import Figures
from onceover.metrics.fromstatus import add_drills, add_driver, add_groups, add_needs, flow_figures
from onceover.metrics.looks import LastLook, Seen, SeldomRead, scrape_text, stale_after_s
from onceover.metrics.tallies import FlowTally, Tallies
from onceover.operate.statusneeds import with_fault
from onceover.planning.background import begin, side_by_side
from onceover.planning.operation import wait
from onceover.release import own_version
from onceover.state.records.runstate import RunState
from onceover.wiring.failovers.drills import drill_history
from onceover.wiring.flows import open_clusters
from onceover.wiring.monitoring.wantedcanary import WantedCanary, canary_wanted
from onceover.wiring.monitoring.watchedfile import AsRead, WatchedFile
from onceover.wiring.status import of_file, read_status

log = logging.getLogger(__name__)

_AT_ONCE: Final = 16


@dataclass(frozen=True)
class MonitorSettings:
    """How flows are looked at.

    Args:
        interval_s: from the end of a look to the next.
        patience_s: how long a cluster may leave us without an answer.
        most: partitions of a flow, and topics, with series of their own.
    """

    interval_s: float
    patience_s: float
    most: int


class FlowMonitor:
    """Looks at one flow file; what is counted is counted from the first look on. Used by one thread.

    Args:
        path: the flow file.
        settings: how.
        tallies: what is counted; None where there is no second look, by which anything could have been.
        clock: seconds, of no particular beginning.
        files: returns all files that are looked at.
    """

    def __init__(
        self,
        path: Path,
        settings: MonitorSettings,
        tallies: Tallies | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        files: Callable[[], Sequence[Path]] = tuple,
    ) -> None:
        self._path, self._settings, self._clock = path, settings, clock
        self._file, self._tallies = WatchedFile(path, files), tallies
        # Groups and drills.
        self._seldom = SeldomRead()
        self._canary: CanaryThread | None = None
        self._canary_is: WantedCanary | None = None
        # As it was known last.
        self._run_state = RunState.UNKNOWN
        self._groups_said = ""

    @property
    def flow(self) -> str | None:
        """Name of the flow, as its file said when it was last in order; None where it never was."""
        return None if self._file.good is None else self._file.good.flow.flow

    def close(self) -> None:
        """End what goes on between two looks."""
        if self._canary is not None:
            self._canary.stop()
            self._canary = None

    @property
    def runs(self) -> bool:
        """Tell whether the flow had a run that had not ended, when that was known last."""
        return is_unended(self._run_state)

    def keep_canary(self) -> None:
        """Have the canary write and read that the flow file asks for; as it was while the file is broken."""
        self._file.refresh(runs=self.runs)
        tally = self._tally()
        if self._file.good is None or tally is None:
            return
        flow = self._file.good.flow
        wanted = canary_wanted(flow)
        if self._canary is not None and wanted != self._canary_is:
            self.close()
        if self._canary is None and wanted is not None:
            canary = CanaryThread(
                wanted.order, tally.canary, tally.canary_lock, partial(open_clusters, flow), self._clock
            )
            try:
                canary.start()
            except Retriable as error:
                # No thread is to be had: at the next look, perhaps.
                log.warning("the canary of flow %s cannot be begun: %s", flow.flow, error.message)
                return
            self._canary, self._canary_is = canary, wanted

    def look(self) -> tuple[str, Figures]:
        """Return the flow's name and its samples; whatever is wrong is in them."""
        entry: Mapping[str, Any] = of_file(self._path, self._read)
        good = self._file.good
        figures = Figures()
        if good is not None:
            entry = {**entry, "flow": good.flow.flow}
            add_expected(figures, entry, good.flow, good.written_ms)
        flow, state = entry["flow"], RunState(entry["run"]["state"])
        figures.add(flow_figures(entry, self._settings.most))
        add_driver(figures, entry, now_ms())
        if state is not RunState.UNKNOWN:
            self._run_state = state
        if (tally := self._tally()) is not None:
            tally.add_to(figures, entry, self._clock(), self._settings.most)
        if self._canary is not None:
            self._canary.saw_run(state)
            self._canary.add_to(figures)
        self._seldom.add_to(figures, flow, self._clock())
        return flow, figures

    def _tally(self) -> FlowTally | None:
        """Return what is counted of the flow that the file was of when it was last in order."""
        good = self._file.good
        return None if good is None or self._tallies is None else self._tallies.of(good.flow.flow)

    def _read(self) -> dict[str, Any]:
        self._file.refresh(runs=self.runs)
        good, tally = self._file.in_order(), self._tally()
        due = self._seldom.is_due(good.flow.flow, self._clock())
        entry = read_status(
            good.flow,
            patience_s=self._settings.patience_s,
            clusters=good.open,
            beside=None if tally is None else lambda entry, _, target: tally.count(entry, target),
            groups=due,
        )
        if due:
            self._keep_seldom(good, entry)
        return entry if self._file.fault is None else with_fault(entry, self._file.fault)

    def _keep_seldom(self, good: AsRead, entry: Mapping[str, Any]) -> None:
        """Keep what changes seldom; what cannot be read now stays as it was known."""
        flow = good.flow.flow
        self._seldom.begin(flow, self._clock())
        if entry["target"]["error"] is not None:
            return
        if entry["generation"] is None:
            self._seldom.forget()
            return
        groups, standings, drills = entry["groups"] or {}, Figures(), Figures()
        if groups.get("error") is None:
            add_groups(standings, flow, groups)
            self._seldom.keep("groups", standings)
        if entry["source"]["error"] is None:
            self._say_groups(flow, groups.get("error"))
        try:
            history = drill_history(good.flow, wait, Patience(self._settings.patience_s), good.open)
            add_drills(drills, flow, history.document())
            add_needs(drills, flow, history.needs)
            self._seldom.keep("drills", drills)
        except NeedsOperator as error:
            # Of the drills nothing is known any more, and that is said.
            add_needs(drills, flow, [error])
            self._seldom.keep("drills", drills)
        except OnceoverError as error:
            log.debug("the drills of %s cannot be read: %s", flow, error)

    def _say_groups(self, flow: str, error: Mapping[str, Any] | None) -> None:
        """Say once why nobody knows how the groups stand: in the samples they are only not there."""
        parts = [error[name] for name in ("message", "where", "seen", "resolve")] if error else []
        why = "; ".join(filter(None, parts))
        if why and why != self._groups_said:
            log.warning("how the groups of %s stand is not known: %s", flow, why)
        self._groups_said = why


class _Watch:
    """One flow file's thread."""

    def __init__(
        self,
        path: Path,
        settings: MonitorSettings,
        tallies: Tallies,
        clock: Callable[[], float],
        files: Callable[[], Sequence[Path]],
    ) -> None:
        self.path, self.begun_s = path, clock()
        self.seen: Seen | None = None
        self._begun = False
        self._settings, self._clock = settings, clock
        self._monitor = FlowMonitor(path, settings, tallies, clock, files=files)
        self._over = threading.Event()

    @property
    def runs(self) -> bool:
        """Tell whether the flow had a run that had not ended, when it was looked at last."""
        return self._monitor.runs

    @property
    def flow(self) -> str | None:
        """Name of the flow, as its file said when it was last in order."""
        return self._monitor.flow

    def start(self) -> None:
        """Begin, where it was not begun; where no thread is to be had that is left to the next call."""
        if self._begun:
            return
        # Daemon: a resolver that hangs must not keep the command from ending.
        thread = threading.Thread(target=self._run, name=f"onceover-metrics-{self.path.stem}", daemon=True)
        try:
            begin(thread)
        except Retriable as error:
            log.warning("%s cannot be looked at: %s", self.path, error.message)
            return
        self._begun = True

    def stop(self) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            begun_s = self._clock()
            try:
                self._monitor.keep_canary()
                flow, figures = self._monitor.look()
                now_s = self._clock()
                self.seen = Seen(flow, figures.texts(), now_s, now_ms(), now_s - begun_s)
            except Exception as error:  # noqa: BLE001 - its samples become old, which says so; the next may work
                log.warning("%s cannot be looked at: %s", self.path, error)
            self._over.wait(self._settings.interval_s)
        self._monitor.close()


class Exporter:
    """Looks at flows, and answers scrapes. ``scrape`` may be called by any thread, the rest by one.

    Args:
        paths: returns the flow files; asked again and again, as files come and go.
        settings: how they are looked at.
        clock: seconds, of no particular beginning.
    """

    def __init__(
        self,
        paths: Callable[[], Sequence[Path]],
        settings: MonitorSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths, self._settings, self._clock = paths, settings, clock
        self._watches: Mapping[Path, _Watch] = {}
        self._tallies = Tallies()

    def refresh(self) -> None:
        """Begin to look at files that have come; forget those that are gone, once their runs have ended.

        Raises:
            UsageError: the directory cannot be read; what was there is looked at as before.
        """
        paths = list(self._paths())
        kept = {path: self._watches.get(path) for path in paths}
        # One that was given another name is the same flow's, and is looked at under that.
        said = {name_said(path) for path in paths}
        for path, watch in self._watches.items():
            if path not in kept and watch.runs and watch.flow not in said:
                kept[path] = watch
            elif path not in kept:
                watch.stop()
        watches = {}
        for path, known in kept.items():
            watches[path] = known or self._watch(path)
        self._watches = watches
        for watch in watches.values():
            watch.start()

    def _watch(self, path: Path) -> _Watch:
        return _Watch(path, self._settings, self._tallies, self._clock, lambda: list(self._watches))

    def close(self) -> None:
        """Look at nothing any more."""
        for watch in self._watches.values():
            watch.stop()

    def scrape(self) -> bytes:
        """Return everything that was seen, at once."""
        now_s = self._clock()
        looks = [(watch.path, watch.seen, watch.begun_s) for watch in self._watches.values()]
        return _scraped(
            [
                LastLook(path, seen, now_s - (begun_s if seen is None else seen.at_s))
                for path, seen, begun_s in looks
            ],
            self._settings,
        )


def look_once(paths: Sequence[Path], settings: MonitorSettings) -> bytes:
    """Return what a first scrape would, without what only a second one could have counted: one look at each
    flow, all of them at the same time.
    """

    def look(path: Path) -> LastLook:
        begun_s = time.monotonic()
        flow, figures = FlowMonitor(path, settings, None, files=lambda: paths).look()
        now_s = time.monotonic()
        return LastLook(path, Seen(flow, figures.texts(), now_s, now_ms(), now_s - begun_s), 0.0)

    return _scraped(side_by_side([partial(look, path) for path in paths], _AT_ONCE), settings)


def _scraped(looks: Sequence[LastLook], settings: MonitorSettings) -> bytes:
    return scrape_text(looks, stale_after_s(settings.interval_s), answering_version())


def answering_version() -> str:
    """Return the version of what answers, as metrics tell it."""
    return own_version() or "unknown"
