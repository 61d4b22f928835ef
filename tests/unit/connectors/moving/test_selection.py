"""Which connectors are meant where none is named, by what is listed and by what is known of earlier runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType

import pytest

from onceover.connectors.model import ConnectorState
from onceover.connectors.moving.context import HARD, MIGRATE, SOFT
from onceover.connectors.moving.selection import MEANT, ConnectorSelection, KnownRuns, meant_by_all
from onceover.connectors.settings import ConnectorMove
from onceover.connectors.workers.listing import ConnectorListing
from onceover.errors import UsageError

OWN = {"offsets.storage.topic": "mine"}
LISTING = ConnectorListing(
    "flights",
    "4.3.0",
    "connect-offsets",
    True,
    (
        ConnectorState("archive", "sink", "RUNNING"),
        ConnectorState("bare", "source", "RUNNING"),
        ConnectorState("orders", "source", "RUNNING"),
        ConnectorState("users", "source", "RUNNING", (), OWN),
    ),
)


class Known:
    """Runs that did not come to their end, by operation, and connectors that were migrated."""

    def __init__(
        self, owed: Mapping[str, set[str]] = MappingProxyType({}), migrated: frozenset[str] = frozenset()
    ) -> None:
        self._owed, self._migrated = owed, migrated

    def __call__(self) -> AbstractContextManager[KnownRuns]:
        return nullcontext(self)

    def owing(self, names: Sequence[str], operation: str) -> list[str]:
        return [name for name in names if name in self._owed.get(operation, ())]

    def meant_to_be_migrated(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self._migrated]


@pytest.mark.parametrize("move", [ConnectorMove.MIGRATE, ConnectorMove.DOWNGRADE_SOFT])
def test_every_source_connector_is_meant_without_a_look_at_runs(move: ConnectorMove) -> None:
    """Both concern what the shared topic holds."""
    assert meant_by_all(LISTING, MEANT[move], pytest.fail) == ("bare", "orders", "users")


@pytest.mark.parametrize(
    ("meant", "known", "expected"),
    [
        (ConnectorSelection.MIGRATED, Known(), ("users",)),
        (ConnectorSelection.MIGRATED, Known(migrated=frozenset({"orders"})), ("orders", "users")),
        (ConnectorSelection.MIGRATED, Known({HARD: {"orders"}}), ("users",)),
        (ConnectorSelection.RETURNING, Known(), ("users",)),
        (ConnectorSelection.RETURNING, Known({HARD: {"orders"}}), ("orders", "users")),
        # Interrupted on the way to a topic of its own: that is no way back.
        (ConnectorSelection.RETURNING, Known({MIGRATE: {"bare"}, SOFT: {"orders"}}), ("users",)),
        (ConnectorSelection.INTERRUPTED, Known({MIGRATE: {"bare"}, HARD: {"users"}}), ("bare", "users")),
        (ConnectorSelection.INTERRUPTED, Known({SOFT: {"orders"}}), ("orders",)),
    ],
)
def test_those_are_meant_to_which_it_can_be_done(
    meant: ConnectorSelection, known: Known, expected: tuple[str, ...]
) -> None:
    """By their own topic, or by a run that somebody has to go on with."""
    assert meant_by_all(LISTING, meant, known) == expected


def test_none_at_all_is_said() -> None:
    """Nothing to do is no success."""
    with pytest.raises(UsageError, match="flights has no source connector with a run that did not") as raised:
        meant_by_all(LISTING, ConnectorSelection.INTERRUPTED, Known())
    assert (raised.value.code, raised.value.exit_code) == ("NO_CONNECTOR", 2)
