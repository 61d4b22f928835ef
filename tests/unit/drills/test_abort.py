"""Ending a drill from outside, whatever becomes of it meanwhile."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from onceover.backoff import Deadline
from onceover.drills import chain as chains
from onceover.drills.abort import Aborted, LeftFence, abort
from onceover.drills.chain import JournalEntry
from onceover.drills.codes import DrillCode
from onceover.drills.journal import DrillJournal
from onceover.drills.rehearsing.remains import Remains
from onceover.errors import Fenced, NeedsOperator, OnceoverError, Retriable

LEFT = Remains(source_topics=("canary",))
Lift = Callable[[str, Collection[str], Deadline], Mapping[str, Any]]


class Journal:
    """A journal in memory; ``alive`` says of each question whether the drill gives signs of life."""

    def __init__(self, *alive: bool) -> None:
        self.chain: list[JournalEntry] = []
        self._alive = list(alive)
        self.on_ask: Callable[[], None] = lambda: None

    def read(self) -> list[JournalEntry]:
        return list(self.chain)

    def put(self, drill: str, what: str, **said: Any) -> None:
        self.chain.append(chains.next_entry(self.chain, drill, what, 0, said))

    def is_alive(self, _: str) -> bool:
        return self._alive.pop(0)

    def begin(self, drill: str, said: Mapping[str, Any]) -> None:
        if (other := chains.running(self.chain)) is not None:
            self.put(other.drill, chains.ENDED)
        self.chain.append(chains.next_entry(self.chain, drill, chains.BEGUN, 0, said))

    def append(self, drill: str, what: str, said: Mapping[str, Any]) -> None:
        if what == chains.ABORT:
            self.on_ask()
        self.check(drill)
        self.put(drill, what, **said)

    def check(self, drill: str) -> None:
        now = chains.running(self.chain)
        if now is None or now.drill != drill:
            raise Fenced("taken over", code=DrillCode.DRILL_TAKEN_OVER)

    @contextmanager
    def heartbeat(self, _: str) -> Iterator[None]:
        yield


class Removal:
    """What is there, until it is removed."""

    def __init__(self, *there: str) -> None:
        self.there = Remains(source_topics=there)

    def find(self) -> Remains:
        return self.there

    def remove(self, _: Deadline, ours: Callable[[], None]) -> Remains:
        ours()
        found, self.there = self.there, Remains()
        return found


def letting_in(note: Callable[[Collection[str]], object], **how: int) -> Lift:
    """Return what lets writers in as ``how`` says, and notes of which topics."""

    def lift(_: str, topics: Collection[str], __: Deadline) -> Mapping[str, Any]:
        note(topics)
        return how

    return lift


def ended(
    journal: Journal,
    removal: Removal,
    pause: Callable[[float], bool] = lambda _: False,
    fenced: Collection[str] = (),
    *,
    if_dead: bool = False,
) -> Aborted:
    fence = LeftFence(lambda: fenced, lambda: (), lambda: None, lambda *_: {})
    return abort(journal, removal, fence, "orders-dr", pause, if_dead=if_dead)  # pyrefly: ignore[bad-argument-type]


class Unheard(Removal):
    """A broker of a cluster does not answer: nobody knows what rehearsals have left."""

    def find(self) -> Remains:
        raise Retriable("broker 3 of west does not answer", code=DrillCode.REMAINS)

    def remove(self, _: Deadline, ours: Callable[[], None]) -> Remains:
        return self.find()


@pytest.mark.parametrize("is_dead", [True, False])
def test_writers_are_let_in_though_a_broker_is_silent_that_has_nothing_to_do_with_it(is_dead: bool) -> None:
    """Production waits for that; and it is said, also by the error about the rest."""
    journal, left, let_in = Journal(False), {"orders"}, list[str]()
    if is_dead:
        journal.put("d1", chains.BEGUN)
    fence = LeftFence(lambda: left, tuple, lambda: None, letting_in(let_in.extend))
    with pytest.raises(Retriable, match="writers of 1 topics are let in again, but broker 3"):
        abort(journal, Unheard(), fence, "orders-dr", lambda _: False)  # pyrefly: ignore[bad-argument-type]
    assert let_in == ["orders"]


def test_what_rehearsals_have_left_is_taken_away_though_writers_cannot_be_let_in() -> None:
    """The source is gone, for good perhaps; what is told is that they are kept off."""
    journal, removal = Journal(False), Removal("canary")
    journal.put("d1", chains.BEGUN)

    def gone(*_: object) -> Mapping[str, Any]:
        raise Retriable("no broker of east answers")

    fence = LeftFence(lambda: {"orders"}, tuple, lambda: None, gone)
    with pytest.raises(Retriable, match="no broker of east answers"):
        abort(journal, removal, fence, "orders-dr", lambda _: False)  # pyrefly: ignore[bad-argument-type]
    assert removal.there.nothing


def test_without_writers_to_be_let_in_a_silent_broker_is_all_that_is_told() -> None:
    with pytest.raises(Retriable, match=r"^broker 3"):
        ended(Journal(), Unheard())


def test_one_that_ends_at_that_very_moment_has_ended() -> None:
    """Nobody is told that it was taken for dead."""
    journal = Journal(True)
    journal.put("d1", chains.BEGUN)
    journal.on_ask = lambda: journal.put("d1", chains.ENDED)
    found = ended(journal, Removal())
    assert (found.drill, found.was_alive, found.removed.nothing) == ("d1", True, True)


def test_what_one_could_not_take_away_itself_is_taken_away() -> None:
    """It was alive, has failed at its last step, and has ended."""
    journal, removal = Journal(True, True), Removal("canary")
    journal.put("d1", chains.BEGUN)

    def pause(_: float) -> bool:
        journal.put("d1", chains.ENDED)
        return False

    found = ended(journal, removal, pause)
    assert (found.was_alive, found.removed) == (True, LEFT)
    assert "what was left is removed" in found.describe()
    assert removal.there.nothing


def test_one_that_dies_meanwhile_is_not_waited_for() -> None:
    """It was alive when it was asked to end."""
    journal, removal = Journal(True, True, False), Removal("canary")
    journal.put("d1", chains.BEGUN)
    found = ended(journal, removal)
    assert (found.drill, found.was_alive, found.removed) == ("d1", True, LEFT)


def test_one_that_does_not_end_is_told() -> None:
    """Whoever waits for it is asked to stop: nothing is taken away from under it."""
    journal, removal = Journal(True, True), Removal("canary")
    journal.put("d1", chains.BEGUN)
    with pytest.raises(Retriable) as caught:
        ended(journal, removal, lambda _: True)
    assert caught.value.code == DrillCode.DRILL_RUNS
    assert removal.there == LEFT


def begun(journal: Journal, drill: str, approval: str) -> None:
    said = {"approval": {"id": approval}}
    journal.chain.append(chains.next_entry(journal.chain, drill, chains.BEGUN, 0, said))


@pytest.mark.parametrize("at", ["alive", "dead", "interrupted"])
def test_what_somebody_has_ended_is_not_tried_again(monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """Airflow would, seconds later, under the same approval; a new one is another matter."""
    journal = Journal(*([True, True] if at == "alive" else [False]))
    begun(journal, "d1", "mine")
    if at == "interrupted":
        journal.put("d1", chains.ENDED)

    def pause(_: float) -> bool:
        journal.put("d1", chains.ENDED)
        return False

    found = ended(journal, Removal(), pause)
    assert found.withdrawn == ("d1" if at == "interrupted" else None)
    assert ("d1 is not tried again" in found.describe()) == (at == "interrupted")
    assert chains.is_withdrawn(journal.chain, "mine")
    with pytest.raises(NeedsOperator) as refused:
        begin_again(monkeypatch, journal, "mine")
    assert (refused.value.code, refused.value.exit_code) == ("DRILL_ABORTED", 3)
    begin_again(monkeypatch, journal, "another")
    # Said once: there is nothing left that could be tried again.
    assert ended(journal, Removal()).withdrawn is None


def begin_again(monkeypatch: pytest.MonkeyPatch, journal: Journal, approval: str) -> None:
    """Begin the next drill in the real journal, with its writing left out."""
    real = DrillJournal(cast(Any, None), "orders-dr", 1, Path("nowhere"), lambda _: False)
    monkeypatch.setattr(DrillJournal, "prepare", lambda _: None)
    monkeypatch.setattr(DrillJournal, "read", lambda _: journal.read())
    monkeypatch.setattr(DrillJournal, "_write", lambda _, drill, news: news(journal.read()))
    real.begin("d2", {"mode": "planned", "approval": {"id": approval}})


@pytest.mark.parametrize(("result", "is_open"), [("PASS", False), ("FAIL", True), ("died", True)])
def test_what_was_done_to_its_end_is_not_tried_again_anyway(result: str, is_open: bool) -> None:
    """Nor does anybody have to say so."""
    journal = Journal()
    begun(journal, "d1", "mine")
    journal.chain.append(
        chains.next_entry(journal.chain, "d1", chains.ENDED, 0, {"result": result, "done": result == "PASS"})
    )
    assert ended(journal, Removal()).withdrawn == ("d1" if is_open else None)


@pytest.mark.parametrize(
    ("promoted", "heard"),
    [
        ((), ["fenced", "asked", ["a", "b"]]),
        (("a",), ["fenced", "asked", ["a", "b"]]),
        (("a", "b", "c"), ["asked", ["a", "b"]]),
    ],
)
def test_whoever_may_still_promote_is_fenced_before_writers_are_let_in(
    promoted: tuple[str, ...], heard: list[object]
) -> None:
    """One that was taken for dead may wake; with all of them promoted there is nothing to be kept from."""
    told: list[object] = []

    def left() -> list[str]:
        told.append("asked")
        return ["a", "b", "other"]

    fence = LeftFence(
        left,
        lambda: promoted,
        lambda: told.append("fenced"),
        letting_in(lambda topics: told.append(sorted(topics))),
    )
    fence.take_down("d1", ["a", "b"], Deadline(5.0))
    assert told == heard


def test_what_was_promoted_until_the_leader_was_fenced_stays_fenced() -> None:
    """It has won; its writers are clients of the target now."""
    left, lifted = {"a", "b"}, list[str]()
    fence = LeftFence(lambda: left, tuple, lambda: left.discard("a"), letting_in(lifted.extend))
    fence.take_down("d1", ["a", "b"], Deadline(5.0))
    assert lifted == ["b"]


def test_one_that_runs_is_left_alone_where_only_a_dead_one_is_meant() -> None:
    journal, removal = Journal(True), Removal("canary")
    journal.put("d1", chains.BEGUN)
    found = ended(journal, removal, fenced={"orders"}, if_dead=True)
    assert (found.drill, found.left_alone, found.unfenced) == ("d1", True, ())
    assert found.describe() == "drill d1 is running, and is left alone"
    assert found.document()["left_alone"] is True
    assert not removal.there.nothing
    assert [entry.what for entry in journal.chain] == [chains.BEGUN]


@pytest.mark.parametrize("if_dead", [True, False])
def test_of_one_that_died_everything_is_taken_away_and_whether_it_is_tried_again_is_another_question(
    if_dead: bool,
) -> None:
    """Who clears a task in Airflow wants it run again, under what was said yes to."""
    journal, removal = Journal(False), Removal("canary")
    said = {"approval": {"id": "a1"}}
    journal.chain.append(chains.next_entry(journal.chain, "d1", chains.BEGUN, 0, said))
    found = ended(journal, removal, fenced={"orders"}, if_dead=if_dead)
    assert (found.drill, found.left_alone, found.unfenced) == ("d1", False, ("orders",))
    assert removal.there.nothing
    assert chains.is_withdrawn(journal.chain, "a1") is not if_dead


def test_a_fence_that_an_ended_one_has_left_is_lifted_likewise() -> None:
    """It could not lift it itself; the approval may still be gone on with."""
    journal = Journal()
    said = {"approval": {"id": "a1"}}
    journal.chain.append(chains.next_entry(journal.chain, "d1", chains.BEGUN, 0, said))
    journal.put("d1", chains.ENDED)
    found = ended(journal, Removal(), fenced={"orders"}, if_dead=True)
    assert found.unfenced == ("orders",)
    assert not chains.is_withdrawn(journal.chain, "a1")
    assert (
        ended(journal, Removal(), if_dead=True).describe() == "no drill was running; nothing was left of it"
    )


def behind(
    journal: Journal,
    lift: Lift,
    pause: Callable[[float], bool] = lambda _: False,
    *,
    removal: Removal | None = None,
    if_dead: bool = True,
) -> Aborted:
    """End what one has left that keeps writers off ``orders``, until they are let in."""
    left = {"orders"}

    def lifting(drill: str, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        how = lift(drill, topics, deadline)
        left.clear()
        return how

    fence = LeftFence(lambda: set(left), tuple, lambda: None, lifting)
    there = cast(Any, removal or Removal())
    return abort(cast(Any, journal), there, fence, "orders-dr", pause, if_dead=if_dead)


def test_nobody_sits_at_what_looks_behind_a_dead_one_so_that_it_tries_again() -> None:
    """A cluster was away; and in between a rehearsal has begun, which lets nobody in."""
    journal, met = Journal(False, True), [Retriable("no broker of east answers")]
    journal.put("d1", chains.BEGUN)
    waited: list[float] = []

    def pause(seconds: float) -> bool:
        waited.append(seconds)
        if len(waited) == 1:
            journal.put("r1", chains.BEGUN, mode="rehearsal")
        else:
            journal.put("r1", chains.ENDED)
        return False

    def lift(*_: object) -> Mapping[str, Any]:
        if met:
            raise met.pop()
        return {}

    found = behind(journal, lift, pause)
    assert (found.unfenced, found.left_alone, len(waited)) == (("orders",), False, 2)
    told = [entry.said.get("result") for entry in journal.chain if entry.drill.startswith("abort-")]
    assert told == [None, "FAIL", None, "removed"]


def test_what_looks_behind_a_dead_one_looks_again_behind_a_person_who_lets_writers_in() -> None:
    """That may be in vain: the source is away, and comes back when that person has gone."""
    journal, waited = Journal(True), list[float]()
    journal.put("d1", chains.BEGUN, mode="planned")
    journal.put("d1", chains.ENDED)
    journal.put("abort-1", chains.BEGUN, mode=chains.ABORT_MODE)

    def pause(seconds: float) -> bool:
        waited.append(seconds)
        journal.put("abort-1", chains.ENDED, result="FAIL")
        return False

    found = behind(journal, letting_in(lambda _: None), pause)
    assert (found.unfenced, found.left_alone, len(waited)) == (("orders",), False, 1)


@pytest.mark.parametrize(
    ("error", "if_dead", "tries"),
    [
        (NeedsOperator("fenced by command, which is unset", code=DrillCode.SWITCHOVER_UNSET), True, 1),
        (NeedsOperator("the command did not unfence", code=DrillCode.COMMAND_FAILED), False, 1),
        # Which cluster it needs, and whether that is away, it alone knows.
        (NeedsOperator("the command did not unfence", code=DrillCode.COMMAND_FAILED), True, 3),
        (Retriable("no broker of east answers"), False, 1),
        # Somebody has stopped it meanwhile.
        (Retriable("no broker of east answers"), True, 3),
    ],
)
def test_what_does_not_pass_or_is_a_persons_own_call_is_told_at_once(
    error: OnceoverError, tries: int, *, if_dead: bool
) -> None:
    journal, waited, tried = Journal(False, False, False, False), list[float](), list[str]()
    journal.put("d1", chains.BEGUN)

    def pause(seconds: float) -> bool:
        waited.append(seconds)
        return len(waited) == 3

    def lift(drill: str, *_: object) -> Mapping[str, Any]:
        tried.append(drill)
        raise error

    with pytest.raises(type(error), match=error.message):
        behind(journal, lift, pause, if_dead=if_dead)
    # Less and less often: each try is in the journal.
    assert (len(tried), waited) == (tries, [10.0, 20.0, 40.0][: tries if tries > 1 else 0])


def test_producers_that_only_a_person_starts_again_and_a_flow_that_was_ended_are_told() -> None:
    """Nothing here lets them in, and the drill itself cannot say so any more."""
    journal = Journal(False)
    journal.put("d1", chains.BEGUN)
    journal.put("d1", chains.STEP, step="stop", evidence={"was_running": True})
    found = behind(journal, letting_in(lambda _: None, start_again=1), if_dead=False)
    assert (found.start_again, found.document()["start_again"]) == (1, 1)
    text = found.describe()
    assert "nobody but a person lets the producers of 1 topics in again: start them" in text
    assert "writers of" not in text
    assert "the flow was ended by that drill: `onceover replicate orders-dr` starts it again" in text


@pytest.mark.parametrize(
    ("state", "evidence", "text"),
    [
        ("done", {"was_running": True}, "the flow was ended by that drill: `onceover replicate orders-dr`"),
        ("done", {"was_running": False}, None),
        # Killed, or failed, in the middle of it.
        ("running", {}, "the flow may have been ended by that drill: `onceover replicate orders-dr`"),
        ("failed", {}, "the flow may have been ended by that drill: `onceover replicate orders-dr`"),
    ],
)
def test_a_flow_that_was_ended_is_told_too_where_its_drill_was_over_before(
    state: str, evidence: Mapping[str, Any], text: str | None
) -> None:
    """It could not let writers in itself, nor could an abort before this one."""
    journal, met = Journal(), [Retriable("no broker of east answers")]
    journal.put("d0", chains.BEGUN, mode="planned")
    journal.put("d0", chains.STEP, step="stop", state="done", evidence={"was_running": True})
    journal.put("d0", chains.UNFENCED, kind="acls", marks=[])
    journal.put("d0", chains.ENDED)
    journal.put("d1", chains.BEGUN, mode="planned")
    journal.put("d1", chains.STEP, step="stop", state=state, evidence=evidence)
    journal.put("d1", chains.ENDED)

    def lift(*_: object) -> Mapping[str, Any]:
        if met:
            raise met.pop()
        return {}

    found = behind(journal, lift)
    assert bool(found.stopped) == (text is not None)
    assert ("the flow" in found.describe()) == (text is not None)
    assert text is None or text in found.describe()


def test_what_a_rehearsal_has_left_is_taken_away_on_a_full_disk_too() -> None:
    journal, removal = Journal(False), Removal("canary")
    journal.put("d1", chains.BEGUN)

    def full(*_: object) -> Mapping[str, Any]:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        behind(journal, full, removal=removal)
    assert removal.there.nothing


@pytest.mark.parametrize(("mode", "removed"), [("rehearsal", True), ("planned", False)])
def test_a_rehearsal_beside_an_unfinished_promotion_is_taken_away(mode: str, *, removed: bool) -> None:
    """It keeps nobody off; of the switchover itself nothing is."""
    journal, removal = Journal(False), Removal("canary")
    journal.put("d2", chains.BEGUN, mode=mode)

    def past() -> Collection[str]:
        raise NeedsOperator("past the point of no return", code=DrillCode.PAST_RETURN)

    fence = LeftFence(past, tuple, lambda: None, letting_in(lambda _: None))
    try:
        found = abort(cast(Any, journal), cast(Any, removal), fence, "orders-dr", lambda _: False)
    except NeedsOperator:
        assert not removed
    else:
        assert (found.drill, found.removed, found.unfenced) == ("d2", LEFT, ())
    assert removal.there.nothing == removed
