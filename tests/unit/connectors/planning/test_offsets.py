"""Reading, copying and checking offsets, without brokers."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.connectors.offsets.configtopic import ConfigRecords
from onceover.connectors.offsets.keys import SENTINEL_VALUE, partition_of, sentinel_key
from onceover.connectors.offsets.write import Entry
from onceover.connectors.planning.copying import (
    check_copy,
    check_overwritten,
    check_unused,
    copy_entries,
    overwrite_entries,
)
from onceover.errors import NeedsOperator
from tests.unit.connectors.views import KEY, OTHER, OWN, PARTITIONS, Records, placed, scan

RIGHT = partition_of(KEY, PARTITIONS)
WRONG = (RIGHT + 1) % PARTITIONS
ONE, TWO = b'{"position":1}', b'{"position":2}'
VALUES = {KEY: ONE, OTHER: TWO}
SENTINEL = sentinel_key("c")

values = st.dictionaries(
    st.integers(0, 20).map(lambda n: f'["c",{{"p":{n}}}]'.encode()),
    st.integers(0, 9).map(lambda n: b"%d" % n),
)
records = st.lists(
    st.tuples(
        st.integers(0, PARTITIONS - 1),
        st.integers(0, 20).map(lambda n: f'["c",{{"p":{n}}}]'.encode()),
        st.one_of(st.none(), st.integers(0, 9).map(lambda n: b"%d" % n)),
    )
)


def after(found: Records, entries: list[Entry]) -> Records:
    """Return what a topic holds after entries were written."""
    return [*found, *((entry.partition, entry.key, entry.value) for entry in entries)]


# ---- scans


def test_last_value_of_a_key_wins() -> None:
    """And a tombstone is one."""
    found = scan([(RIGHT, KEY, ONE), (RIGHT, KEY, TWO), (0, OTHER, ONE), (0, OTHER, None)]).snapshot("c")
    assert (found.values, found.offsets) == ({KEY: TWO, OTHER: None}, {KEY: TWO})


def test_other_connectors_keys_are_left_out() -> None:
    """Also of one whose name begins alike."""
    assert (
        scan([(0, b'["cc",{}]', ONE), (0, b"stranger", ONE), (0, SENTINEL, ONE)]).snapshot("c").values == {}
    )


def test_key_in_two_partitions_has_its_newest_value() -> None:
    """Where they differ it is a conflict: a worker may see the other one."""
    found = scan([(WRONG, KEY, ONE), (RIGHT, KEY, TWO), (0, OTHER, ONE), (1, OTHER, ONE)]).snapshot("c")
    assert (found.values[KEY], found.chosen[KEY]) == (TWO, RIGHT)
    assert found.conflicts == {KEY}
    assert set(found.duplicates) == {KEY, OTHER}


def test_foreign_records_are_counted_while_they_have_a_value() -> None:
    """A tombstone of a stranger is on its way out."""
    found = scan([(0, b"x", ONE), (0, b"y", ONE), (0, b"y", None), (0, b"", ONE), (0, KEY, ONE)])
    assert (found.foreign(), found.connectors()) == (2, {"c"})


# ---- copying


@given(records, values)
def test_copy_makes_an_own_topic_hold_the_offsets(found: Records, wanted: dict[bytes, bytes]) -> None:
    """Whatever was in it where the workers write."""
    before = [(partition_of(key, PARTITIONS), key, value) for _, key, value in found]
    entries = copy_entries(wanted, scan(before).snapshot("c"), "c", PARTITIONS)
    check_copy(wanted, scan(after(before, entries), OWN), "c", "compact")


@given(records, values)
def test_overwriting_makes_every_place_say_the_offsets(found: Records, wanted: dict[bytes, bytes]) -> None:
    """Whichever partition a worker reads last; and once it is so, nothing is written."""
    entries = overwrite_entries(wanted, scan(found), "c")
    result = scan(after(found, entries))
    check_overwritten(wanted, result, "c")
    assert overwrite_entries(wanted, result, "c") == []
    assert {k: v for (k, _), r in result.latest.items() if (v := r.value) is not None} == wanted


def test_overwriting_leaves_other_connectors_alone() -> None:
    """Not one record of theirs."""
    entries = overwrite_entries({}, scan([(0, b'["ab",{}]', ONE), (0, KEY, ONE), (0, b"x", ONE)]), "c")
    assert entries == [Entry(0, KEY, None)]


def test_sentinel_is_written_only_where_there_is_no_offset() -> None:
    """And removed where there is one: each makes the workers warn."""
    empty = copy_entries({}, None, "c", PARTITIONS)
    assert empty == [Entry(partition_of(SENTINEL, PARTITIONS), SENTINEL, SENTINEL_VALUE)]
    full = copy_entries(VALUES, scan(placed({SENTINEL: SENTINEL_VALUE})).snapshot("c"), "c", PARTITIONS)
    assert Entry(partition_of(SENTINEL, PARTITIONS), SENTINEL, None) in full


@pytest.mark.parametrize(
    ("found", "policy"),
    [
        ([], "compact"),
        (placed({KEY: ONE}), "compact"),
        (placed({**VALUES, KEY: TWO}), "compact"),
        (placed({**VALUES, b'["c",{"p":9}]': ONE}), "compact"),
        ([*placed(VALUES)[1:], (WRONG, KEY, ONE)], "compact"),
        ([*placed(VALUES), (WRONG, KEY, ONE)], "compact"),
        ([*placed(VALUES), (WRONG, KEY, None)], "compact"),
        (placed(VALUES), "delete"),
        (placed(VALUES), None),
    ],
)
def test_check_finds_what_would_make_tasks_go_back(found: Records, policy: str | None) -> None:
    """Missing, other, surplus, misplaced, doubled, or about to expire."""
    with pytest.raises(NeedsOperator) as caught:
        check_copy(VALUES, scan(found, OWN), "c", policy)
    assert caught.value.code == "VERIFY_FAILED"


def test_check_takes_what_is_right() -> None:
    """Other connectors' records beside it are none of its business."""
    check_copy(VALUES, scan([*placed(VALUES), (0, b'["ab",{}]', ONE)], OWN), "c", "compact")
    check_copy({}, scan(placed({SENTINEL: SENTINEL_VALUE}), OWN), "c", "compact")


def test_check_misses_the_sentinel() -> None:
    """An empty topic looks like one that was never migrated."""
    with pytest.raises(NeedsOperator, match="sentinel"):
        check_copy({}, scan([], OWN), "c", "compact")


# ---- the configuration topic


@pytest.mark.parametrize(
    ("found", "config", "expected"),
    [
        ({"tasks-fencing-c": {"task-count": 4}, "commit-c": {"tasks": 0}}, {"tasks.max": "1"}, 4),
        ({"tasks-fencing-c": {"task-count": 1}, "commit-c": {"tasks": 3}}, {"tasks.max": "1"}, 3),
        ({"tasks-fencing-c": {"task-count": 1}, "commit-c": {"tasks": 2}}, {"tasks.max": "8"}, 8),
        ({"tasks-count-c": {"tasks": 9}, "tasks-fencing-cc": {"task-count": 9}}, {}, 1),
        ({"tasks-fencing-c": {"task-count": "x"}, "commit-c": None}, {"tasks.max": "?"}, 1),
    ],
)
def test_fence_is_as_wide_as_the_widest_record(
    found: dict[str, object], config: dict[str, str], expected: int
) -> None:
    """A stop commits 0 tasks and leaves the count of those that were fenced."""
    assert ConfigRecords(found, {}).fence_count("c", config) == expected


@pytest.mark.parametrize(
    ("before", "written", "used"),
    [
        ([(RIGHT, KEY, ONE)], [], False),
        ([(RIGHT, KEY, ONE)], [(0, b'["another",{}]', ONE)], False),
        ([(RIGHT, KEY, ONE)], [(RIGHT, KEY, TWO)], True),
        # As heartbeats do at a place where nothing happens.
        ([(RIGHT, KEY, ONE)], [(RIGHT, KEY, ONE)], True),
        (None, [(RIGHT, KEY, ONE)], True),
        (None, [], False),
    ],
)
def test_topic_that_somebody_writes_meanwhile_is_in_use(
    before: Records | None, written: Records, *, used: bool
) -> None:
    """By a connector of that name elsewhere: what is copied there it would go on from."""
    now = scan([*(before or []), *written], OWN)
    with pytest.raises(NeedsOperator, match="somebody writes") if used else nullcontext():
        check_unused(None if before is None else scan(before, OWN), now, "c")
