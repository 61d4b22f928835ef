"""What a seeding writes, refuses and announces: pure, for any situation."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.errors import NeedsOperator
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.model import TopicPartition
from onceover.planning.approval import Approval, Item
from onceover.planning.plan import Refusal
from onceover.seeding.plan import (
    EARLIEST,
    LATEST,
    REFUSE,
    Choice,
    Seat,
    SeatedTopic,
    SeedOffset,
    SeedOffsets,
    SeedPlan,
    plan_seed,
)
from onceover.state.codes import StateCode
from onceover.state.records.enrolment import Enrolment, LeftAt
from onceover.topics.codes import TopicCode
from onceover.topics.plan import TopicPlan
from onceover.topics.refusals import NOT_OURS

_IDS = UUID(int=1), UUID(int=2)
_CAREFUL = Choice()


def seat(partition: int = 0, *, start: int = 0, end: int = 100, **changes: int | None) -> Seat:
    source, target = TopicPartition("a", partition), TopicPartition("a", partition)
    fields = {"lso": end, **changes}
    return Seat(source=source, target=target, start=start, end=end, **fields)  # pyrefly: ignore[bad-argument-type]


def topic(*seats: Seat, enrolled: bool = False) -> SeatedTopic:
    partitions = {s.source.partition: PartitionInfo(0, 0) for s in seats}
    source, copy = (TopicInfo("a", one, partitions, is_internal=False) for one in _IDS)
    enrolment = Enrolment("a", "a", *_IDS, dict.fromkeys(partitions, 0), 0) if enrolled else None
    return SeatedTopic(source=source, target="a", copy=copy, enrolment=enrolment, seats=seats)


def plan(
    one: SeatedTopic, seeds: dict[int, int], choice: Choice = _CAREFUL, *, ready: bool = True
) -> SeedPlan:
    named = {TopicPartition("a", p): SeedOffset(offset, "said so") for p, offset in seeds.items()}
    blocked = () if ready else (Refusal("a", "ENROLLED_ELSEWHERE", "no", "no"),)
    topics = TopicPlan(operation="topics", flow="f", enrol=("a",) if ready else (), refused=blocked)
    return plan_seed("seed", "f", [one], SeedOffsets(named), topics, choice)


def test_a_new_flow_skips_what_lies_before() -> None:
    """The number of offsets that will never be copied is announced."""
    (position, restart) = plan(topic(seat(start=10)), {0: 30}).changes
    assert (position.to, position.risk, position.records, restart.what) == (30, "skip", 20, "flow")


def test_a_target_that_holds_records_may_repeat_an_unknown_number() -> None:
    """Nobody has compared: the number is not made up."""
    position = plan(topic(seat(target_end=7)), {0: 30}).changes[0]
    assert (position.risk, position.records) == ("repeat", None)


@pytest.mark.parametrize(("offset", "risk", "records"), [(60, "skip", 10), (20, "repeat", 30)])
def test_progress_is_replaced_only_when_asked_with_the_same_numbers(
    offset: int, risk: str, records: int
) -> None:
    """Both the refusal and the change say how many."""
    one = topic(seat(position=50), enrolled=True)
    refused = plan(one, {0: offset})
    assert (refused.changes, refused.refused[0].code, refused.exit_code) == ((), "PROGRESS_EXISTS", 3)
    assert f"would {risk} {records} offsets" in refused.refused[0].message
    change = plan(one, {0: offset}, Choice(replace=True)).changes[0]
    assert (change.from_, change.to, change.risk, change.records) == (50, offset, risk, records)


@pytest.mark.parametrize("position", [20, 60, 90])
def test_what_an_origin_knows_for_sure_is_not_weighed_against_the_progress(position: int) -> None:
    """The progress may be an older one that was put back with its metadata: only lanes can tell.

    Or it is of an earlier journey: what has come since from the other side is no loss.
    """
    one = topic(seat(position=position, target_end=70), enrolled=True)
    seeds = SeedOffsets({TopicPartition("a", 0): SeedOffset(60, "exact", "none")})
    topics = TopicPlan(operation="topics", flow="f")
    changes = plan_seed("seed", "f", [one], seeds, topics, Choice(replace=True)).changes
    refused = plan_seed("seed", "f", [one], seeds, topics, Choice()).refused
    if position == 60:
        assert (changes, refused) == ((), ())
        return
    assert (changes[0].to, changes[0].risk, changes[0].records) == (60, "none", None)
    assert "would repeat and skip nothing" in refused[0].message
    # Whoever has said yes to a skip has said yes to less; not the other way round.
    planned = plan_seed("seed", "f", [one], seeds, topics, Choice(replace=True))
    Approval.of([Item("position a:0", "skip", 40), Item("flow generation")]).check(planned.items, "f")
    with pytest.raises(NeedsOperator):
        Approval.of(planned.items).check([Item("position a:0", "skip", 40)], "f")


def test_progress_that_is_there_already_needs_nothing() -> None:
    """An interrupted run goes on with the rest."""
    assert plan(topic(seat(position=50), enrolled=True), {0: 50}).changes == ()


OLD = str(UUID(int=9))
HERE, THERE = map(str, _IDS)
MADE_ANEW = [
    pytest.param((OLD, THERE), "source topic a was made anew", id="source"),
    pytest.param((HERE, OLD), "target topic a was made anew", id="target"),
]


def of_another(one: Seat, between: tuple[str, str]) -> SeatedTopic:
    """Return a topic with a partition that was copied between other topics than are there now."""
    return topic(replace(one, between=between), enrolled=True)


def test_offsets_of_a_source_that_was_made_anew_are_not_weighed_against_those_of_the_old_one() -> None:
    """Of a topic that holds 500 records, none is copied yet; where it went on from 1000 was another one."""
    one = of_another(seat(end=500, position=1000, target_end=1000), (OLD, THERE))
    denied = plan(one, {0: 500})
    assert [r.code for r in denied.refused] == ["PROGRESS_EXISTS"]
    assert "would skip 500 offsets" in denied.refused[0].message
    change = plan(one, {0: 500}, Choice(replace=True)).changes[0]
    assert (change.from_, change.to, change.risk, change.records) == (1000, 500, "skip", 500)
    whole = plan(one, {0: 0}, Choice(replace=True)).changes[0]
    assert (whole.risk, whole.records) == ("none", None)
    # Nobody believes the progress; what the leader has accepted tells that it is another topic.
    assert one.enrolment is not None
    doubt = NeedsOperator("somebody has moved it", code=StateCode.PROGRESS_FOREIGN)
    moved = replace(one.seats[0], between=None, doubt=doubt)
    former = replace(one, enrolment=replace(one.enrolment, former={0: (OLD, THERE)}), seats=(moved,))
    change = plan(former, {0: 500}, Choice(replace=True)).changes[0]
    assert (change.risk, change.records) == ("skip", 500)


def test_where_the_copy_is_gone_it_is_not_said_that_five_offsets_repeat() -> None:
    """What the old target held is gone; another topic may hold any of it, and nobody has compared."""
    change = plan(of_another(seat(position=50), (HERE, OLD)), {0: 45}, Choice(replace=True)).changes[0]
    assert (change.risk, change.records) == ("skip", 45)
    held = of_another(seat(position=50, target_end=7), (HERE, OLD))
    change = plan(held, {0: 45}, Choice(replace=True)).changes[0]
    assert (change.risk, change.records, "not compared" in change.reason) == ("repeat", None, True)
    denied = plan(held, {0: 45}).refused[0]
    assert "would repeat an unknown number of offsets" in denied.message


@pytest.mark.parametrize(("between", "told"), MADE_ANEW)
def test_that_a_topic_was_made_anew_is_said(between: tuple[str, str], told: str) -> None:
    one = of_another(seat(position=50), between)
    assert told in plan(one, {0: 45}, Choice(replace=True)).changes[0].reason
    assert told in plan(one, {0: 45}).refused[0].message
    same = of_another(seat(position=50), (HERE, THERE))
    assert "made anew" not in plan(same, {0: 45}, Choice(replace=True)).changes[0].reason


@pytest.mark.parametrize(("between", "told"), MADE_ANEW)
def test_a_partition_of_a_topic_that_was_made_anew_is_written_where_the_numbers_are_equal_too(
    between: tuple[str, str], told: str
) -> None:
    """As those beside it are: it would stay stopped for good, and nothing would be left to do."""
    one = of_another(seat(position=0), between)
    denied = plan(one, {0: 0}).refused
    assert [r.code for r in denied] == ["PROGRESS_EXISTS"] and told in denied[0].message
    written = plan(one, {0: 0}, Choice(replace=True))
    assert written.positions[TopicPartition("a", 0)].offset == 0
    assert (written.changes[0].risk, told in written.changes[0].reason) == ("none", True)
    # Once it is written it is about the topics that are there.
    assert plan(of_another(seat(position=0), (HERE, THERE)), {0: 0}, Choice(replace=True)).changes == ()


def test_what_was_said_yes_to_as_a_repeat_is_not_skipped() -> None:
    """An approval of numbers that were about two topics is none of what is really done."""
    old = Approval.of([Item("position a:0", "repeat", 500), Item("flow generation")])
    one = of_another(seat(end=500, position=1000, target_end=1000), (OLD, THERE))
    with pytest.raises(NeedsOperator) as caught:
        old.check(plan(one, {0: 500}, Choice(replace=True)).items, "f")
    assert caught.value.code == "PLAN_CHANGED"


def test_partitions_of_a_topic_that_gave_way_are_written_where_they_stand_already_too() -> None:
    """What counts is that somebody has said so since: the topic returns when that is true of each."""
    one = topic(seat(0, position=50), seat(1, position=70), enrolled=True)
    assert one.enrolment is not None
    left = replace(one, enrolment=one.enrolment.left_to("back", LeftAt(7, 1)))
    changes = plan(left, {0: 50, 1: 90}, Choice(replace=True)).changes
    assert [(c.from_, c.to, c.risk) for c in changes[:2]] == [(50, 50, "none"), (70, 90, "skip")]
    assert [r.code for r in plan(left, {0: 50, 1: 90}).refused] == ["PROGRESS_EXISTS"] * 2


def test_what_a_promoted_topic_loses_is_said() -> None:
    """Clients write to its copy: placed by hand, the flow does so, too."""
    one = topic(seat(0, position=50), enrolled=True)
    assert one.enrolment is not None
    clients = replace(one, enrolment=one.enrolment.as_promoted("d1", LeftAt(7, 1), {0: 60}, {0: 50}))
    (_, taken, _) = plan(clients, {0: 50}, Choice(replace=True)).changes
    assert (taken.what, taken.object, taken.to) == ("promotion", "a", "taken back")
    assert "switchover d1 has given it to clients" in taken.reason


def test_what_a_topic_has_grown_by_while_it_was_given_away_returns_with_it_or_none_of_it_does() -> None:
    """Without, the flow would find what has come from there in a copy that it has never written."""
    one = topic(seat(0, position=50), seat(1, position=70), seat(2), enrolled=True)
    assert one.enrolment is not None
    old = replace(one.enrolment, start={0: 0, 1: 0}).left_to("back", LeftAt(7, 1))
    left, again = replace(one, enrolment=old), Choice(replace=True)
    assert {tp.partition for tp in plan(left, {0: 50, 1: 70, 2: 9}, again).positions} == {0, 1, 2}
    refused = plan(left, {0: 50, 1: 70}, again)
    assert ([r.code for r in refused.refused], refused.changes) == (["NO_OFFSET"], ())
    assert "none of it is seeded" in refused.refused[0].message
    # One that it had copied before can wait: until then the topic does.
    assert {tp.partition for tp in plan(left, {0: 500, 1: 70, 2: 9}, again).positions} == {1, 2}


@pytest.mark.parametrize("code", sorted(NOT_OURS))
def test_an_enrolled_topic_that_is_another_flows_now_is_not_seeded(code: TopicCode) -> None:
    """It would copy for a moment what comes back. One that is copied, and the other has to leave, is."""
    one = topic(seat(position=50), enrolled=True)
    assert one.enrolment is not None
    left = replace(one, enrolment=one.enrolment.left_to("back", LeftAt(7, 1)))
    refused = TopicPlan(operation="topics", flow="f", refused=(Refusal("a", code, "no", "no"),))
    seeds = SeedOffsets({TopicPartition("a", 0): SeedOffset(90, "said so")})
    for each, expected in ((left, [code]), (one, [])):
        planned = plan_seed("seed", "f", [each], seeds, refused, Choice(replace=True))
        assert [r.code for r in planned.refused] == expected
        assert bool(planned.changes) is not bool(expected)


def test_a_topic_that_cannot_be_taken_is_refused_with_the_reason() -> None:
    """Another flow's topic stays another flow's."""
    planned = plan(topic(seat()), {0: 1}, ready=False)
    assert (planned.changes, planned.refused[0].code) == ((), "ENROLLED_ELSEWHERE")


def test_progress_that_the_state_knows_nothing_of_is_not_gone_on_with() -> None:
    """Whether or not the origin agrees with it: generations begin anew without the state."""
    for offset in (20, 50):
        lost = plan(topic(seat(position=50), seat(1)), {0: offset, 1: 5}, Choice(replace=True))
        assert (lost.changes, [r.code for r in lost.refused], lost.exit_code) == ((), ["STATE_LOST"], 3)


def test_an_unnamed_topic_is_left_to_the_flow() -> None:
    """It is neither refused nor seeded."""
    planned = plan(topic(seat()), {})
    assert (planned.changes, planned.refused, planned.untouched) == ((), (), ("a",))


NUMBERS = st.integers(0, 40)
SITUATIONS = st.tuples(NUMBERS, NUMBERS, st.none() | NUMBERS, NUMBERS)


@given(
    drawn=st.lists(SITUATIONS, min_size=1, max_size=4),
    seeds=st.dictionaries(st.integers(0, 3), st.integers(0, 90)),
    enrolled=st.booleans(),
    replace=st.booleans(),
    missing=st.sampled_from([REFUSE, EARLIEST, LATEST]),
)
def test_any_situation_keeps_the_rules(
    drawn: list[tuple[int, int, int | None, int]],
    seeds: dict[int, int],
    enrolled: bool,
    replace: bool,
    missing: str,
) -> None:
    """Inside the log, never over progress unasked, whole topics only, every change counted."""
    seats = [
        seat(p, start=start, end=start + size, position=position if enrolled else None, target_end=held)
        for p, (start, size, position, held) in enumerate(drawn)
    ]
    planned = plan(topic(*seats, enrolled=enrolled), seeds, Choice(replace=replace, missing=missing))
    for one in seats:
        position = planned.positions.get(one.source)
        if position is None:
            continue
        assert one.start <= position.offset <= one.end
        assert position.offset != one.position
        assert one.position is None or (replace and one.source.partition in seeds)
        assert position.target_end == one.target_end
    if planned.positions and not enrolled:
        assert len(planned.positions) == len(seats)
    shown = {c.object for c in planned.changes if c.what == "position"}
    assert shown == {str(tp) for tp in planned.positions}
    assert bool(planned.changes) == bool(planned.positions)
