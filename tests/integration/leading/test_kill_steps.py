"""kill -9 at every step of start, enrolment and commit: the next start converges (G1, G2, G3).

The steps come from ``state.steps``, so that a new one is tested without being written down here.
"""

from __future__ import annotations

import pytest

from onceover.state import steps
from onceover.state.steps import Step
from tests.support.flows.flowcase import FlowCase
from tests.support.flows.flows import InlineFlow, assert_same

# Reached again and again: the first time there is nothing behind it, later there is. All counts: soak.
REPEATED = (
    Step.FENCE_LANE,
    Step.DATA_SENT,
    Step.DATA_ACKED,
    Step.MAP_SENT,
    Step.PROGRESS_SENT,
    Step.COMMIT,
    Step.COMMITTED,
)
# Reached when topics grow or their configuration changes, and when groups are moved: test_topics_command.py
# and test_groups.py kill there. The offset map is merged once an hour: test_translate.py. What a broker
# has left open: test_left_open.py.
ELSEWHERE = (
    Step.TOPIC_GROW,
    Step.TOPIC_CONFIG,
    Step.GROUP_REMEMBER,
    Step.GROUP_COMMIT,
    Step.LANE_DECIDE,
    Step.MERGE_SENT,
    Step.MERGE_COMMITTED,
)
STEPS = [step for step in Step if step not in ELSEWHERE]
# What they leave behind is what a neighbour leaves that is killed in each run: nothing is open yet, or the
# same transaction is, with less in it. A step that is new is not here.
ALIKE = (
    Step.LEADER_READ,
    Step.LAYOUT_BEGIN,
    Step.READY_BEGIN,
    Step.OWN_LOOK,
    Step.CLAIM_BEGIN,
    Step.ENROL_BEGIN,
    Step.LANE_CHECK,
    Step.LANE_READ,
    Step.LANE_RESUME,
    Step.DATA_SENT,
    Step.DATA_ACKED,
    Step.MAP_SENT,
)
STARTING = list(Step)[: list(Step).index(Step.READY_COMMIT) + 1]
ONCE = [
    pytest.param(step, 2 if step in REPEATED else 1, marks=[pytest.mark.soak] if step in ALIKE else [])
    for step in STEPS
]
MATRIX = [(step, count) for step in REPEATED for count in (1, 3, 4)]


@pytest.mark.parametrize(("step", "count"), ONCE, ids=lambda value: getattr(value, "name", str(value)))
def test_killed_at_a_step_the_next_start_converges(case: FlowCase, step: Step, count: int) -> None:
    """Nothing is lost or repeated, the generation grows, progress and data agree before and after."""
    case.kill(step, count)
    case.converge()


@pytest.mark.soak
@pytest.mark.parametrize(("step", "count"), MATRIX, ids=lambda value: getattr(value, "name", str(value)))
def test_killed_at_a_later_transaction_the_next_start_converges(
    case: FlowCase, step: Step, count: int
) -> None:
    """The same with more or less behind it."""
    # Enough for more transactions than the largest count.
    case.feed()
    case.feed()
    case.kill(step, count)
    case.converge()


@pytest.mark.soak
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_killed_again_at_the_same_step_of_the_second_start(case: FlowCase, step: Step) -> None:
    """A start after a killed start after a run: bounds are carried over generations that never got ready."""
    InlineFlow(case.path).copy()
    case.feed()
    case.adversary.create_topic(f"{case.topic}-b", 1)
    case.adversary.plain(f"{case.topic}-b", 0, case.adversary.records(5))
    for _ in range(2 if step in STARTING else 1):
        case.kill(step, 1)
    case.converge()
    assert_same(case.source, case.target, [f"{case.topic}-b"])


def test_every_step_is_reached_by_a_run_that_is_not_killed(case: FlowCase) -> None:
    """No step is dead, or its kill test would prove nothing; and they come in their order."""
    seen: list[Step] = []
    steps.listen(seen.append)
    try:
        InlineFlow(case.path).copy()
    finally:
        steps.listen(lambda _: None)
    assert set(seen) == set(STEPS)
    first = [step for step in dict.fromkeys(seen) if not step.name.startswith(("LANE", "CLAIM"))]
    assert first == [step for step in Step if step in first]
