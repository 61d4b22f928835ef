"""What a scrape tells of looks at flows, by how long ago they were. Pure.

Invariants: what was seen too long ago is left out, and ``onceover_look_fresh`` says so of a look: an old
figure is never taken for one of now. Of two files that say the same name only the first has samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from onceover.metrics import catalogue as m
from onceover.metrics.figures import Figures, Texts, exposition

# Four looks that failed; a cluster that is away costs one of them several seconds.
_STALE_LOOKS: Final = 4
_STALE_S: Final = 60.0
# Drills and groups change by the hour, and to read them takes as long as all the rest.
_SELDOM_S: Final = 60.0
# Alerts on them wait for nothing: one look that fails would end them, and the next one begin them again.
_SELDOM_KEPT_S: Final = 300.0
_MS: Final = 1000


@dataclass(frozen=True)
class Seen:
    """What one look has seen.

    Args:
        flow: its name.
        texts: the flow's samples.
        at_s: when it ended, of no particular beginning; ``at_ms`` the same since 1970.
        took_s: how long it took.
    """

    flow: str
    texts: Texts
    at_s: float
    at_ms: int
    took_s: float


class LastLook(NamedTuple):
    """A flow file, what was ``seen`` of it last, and how old that is.

    Where it was never looked at, None, and for how long it has waited for that.
    """

    path: Path
    seen: Seen | None
    age_s: float


def stale_after_s(interval_s: float) -> float:
    """Return how old a look may be to count, where the next one comes an interval behind its end."""
    return max(_STALE_S, _STALE_LOOKS * interval_s)


def scrape_text(looks: Sequence[LastLook], stale_s: float, release: str) -> bytes:
    """Return the text of a scrape.

    Args:
        looks: one for each flow file.
        stale_s: how old one may be to count.
        release: the version of what answers.
    """
    own, parts, flows = _own_figures(len(looks), release), [], set()
    for path, seen, age_s in looks:
        flow = path.stem if seen is None else seen.flow
        if flow in flows:
            # Not in order, and called after a flow that another file is of.
            own.put(m.FILE_VALID, 0, path.name)
            continue
        flows.add(flow)
        own.put(m.LOOK_FRESH, float(seen is not None and age_s <= stale_s), flow)
        if seen is not None:
            own.put(m.LOOK_ENDED, seen.at_ms / _MS, flow)
            own.put(m.LOOK_DURATION, seen.took_s, flow)
            if age_s <= stale_s:
                parts.append(seen.texts)
    return exposition([own.texts(), *parts])


def _own_figures(files: int, release: str) -> Figures:
    figures = Figures()
    figures.put(m.EXPORTER_INFO, 1, release)
    figures.put(m.FLOW_FILES, files)
    return figures


class _Known(NamedTuple):
    figures: Figures
    at_s: float


class SeldomRead:
    """What of a flow is not read at each look, as it was known last, and of which flow. Used by one thread.

    All times are seconds of one clock.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._of = ""
        self._read_s = -math.inf

    def is_due(self, flow: str, now_s: float) -> bool:
        """Tell whether it is to be read at this look."""
        return now_s - self._read_s >= _SELDOM_S or self._of != flow

    def begin(self, flow: str, now_s: float) -> None:
        """Note that it is read now; what was known of another flow is forgotten."""
        if flow != self._of:
            self.forget()
        self._read_s, self._of = now_s, flow

    def keep(self, part: str, figures: Figures) -> None:
        """Put what a part of it is known to be, as of ``begin``, in the place of what it was before."""
        self._known[part] = _Known(figures, self._read_s)

    def forget(self) -> None:
        """Know nothing any more: there is nothing to be known."""
        self._known = {}

    def add_to(self, figures: Figures, flow: str, now_s: float) -> None:
        """Add what is known of a flow, and not too old."""
        for known in self._known.values() if flow == self._of else ():
            if now_s - known.at_s < _SELDOM_KEPT_S:
                figures.add(known.figures)
