"""When the way back may go on: what is there is not done again, and nobody waits for a person's turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from onceover.drills.switching.failback import (
    FlowBetween,
    LedBack,
    check_all_led_back,
    check_leads_back,
    copies_already,
    copies_to_bring_back,
    may_go_back,
    named_back,
    why_over,
)
from onceover.errors import NeedsOperator, UsageError
from onceover.model import TopicPartition
from onceover.operate.states import CopyState
from onceover.state.records.enrolment import Enrolment, LeftAt
from tests.unit.drills.test_switching import enrolment

THERE = FlowBetween("orders-dr", "east", "west")
GONE = {"message": "a topic is gone", "resolve": "reseed it"}


def entry(state: str, *needs: dict[str, str]) -> dict[str, Any]:
    return {"flow": "back", "state": state, "needs": list(needs)}


def test_it_goes_on_only_with_all_that_was_promoted() -> None:
    """Clients would find a part of their topics."""
    check_all_led_back("back", ["e"], LedBack(frozenset("e")), "start it again")
    with pytest.raises(NeedsOperator, match="flow back does not take in a, b, c") as raised:
        check_all_led_back("back", ["a", "b", "c", "d", "e"], LedBack(frozenset("e")), "start it again")
    assert (raised.value.code, raised.value.where) == ("SWITCHOVER_UNSET", "4 topics")
    assert str(raised.value.resolve).endswith("in both flows; then start it again")


def test_what_was_deleted_is_no_matter_of_filters() -> None:
    """No filter takes it in: whoever leads the others back leaves it out."""
    led = LedBack(frozenset("a"), deleted=frozenset("bc"))
    check_all_led_back("back", ["a"], led, "start it again")
    with pytest.raises(NeedsOperator, match="b cannot be led back: deleted") as raised:
        check_all_led_back("back", ["a", "b", "d"], led, "start it again")
    assert (raised.value.code, raised.value.where) == ("LOG_CHANGED", "1 topics")
    assert str(raised.value.resolve).endswith("then start it again")


def gone_over(topic: str, at_ms: int, ends: dict[int, int], cuts: dict[int, int]) -> Enrolment:
    """Return a record whose copy was given to clients at a time."""
    found = Enrolment(topic, topic, UUID(int=1), UUID(int=2), dict.fromkeys(ends, 0), 0)
    return found.as_promoted("d1", LeftAt(7, at_ms), ends, cuts)


def gone_back(topic: str, at_ms: int, ends: dict[int, int]) -> Enrolment:
    """Return one of the flow the other way, which was switched over at a time."""
    there = gone_over(topic, at_ms, ends, dict.fromkeys(ends, 0))
    return replace(there, source_id=UUID(int=2), target_id=UUID(int=1))


def test_what_was_led_back_is_copied_or_clients_have_gone_back_with_it() -> None:
    """The newer promotion counts: the older one is of a way back before that, and is placed anew."""
    there = [gone_over(name, 50, {0: 9, 1: 9}, {0: 5, 1: 5}) for name in "abcd"]
    copied = replace(gone_back("a", 0, {0: 9, 1: 9}).back(), start={0: 0, 1: 0, 2: 0})
    back = [copied, gone_back("b", 60, {0: 5, 1: 9}), gone_back("c", 40, {0: 5, 1: 5})]
    led = LedBack.of(there, back, dict.fromkeys("abcd", UUID(int=1)))
    assert (sorted(led.copies), sorted(led.gone), led.lacking) == (["a", "b"], ["b"], ())
    assert led.missing(["d", "c", "b", "a"]) == ["c", "d"]
    # Somebody has deleted it there since, or made it anew: all of it can be led back once more.
    for ids in ({}, {"b": UUID(int=9)}):
        assert not LedBack.of(there, back, ids).gone


def test_what_was_copied_tells_whoever_was_later_whatever_clocks_say() -> None:
    """The first switchover was run by a host whose clock is ahead of the other one's."""
    there = gone_over("a", 5_000, {0: 9}, {0: 5})
    back = gone_back("a", 60, {0: 7})
    assert back.promoted is not None
    later = replace(back, promoted=back.promoted._replace(cuts={0: 12}))
    ids = {"a": UUID(int=1)}
    assert LedBack.of([there], [later], ids).gone == {"a"}
    assert not there.is_promoted_since(later)
    # Nothing was written there: the clocks are all that is left.
    assert not LedBack.of([there], [replace(back, promoted=back.promoted._replace(cuts={0: 9}))], ids).gone
    # Of another topic of that name its offsets tell nothing.
    assert not LedBack.of([there], [replace(later, source_id=UUID(int=9))], ids).gone


def test_of_what_is_copied_no_promoted_partition_may_lack() -> None:
    """A topic that had grown while clients were there; what it grows by later is taken in by the flow."""
    back = replace(gone_back("a", 0, {0: 9}).back(), start={0: 0, 3: 0})
    led = LedBack.of([gone_over("a", 50, {0: 9, 1: 0}, {0: 5})], [back], {})
    assert (sorted(led.copies), list(led.lacking)) == (["a"], [TopicPartition("a", 1)])


@pytest.mark.parametrize("state", list(CopyState))
def test_each_state_is_begun_from_waited_for_or_over(state: CopyState) -> None:
    """Where it copies it is not started; clients may go back where nothing is left to copy."""
    told = entry(str(state))
    assert copies_already(told) is (state in (CopyState.COPYING, CopyState.CAUGHT_UP))
    assert may_go_back(told) is (state is CopyState.CAUGHT_UP)
    assert (why_over(told) is not None) is (state in (CopyState.STOPPED, CopyState.PROMOTED))


def test_what_is_over_is_told_with_what_a_person_does() -> None:
    """Three of them are enough for a log."""
    assert why_over(entry("stopped", *[GONE] * 4)) == "flow back is stopped: " + "; ".join(
        ["a topic is gone; reseed it"] * 3
    )
    assert why_over(entry("promoted")) == "flow back is promoted: see its status"


def test_only_a_flow_between_the_same_clusters_leads_back() -> None:
    """By alias: whose files do not agree on these would copy somebody else's records back."""
    check_leads_back(THERE, FlowBetween("back", "west", "east"))
    with pytest.raises(UsageError, match="flow back is not the other way of flow orders-dr") as raised:
        check_leads_back(THERE, FlowBetween("back", "west", "north"))
    told = raised.value
    assert (told.code, told.expected, told.seen) == (
        "SWITCHOVER_UNSET",
        "from west to east",
        "from west to north",
    )


def test_a_flow_that_names_none_is_told_which_one_it_needs() -> None:
    assert named_back(THERE, "back") == "back"
    with pytest.raises(UsageError, match="names no flow that leads back") as raised:
        named_back(THERE, None)
    assert (raised.value.code, raised.value.expected) == ("SWITCHOVER_UNSET", "a flow from west to east")


def test_only_what_was_promoted_is_brought_back() -> None:
    """A topic that is still copied has nothing to bring; nothing at all is a mistake."""
    enrolled = [enrolment("c", "d1"), enrolment("a", "d1"), enrolment("b")]
    assert copies_to_bring_back(THERE, enrolled, None) == ["a", "c"]
    assert copies_to_bring_back(THERE, enrolled, lambda topic: topic == "c") == ["c"]
    with pytest.raises(UsageError, match="there is nothing to bring back") as raised:
        copies_to_bring_back(THERE, enrolled, lambda topic: topic == "b")
    assert (raised.value.code, raised.value.seen) == ("NOTHING_CHOSEN", "2 promoted topics")
