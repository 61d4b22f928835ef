"""Following: look after look, through failures, telling each thing once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from onceover.errors import Retriable, UsageError
from onceover.exitstatus import INTERRUPTED
from onceover.groups.apply import AppliedGroups, GroupSync
from onceover.groups.decide import Allowed
from onceover.groups.follow import Followed, GroupFollowing
from onceover.planning.operation import Caller, Pause, wait
from tests.unit.groups.groupworld import SHIFT, Lines, World


class Run:
    """A run of so many looks; ``between`` is called after each with its number."""

    def __init__(self, world: World, looks: int, between: Callable[[int], None] = lambda _: None) -> None:
        self.told: list[str] = []
        self.pauses: list[float] = []
        self._world, self._looks, self._between = world, looks, between

    def go(self, sync: Any = None, watch: Pause = wait) -> Followed:
        def pause(seconds: float) -> bool:
            self.pauses.append(seconds)
            self._between(len(self.pauses))
            return len(self.pauses) >= self._looks

        real = GroupSync(cast(Any, self._world), Allowed(), cast(Any, Lines().opened), 1)
        following = GroupFollowing(sync or real, 10.0, pause, watch, clock=lambda: 0.0)
        return following.apply(Caller(lambda _: None, self.told.append))


def test_groups_are_kept_in_place() -> None:
    world = World(here={"a": 4})
    followed = Run(world, 3, lambda n: world.here.update(a=4 + n)).go()
    assert world.there == {"a": 6 + SHIFT}
    assert (followed.cycles, followed.changes, followed.exit_code) == (3, 3, 0)
    assert followed.document()["delay_ms"]["max"] is not None


@pytest.mark.parametrize("quiet", [0, 1, 3], ids=lambda looks: f"{looks} looks in place before")
def test_a_group_that_is_moved_back_there_to_where_it_once_was_is_somebody_elses(quiet: int) -> None:
    """With a few records an hour any place that a person moves it back to is one that it was put to."""
    world = World(here={"a": 4})

    def between(look: int) -> None:
        if look <= 3:
            world.here["a"] = 4 + look
        elif look == 4 + quiet:
            world.there["a"] = (6 if quiet else 5) + SHIFT

    followed = Run(world, 6 + quiet, between).go()
    assert {refusal.code for refusal in followed.refused} == {"COMMITTED_ELSEWHERE"}
    assert world.there == {"a": (6 if quiet else 5) + SHIFT}


def test_what_is_left_alone_is_told_once_and_when_it_is_over() -> None:
    world = World(here={"a": 4}, members={"a"})
    run = Run(world, 4, lambda n: world.members.discard("a") if n == 3 else None)
    run.go()
    assert [line.split()[:2] for line in run.told] == [
        ["left", "alone:"],
        ["1", "offsets"],
        ["no", "longer:"],
    ]


def test_a_cluster_that_is_away_ends_nothing() -> None:
    world = World(here={"a": 4})
    real = world.read

    def away() -> Any:
        if world.looks < 2:
            world.looks += 1
            raise Retriable("east is away")
        return real()

    world.read = away  # pyrefly: ignore[method-assign]
    run = Run(world, 3)
    followed = run.go()
    assert (followed.cycles, followed.failed, followed.exit_code) == (3, 2, 0)
    assert world.there == {"a": 4 + SHIFT}
    assert Run(World(errors=(Retriable("away"),)), 1).go().exit_code == 5


def test_what_waiting_cannot_mend_ends_it() -> None:
    class Broken:
        def apply(self, *_: object) -> AppliedGroups:
            raise UsageError("no such flow")

    with pytest.raises(UsageError):
        Run(World(), 2).go(Broken())


def test_a_last_look_that_is_cut_short_is_no_success() -> None:
    """What somebody else has committed was to be looked at twice, and is not known to be left alone."""
    world = World(here={"a": 4}, there={"a": 101})
    followed = Run(world, 1).go(watch=lambda _: True)
    assert (world.there, followed.exit_code) == ({"a": 101}, INTERRUPTED)
    assert followed.document()["interrupted"] and "interrupted" in followed.describe()


def test_a_look_that_only_has_to_write_is_finished_and_the_next_one_counts() -> None:
    world = World(here={"a": 4})
    followed = Run(world, 1).go(watch=lambda _: True)
    assert (world.there, followed.exit_code) == ({"a": 4 + SHIFT}, 0)
    world = World(here={"a": 4}, there={"a": 101})
    cut = iter([True, False])
    assert Run(world, 2).go(watch=lambda _: next(cut)).exit_code == 0


def test_the_interval_counts_from_look_to_look() -> None:
    run = Run(World(), 2)
    run.go()
    assert run.pauses == [10.0, 10.0]
