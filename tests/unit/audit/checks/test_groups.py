"""Consumer groups on the target: at the exact record, or how far from it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

import pytest

from onceover.audit.checks.bookkeeping import PartitionClaims, is_cut_off, positions_or_why
from onceover.audit.checks.groups import GroupPosition, check_group
from onceover.audit.ranges.logs import PartitionLog
from onceover.audit.ranges.snapshot import PartitionSnapshot
from onceover.errors import UsageError
from onceover.groups.decide import Remembered
from onceover.kafka.calls import CommittedOffset
from onceover.model import TopicPartition
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.worlds.audits import at, good_partition
from tests.support.worlds.looks import Logs, rec

_GOOD = GroupPosition(
    group="billing",
    source=at(0),
    target=at(0),
    given=10,
    current=12,
    translated=12,
    meets=rec(13, "x"),
    ought=rec(13, "x"),
    next=rec(10, "x"),
)


def test_group_at_the_exact_record_is_right() -> None:
    """It would read the record that it has not read."""
    check = check_group(_GOOD)

    assert (check.ok, check.skipped, check.repeated, check.group) == (True, 0, 0, "billing")


def test_another_position_that_meets_the_same_record_is_right() -> None:
    """Between two records lie markers: any position among them is the same place."""
    assert check_group(replace(_GOOD, current=13)).ok is True


def test_group_too_far_skips() -> None:
    """What lies between is counted."""
    check = check_group(replace(_GOOD, current=17, meets=rec(17, "y")))

    assert (check.ok, check.skipped, check.repeated) == (False, 4, 0)


def test_group_too_far_behind_repeats() -> None:
    """What it would read again is counted."""
    check = check_group(replace(_GOOD, current=9, meets=rec(9, "w")))

    assert (check.ok, check.skipped, check.repeated) == (False, 0, 4)


@pytest.mark.parametrize(
    ("known", "meant", "told"),
    [
        pytest.param({9, 12}, {12}, False, id="cut off"),
        pytest.param({9}, set(), True, id="put there"),
        pytest.param({9}, {9}, True, id="put there a moment ago"),
        pytest.param({5, 9}, {5}, True, id="gone on from where it was cut off once"),
    ],
)
def test_only_a_group_that_waits_for_a_move_is_not_judged(
    known: set[int], meant: set[int], told: bool
) -> None:
    """What was meant once, and never written, is remembered for good; verdicts are passed all the same."""
    entry = Remembered(_GOOD.given, frozenset(known), 1, meant=frozenset(meant))
    check = check_group(replace(_GOOD, current=9, meets=rec(9, "w")))
    assert is_cut_off(check, entry, 9) is not told


def test_group_past_the_last_record_skips() -> None:
    """Nothing to read where it stands, but the record it has not read is there."""
    check = check_group(replace(_GOOD, current=20, meets=None))

    assert (check.ok, check.skipped) == (False, 8)


def test_group_at_the_end_is_right() -> None:
    """Everything was read; nothing has come since."""
    assert check_group(replace(_GOOD, meets=None, ought=None, next=None)).ok is True


def test_record_not_copied_yet_is_met_in_time() -> None:
    """The source has the next record already, the target not yet."""
    assert check_group(replace(_GOOD, meets=None, ought=None)).ok is True


def test_map_that_points_at_another_record_is_wrong() -> None:
    """The position is the map's, but the records say otherwise."""
    check = check_group(replace(_GOOD, next=rec(10, "other")))

    assert check.ok is False
    assert "not the one at 10 on the source" in check.detail


def test_changed_records_are_compared_by_place_only() -> None:
    """A handler changes records on purpose."""
    assert check_group(replace(_GOOD, next=rec(10, "other"), comparable=False)).ok is True


def test_source_that_no_longer_holds_the_record_leaves_it_to_the_map() -> None:
    """Retention took it on the source; the map told the place exactly."""
    assert check_group(replace(_GOOD, next=None)).ok is True


def test_what_was_copied_after_the_group_was_moved_is_no_repeat() -> None:
    """It had read further than was copied, and was put at the end of the copy."""
    behind = replace(_GOOD, current=9, meets=rec(9, "w"), came_later=True)

    check = check_group(behind)

    assert (check.ok, check.repeated) == (True, 0)
    assert "4 offsets have come since" in check.detail


def test_skip_is_no_better_for_what_came_later() -> None:
    """Only standing too early has that excuse."""
    check = check_group(replace(_GOOD, current=17, meets=rec(17, "y"), came_later=True))

    assert (check.ok, check.skipped) == (False, 4)


def test_offset_outside_of_the_map_is_judged_by_the_records() -> None:
    """The map no longer reaches back, both sides hold the record."""
    assert check_group(replace(_GOOD, translated=None, ought=None)).ok is True


def test_offset_outside_of_the_map_without_records_cannot_be_checked() -> None:
    """Neither map nor records: not known, which is not right."""
    assert check_group(replace(_GOOD, translated=None, ought=None, next=None)).ok is None
    assert check_group(replace(_GOOD, translated=None, ought=None, next=rec(10, "o"))).ok is None


def test_where_neither_side_has_anything_to_read_the_group_is_in_place() -> None:
    """As in a partition that was never written to: the map has nothing to tell of it."""
    empty = replace(_GOOD, given=0, current=0, translated=None, ought=None, next=None, meets=None)
    assert check_group(replace(empty, at_ends=True)).ok is True
    # What has expired before it, or ends before it, is met by nobody, either.
    assert check_group(empty).ok is None


NO_RIGHT = UsageError("billing may not be described", resolve="grant DESCRIBE on group billing")


def test_a_group_that_may_not_be_asked_takes_the_verdict_from_nothing_else() -> None:
    """Hours of comparing would be for nothing: its own check says why there is none."""
    west, tps = FakeCluster("west"), [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    west.make_topic("orders", 2)
    west.groups["billing"] = dict.fromkeys(tps, CommittedOffset(0, 7, -1, ""))
    assert positions_or_why(west, "billing", tps) == dict.fromkeys(tps, 7)
    west.untold[tps[1]] = NO_RIGHT
    why = "billing may not be described; grant DESCRIBE on group billing"
    assert positions_or_why(west, "billing", tps) == {tps[0]: 7, tps[1]: why}

    def refuse(_request: str, _group: str) -> None:
        raise NO_RIGHT

    west.heard = refuse
    assert positions_or_why(west, "billing", tps) == dict.fromkeys(tps, why)


@pytest.mark.parametrize("promoted", [True, False])
def test_group_that_has_read_all_of_a_promoted_copy_goes_on_with_what_clients_have_written(
    promoted: bool,
) -> None:
    """That is none of what the source holds alone. In a copy that is none of clients' it would be wrong."""
    ids = UUID(int=1), UUID(int=2)
    here, there = PartitionLog(ids[0], 0, 11, 11), PartitionLog(ids[1], 0, 12, 12)
    seen = PartitionSnapshot(at(0), at(0), 0, ids, here, there, 10, 12, moved=False, promoted=promoted)
    pair = SimpleNamespace(records=lambda: iter(()), to_target=lambda offset: offset + 2)
    claims = PartitionClaims(seen, good_partition(0), pair, repeats=False)  # pyrefly: ignore[bad-argument-type]
    look = Logs([(10, "on the source alone")], [(12, "of a client")])
    standing = claims.standing("billing", Remembered(10, frozenset({12}), 7), 12, look)
    assert check_group(standing).ok is promoted
