"""Plans as people and machines read them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onceover.exitstatus import OK, PERSON, TEMPORARY
from onceover.planning.plan import Change, Plan, Refusal, exit_of

CREATE = Change("create topic", "orders", None, "3 partitions", "new on the source")
SKIP = Change("position", "orders:0", 5, 9, "asked for", "skip", 4)
REFUSAL = Refusal("logs", "TARGET_NOT_EMPTY", "it holds records", "delete it")


def plan(*changes: Change, refused: tuple[Refusal, ...] = ()) -> Plan:
    """Return a plan of the flow f."""
    return Plan(operation="topics", flow="f", changes=changes, refused=refused, computed_at_ms=7)


def test_document_has_the_shape_of_the_design() -> None:
    """Field names that programs rely on; None is null."""
    document = plan(SKIP, refused=(REFUSAL,)).document()
    assert set(document) == {"operation", "flow", "computed_at_ms", "plan_id", "changes", "refused"}
    assert document["changes"] == [
        {
            "what": "position",
            "object": "orders:0",
            "from": 5,
            "to": 9,
            "reason": "asked for",
            "risk": "skip",
            "records": 4,
        }
    ]
    assert document["refused"][0]["code"] == "TARGET_NOT_EMPTY"


def test_id_depends_on_the_changes_only() -> None:
    """Computed a second later the plan is the same plan."""
    one = plan(CREATE, SKIP)
    assert replace(one, computed_at_ms=8).plan_id == one.plan_id
    assert replace(one, computed_at_ms=8) == one
    others = (plan(SKIP, CREATE), plan(CREATE), replace(one, flow="g"), replace(one, operation="seed"))
    assert one.plan_id not in {other.plan_id for other in others}


def test_text_names_object_reason_and_risk() -> None:
    """What a person decides by."""
    text = plan(CREATE, SKIP, refused=(REFUSAL,)).describe()
    assert "create topic orders: - -> 3 partitions  (new on the source)" in text
    assert "skips 4 offsets" in text
    assert "refused logs: it holds records; delete it" in text
    assert "nothing to do" in plan().describe()


OPEN = Refusal("t:0", "OPEN", "a transaction is open", "wait")
TAKEN = Refusal("t:1", "TAKEN", "somebody has it", "decide")
REMARK = Refusal("t:2", "REMARK", "a remark", "nothing", blocks=False)


@pytest.mark.parametrize(
    ("refused", "passes", "code"),
    [
        ((), False, OK),
        ((REMARK,), False, OK),
        ((OPEN, REMARK), False, TEMPORARY),
        ((OPEN, TAKEN), False, PERSON),
        ((TAKEN,), False, PERSON),
        ((), True, TEMPORARY),
        ((TAKEN,), True, TEMPORARY),
    ],
)
def test_a_person_is_asked_for_what_does_not_pass(
    refused: tuple[Refusal, ...], passes: bool, code: int
) -> None:
    assert exit_of(refused, passing={"OPEN"}, passes=passes) == code
