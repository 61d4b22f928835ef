"""The step behind a planned switchover that has the flow the other way begin, without clusters."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.backoff import Deadline
from onceover.drills import chain as chains
from onceover.drills.switching.steps import PlannedSteps
from onceover.errors import NeedsOperator
from onceover.state.read import FlowState
from onceover.state.records.enrolment import Enrolment
from tests.unit.drills.test_fences import Notes
from tests.unit.drills.test_switching import enrolment


class Steps(PlannedSteps):
    """Topic a, which this drill has promoted."""

    def _live(self, state: FlowState | None = None) -> dict[str, Enrolment]:
        return dict(self.enrolled)


@pytest.mark.parametrize(("principal", "lifted"), [("User:*", [["a"]]), ("User:app", [])])
def test_a_fence_that_shuts_everybody_out_is_lifted_although_the_way_back_does_not_begin(
    principal: str, lifted: list[list[str]]
) -> None:
    """The source holds records of its own, say: that is for a person, who would not know of the fence."""
    heard: list[list[str]] = []

    def lift(_: Notes, topics: Collection[str], __: Deadline) -> dict[str, Any]:
        heard.append(sorted(topics))
        return {}

    def refuses(_: Collection[str]) -> Any:
        raise NeedsOperator("it holds records of its own", code="ORPHANS")

    notes = Notes()
    notes.write(chains.FENCED, {"kind": "acls", "marks": [["a", principal], ["other", "User:*"]]})
    parts = SimpleNamespace(reverse=refuses, lifted=SimpleNamespace(lift=lift))
    steps = Steps(cast(Any, parts), "d1", "d1", {"a": enrolment("a", "d1")}, True, notes, cast(Any, None))
    with pytest.raises(NeedsOperator, match="of its own"):
        steps.reverse(Deadline(5.0))
    assert heard == lifted
