"""Which connectors are meant where none is named. Asks only who knows of earlier runs, and changes nothing.

Invariant: one that was stopped, or lost its topic, on the way back is meant with those that go back: nobody
else would resume it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Final, Protocol

from onceover.connectors.codes import ConnectorCode
from onceover.connectors.moving.context import HARD, OPERATIONS
from onceover.connectors.settings import ConnectorMove
from onceover.connectors.workers.listing import ConnectorListing
from onceover.errors import UsageError


class ConnectorSelection(Enum):
    """Which connectors ``--all`` means, in words for an error.

    Those that were migrated may have lost their topic since, to whoever manages their configuration. Those
    that go back are the migrated ones, and those whose way back was interrupted when they had lost their own
    topic already: nobody else would resume them.
    """

    SOURCES = "source connector"
    MIGRATED = "source connector with offsets in a topic of its own"
    INTERRUPTED = "source connector with a run that did not get to its end"
    RETURNING = "source connector with offsets in a topic of its own, or on its way back from there"


# Which connectors something can be done to; soft concerns what the shared topic holds, hard what is in topics
# of connectors' own.
MEANT: Final = {
    ConnectorMove.MIGRATE: ConnectorSelection.SOURCES,
    ConnectorMove.ROLLBACK: ConnectorSelection.INTERRUPTED,
    ConnectorMove.DOWNGRADE: ConnectorSelection.RETURNING,
    ConnectorMove.DOWNGRADE_SOFT: ConnectorSelection.SOURCES,
}


class KnownRuns(Protocol):
    """What is known of earlier runs; ``migration.Migration`` is one."""

    def owing(self, names: Sequence[str], operation: str) -> list[str]:
        """Return the connectors whose newest run of this kind has not come to its end."""

    def meant_to_be_migrated(self, names: Sequence[str]) -> list[str]:
        """Return the connectors that were migrated and not taken back since."""


def meant_by_all(
    listing: ConnectorListing,
    meant: ConnectorSelection,
    known: Callable[[], AbstractContextManager[KnownRuns]],
) -> tuple[str, ...]:
    """Return the connectors of a listing that are meant where none is named, as they are listed.

    Args:
        known: opens what is known of runs; called only where that decides.

    Raises:
        UsageError: NO_CONNECTOR, there is none. What ``known`` raises.
    """
    found = tuple(_all(listing, meant, known))
    if not found:
        raise UsageError(
            f"Connect cluster {listing.connect} has no {meant.value}",
            code=ConnectorCode.NO_CONNECTOR,
            resolve=f"see `onceover connectors list {listing.connect}`",
        )
    return found


def _all(
    listing: ConnectorListing,
    meant: ConnectorSelection,
    known: Callable[[], AbstractContextManager[KnownRuns]],
) -> list[str]:
    if meant is ConnectorSelection.SOURCES:
        return listing.sources
    own = set() if meant is ConnectorSelection.INTERRUPTED else set(listing.migrated)
    others = [name for name in listing.sources if name not in own]
    operations = OPERATIONS if meant is ConnectorSelection.INTERRUPTED else (HARD,)
    with known() as runs:
        if meant is ConnectorSelection.MIGRATED:
            own.update(runs.meant_to_be_migrated(others))
            return [name for name in listing.sources if name in own]
        owing = {name for operation in operations for name in runs.owing(others, operation)}
    return [name for name in listing.sources if name in own or name in owing]
