"""Ending a drill from outside: one that runs is asked to, of one that died everything is taken away."""

from __future__ import annotations

import itertools
import logging
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from onceover.backoff import Deadline
from onceover.drills import chain as chains
from onceover.drills.chain import JournalEntry
from onceover.drills.codes import DrillCode
from onceover.drills.course import StepState
from onceover.drills.history import sees_to_writers
from onceover.drills.journal import DrillJournal
from onceover.drills.leaving.fences import START_AGAIN
from onceover.drills.rehearsing.remains import Remains, Removal
from onceover.errors import Fenced, NeedsOperator, OnceoverError, Retriable
from onceover.planning import commands

log = logging.getLogger(__name__)

# A step that waits for a broker goes on to its own deadline first.
_ENDS_S: Final = 240.0
_LOOK_S: Final = 1.0
_REMOVE_S: Final = 90.0
# Nobody sits at it where what died is looked after; a cluster is back by then, and a rehearsal over.
_PATIENCE_S: Final = 1800.0
# Each try has entries in the journal, and may run a person's program.
_AGAIN_S: Final = (10.0, 20.0, 40.0, 80.0, 120.0)
# Another one's drill ends; and a program that lets writers in may need the very cluster that is away.
_PASSING: Final = (DrillCode.DRILL_RUNS, DrillCode.COMMAND_FAILED)
# The step of a switchover that ends its flow.
_STOP: Final = "stop"


@dataclass(frozen=True)
class Aborted:
    """What was done.

    Args:
        drill: that was ended; None where none was running.
        was_alive: whether it was running until it was asked to end.
        removed: what was taken away by us; ``unfenced`` topics whose writers were let in again.
        withdrawn: drill that nobody tries again under its approval, though it was over; None without one.
        left_alone: whether it is running, and nobody wants it to end.
        start_again: of how many topics nobody but a person lets the producers in again.
        stopped: what starts the flow, which it had ended; empty where it had not.
        perhaps: whether it had is not known.
    """

    drill: str | None
    was_alive: bool
    removed: Remains
    unfenced: tuple[str, ...] = ()
    withdrawn: str | None = None
    left_alone: bool = False
    start_again: int = 0
    stopped: str = ""
    perhaps: bool = False

    def document(self) -> dict[str, Any]:
        """Return its JSON."""
        return {
            "drill": self.drill,
            "was_alive": self.was_alive,
            "removed": self.removed.document(),
            "unfenced": list(self.unfenced),
            "withdrawn": self.withdrawn,
            "left_alone": self.left_alone,
            "start_again": self.start_again,
            "stopped": self.stopped,
        }

    def describe(self) -> str:
        """Return it as text."""
        if self.left_alone:
            return f"drill {self.drill} is running, and is left alone"
        if self.was_alive:
            ended = f"drill {self.drill} was asked to end"
            left = "and has taken everything away"
        else:
            ended = f"drill {self.drill} had died" if self.drill else "no drill was running"
            left = "nothing was left of it"
        nothing = self.removed.nothing and not self.unfenced
        let_in = len(self.unfenced) - self.start_again
        said = [f"writers of {let_in} topics are let in again"] if let_in > 0 else []
        if self.start_again:
            who = f"the producers of {self.start_again} topics"
            said.append(f"nobody but a person lets {who} in again: start them")
        if self.stopped:
            ended_it = "may have been ended" if self.perhaps else "was ended"
            said.append(f"the flow {ended_it} by that drill: {self.stopped} starts it again")
        if self.withdrawn:
            said.append(f"what was approved for drill {self.withdrawn} is not tried again")
        return "; ".join([ended, left if nothing else "what was left is removed", *said])


@dataclass(frozen=True)
class LeftFence:
    """What a switchover that was killed has left: writers that are kept off topics which it has not promoted.

    Args:
        topics: which these are now; ``promoted`` the source topics that are promoted now.
        fence_leader: has whoever leads the flow promote nothing any more.
        lift: lets writers of topics in again, for a drill of that id.
    """

    topics: Callable[[], Collection[str]]
    promoted: Callable[[], Collection[str]]
    fence_leader: Callable[[], None]
    lift: Callable[[str, Collection[str], Deadline], Mapping[str, Any]]

    def take_down(self, drill: str, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
        """Let writers of these topics in again, where their fence is still to be lifted by then; return how.

        Raises:
            NeedsOperator: PAST_RETURN, they were promoted meanwhile; a fence is of a kind that is unknown.
            Retriable: a cluster is away.
        """
        if not set(topics) <= set(self.promoted()):
            # One that was taken for dead may wake: it promotes nothing any more.
            self.fence_leader()
        # Behind that: what it has promoted until then stays as it is.
        return self.lift(drill, set(self.topics()) & set(topics), deadline)


def abort(
    journal: DrillJournal,
    removal: Removal,
    fence: LeftFence,
    flow: str,
    pause: Callable[[float], bool],
    *,
    if_dead: bool = False,
) -> Aborted:
    """End the drill that runs, or what is left of one.

    Whatever becomes of the one that runs, nothing is left behind it, and no try under its approval follows;
    nor under that of the last one, where it is over and somebody may be about to try it again.

    Args:
        if_dead: take away what one has left that died, and nothing else: one that runs goes on, and another
            try under an approval may follow. What passes is waited for, half an hour: nobody sits at it.

    Raises:
        NeedsOperator: PAST_RETURN, what runs or ran last is a switchover that has promoted topics.
        Retriable: it does not end in time, or a cluster is away.
    """
    deadline, pauses_s = Deadline(_PATIENCE_S), itertools.chain(_AGAIN_S, itertools.repeat(_AGAIN_S[-1]))
    while True:
        try:
            return _aborted(journal, removal, fence, flow, pause, if_dead=if_dead)
        except OnceoverError as error:
            passes = isinstance(error, Retriable) or error.code in _PASSING
            if not (if_dead and passes) or deadline.passed or pause(next(pauses_s)):
                raise
            log.warning("%s; tried again", error)


def _aborted(
    journal: DrillJournal,
    removal: Removal,
    fence: LeftFence,
    flow: str,
    pause: Callable[[float], bool],
    *,
    if_dead: bool,
) -> Aborted:
    other = chains.running(journal.read())
    # Says no before anybody is asked to end, and once more behind that.
    standing = _standing(fence, other)
    was_alive = other is not None and journal.is_alive(other.drill)
    if other is not None and was_alive:
        if if_dead:
            return _left_alone(other, standing)
        _ask(journal, other.drill)
        _await_end(journal, other.drill, flow, pause)
    ended = None if other is None else other.drill
    fenced = _standing(fence, other)
    chain = journal.read()
    withdrawn = None if if_dead else chains.open_approval(chain)
    is_over = chains.running(chain) is None and not fenced and withdrawn is None
    if is_over and removal.find().nothing:
        return Aborted(ended, was_alive, Remains())
    # As a drill of its own: whoever begins one meanwhile would have its topics taken away.
    drill = f"abort-{secrets.token_hex(6)}"
    stopped = _has_stopped(chain) if fenced and not was_alive else False
    withdraws = {} if withdrawn is None else {chains.WITHDRAWS: withdrawn}
    journal.begin(drill, {"mode": chains.ABORT_MODE, **withdraws})
    result, how = chains.DrillResult.FAIL, dict[str, Any]()
    with journal.heartbeat(drill):
        try:
            # Others may have begun and ended meanwhile, and promoted these: then it has to stand.
            fenced = set(fenced) & set(_standing(fence, other))
            # First: production waits for it, and what a rehearsal has left may be on a cluster that is away.
            ours = partial(journal.check, drill)
            if fenced:
                how |= _let_in(fence, drill, fenced, removal, ours)
            removed = _removed(removal, ours, len(fenced))
            result = chains.DrillResult.REMOVED
        finally:
            journal.append(drill, chains.ENDED, {"result": result})
    return Aborted(
        ended,
        was_alive,
        removed,
        tuple(sorted(fenced)),
        None if withdrawn == ended else withdrawn,
        start_again=how.get(START_AGAIN, 0),
        stopped="" if stopped is False else commands.replicate(flow),
        perhaps=stopped is None,
    )


def _standing(fence: LeftFence, other: JournalEntry | None) -> Collection[str]:
    """Return the topics whose writers are to be let in; none for a rehearsal beside a switchover's promotion.

    Raises:
        NeedsOperator: PAST_RETURN, and it is no rehearsal that runs.
    """
    try:
        return fence.topics()
    except NeedsOperator as error:
        if error.code != DrillCode.PAST_RETURN or other is None or sees_to_writers(other):
            raise
        return ()


def _left_alone(other: JournalEntry, standing: Collection[str]) -> Aborted:
    """Return what is told of a drill that goes on.

    Raises:
        Retriable: DRILL_RUNS, it lets nobody in that another one has kept off, or may do so in vain: its end
            is waited for.
    """
    # One that lets writers in itself may fail, and be told to a person who does not try again.
    if standing and (not sees_to_writers(other) or other.said.get("mode") == chains.ABORT_MODE):
        raise Retriable(
            f"drill {other.drill} is running; writers of {len(standing)} topics are let in behind it",
            code=DrillCode.DRILL_RUNS,
            resolve="run it again behind its end",
        )
    return Aborted(other.drill, True, Remains(), left_alone=True)


def _has_stopped(chain: Sequence[JournalEntry]) -> bool | None:
    """Tell whether a drill whose fence stands has ended its flow, and does not start it again; None: perhaps.

    That drill may be over, and another one have gone on with its fence.
    """
    since = next((e.number for e in reversed(chain) if e.what == chains.UNFENCED), 0)
    stops = {e.drill: e.said for e in chain if e.number > since and e.said.get("step") == _STOP}
    if any(_was_running(said) for said in stops.values()):
        return True
    # What is not done tells nothing of what it has done.
    is_open = any(said.get("state") in (StepState.RUNNING, StepState.FAILED) for said in stops.values())
    return None if is_open else False


def _was_running(stop: Mapping[str, Any]) -> bool:
    evidence = stop.get("evidence")
    return isinstance(evidence, Mapping) and evidence.get("was_running") is True


def _let_in(
    fence: LeftFence, drill: str, topics: Collection[str], removal: Removal, ours: Callable[[], None]
) -> Mapping[str, Any]:
    """Let writers in; where they cannot be, what rehearsals have left is taken away all the same."""
    try:
        return fence.take_down(drill, topics, Deadline(_REMOVE_S))
    except (OnceoverError, OSError):
        try:
            removal.remove(Deadline(_REMOVE_S), ours)
        except OnceoverError as error:
            log.warning("what rehearsals may have left is still there: %s", error)
        raise


def _removed(removal: Removal, ours: Callable[[], None], unfenced: int) -> Remains:
    """Take away what rehearsals have left; whoever hears that it could not be hears of the writers, too."""
    try:
        return removal.remove(Deadline(_REMOVE_S), ours)
    except OnceoverError as error:
        if unfenced:
            error.message = f"writers of {unfenced} topics are let in again, but {error.message}"
        raise


def _ask(journal: DrillJournal, drill: str) -> None:
    try:
        journal.append(drill, chains.ABORT, {})
    except Fenced:
        log.debug("drill %s has ended meanwhile", drill)


def _await_end(journal: DrillJournal, drill: str, flow: str, pause: Callable[[float], bool]) -> None:
    """Return when a drill has ended, or has died meanwhile."""
    deadline = Deadline(_ENDS_S)
    while any(each.drill == drill for each in [chains.running(journal.read())] if each is not None):
        if not journal.is_alive(drill):
            return
        if deadline.passed or pause(_LOOK_S):
            raise Retriable(
                f"drill {drill} was asked to end, and has not yet",
                code=DrillCode.DRILL_RUNS,
                resolve=f"`onceover drill status {flow}` tells which step it waits in",
            )
