"""G6 for every input: never backwards, never outside the log, never onto what is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceover.groups.codes import GroupCode
from onceover.groups.decide import (
    RENEW_AFTER_MS,
    Allowed,
    Decision,
    GroupAction,
    OtherPosition,
    PartitionFacts,
    Remembered,
    decide,
    remembered,
)
from onceover.model import TopicPartition
from onceover.wire.offsetlookup import NotCovered, Translated
from tests.support.session.examples import examples

NOW_MS = 1_700_000_000_000
HERE, THERE = TopicPartition("orders", 3), TopicPartition("east.orders", 3)
OFFSETS = st.integers(0, 40)
REMEMBERED = st.builds(
    Remembered,
    OFFSETS,
    st.frozensets(OFFSETS, max_size=3),
    st.integers(NOW_MS - 2 * RENEW_AFTER_MS, NOW_MS),
    st.dictionaries(OFFSETS, st.builds(OtherPosition, OFFSETS, st.integers(0, 9)), max_size=2),
)
NOT_COVERED = st.sampled_from([None, NotCovered(None, None), NotCovered(3, 9)])
ALLOWED = st.builds(Allowed, st.booleans(), st.booleans(), st.booleans(), st.booleans())


# The cases multiply.
MANY = settings(max_examples=examples(50))


@st.composite
def facts(draw: st.DrawFn) -> PartitionFacts:
    start = draw(st.integers(0, 30))
    return PartitionFacts(
        giving=HERE,
        receiving=THERE,
        committed=draw(st.none() | OFFSETS),
        metadata=draw(st.sampled_from(["", "a", "b"])),
        giving_end=draw(st.none() | OFFSETS),
        copied=draw(st.none() | OFFSETS),
        # Drawn from lists with the ordinary case in them several times: else most examples are refused early.
        translation=draw(st.builds(Translated, OFFSETS) | st.builds(Translated, OFFSETS) | NOT_COVERED),
        current=draw(st.none() | OFFSETS),
        current_metadata=draw(st.sampled_from(["", "a", "b"])),
        start=start,
        end=draw(st.integers(start, start + 15)),
        last=draw(st.none() | REMEMBERED),
        opposite=draw(st.none() | REMEMBERED),
        problem=draw(
            st.sampled_from([None, None, None, (GroupCode.UNREADABLE, "away"), ("RECREATED", "another")])
        ),
    )


def wanted(f: PartitionFacts) -> int:
    stood = None if f.opposite is None or f.committed is None else f.opposite.stands.get(f.committed)
    known = [] if stood is None else [stood.given]
    if isinstance(f.translation, Translated):
        known.append(f.translation.offset)
    return max(f.start, min(*known, f.end))


@MANY
@given(facts(), ALLOWED)
def test_what_is_written_is_what_the_design_says(f: PartitionFacts, allowed: Allowed) -> None:
    decision = decide(f, allowed, NOW_MS)
    if decision is None or not decision.kind.writes or decision.kind is GroupAction.DELETE:
        return
    assert decision.to == wanted(f)
    assert f.start <= decision.to <= f.end
    assert f.problem is None
    assert f.committed is not None


@MANY
@given(facts(), ALLOWED)
def test_a_group_goes_back_only_where_that_was_asked_for(f: PartitionFacts, allowed: Allowed) -> None:
    decision = decide(f, allowed, NOW_MS)
    if decision is None or decision.to is None or f.current is None or not decision.kind.writes:
        return
    if decision.to < f.current:
        assert decision.kind is GroupAction.REWIND
        assert allowed.rewind or allowed.follow_rewinds
        assert (decision.risk, decision.records) == ("repeat", f.current - decision.to)


@MANY
@given(facts())
def test_nothing_goes_back_or_is_deleted_unasked(f: PartitionFacts) -> None:
    decision = decide(f, Allowed(), NOW_MS)
    assert decision is None or decision.kind not in (GroupAction.REWIND, GroupAction.DELETE)


@MANY
@given(facts(), ALLOWED)
def test_only_what_we_wrote_is_deleted(f: PartitionFacts, allowed: Allowed) -> None:
    decision = decide(f, allowed, NOW_MS)
    if decision is not None and decision.kind is GroupAction.DELETE:
        assert allowed.follow_deletions
        assert f.committed is None
        assert f.is_known


@MANY
@given(facts(), ALLOWED)
def test_what_is_not_written_says_why(f: PartitionFacts, allowed: Allowed) -> None:
    decision = decide(f, allowed, NOW_MS)
    if decision is not None and decision.kind is GroupAction.LEFT:
        assert decision.code
        assert decision.reason
        assert decision.resolve or not decision.blocks


@MANY
@given(facts(), ALLOWED)
def test_applied_again_nothing_is_left_to_do(f: PartitionFacts, allowed: Allowed) -> None:
    """After a write, its memory and its commit in place, the same plan has no change."""
    decision = decide(f, allowed, NOW_MS)
    if decision is None or not decision.kind.writes:
        return
    after = applied(f, decision)
    again = decide(after, allowed, NOW_MS)
    assert again is None or not again.kind.writes


@MANY
@given(facts(), ALLOWED)
def test_killed_between_memory_and_commit_the_same_is_written(f: PartitionFacts, allowed: Allowed) -> None:
    decision = decide(f, allowed, NOW_MS)
    if decision is None or decision.kind not in (GroupAction.MOVE, GroupAction.REWIND, GroupAction.RENEW):
        return
    after = replace(applied(f, decision), current=f.current, current_metadata=f.current_metadata)
    again = decide(after, allowed, NOW_MS)
    assert again is not None
    if f.current != decision.to:
        assert (again.kind, again.to) == (decision.kind, decision.to)


def applied(f: PartitionFacts, decision: Decision) -> PartitionFacts:
    if decision.kind is GroupAction.DELETE:
        return replace(f, current=None, last=None)
    last = remembered(f, decision, NOW_MS)
    return replace(f, current=decision.to, current_metadata=f.metadata, last=last)


def at(**changes: object) -> PartitionFacts:
    """A group at 10 whose counterpart is 20, never written before."""
    start: dict[str, object] = {
        "giving": HERE,
        "receiving": THERE,
        "committed": 10,
        "giving_end": 15,
        "translation": Translated(20),
        "end": 30,
    }
    return PartitionFacts(**{**start, **changes})  # pyrefly: ignore[bad-argument-type]


OURS = Remembered(10, frozenset({12, 20}), NOW_MS - 1000)


@pytest.mark.parametrize(
    ("seen", "allowed", "kind", "code"),
    [
        (at(), Allowed(), GroupAction.MOVE, ""),
        (at(current=20), Allowed(), GroupAction.IN_PLACE, ""),
        # ours, older: follows
        (at(current=12, last=OURS), Allowed(), GroupAction.MOVE, ""),
        # somebody else's, first time: replaced, after two looks
        (at(current=13), Allowed(), GroupAction.MOVE, ""),
        # somebody else's since we wrote: left alone, unless taken over
        (at(current=13, last=OURS), Allowed(), GroupAction.LEFT, "COMMITTED_ELSEWHERE"),
        (at(current=13, last=OURS), Allowed(take_over=True), GroupAction.MOVE, ""),
        # further there: consumed there
        (at(current=25), Allowed(), GroupAction.LEFT, "AHEAD"),
        (at(current=25, last=OURS), Allowed(follow_rewinds=True), GroupAction.LEFT, "AHEAD"),
        (at(current=25), Allowed(rewind=True), GroupAction.REWIND, ""),
        # rewound on the giving side from 10 to 6, whose counterpart is 16
        (
            at(committed=6, translation=Translated(16), current=20, last=OURS),
            Allowed(),
            GroupAction.LEFT,
            "REWOUND",
        ),
        (
            at(committed=6, translation=Translated(16), current=20, last=OURS),
            Allowed(follow_rewinds=True),
            GroupAction.REWIND,
            "",
        ),
        # near miss: rewound here, but consumed there as well
        (
            at(committed=6, translation=Translated(16), current=22, last=OURS),
            Allowed(follow_rewinds=True),
            GroupAction.LEFT,
            "AHEAD",
        ),
        (at(translation=NotCovered(50, 60)), Allowed(), GroupAction.LEFT, "NOT_COVERED"),
        (at(translation=None), Allowed(), GroupAction.LEFT, "NOT_COVERED"),
        # deleted on the giving side
        (at(committed=None, current=20, last=OURS), Allowed(), GroupAction.LEFT, "DELETED"),
        (at(committed=None, current=20, last=OURS), Allowed(follow_deletions=True), GroupAction.DELETE, ""),
        (
            at(committed=None, current=21, last=OURS),
            Allowed(follow_deletions=True),
            GroupAction.LEFT,
            "COMMITTED_ELSEWHERE",
        ),
        # stands still for a day
        (at(current=20, last=replace(OURS, at_ms=NOW_MS - RENEW_AFTER_MS)), Allowed(), GroupAction.RENEW, ""),
        (
            at(current=20, last=replace(OURS, at_ms=NOW_MS - RENEW_AFTER_MS + 1)),
            Allowed(),
            GroupAction.IN_PLACE,
            "",
        ),
        (at(current=20, last=OURS, metadata="x"), Allowed(), GroupAction.MOVE, ""),
        (at(problem=("RECREATED", "another topic")), Allowed(rewind=True), GroupAction.LEFT, "RECREATED"),
    ],
)
def test_each_case(seen: PartitionFacts, allowed: Allowed, kind: GroupAction, code: str) -> None:
    decision = decide(seen, allowed, NOW_MS)
    assert decision is not None
    assert (decision.kind, decision.code) == (kind, code)


@pytest.mark.parametrize("seen", [at(current=13, last=OURS), at(committed=None, current=21, last=OURS)])
def test_a_commit_without_an_epoch_may_be_one_of_ours_that_is_not_remembered(
    seen: PartitionFacts,
) -> None:
    """Nobody is looked for in vain; a reader that has read there commits an epoch, and it is not ours."""
    lost = decide(seen, Allowed(), NOW_MS)
    reader = decide(replace(seen, current_epoch=0), Allowed(), NOW_MS)
    assert lost is not None and "what we remember has lost its end" in lost.reason
    assert reader is not None and reader.code == lost.code == "COMMITTED_ELSEWHERE"
    assert "somebody else has committed" in reader.reason and "lost its end" not in reader.reason


def test_a_deleted_group_that_was_never_ours_is_no_concern() -> None:
    assert decide(at(committed=None, current=20), Allowed(follow_deletions=True), NOW_MS) is None
    assert decide(at(committed=None, last=OURS), Allowed(follow_deletions=True), NOW_MS) is None


def test_the_first_move_over_a_foreign_commit_says_what_it_skips_and_is_looked_at_twice() -> None:
    decision = decide(at(current=13), Allowed(), NOW_MS)
    assert decision is not None
    assert (decision.risk, decision.records, decision.watch) == ("skip", 7, True)


def test_a_group_that_was_home_since_is_looked_at_afresh() -> None:
    """Failed over, consumed there, moved back, consumed here: what we wrote back then is of the past."""
    home_since = Remembered(5, frozenset({11}), OURS.at_ms + 1)
    assert decide(at(current=13, last=OURS, opposite=home_since), Allowed(), NOW_MS) == decide(
        at(current=13), Allowed(), NOW_MS
    )


@pytest.mark.parametrize("ahead_ms", [0, 1, 1_200_000])
def test_who_moves_a_group_back_from_a_slow_clock_is_the_later_one(ahead_ms: int) -> None:
    """Whoever commits there since is somebody else, and left alone, whatever the host of before thought."""
    ahead = Remembered(5, frozenset({11}), NOW_MS + ahead_ms)
    facts = at(current=7, last=OURS, opposite=ahead)
    decision = decide(facts, Allowed(), NOW_MS)
    assert decision is not None
    written = remembered(facts, decision, NOW_MS)
    assert written.at_ms == NOW_MS + ahead_ms + 1
    assert at(current=7, last=written, opposite=ahead).held == written
    assert remembered(at(current=7), decision, NOW_MS).at_ms == NOW_MS


def test_what_the_opposite_direction_has_read_there_is_known() -> None:
    decision = decide(at(current=13, opposite=Remembered(13, frozenset({8}), NOW_MS)), Allowed(), NOW_MS)
    assert decision is not None
    assert (decision.kind, decision.risk, decision.watch) == (GroupAction.MOVE, "none", False)


def test_records_still_to_copy_are_told_and_will_be_read_again() -> None:
    decision = decide(at(committed=10, copied=7), Allowed(), NOW_MS)
    assert decision is not None
    assert (decision.risk, decision.records) == ("repeat", 3)
    assert "3 offsets still to copy" in decision.reason


def test_a_position_beyond_the_log_is_cut_to_its_end() -> None:
    decision = decide(at(end=18), Allowed(), NOW_MS)
    assert decision is not None
    assert decision.to == 18


def test_a_rewind_that_is_followed_survives_a_kill_before_its_commit() -> None:
    """What is remembered beforehand must not make the rewind look done."""
    seen = at(committed=6, translation=Translated(16), current=20, last=OURS)
    allowed = Allowed(follow_rewinds=True)
    decision = decide(seen, allowed, NOW_MS)
    assert decision is not None
    killed = replace(seen, last=remembered(seen, decision, NOW_MS))
    assert decide(killed, allowed, NOW_MS) == decision


def test_records_gone_from_the_receiving_log_are_told() -> None:
    decision = decide(at(start=24), Allowed(), NOW_MS)
    assert decision is not None
    assert (decision.to, decision.risk, decision.records) == (24, "skip", 4)


@pytest.mark.parametrize("code", ["RECREATED", "GONE"])
def test_a_topic_that_is_gone_with_its_offsets_is_nobodys_to_decide(code: str) -> None:
    """What is remembered of it would block every run for ever."""
    left = PartitionFacts(
        giving=HERE,
        receiving=THERE,
        committed=None,
        last=Remembered(4, frozenset({7}), NOW_MS),
        problem=(code, "deleted on both sides"),
    )
    assert decide(left, Allowed(), NOW_MS) is None
    unreadable = decide(replace(left, problem=(GroupCode.UNREADABLE, "away")), Allowed(), NOW_MS)
    assert unreadable is not None
    assert unreadable.blocks


@pytest.mark.parametrize(("code", "blocks"), [("GONE", False), ("RECREATED", True)])
def test_an_offset_that_is_left_of_a_topic_gone_on_both_sides_blocks_nobody(code: str, blocks: bool) -> None:
    left = PartitionFacts(giving=HERE, receiving=THERE, committed=4, problem=(code, "deleted"))
    decision = decide(left, Allowed(), NOW_MS)
    assert decision is not None
    assert (decision.kind, decision.code, decision.blocks) == (GroupAction.LEFT, code, blocks)


# The log there began at 40 when the group was put there from 10: 20 offsets behind what it was to read next.
CUT = Remembered(10, frozenset({40}), NOW_MS - 1000, {40: OtherPosition(10, 20)})


def back(**changes: object) -> PartitionFacts:
    """The way home of a group that was put to 40 from 10, where the map says 40 for 40."""
    start: dict[str, object] = {"committed": 40, "translation": Translated(40), "current": 10, "end": 50}
    return at(**{**start, "opposite": CUT, **changes})


@pytest.mark.parametrize(
    ("seen", "kind", "to", "told"),
    [
        (back(), GroupAction.IN_PLACE, 10, ("none", None)),
        (back(translation=NotCovered(41, 50)), GroupAction.IN_PLACE, 10, ("none", None)),
        # its offset at home has expired meanwhile
        (back(current=None), GroupAction.MOVE, 10, ("none", None)),
        # so have its records
        (back(start=13), GroupAction.MOVE, 13, ("skip", 3)),
        # it has gone on at home, or was moved back there
        (back(current=12), GroupAction.LEFT, None, ("none", None)),
        (back(current=7), GroupAction.LEFT, None, ("none", None)),
        # near miss: it has read there
        (back(committed=41, translation=Translated(41)), GroupAction.MOVE, 41, ("skip", 20)),
        # an older release did not say what it stands for
        (back(opposite=replace(CUT, stands={})), GroupAction.MOVE, 40, ("skip", 30)),
        (back(opposite=replace(CUT, stands={}), current=None), GroupAction.MOVE, 40, ("skip", 30)),
    ],
)
def test_a_group_that_has_read_nothing_there_goes_on_where_it_was(
    seen: PartitionFacts, kind: GroupAction, to: int | None, told: tuple[str, int | None]
) -> None:
    decision = decide(seen, Allowed(), NOW_MS)
    assert decision is not None
    assert (decision.kind, decision.to, (decision.risk, decision.records)) == (kind, to, told)


def test_a_group_that_was_moved_back_at_home_is_moved_forward_only_when_that_is_asked_for() -> None:
    left = decide(back(current=7), Allowed(), NOW_MS)
    assert left is not None
    assert (left.code, left.blocks) == ("NOTHING_READ", False)
    taken = decide(back(current=7), Allowed(take_over=True), NOW_MS)
    assert taken is not None
    assert (taken.kind, taken.to) == (GroupAction.MOVE, 10)


def test_what_is_put_anywhere_else_than_at_its_counterpart_is_remembered_as_such() -> None:
    """Also of a position that is replaced, should the write not come to it."""
    cut, exact, ahead = at(start=24), at(), at(committed=12, copied=10)
    for seen, stands in ((cut, {24: OtherPosition(10, 4)}), (exact, {}), (ahead, {20: OtherPosition(12, 0)})):
        decision = decide(seen, Allowed(), NOW_MS)
        assert decision is not None
        entry = remembered(seen, decision, NOW_MS)
        assert entry.stands == stands
    again = at(start=26, current=24, last=Remembered(10, frozenset({24}), NOW_MS, {24: OtherPosition(10, 4)}))
    decision = decide(again, Allowed(), NOW_MS)
    assert decision is not None
    assert remembered(again, decision, NOW_MS).stands == {24: OtherPosition(10, 4), 26: OtherPosition(10, 6)}


def test_what_the_group_has_read_itself_stands_for_nothing_else() -> None:
    """It is where the log begins by now, and in place because of that."""
    seen = at(start=24, current=24)
    decision = decide(seen, Allowed(), NOW_MS)
    assert decision is not None
    assert decision.kind is GroupAction.IN_PLACE
    assert remembered(seen, decision, NOW_MS).stands == {}


@pytest.mark.parametrize("forerunner", [None, "there"])
def test_what_is_remembered_of_a_position_is_no_place_where_the_map_does_not_tell(
    forerunner: str | None,
) -> None:
    """The topic that it was in may have been made anew since; back where it comes from it is in place."""
    known = Remembered(4000, frozenset({900}), NOW_MS, {900: OtherPosition(4000, 0)})
    facts = PartitionFacts(
        giving=HERE,
        receiving=THERE,
        committed=900,
        translation=NotCovered(None, None, "it was copied between other topics of these names"),
        start=0,
        end=5000,
        opposite=known,
        forerunner=forerunner,
    )
    decision = decide(facts, Allowed(), NOW_MS)
    assert decision is not None
    assert (decision.kind, decision.code) == (GroupAction.LEFT, GroupCode.NOT_COVERED)
    back = decide(replace(facts, current=4000), Allowed(), NOW_MS)
    assert back is not None and back.kind is GroupAction.IN_PLACE
