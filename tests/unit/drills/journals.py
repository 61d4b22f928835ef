"""A journal of drills on a cluster in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from onceover.drills.journal import DrillJournal
from tests.support.fakes.fakecluster import FakeCluster

FLOW: Final = "orders-dr"


def journal(west: FakeCluster, folder: Path) -> DrillJournal:
    return DrillJournal(west, FLOW, 1, folder, lambda _: False)
