"""An open transaction is old only where the very same one is open from look to look."""

from __future__ import annotations

from typing import Any

from onceover.metrics.heldback import HeldBack
from tests.support.worlds.statusentries import partition_entry


def held(number: int, lso: int, offsets: int = 3) -> dict[str, Any]:
    return partition_entry(number, lso=lso, open_offsets=offsets)


def dark(number: int) -> dict[str, Any]:
    return partition_entry(number, "unknown", None, lso=None, open_offsets=None)


def ages(*looks: list[dict[str, Any]]) -> list[float | None]:
    """Return the age after each look, a minute after the one before."""
    back, found = HeldBack(), []
    for minute, partitions in enumerate(looks):
        back.saw(partitions, 60.0 * minute)
        found.append(back.oldest_s(60.0 * minute))
    return found


def test_transactions_that_follow_each_other_are_never_old() -> None:
    """Whenever somebody looks one of a busy producer's is open: each begins behind the last one."""
    assert ages(*([held(0, lso)] for lso in range(100, 130))) == [0.0] * 30


def test_one_that_holds_the_same_offset_grows_old_until_it_is_over() -> None:
    """The oldest counts, whatever comes and goes beside it."""
    stuck = [[held(0, 7, offsets), held(1, 10 * offsets)] for offsets in range(1, 5)]
    over = [partition_entry(0), held(1, 50)]
    assert ages(*stuck, over, [held(0, 90), held(1, 50)]) == [0.0, 60.0, 120.0, 180.0, 0.0, 60.0]


def test_what_nobody_sees_is_neither_over_nor_0() -> None:
    """It goes on being as old as it is where the same one is seen again, and others are told meanwhile."""
    assert ages([held(0, 7)], [dark(0)], [], [held(0, 7)]) == [0.0, None, None, 180.0]
    assert ages([held(0, 7)], [dark(0), held(1, 4)], [held(0, 7), held(1, 4)]) == [0.0, 0.0, 120.0]
    assert ages([dark(0), partition_entry(1)]) == [None]


def test_what_is_not_taken_in_as_a_whole_has_no_offset_of_its_own() -> None:
    """A topic stands for all of its partitions then."""
    topic = partition_entry(None, "not_enrolled", 4, lso=None, open_offsets=6, partitions=3)
    assert ages([topic], [topic]) == [None, None]
    assert ages([{**topic, "open_offsets": 0}]) == [0.0]


def test_a_partition_that_is_copied_no_more_is_forgotten() -> None:
    """Nobody asks how it is."""
    assert ages([held(0, 7), held(1, 9)], [held(1, 9)], [held(0, 7), held(1, 9)]) == [0.0, 60.0, 120.0]
    assert ages([held(0, 7)], [partition_entry(1)], [held(0, 7)]) == [0.0, 0.0, 0.0]
