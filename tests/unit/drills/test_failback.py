"""When the way back may go on: what is there is not done again, and nobody waits for a person's turn."""

from __future__ import annotations

from typing import Any

import pytest

from onceover.drills.switching.failback import check_all_led_back, copies_already, may_go_back, why_over
from onceover.errors import NeedsOperator
from onceover.operate.states import CopyState

GONE = {"message": "a topic is gone", "resolve": "reseed it"}


def entry(state: str, *needs: dict[str, str]) -> dict[str, Any]:
    return {"flow": "back", "state": state, "needs": list(needs)}


def test_it_goes_on_only_with_all_that_was_promoted() -> None:
    """Clients would find a part of their topics."""
    check_all_led_back("back", [], "start it again")
    with pytest.raises(NeedsOperator, match="flow back does not take in a, b, c") as raised:
        check_all_led_back("back", ["a", "b", "c", "d"], "start it again")
    assert (raised.value.code, raised.value.where) == ("SWITCHOVER_UNSET", "4 topics")
    assert str(raised.value.resolve).endswith("in both flows; then start it again")


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
