"""What would be exported and deleted, and what stands in the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onceover.drills.codes import DrillCode
from onceover.drills.orphans.looks import OrphanLook, OrphanView, TopicShape
from onceover.drills.orphans.plan import (
    NOTHING,
    HeldPart,
    OrphansPlan,
    origin_of,
    plan_orphans,
    topic_of,
)
from onceover.drills.orphans.positions import PositionOnlyHere, PositionsOnlyHere
from onceover.drills.orphans.tally import OrphanTally
from onceover.drills.orphans.terms import OrphanPlace, RebuildTerms
from onceover.drills.orphans.torn import SpanState, TransactionSpan
from onceover.errors import NeedsOperator, NotNow
from onceover.model import TopicPartition
from onceover.planning.approval import Approval
from onceover.planning.plan import Refusal
from onceover.wire.batches.records import DecodedRecord

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
PLACE = OrphanPlace("f", "east", "west", "__onceover.f.orphans", Path("/var/f/orphans.jsonl"), "back")
SHAPE = TopicShape("id", 2, 3, {"retention.ms": "-1"})
TERMS = RebuildTerms({"a": SHAPE, "b": SHAPE}, {}, 3)
OPEN = TransactionSpan(9, 0, 13, 14, SpanState.OPEN)


def look(tp: TopicPartition, records: int = 0, *, cut: int = 10) -> OrphanLook:
    tally = OrphanTally()
    for offset in range(cut, cut + records):
        tally.add(DecodedRecord(offset, 0, b"k", b"v"))
    return OrphanLook(tp, "id", 0, cut + records, cut + records, cut, tally)


def planned(*looks: OrphanLook, held: HeldPart = NOTHING, notes: tuple[Refusal, ...] = ()) -> OrphansPlan:
    view = OrphanView(looks, (), (), {9: "billing"}, notes)
    return plan_orphans(PLACE, view, {origin_of(looks[0]): held}, rebuild=TERMS)


def test_a_topic_without_orphans_stays() -> None:
    plan = planned(look(A0, 3), look(A1), look(B0))
    assert [(c.what, c.object, c.risk) for c in plan.changes] == [
        ("export", "a:0", "none"),
        ("write", "/var/f/orphans.jsonl", "none"),
        ("delete", "topic a on east", "destructive"),
        ("create", "topic a on east, empty", "none"),
    ]
    assert (plan.rebuild, plan.exit_code, plan.orphans) == (("a",), 0, 3)
    lines = plan.describe().splitlines()
    mark = next(n for n, line in enumerate(lines) if "point of no return" in line)
    assert all("delete topic a" not in line for line in lines[:mark])
    assert any("delete topic a" in line for line in lines[mark:])


def test_what_is_exported_already_is_proven_again_and_not_written() -> None:
    plan = planned(look(A0, 3), held=HeldPart(3, 12))
    assert [c.what for c in plan.changes] == ["write", "delete", "create"]


def test_what_came_behind_an_export_is_shown_although_others_were_compacted_away() -> None:
    """The topic holds as many as the source, and not the same ones."""
    (export, *_) = planned(look(A0, 3), held=HeldPart(3, 10)).changes
    assert (export.what, "up to offset 10 they are there" in export.reason) == ("export", True)


def test_nothing_behind_any_cut_is_nothing_to_do() -> None:
    assert planned(look(A0), look(B0)).changes == ()


@pytest.mark.parametrize(
    ("change", "code", "exits"),
    [
        ({"end": 15}, "ORPHANS_OPEN", 5),
        ({"end": 15, "opened": (OPEN,)}, "ORPHANS_OPEN", 5),
        ({"uncopied": "offsets 0 to 9 were not"}, "NOT_COPIED", 3),
    ],
)
def test_a_topic_of_which_something_is_not_known_stays(
    change: dict[str, object], code: str, exits: int
) -> None:
    """Also where it is another one of its partitions; the others go."""
    plan = planned(look(A0, 3), replace(look(A1), **change), look(B0, 2))  # pyrefly: ignore[bad-argument-type]
    assert (plan.rebuild, plan.exit_code) == (("b",), exits)
    assert {r.code for r in plan.refused} == {code}


def test_who_holds_one_open_is_named() -> None:
    plan = planned(replace(look(A0, 3), end=15, opened=(OPEN,)))
    assert "billing has a transaction open from 13 on" in plan.refused[0].message


def test_a_partition_that_nobody_can_tell_about_keeps_its_topic() -> None:
    doubt = Refusal("a:1", DrillCode.LOG_CHANGED, "cannot be told", "by hand")
    plan = planned(look(A0, 3), notes=(doubt,))
    assert (plan.rebuild, plan.exit_code) == ((), 3)


def test_an_approval_covers_what_grows_and_no_other_deletion() -> None:
    """More to export is the same; a topic that ends elsewhere is not what was shown."""
    approved = Approval.of(planned(look(A0, 3)).items)
    view = OrphanView((look(A0, 4),), (), (), {}, ())
    approved.check(plan_orphans(PLACE, view, {}, rebuild=None).items, "here")
    with pytest.raises(NeedsOperator, match="something else") as refused:
        approved.check(planned(look(A0, 4)).items, "here")
    assert "its partitions end 0 at 14" in str(refused.value)


def test_a_plan_tells_no_content() -> None:
    """Numbers and names alone, wherever it goes."""
    tally = OrphanTally()
    tally.add(DecodedRecord(10, 0, b"secret-key", b"secret-value", ((b"secret-header", b"x"),)))
    plan = planned(replace(look(A0), tally=tally, stable=11, end=11))
    assert "secret" not in f"{plan.describe()}{plan.document()}"


@pytest.mark.parametrize(
    ("change", "code", "part"),
    [
        (
            {"untaken": {"a": "it has a handler"}},
            "SWITCHOVER_UNSET",
            "would not copy it anew: it has a handler",
        ),
        ({"factor": 1}, "EXPORT_UNFIT", "3 replicas"),
    ],
)
def test_a_topic_stays_where_it_would_not_come_back_or_its_export_is_weaker(
    change: dict[str, object], code: str, part: str
) -> None:
    view = OrphanView((look(A0, 3),), (), (), {}, ())
    terms = replace(TERMS, **change)  # pyrefly: ignore[bad-argument-type]
    plan = plan_orphans(PLACE, view, {}, rebuild=terms)
    (refused,) = plan.refused
    assert (plan.rebuild, refused.code, part in refused.message) == ((), code, True)
    assert [c.what for c in plan.changes] == ["export", "write"]


def only_here_plan(*positions: PositionOnlyHere, forgets: str = "", **more: Any) -> OrphansPlan:
    found: dict[str, list[PositionOnlyHere]] = {}
    for each in positions:
        found.setdefault(each.topic, []).append(each)
    terms = replace(TERMS, positions=PositionsOnlyHere(found, **more), forgets=lambda group: group == forgets)
    return plan_orphans(PLACE, OrphanView((look(A0, 3), look(B0, 1)), (), (), {}, ()), {}, rebuild=terms)


def test_a_topic_stays_with_a_position_that_stands_nowhere_else() -> None:
    """All of them are in the plan; other topics go."""
    several = [PositionOnlyHere(f"g{number}", "a", ((0, 7), (1, 3))) for number in range(5)]
    plan = only_here_plan(*several, forgets="g1")
    (refused,) = plan.refused
    assert (plan.rebuild, refused.object, refused.code) == (("b",), "a", "GROUPS_LEFT")
    assert "g0 (0 at 7, 1 at 3), g2 (0 at 7, 1 at 3), g3 (0 at 7, 1 at 3) and 1 more" in refused.message
    assert all(
        f"group {each.group} in a: 0 at 7, 1 at 3; nowhere on west" in plan.describe() for each in several
    )
    told = plan.document()["positions_only_here"]
    assert [(each["group"], each["forgotten"]) for each in told] == [(f"g{n}", False) for n in range(5)]


def test_what_is_given_up_is_approved_as_it_was_shown() -> None:
    """Neither another group's position, nor another one of the same group."""
    gone = PositionOnlyHere("old", "a", ((0, 7),))
    plan = only_here_plan(gone, forgets="old")
    assert (plan.rebuild, plan.exit_code, plan.refused) == (("a", "b"), 0, ())
    (forget,) = [change for change in plan.changes if change.what == "forget"]
    assert (forget.object, forget.from_, forget.risk) == ("topic a on east, group old", "0 at 7", "skip")
    assert topic_of(forget) == "a"
    Approval.of(plan.items).check(only_here_plan().items, "here")
    for other in (
        only_here_plan(gone._replace(at=((0, 9),)), forgets="old"),
        only_here_plan(gone, forgets="old"),
    ):
        approved = Approval.of((only_here_plan() if other.forgotten == plan.forgotten else plan).items)
        with pytest.raises(NeedsOperator, match="something else"):
            approved.check(other.items, "here")


def test_where_not_all_groups_are_known_every_topic_stays() -> None:
    """By name, or what one of them has committed."""
    plan = only_here_plan(unheard=(NotNow("broker 2 does not answer"),))
    assert (plan.rebuild, {r.code for r in plan.refused}) == ((), {"NOT_READ"})
    plan = only_here_plan(PositionOnlyHere("g", "a", error="what it has committed on east is not known"))
    assert (plan.rebuild, "is not known" in plan.refused[0].message) == (("b",), True)


def test_a_copy_of_another_name_never_comes_back_as_the_topic() -> None:
    view = OrphanView((look(A0, 3),), (), (), {}, (), copies={"a": "east.a"})
    (refused,) = plan_orphans(PLACE, view, {}, rebuild=TERMS).refused
    assert (refused.code, "east.a" in refused.message) == ("SWITCHOVER_UNSET", True)


def test_what_is_not_known_of_another_flow_keeps_every_topic() -> None:
    unknown = Refusal("flow x", DrillCode.NOT_READ, "is not known", "wait")
    view = OrphanView((look(A0, 3), look(B0, 1)), (), (), {}, (unknown,), holding=(unknown,))
    plan = plan_orphans(PLACE, view, {}, rebuild=TERMS)
    assert (plan.rebuild, {r.object for r in plan.refused}) == ((), {"flow x", "a", "b"})


def test_a_topic_that_was_deleted_and_not_made_again_is_made() -> None:
    """As it was; a run that may not rebuild names the one that does."""
    view = OrphanView((), (), (), {}, (), gone=frozenset({"a"}))
    plan = plan_orphans(PLACE, view, {}, rebuild=TERMS, unmade={"a": SHAPE, "b": SHAPE})
    ((what, of),) = [(c.what, c.object) for c in plan.changes]
    assert (what, of, plan.remade, plan.exit_code) == ("create", "topic a on east, empty", ("a",), 0)
    (refused,) = plan_orphans(PLACE, view, {}, rebuild=None, unmade={"a": SHAPE}).refused
    assert (refused.object, refused.code, "--rebuild" in refused.resolve) == ("a", "MADE_ANEW", True)


def test_topics_that_were_not_looked_at_are_said() -> None:
    view = OrphanView((look(A0, 3),), (), (), {}, (), unseen=("b",))
    plan = plan_orphans(PLACE, view, {}, rebuild=None)
    assert plan.document()["torn_not_looked_for"] == ["b"]
    assert "b: not looked at" in plan.describe()
