"""Applying: what was decided is written only where nothing has changed, and can be interrupted anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from onceover.backoff import Backoff
from onceover.errors import NeedsOperator, Retriable, UsageError
from onceover.exitstatus import INTERRUPTED
from onceover.groups import apply
from onceover.groups.apply import WATCH_S, AppliedGroups, GroupSync
from onceover.groups.decide import Allowed
from onceover.groups.plan import GroupPlan
from onceover.planning.approval import NOTHING, Approval
from onceover.planning.operation import Caller
from tests.unit.groups.groupworld import SHIFT, THERE, Lines, World

DONE, OPERATOR, TEMPORARY = 0, 3, 5


class Sync:
    """The code under test around a world."""

    def __init__(
        self, world: World, allowed: Allowed | None = None, approval: Approval | None = None
    ) -> None:
        self.journal = Lines()
        self.waited: list[float] = []
        self.counted: list[tuple[int, int]] = []
        self.during_wait: Any = lambda: None
        self._sync = GroupSync(cast(Any, world), allowed or Allowed(), cast(Any, self.journal.opened), 3)
        self._approval = approval

    def plan(self) -> GroupPlan:
        return self._sync.plan()

    def apply(self, *, stop: bool = False) -> AppliedGroups:
        def pause(seconds: float) -> bool:
            if seconds:
                self.waited.append(seconds)
                self.during_wait()
            return stop

        def counted(done: int, total: int) -> None:
            self.counted.append((done, total))

        return self._sync.apply(Caller(lambda _: None, counted=counted, pause=pause), self._approval)


def codes(applied: AppliedGroups) -> dict[str, str]:
    return {r.object.split()[0]: r.code for r in [*applied.plan.refused, *applied.refused]}


def test_groups_are_written_and_remembered_first() -> None:
    world = World(here={"a": 4, "b": 7})
    sync = Sync(world)
    applied = sync.apply()
    assert world.there == {"a": 4 + SHIFT, "b": 7 + SHIFT}
    assert world.log == [
        ("prepare", "3"),
        ("remember", "a"),
        ("remember", "b"),
        ("commit", "a"),
        ("commit", "b"),
    ]
    assert sync.journal.outcomes == ["planned", "planned", "done", "done"]
    assert (applied.exit_code, len(applied.done)) == (DONE, 2)


def test_what_may_not_be_committed_is_named_with_its_topic_and_not_remembered() -> None:
    world = World(here={"a": 4})
    world.barred = frozenset({THERE.topic})
    applied = Sync(world).apply()
    assert (applied.exit_code, applied.done, world.there) == (OPERATOR, [], {})
    assert world.log == [("prepare", "3")]
    (refused,) = applied.refused
    assert (refused.object, refused.code) == (f"a {THERE}", "NOT_AUTHORIZED")
    assert "READ" in refused.message and THERE.topic in refused.resolve


def test_how_many_groups_are_done_with_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands take a while."""
    monkeypatch.setattr(apply, "_AT_ONCE", 2)
    sync = Sync(World(here={"a": 4, "b": 7, "c": 5}))
    sync.apply()
    assert sync.counted == [(0, 3), (2, 3), (3, 3)]


def test_the_memory_is_made_ready_before_every_write() -> None:
    """Somebody may have deleted it since."""
    world = World(here={"a": 4})
    sync = Sync(world)
    sync.apply()
    world.here["a"] = 5
    sync.apply()
    assert world.log.count(("prepare", "3")) == 2


def test_applied_again_nothing_is_written() -> None:
    """But that what was about to be written is there; then not even that."""
    world = World(here={"a": 4})
    sync = Sync(world)
    sync.apply()
    world.log.clear()
    assert sync.apply().done == []
    assert world.log == [("prepare", "3"), ("remember", "a")]
    world.log.clear()
    assert sync.apply().done == []
    assert world.log == []


def test_a_group_with_members_is_left_alone_and_the_others_go_on() -> None:
    world = World(here={"a": 4, "b": 7}, members={"a"})
    applied = Sync(world).apply()
    assert world.there == {"b": 7 + SHIFT}
    assert codes(applied) == {"a": "HAS_MEMBERS"}
    assert applied.exit_code == DONE


def test_who_joined_at_the_last_moment_and_read_to_where_the_group_was_to_go_is_not_passed_over() -> None:
    """That position was remembered, and refused: who commits it has read up to there, and no further."""
    world = World(here={"a": 4})
    sync = Sync(world)
    sync.apply()
    world.here["a"] = 7
    world.before_commit = world.members.add
    sync.apply()
    world.before_commit = lambda _: None
    world.members.clear()
    world.there["a"], world.epochs["a"] = 7 + SHIFT, 0
    world.here["a"] = 9
    assert codes(sync.apply()) == {"a": "COMMITTED_ELSEWHERE"}
    assert world.there == {"a": 7 + SHIFT}


def test_a_place_that_it_was_never_put_to_is_not_ours_for_good() -> None:
    """Once it has gone on from where it was put instead, whoever moves it back there is somebody else."""
    world = World(here={"a": 4})
    sync = Sync(world)
    sync.apply()
    world.here["a"] = 7
    world.before_commit = world.members.add
    sync.apply()
    world.before_commit = lambda _: None
    world.members.clear()
    for offset in (8, 9, 10):
        world.here["a"] = offset
        sync.apply()
    world.there["a"] = 7 + SHIFT
    assert codes(sync.apply()) == {"a": "COMMITTED_ELSEWHERE"}
    assert world.there == {"a": 7 + SHIFT}


def test_members_that_join_at_the_last_moment_are_left_alone() -> None:
    world = World(here={"a": 4, "b": 7})
    world.before_commit = lambda group: world.members.add("a")
    applied = Sync(world).apply()
    assert world.there == {"b": 7 + SHIFT}
    assert codes(applied) == {"a": "HAS_MEMBERS"}


def test_somebody_elses_commits_are_looked_at_twice() -> None:
    """The first time, when nothing says whose they are."""
    world = World(here={"still": 4, "moving": 7}, there={"still": 101, "moving": 102})
    sync = Sync(world)
    sync.during_wait = lambda: world.there.update(moving=103)
    applied = sync.apply()
    assert sync.waited == [WATCH_S]
    assert world.there == {"still": 4 + SHIFT, "moving": 103}
    assert codes(applied) == {"moving": "COMMITS_MOVE"}
    assert codes(Sync(world).apply()) == {"moving": "COMMITTED_ELSEWHERE"}


@pytest.mark.parametrize("there", [{"a": 101}, {}], ids=["looking twice", "about to write"])
def test_stopped_before_anything_is_written_nothing_is_and_that_is_no_success(there: dict[str, int]) -> None:
    """Whoever starts consumers behind it would have them skip records, or read them again."""
    world = World(here={"a": 4}, there=dict(there))
    applied = Sync(world).apply(stop=True)
    assert (world.there, world.log, applied.done) == (there, [], [])
    assert (applied.exit_code, applied.document()["interrupted"]) == (INTERRUPTED, True)
    assert "interrupted" in applied.describe()


def test_stopped_where_nothing_is_left_to_write_it_is_done() -> None:
    world = World(here={"a": 4})
    Sync(world).apply()
    applied = Sync(world).apply(stop=True)
    assert (applied.exit_code, applied.document()["interrupted"]) == (DONE, False)


def beside(world: World, here: int) -> None:
    """Let another sync, which sees the group there by then, overtake the next one before its write."""

    def overtake(_: str) -> None:
        world.settled = lambda _: None
        seen, world.here["a"] = world.here["a"], here
        # Another process: what it reads of the memory this one has not.
        told = world.told
        assert len(Sync(world).apply().done) == 1
        world.here["a"], world.told = seen, told

    world.settled = overtake


def test_where_another_sync_was_the_first_to_put_a_group_it_is_in_place() -> None:
    world = World(here={"a": 4})
    beside(world, 4)
    applied = Sync(world).apply()
    assert (codes(applied), applied.exit_code, world.there) == ({}, DONE, {"a": 4 + SHIFT})


def test_a_group_that_another_sync_has_moved_meanwhile_is_nobody_elses_and_looked_at_again() -> None:
    """A switchover, which waits for what passes, ended for a reader that there was none of."""
    world = World(here={"a": 4})
    Sync(world).apply()
    world.here["a"] = 7
    beside(world, 6)
    applied = Sync(world).apply()
    assert (codes(applied), applied.exit_code) == ({"a": "COMMITS_MOVE"}, TEMPORARY)
    assert [(r.passes, r.resolve) for r in applied.misplaced] == [(True, "run again")]
    assert (Sync(world).apply().exit_code, world.there) == (DONE, {"a": 7 + SHIFT})


@pytest.mark.parametrize("reached", [7, 5])
def test_who_reads_on_in_the_moment_of_the_write_is_no_other_sync(reached: int) -> None:
    """Also where it comes to just where the group was to be put, or was to be once: it commits an epoch."""
    world = World(here={"a": 4})
    sync = Sync(world)
    sync.apply()
    world.here["a"] = 5
    world.before_commit = world.members.add
    sync.apply()
    world.before_commit = lambda _: None
    world.members.clear()
    world.here["a"] = 7

    def read_on(group: str) -> None:
        world.there[group], world.epochs[group] = reached + SHIFT, 0

    world.settled = read_on
    assert [(r.code, r.passes) for r in sync.apply().misplaced] == [("COMMITS_MOVE", False)]
    assert world.there == {"a": reached + SHIFT}


def test_who_comes_to_where_its_group_was_to_be_put_while_it_is_looked_at_is_left_alone() -> None:
    world = World(here={"a": 4}, there={"a": 101})
    sync = Sync(world)
    sync.during_wait = lambda: world.there.update(a=4 + SHIFT)
    assert [(r.code, r.passes) for r in sync.apply().misplaced] == [("COMMITS_MOVE", False)]


def test_what_is_not_known_is_not_written() -> None:
    world = World(here={"a": 4, "b": 7, "c": 9})
    world.broken = {"a": Retriable("away"), "b": UsageError("not authorized", code="NOT_AUTHORIZED")}
    applied = Sync(world).apply()
    assert world.there == {"c": 9 + SHIFT}
    assert codes(applied) == {"a": "UNKNOWN", "b": "UNKNOWN"}
    assert applied.exit_code == TEMPORARY
    del world.broken["a"]
    assert Sync(world).apply().exit_code == OPERATOR


def test_a_list_that_is_not_complete_says_so() -> None:
    world = World(here={"a": 4}, errors=(Retriable("broker 3 is away"),))
    applied = Sync(world).apply()
    assert world.there == {"a": 4 + SHIFT}
    assert applied.exit_code == TEMPORARY


def test_what_a_coordinator_tells_too_early_moves_no_group_back() -> None:
    """True offset 140; told 110 until the coordinator has taken a write; the source's 30 stands at 130."""
    world = World(here={"a": 30}, there={"a": 110})
    world.settled = lambda group: world.there.update({group: 140})
    applied = Sync(world).apply()
    assert world.there == {"a": 140}
    assert codes(applied) == {"a": "COMMITS_MOVE"}


def test_without_a_write_a_coordinator_is_not_believed() -> None:
    world = World(here={"a": 4, "b": 7}, unsettled={"a": Retriable("reads its log", code="LOADING")})
    applied = Sync(world).apply()
    assert world.there == {"b": 7 + SHIFT}
    assert (codes(applied), applied.exit_code) == ({"a": "LOADING"}, TEMPORARY)


def test_where_nothing_is_written_no_coordinator_is_written_to() -> None:
    world = World(here={"a": 4})
    Sync(world).apply()
    world.settled = world.members.add
    assert Sync(world).apply().done == []
    assert world.members == set()


def test_more_groups_than_are_settled_at_once_are_all_written() -> None:
    world = World(here={f"g{number}": number for number in range(50)})
    seen: list[str] = []
    world.settled = seen.append
    assert len(Sync(world).apply().done) == 50
    assert sorted(seen) == sorted(world.here)


def test_a_transaction_that_begins_to_commit_meanwhile_is_left_alone_and_one_beside_the_write_named() -> None:
    """The latter's commit may have been overtaken: that is not passed over."""
    world = World(here={"before": 4, "beside": 7})
    world.settled = lambda group: world.pending.update({group} & {"before"})
    world.before_commit = world.pending.add
    applied = Sync(world).apply()
    assert world.there == {"beside": 7 + SHIFT}
    assert codes(applied) == {"before": "COMMIT_PENDING", "beside": "COMMIT_PENDING"}
    assert applied.exit_code == TEMPORARY


def test_a_write_of_our_own_whose_marker_was_lost_is_ended_by_running_it_again() -> None:
    """A group with something pending has no step, and without a step nothing was written in its log."""
    world = World(here={"a": 4}, undecided={"a"})
    world.settled = world.undecided.discard
    first = Sync(world).apply()
    assert (codes(first), first.exit_code) == ({"a": "COMMIT_PENDING"}, TEMPORARY)
    assert Sync(world).apply().exit_code == DONE
    assert world.there == {"a": 4 + SHIFT}


def test_who_commits_while_the_giving_side_is_waited_for_is_not_moved_back() -> None:
    """Asking there takes seconds; an assign() reader of another group commits here within them."""
    world = World(here={"back": 7, "on": 4})
    Sync(world).apply()
    world.here = {"back": 2, "on": 6}
    world.settled_here = lambda _: world.there.update(on=10 + SHIFT)
    applied = Sync(world, Allowed(follow_rewinds=True)).apply()
    assert world.there == {"back": 2 + SHIFT, "on": 10 + SHIFT}
    assert codes(applied) == {"on": "COMMITS_MOVE"}


@pytest.mark.parametrize("moved", [True, False])
@pytest.mark.parametrize("deleted", [True, False])
def test_a_write_whose_answer_was_lost_is_not_repeated_before_another_look(
    monkeypatch: pytest.MonkeyPatch, moved: bool, deleted: bool
) -> None:
    """It may have been written, and its reader gone on from there; or nobody has, and then it is done."""
    monkeypatch.setattr(Backoff, "wait", lambda *_: None)
    world = World(here={"a": 4})
    if deleted:
        Sync(world).apply()
        del world.here["a"]
    tries: list[str] = []

    def lose(do: Callable[..., None]) -> Callable[..., None]:
        def losing(group: str, *rest: Any) -> None:
            tries.append(group)
            do(group, *rest)
            if moved:
                world.there[group] = 9 + SHIFT
            raise Retriable("no answer", code="AWAY")

        return losing

    monkeypatch.setattr(world, "_commit", lose(world._commit))
    monkeypatch.setattr(world, "delete_offsets", lose(world.delete_offsets))
    applied = Sync(world, Allowed(follow_deletions=True)).apply()
    assert tries == ["a"]
    if moved:
        assert (world.there, codes(applied)) == ({"a": 9 + SHIFT}, {"a": "COMMITS_MOVE"})
    else:
        assert (len(applied.done), applied.exit_code) == (1, DONE)
        assert (world.there, set(world.remembered)) == (({}, set()) if deleted else ({"a": 104}, {"a"}))


def test_a_write_that_was_not_taken_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its coordinator was moving."""
    monkeypatch.setattr(Backoff, "wait", lambda *_: None)
    world = World(here={"a": 4, "b": 7})
    failing = iter([Retriable("moves"), Retriable("moves")])

    def fail(group: str) -> None:
        if group == "a" and (error := next(failing, None)):
            raise error

    world.before_commit = fail
    applied = Sync(world).apply()
    assert world.there == {"a": 4 + SHIFT, "b": 7 + SHIFT}
    assert (len(applied.done), codes(applied), applied.exit_code) == (2, {}, DONE)


def test_a_coordinator_that_goes_away_concerns_its_group_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "_RETRY_S", 0.0)
    world = World(here={"a": 4, "b": 7})

    def fail(group: str) -> None:
        if group == "a":
            raise Retriable("away", code="AWAY")

    world.before_commit = fail
    applied = Sync(world).apply()
    assert world.there == {"b": 7 + SHIFT}
    assert (codes(applied), applied.exit_code) == ({"a": "AWAY"}, TEMPORARY)


@pytest.mark.parametrize(
    ("told", "allowed"),
    [
        ({}, Allowed(follow_deletions=True)),
        ({"a": 2}, Allowed(follow_rewinds=True)),
        ({"a": 2}, Allowed(rewind=True)),
    ],
    ids=["deleted", "moved back", "asked for"],
)
def test_nothing_is_taken_back_by_what_the_giving_side_tells_too_early(
    told: dict[str, int], allowed: Allowed
) -> None:
    """It tells an older offset, or none, until it has taken a write."""
    world = World(here={"a": 7})
    Sync(world).apply()
    world.here = told
    world.settled_here = lambda group: world.here.update({group: 7})
    applied = Sync(world, allowed).apply()
    assert world.there == {"a": 7 + SHIFT}
    assert (codes(applied), applied.exit_code) == ({"a": "COMMIT_PENDING"}, TEMPORARY)


def test_share_and_streams_groups_are_named_and_not_moved() -> None:
    world = World(here={"a": 4, "b": 7}, types={"a": "share", "b": "streams"})
    applied = Sync(world).apply()
    assert world.log == []
    assert codes(applied) == {"a": "NOT_MOVED", "b": "NOT_MOVED"}
    assert applied.exit_code == DONE


def test_a_deletion_that_is_followed_is_forgotten() -> None:
    world = World(here={"a": 4})
    Sync(world).apply()
    del world.here["a"]
    applied = Sync(world).apply()
    assert (codes(applied), world.there) == ({"a": "DELETED"}, {"a": 4 + SHIFT})
    Sync(world, Allowed(follow_deletions=True)).apply()
    assert (world.there, world.remembered) == ({}, {})


def test_risky_moves_that_nobody_approved_are_left_alone_and_not_remembered() -> None:
    """Remembered, their commits would count as ours the next time."""
    world = World(here={"new": 4, "foreign": 7}, there={"foreign": 101})
    shown = Sync(world).plan().items
    sync = Sync(world, approval=NOTHING)
    applied = sync.apply()
    assert world.there == {"new": 4 + SHIFT, "foreign": 101}
    assert codes(applied) == {"foreign": "NOT_APPROVED"}
    assert set(world.remembered) == {"new"}
    assert (applied.exit_code, sync.waited) == (OPERATOR, [])
    approved = Sync(world, approval=Approval.of(shown)).apply()
    assert (approved.exit_code, world.there["foreign"]) == (DONE, 7 + SHIFT)


def test_a_memory_that_cannot_be_written_ends_it_before_any_commit() -> None:
    world = World(here={"a": 4})

    def fail(*_: object) -> None:
        raise NeedsOperator("no", code="FULL")

    world.write = fail  # pyrefly: ignore[bad-assignment,method-assign]
    sync = Sync(world)
    with pytest.raises(NeedsOperator):
        sync.apply()
    assert world.there == {}
    assert sync.journal.outcomes == ["planned", "failed FULL"]


def test_a_group_of_which_nothing_can_be_remembered_is_left_alone_and_the_others_go_on() -> None:
    world = World(here={"a": 4, "b": 7}, forgetful={"a": NeedsOperator("too large", code="NOT_REMEMBERED")})
    applied = Sync(world).apply()
    assert world.there == {"b": 7 + SHIFT}
    assert (codes(applied), applied.exit_code) == ({"a": "NOT_REMEMBERED"}, OPERATOR)


def test_the_delay_is_counted_from_the_look_before() -> None:
    """A commit may have been made right after that look."""
    world = World(here={"a": 4})
    sync = Sync(world)
    first = sync.apply()
    assert first.delay_s is not None
    assert first.since_s is None
    world.here["a"] = 5
    second = sync.apply()
    assert second.since_s is not None
    assert second.delay_s is not None
    assert second.since_s >= second.delay_s


def test_thousands_of_groups_are_written_in_a_few_rounds() -> None:
    """A group at a time took several round trips each, and an fsync."""
    world = World(here={f"group-{n}": 4 for n in range(5000)})
    applied = Sync(world).apply()
    assert len(applied.done) == 5000
    assert (world.requests.count("named"), world.requests.count("commit")) == (10, 5)
