"""The flow's position: right behind the last record it has copied, as the records tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onceover.audit.checks.positions import CheckedPosition, check_position
from onceover.audit.model import Mode
from tests.support.worlds.audits import at
from tests.support.worlds.looks import Logs

# Three records copied; a marker on either side behind them, and a record not copied yet.
_LOGS = Logs([(0, "a"), (1, "b"), (2, "c"), (4, "d")], [(0, "a"), (1, "b"), (2, "c")])
_GOOD = CheckedPosition(at(0), at(0), start=0, offset=4, target_end=3, map_end=4)


def test_position_behind_the_last_copied_record_is_right() -> None:
    """Markers between the record and the position are no fault, and are counted."""
    check = check_position(_GOOD, _LOGS)

    assert (check.ok, check.expected, check.seen) == (True, "3", "4")
    assert check.detail.startswith("1 offsets of markers")


@pytest.mark.parametrize(
    ("offset", "target_end", "copied"),
    [(5, 3, None), (2, 3, 3), (4, 2, 3)],
    ids=["too high", "too low", "target end too low"],
)
def test_position_elsewhere_is_wrong(offset: int, target_end: int, copied: int | None) -> None:
    """One record too far would lose it, one too few would repeat it."""
    wrong = replace(_GOOD, offset=offset, target_end=target_end, copied=copied)
    check = check_position(wrong, _LOGS)

    assert check.ok is False
    assert check.seen == str(offset)


def test_position_behind_what_was_diverted_is_right_where_the_map_tells_of_nothing_else() -> None:
    """What was copied before has expired in it: that record is not the last one of the target, rightly."""
    logs = Logs([(0, "a"), (1, "diverted")], [(0, "a")])
    check = check_position(CheckedPosition(at(0), at(0), 0, 2, 1, map_end=2), logs)
    assert (check.ok, check.detail) == (True, "the offset map reaches it")


def test_no_position_cannot_be_checked() -> None:
    """Lost progress is not right, and nothing to compare either."""
    assert check_position(replace(_GOOD, offset=None), _LOGS).ok is None


def test_flow_that_copied_nothing_stands_at_its_start() -> None:
    """An empty source: no record on either side, no map record."""
    empty = Logs([], [])

    assert check_position(CheckedPosition(at(0), at(0), 7, 7, 0, None), empty).ok is True


def test_position_past_records_that_no_receipt_speaks_of_is_not_right() -> None:
    """The logs no longer hold the copied record, and the map ends before a record: somebody went past it."""
    logs = Logs([(5, "e")], [])
    position = CheckedPosition(at(0), at(0), start=0, offset=6, target_end=3, map_end=4)

    check = check_position(position, logs)

    assert check.ok is None
    assert "offset 5 is a record before the position" in check.detail


def test_position_past_markers_that_no_receipt_speaks_of_is_right() -> None:
    """Nothing a reader could meet lies between the map's end and the position."""
    logs = Logs([(6, "e")], [])

    assert check_position(CheckedPosition(at(0), at(0), 0, 6, 3, 4), logs).ok is True


def test_handler_is_not_held_against_the_position() -> None:
    """A handler changes records, so the last ones differ on purpose; the map tells instead."""
    logs = Logs([(0, "a")], [(0, "A")])
    position = CheckedPosition(at(0), at(0), 0, 1, 1, 1, copied=1)

    assert check_position(position, logs).ok is False
    assert check_position(replace(position, mode=Mode.HANDLER), logs).ok is True


def test_compacted_side_is_not_held_against_the_position() -> None:
    """The last copied record was compacted away on one side; the map reaches the position."""
    logs = Logs([(0, "a"), (2, "c")], [(0, "a")])
    position = CheckedPosition(at(0), at(0), 0, 3, 3, 3, Mode.COMPACTED)

    assert check_position(position, logs).ok is True


def test_position_that_an_operator_has_put_back_is_behind_no_record() -> None:
    """Until the flow goes on from there; where somebody else has put it, it is wrong."""
    logs = Logs([(n, str(n)) for n in range(4)], [(n, str(n)) for n in range(4)])
    back = CheckedPosition(at(0), at(0), start=0, offset=2, target_end=4, map_end=4)
    assert check_position(replace(back, put_back=True), logs).ok is True
    assert check_position(back, logs).ok is False
