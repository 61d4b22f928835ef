"""The flow the other way behind a promotion: what is written, what is refused, and what is said."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.drills.leaving.fences import ACLS, COMMAND, EVERYBODY, check_not_carried_over
from onceover.drills.modes import PLANNED, UNPLANNED
from onceover.drills.switching.failback import LedBack
from onceover.drills.switching.wayback import WayBack
from onceover.errors import NeedsOperator, UsageError
from onceover.model import TopicPartition
from onceover.planning.plan import Refusal


@dataclass
class Back:
    """The flow the other way: what it has taken in, and how it is seeded."""

    led: set[str] = field(default_factory=set)
    takes: bool = True
    refused: tuple[Refusal, ...] = ()
    layout: Any = None
    gone: set[str] = field(default_factory=set)
    lacking: tuple[TopicPartition, ...] = ()
    seeded: list[list[str]] = field(default_factory=list)

    def seeder(self, copies: Any) -> Any:
        def apply(_: object) -> Any:
            self.seeded.append(list(copies))
            if self.takes:
                self.led |= set(copies)
            return SimpleNamespace(waiting=list(self.refused), written=len(copies))

        return nullcontext(SimpleNamespace(apply=apply))

    def way(self) -> WayBack:
        return WayBack(
            "orders-dr",
            "back",
            lambda t: f"copy.{t}",
            lambda: LedBack(frozenset(self.led | self.gone), frozenset(self.gone), self.lacking),
            lambda: self.layout,
            cast(Any, self.seeder),
        )


def test_it_begins_behind_the_promotion_of_what_it_does_not_copy_yet() -> None:
    back = Back({"copy.a"})
    told = back.way().place(["c", "b", "a"])
    assert back.seeded == [["copy.b", "copy.c"]]
    assert (told["flow"], told["positions"], told["ended"]) == ("back", 2, False)


@pytest.mark.parametrize("may_run", [True, False])
def test_that_it_ran_is_told_where_it_was_ended_for_that(may_run: bool) -> None:
    """Somebody has to start it again."""
    assert Back(layout=SimpleNamespace(may_run=may_run)).way().place(["a"])["ended"] is may_run


def test_what_it_copies_already_is_left_as_it_is() -> None:
    back = Back({"copy.a"}, layout=SimpleNamespace(may_run=True))
    assert back.way().place(["a"]) == {
        "flow": "back",
        "positions": 0,
        "start_it": "`onceover replicate back`",
    }
    assert back.seeded == []


def test_a_position_that_waits_for_a_person_is_an_error_with_its_way_out() -> None:
    back = Back(refused=(Refusal("a:0", "ORPHANS", "it holds records of its own", "export them"),))
    with pytest.raises(NeedsOperator, match="flow back cannot go on behind the promotion: a:0") as raised:
        back.way().place(["a"])
    assert (raised.value.code, raised.value.resolve) == ("ORPHANS", "export them")


def test_a_flow_that_takes_none_of_it_in_does_not_go_on() -> None:
    with pytest.raises(NeedsOperator, match=r"does not take in copy\.a") as raised:
        Back(takes=False).way().place(["a"])
    assert "promoted:orders-dr" in str(raised.value.resolve)


def test_what_clients_have_gone_back_with_is_not_taken_from_them() -> None:
    """Run again behind a switchover of the flow the other way: its copies are primaries again."""
    back = Back(gone={"copy.a"})
    assert back.way().place(["a"])["positions"] == 0
    assert back.seeded == []


@pytest.mark.parametrize("led", [set(), {"copy.a"}])
def test_a_flow_that_takes_in_a_part_of_a_topic_does_not_go_on(led: set[str]) -> None:
    """Whether it was placed just now, or by hand before: records of the others would be lost in silence."""
    back = Back(led, lacking=(TopicPartition("copy.a", 3), TopicPartition("copy.b", 1)))
    with pytest.raises(NeedsOperator, match=r"but not copy\.a:3") as raised:
        back.way().place(["a"])
    assert (raised.value.code, raised.value.where) == ("NOT_READY", "1 partitions")
    assert "`onceover status back`" in str(raised.value.resolve)
    assert back.way().place(["c"])["positions"] == 1


@pytest.mark.parametrize(
    ("mode", "kind", "denied", "sync_acls"),
    [
        (UNPLANNED, ACLS, ["User:app"], True),
        (PLANNED, COMMAND, ["User:app"], True),
        (PLANNED, ACLS, [EVERYBODY], True),
        (PLANNED, ACLS, ["User:app"], False),
    ],
)
def test_a_fence_that_stays_on_the_source_is_taken(
    mode: str, kind: str, denied: list[str], sync_acls: bool
) -> None:
    check_not_carried_over(mode, kind, denied, sync_acls=sync_acls)


def test_a_fence_that_the_flow_would_copy_is_refused() -> None:
    """Clients would be kept off the target, too."""
    with pytest.raises(UsageError, match="would carry the DENYs over") as raised:
        check_not_carried_over(PLANNED, ACLS, ["User:app"], sync_acls=True)
    assert raised.value.code == "SWITCHOVER_UNSET"
