"""What a run proves: everything in scope is on the target, or nothing is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from onceover.operate.caughtup import is_caught_up, run_caught_up
from onceover.topics.codes import TopicCode

STOP = {"code": "TRUNCATED", "message": "the log starts at 5", "resolve": "onceover partition skip-to"}
NOTHING = {"code": TopicCode.NOTHING_IN_SCOPE, "message": "no topic is in scope", "resolve": "correct it"}
IDLE = {
    "code": TopicCode.PATTERN_WITHOUT_TOPIC,
    "message": "pattern x matches no topic",
    "resolve": "correct it",
}


def partition(number: int, *, lag: int | None = 0, stop: dict[str, str] | None = None) -> dict[str, Any]:
    return {"topic": "a", "partition": number, "lag_offsets": lag, "stop": stop}


DONE = {"until": "caught-up", "caught_up": True}
CUT_SHORT = {"until": "caught-up", "caught_up": False}
REFUSED = {**partition(0, lag=None, stop=STOP), "partition": None}


@pytest.mark.parametrize(
    ("copied", "partitions", "expected"),
    [
        (DONE, [partition(0)], True),
        (DONE, [partition(0, lag=7)], True),  # newer records have arrived since
        (CUT_SHORT, [partition(0, lag=7)], False),  # `onceover stop` ended it midway
        ({"until": "10m", "caught_up": False}, [partition(0)], True),
        ({"until": "10m", "caught_up": False}, [partition(0), partition(1, lag=1)], False),
        (None, [partition(0)], False),  # fenced or failed: another run may have copied all of it
        (DONE, [], False),  # nothing in scope
        (DONE, [partition(0, stop=STOP)], False),
        (DONE, [partition(0), partition(1, stop=STOP)], False),
        (DONE, [partition(0), REFUSED], False),
        (DONE, [partition(0, lag=None)], False),  # nobody knows
    ],
)
def test_caught_up_needs_proof_of_everything_by_this_very_run(
    copied: dict[str, Any] | None, partitions: list[dict[str, Any]], expected: bool
) -> None:
    """The asset is never announced by a run that did not end well, of nothing, nor of a part."""
    assert is_caught_up(copied, {"partitions": partitions}) is expected


@pytest.mark.parametrize(
    ("came_to_its_end", "stopped", "remarks", "expected"),
    [
        (True, [], [], True),
        (True, [], [IDLE], True),
        (False, [], [], False),  # cut short
        (True, None, [], False),  # the target did not answer at the end
        (True, [STOP], [], False),
        (True, [], [IDLE, NOTHING], False),
    ],
)
def test_a_run_has_caught_up_with_all_or_with_nothing(
    came_to_its_end: bool,
    stopped: list[dict[str, str]] | None,
    remarks: list[dict[str, str]],
    expected: bool,
) -> None:
    """What its report says: never of nothing, nor of a part."""
    found = run_caught_up(came_to_its_end=came_to_its_end, stopped=stopped, remarks=remarks)
    assert found is expected
