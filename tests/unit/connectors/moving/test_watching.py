"""Whether a connector goes on: the last offsets, and every one that was written on the way to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.connectors.model import ConnectorOffsets, ConnectorState, RawOffset
from onceover.connectors.moving.watching import OffsetCourse, OffsetProgress, Trail, watch
from onceover.connectors.offsets.keys import sentinel_key
from onceover.connectors.offsets.scan import Scan
from onceover.errors import Retriable
from tests.unit.connectors.views import KEY, OTHER, placed, scan

ONE, TWO = b'{"position":1}', b'{"position":2}'
VALUES = {KEY: ONE, OTHER: TWO}
NEW = b'["c",{"q":0}]'
numbers = st.lists(st.integers(0, 9), max_size=8)


def offset(number: int) -> bytes:
    """Return an offset that is one number."""
    return b'{"position":%d}' % number


def records(values: Iterable[bytes | None], key: bytes = KEY, partition: int = 0) -> list[RawOffset]:
    """Return records of one key in the order in which they were written."""
    return [RawOffset(partition, place, place, key, value) for place, value in enumerate(values)]


def fallen(written: Iterable[RawOffset], values: Mapping[bytes, bytes] = VALUES) -> frozenset[bytes]:
    """Return the keys that went back at any time."""
    trail = Trail("c", values)
    trail.follow(written)
    return trail.fallen


# ---- every record


@given(st.integers(0, 9), numbers)
def test_trail_sees_each_step_back(first: int, written: list[int]) -> None:
    """Wherever it is, and however high the last value."""
    steps = pairwise([first, *written])
    went_back = any(after < before for before, after in steps)
    assert fallen(records(map(offset, written)), {KEY: offset(first)}) == ({KEY} if went_back else set())


@given(numbers, st.integers(0, 8))
def test_trail_is_the_same_in_however_many_looks(written: list[int], cut: int) -> None:
    """A look takes up where the one before it ended."""
    found = records(map(offset, written))
    trail = Trail("c", VALUES)
    trail.follow(found[:cut])
    trail.follow(found[cut:])
    assert trail.fallen == fallen(found)


@given(numbers, numbers)
def test_trail_keeps_partitions_apart(first: list[int], second: list[int]) -> None:
    """They have no order among each other: which is read first does not matter."""
    here, there = records(map(offset, first)), records(map(offset, second), partition=1)
    assert fallen([*here, *there]) == fallen([*there, *here]) == fallen(here) | fallen(there)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (records([offset(0), offset(5)]), {KEY}),
        # A task deletes what it needs no more; begun anew behind that is begun anew.
        (records([None]), set()),
        (records([None, TWO]), set()),
        (records([None, offset(0), TWO]), {KEY}),
        (records([TWO, None, ONE]), {KEY}),
        (records([b"null", TWO]), {KEY}),
        (records([TWO, ONE, offset(9)], NEW), {NEW}),
        (records([offset(0), TWO], NEW), set()),
        (records([b'{"file":"b","n":0}', b'{"file":"a","n":0}']), set()),
        (records([offset(0)], b'["cc",{"p":0}]'), set()),
        (records([None], sentinel_key("c")), set()),
        (records([offset(0)], b"stranger"), set()),
    ],
)
def test_trail_judges_what_has_an_order(written: list[RawOffset], expected: set[bytes]) -> None:
    """Restarted and overtaken, gone and back, first seen after the copy; others' records are none of it."""
    assert fallen(written) == expected


def test_overtaken_offset_went_back_all_the_same() -> None:
    """The last value alone would say that the connector goes on."""
    now = snapshot({KEY: offset(5), OTHER: offset(5)})
    assert OffsetProgress.between(VALUES, now).complete
    progress = OffsetProgress.between(VALUES, now, frozenset({KEY}))
    assert (progress.back, progress.advanced) == ([KEY], [OTHER])
    facts = progress.facts()
    assert facts.pop("positions") == [
        {"key": '["c",{"p":0}]', "from": "position 1", "to": "position 5"},
        {"key": '["c",{"p":1}]', "from": "position 2", "to": "position 5"},
    ]
    assert facts == {
        "offsets": 2, "same": 0, "forward": 1, "changed": 0, "ended": 0, "back": 1, "again": 0, "new": 0,
    }  # fmt: skip


def test_offset_that_was_deleted_is_no_step_back_and_one_that_vanished_is() -> None:
    """By a task, as of a file that is through; workers delete none by themselves."""
    ended = OffsetProgress.between(VALUES, snapshot({KEY: None, OTHER: TWO}))
    assert (ended.back, ended.ended, ended.advanced) == ([], [KEY], [KEY])
    assert not ended.went_on and not ended.complete
    gone = OffsetProgress.between(VALUES, snapshot({OTHER: offset(5)}))
    assert (gone.back, gone.ended) == ([KEY], [])
    through = OffsetProgress.between(VALUES, snapshot({KEY: None, OTHER: offset(5)}))
    assert through.went_on and through.complete
    assert through.describe().startswith('["c",{"p":0}]: position 1 -> -')


def test_new_offset_that_fell_went_back_too() -> None:
    """There is no value of the manifest that could tell."""
    progress = OffsetProgress.between(VALUES, snapshot({**VALUES, NEW: TWO}), frozenset({NEW}))
    assert (progress.back, progress.fresh) == ([NEW], frozenset({NEW}))


@pytest.mark.parametrize(
    ("written", "went_on"),
    [
        ([ONE], True),
        ([ONE, ONE], True),
        ([], False),
        ([TWO, ONE], False),
        ([b'{"position":0}', ONE], False),
    ],
    ids=["once more", "at each heartbeat", "nothing", "there and back", "begun anew"],
)
def test_offset_that_is_written_once_more_was_read(written: list[bytes], went_on: bool) -> None:
    """Debezium does so at each heartbeat while no row changes; what began anew comes by other places."""
    trail = Trail("c", {KEY: ONE})
    trail.follow(records(written))
    now = snapshot({KEY: written[-1] if written else ONE})
    progress = OffsetProgress.between({KEY: ONE}, now, trail.fallen, trail.again)
    assert (progress.went_on and not progress.back, progress.complete and not progress.back) == (
        went_on,
        went_on,
    )
    if went_on:
        assert progress.describe() == '["c",{"p":0}]: position 1 -> position 1'


def test_same_offset_of_an_unknown_shape_proves_nothing() -> None:
    """It may be all that such a connector ever writes; nor does the place at which everybody begins."""
    for value in (b'{"odd":1}', b'{"offset":0}'):
        trail = Trail("c", {KEY: value})
        trail.follow(records([value]))
        assert trail.again == frozenset()


# ---- looks


class Log:
    """A partition that grows by some values of a key before each look; ``reads`` are where looks began."""

    def __init__(self, *grown: list[bytes | None]) -> None:
        self._grown = list(grown)
        self._all: list[RawOffset] = []
        self.reads: list[int] = []
        self.fails_at: int | None = None

    def scan(self) -> Scan:
        values = [record.value for record in self._all] + (self._grown.pop(0) if self._grown else [])
        self._all = records(values)
        found = scan([(0, KEY, value) for value in values])
        return Scan(found.topic, found.isolation, 1, found.latest, 0, {0: len(values)}, 1)

    def read(self, starts: Mapping[int, int], _found: Scan) -> Iterable[RawOffset]:
        self.reads.append(starts[0])
        for record in self._all[starts[0] :]:
            if record.offset == self.fails_at:
                self.fails_at = None
                raise Retriable("a broker moves")
            yield record

    def course(self, since: Mapping[int, int]) -> OffsetCourse:
        return OffsetCourse("c", {KEY: ONE}, self.scan, self.read, since)


def test_course_begins_behind_the_copy() -> None:
    """What was in the topic before is stale; each look reads only what is new."""
    log = Log([offset(9), ONE, TWO], [offset(3)])
    course = log.course({0: 2})
    assert [course.look().back, course.look().back] == [[], []]
    assert log.reads == [2, 3]


def test_course_sees_what_was_overtaken_between_two_looks() -> None:
    """And does not forget it."""
    course = Log([ONE], [offset(0), offset(7)], [offset(8)]).course({0: 1})
    assert [course.look().back for _ in range(3)] == [[], [KEY], [KEY]]


def test_course_without_a_position_begins_at_the_first_look() -> None:
    """A manifest that was written before the copy does not have one."""
    course = Log([offset(9), ONE], [offset(0), offset(7)]).course({})
    assert [course.look().back, course.look().back] == [[], [KEY]]


def test_look_that_fails_half_way_is_repeated_whole() -> None:
    """A record that was judged twice would look like a step back."""
    log = Log([ONE, TWO, offset(3), offset(4)])
    course = log.course({0: 1})
    log.fails_at = 3
    with pytest.raises(Retriable):
        course.look()
    assert course.look().back == []
    assert log.reads == [1, 1]


# ---- watching


def snapshot(offsets: Mapping[bytes, bytes | None]) -> ConnectorOffsets:
    """Return what a scan finds."""
    return scan(placed(offsets)).snapshot("c")


def watched(looks: list[dict[bytes, bytes | None]], seconds: float = 30.0) -> OffsetProgress:
    """Watch offsets that begin at ``VALUES`` and then are as in ``looks``; the last look stays."""
    left = iter(looks)
    last: list[dict[bytes, bytes | None]] = [{}]

    def look() -> OffsetProgress:
        last[0] = next(left, last[0])
        return OffsetProgress.between(VALUES, snapshot(last[0]))

    return watch(look, nothing_failed, seconds)


nothing_failed: Callable[[], list[ConnectorState]] = list


def test_watch_ends_at_the_first_step_back() -> None:
    """Before the connector goes further."""
    assert watched([dict(VALUES), {KEY: b'{"position":0}', OTHER: TWO}, {}]).back == [KEY]


def test_watch_ends_when_every_offset_has_gone_on() -> None:
    """There is nothing more to wait for."""
    progress = watched([{KEY: TWO, OTHER: TWO}, {KEY: TWO, OTHER: b'{"position":3}'}, {}])
    assert (progress.went_on, progress.complete, progress.back) == (True, True, [])


def test_watch_without_any_write_shows_nothing() -> None:
    """Byte-equal all the time is no proof."""
    assert not watched([dict(VALUES)], seconds=0.0).went_on


def test_new_keys_beside_standing_ones_prove_nothing() -> None:
    """The connector may have begun anew under other keys."""
    assert not watched([{**VALUES, NEW: ONE}], seconds=0.0).went_on


def test_first_offset_of_a_connector_without_any_is_progress() -> None:
    """After a sentinel."""
    assert OffsetProgress.between({}, snapshot({KEY: ONE})).complete


def test_watch_survives_a_look_that_fails_for_the_moment() -> None:
    """A transaction of the running connector is open."""
    answers: list[dict[bytes, bytes | None] | None] = [None, {KEY: TWO, OTHER: b'{"position":9}'}]

    def look() -> OffsetProgress:
        found = answers.pop(0)
        if found is None:
            raise Retriable("a transaction is open")
        return OffsetProgress.between(VALUES, snapshot(found))

    assert watch(look, nothing_failed, 30.0).complete
