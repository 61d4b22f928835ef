"""The layout record: who may copy, and which lanes there are. Pure.

Invariant (docs/protocol.md): a layout with ``ready`` is written only after every lane id that
an older generation may hold has been fenced; ``fence_up_to`` carries that bound over generations
that never became ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from onceover.errors import Fenced, NeedsOperator, NotNow, OnceoverError, Retriable, UsageError
from onceover.kafka.codes import KafkaCode
from onceover.planning import commands
from onceover.state import names
from onceover.state.codes import StateCode
from onceover.state.records.value import mapping, record, unreadable

VERSION = 1
# Why a run ended: everything was copied or its time was over, somebody asked, or it could not go on.
DONE: Final = "done"
ASKED: Final = "asked"
FAILED: Final = "failed"
_EXACTLY_ONCE: Final = "exactly_once"
_ERROR_CHARS: Final = 500
# More than could take over from each other while a killed copy waits to be started again.
_LAUNCHES: Final = 8
# A request outlives so many starts that are killed, or begun again, before they could answer it.
_FOLLOWED: Final = 16


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One generation of a flow.

    Args:
        generation: grows with every start and every change of lanes.
        run: random per attempt to start; tells two starters of one generation apart.
        lanes: number of lanes.
        fence_up_to: lanes of the last generation that was ready before this one.
        ready: lanes may copy.
        ended_at_ms: when the run ended by itself, None while it runs or when it was killed.
        delivery: the run's delivery mode; until it is ready, that of the last one that was: whoever may
            still copy copies so. Records older than the field are of exactly_once.
        seized: made by an operator's change of progress: nobody copies until the next start.
        fenced_starts: how many starts up to now have fenced a run that had not said that it ended.
        restarts: how many starts up to now have followed a run that had failed or not said that it ended.
        interrupted: of a seized one: the last run before all changes by hand had not ended in order, so that
            somebody has to start the flow again.
        ended_why: ``done``, ``asked`` or ``failed``; None while it runs, and of older records.
        ended_error: what it failed with.
        ended_passes: what it failed with passes by itself, such as a process that was killed.
        handled: whether this generation, or one before it, has copied through a handler; None where an older
            release began the flow, and has not kept that.
        letters: the topics that this generation, or one before it, has diverted bad records to, each with the
            newest generation that did; without those of runs of an older release.
        begun_by: which run of a DAG has begun it, so that its next try knows it for its own; None where it
            was none.
        launches: what tells the commands and tasks apart that have led the flow last, the newest first. Each
            may start it again where its processes are killed, unless another one has led it since.
        follows: the runs of the same launch that this one follows without another's in between, the newest
            first: what somebody has asked of them is meant for it.
    """

    generation: int
    run: str
    lanes: int
    fence_up_to: int
    ready: bool
    source_cluster_id: str
    target_cluster_id: str
    flow_sha256: str
    started_at_ms: int
    host: str
    ended_at_ms: int | None = None
    delivery: str = _EXACTLY_ONCE
    seized: bool = False
    interrupted: bool = False
    fenced_starts: int = 0
    restarts: int = 0
    ended_why: str | None = None
    ended_error: str | None = None
    ended_passes: bool = False
    handled: bool | None = None
    letters: Mapping[str, int] = field(default_factory=dict)
    begun_by: str | None = None
    launches: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the value written under ``layout``."""
        return {"v": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Layout:
        """Read what ``to_json`` wrote; fields of later versions are ignored.

        Raises:
            NeedsOperator: a newer, unknown version, or not a layout.
        """
        value = mapping(value, "layout")
        if value.get("v") != VERSION:
            raise NeedsOperator(
                "the flow's state was written by another version of Onceover",
                code=StateCode.STATE_VERSION,
                expected=f"layout version {VERSION}",
                seen=f"layout version {value.get('v')}",
                resolve="run the version that wrote it, or a newer one",
            )
        lists = {key: tuple(each) for key, each in value.items() if isinstance(each, list)}
        found = record(cls, {**value, **lists}, "layout")
        if found.lanes < 1:
            raise unreadable("layout", "a lane or more in 'lanes'", str(found.lanes))
        return found

    def as_ready(self, delivery: str) -> Layout:
        """Return the record that lets the lanes begin, in this delivery mode."""
        return replace(self, ready=True, delivery=delivery)

    def as_ended(self, at_ms: int, why: str = DONE, error: OnceoverError | None = None) -> Layout:
        """Return the record of a run that ended by itself."""
        ended = replace(self, ended_at_ms=at_ms, ended_why=why)
        if error is None:
            return ended
        short, passes = error.message[:_ERROR_CHARS], isinstance(error, Retriable)
        return replace(ended, ended_error=short, ended_passes=passes)

    @property
    def may_run(self) -> bool:
        """True while nobody has ended its run: it copies, or was killed."""
        return self.ended_at_ms is None and not self.seized

    @property
    def may_be_fenced(self) -> bool:
        """True where all that its lanes write is in transactions: at least once, one that wakes goes on."""
        return self.delivery == _EXACTLY_ONCE

    @property
    def ids_to_fence(self) -> int:
        """Lane ids below this number are fenced before the layout becomes ready."""
        return max(self.fence_up_to, self.lanes)


def layout_in(values: Mapping[str, Any]) -> Layout | None:
    """Return the newest layout among the leader's values; None for a flow that was never started.

    Raises:
        NeedsOperator: a newer, unknown version, or not a layout.
    """
    value = values.get(names.LAYOUT)
    return None if value is None else Layout.from_json(value)


def fence_bound(previous: Layout | None) -> int:
    """Return ``fence_up_to`` of the generation after ``previous``.

    From a record that was not ready the bound is carried over: its own lanes never ran, but those
    of the generation before it may still.
    """
    if previous is None:
        return 0
    return previous.lanes if previous.ready else previous.fence_up_to


def restarts_with(previous: Layout | None) -> int:
    """Return how many starts have followed a run that did not end in order, with the one after ``previous``.

    A change by hand in between is a person's doing: what follows it is a start like the first.
    """
    if previous is None:
        return 0
    return previous.restarts + (leaves_unfinished(previous) and not previous.seized)


def launches_with(previous: Layout | None, launch: str) -> tuple[str, ...]:
    """Return ``launches`` of a layout that ``launch`` writes behind ``previous``.

    Raises:
        Fenced: that launch has led the flow before, and another one has taken over since.
    """
    known = () if previous is None else previous.launches
    if known[:1] == (launch,):
        return known
    if previous is not None and launch in known:
        raise taken_over(previous, "the newest start")
    return (launch, *known)[:_LAUNCHES]


def follows_with(previous: Layout | None, launch: str) -> tuple[str, ...]:
    """Return ``follows`` of a layout that ``launch`` writes behind ``previous``."""
    if previous is None or previous.launches[:1] != (launch,):
        return ()
    return (previous.run, *previous.follows)[:_FOLLOWED]


def ever_handled(previous: Layout | None, *, handler: bool, seized: bool) -> bool | None:
    """Return whether a handler has run by the generation behind ``previous``; None where nobody knows.

    Args:
        handler: the flow file names one; in a generation that is ``seized`` it copies nothing.
    """
    if handler and not seized:
        return True
    return False if previous is None else previous.handled


def delivery_with(previous: Layout | None, delivery: str) -> str:
    """Return ``delivery`` of a layout that is written behind ``previous`` and is not ready.

    Args:
        delivery: the one that the flow file has now, in which nobody copies yet.
    """
    return delivery if previous is None else previous.delivery


def letters_with(previous: Layout | None, generation: int, topic: str | None) -> dict[str, int]:
    """Return ``letters`` of the generation behind ``previous``.

    Args:
        topic: the one that it diverts to; None where it stops at bad records, or copies nothing.
    """
    known = {} if previous is None else dict(previous.letters)
    return known if topic is None else {**known, topic: generation}


def leaves_unfinished(previous: Layout | None) -> bool:
    """Tell whether a change by hand after ``previous`` leaves a copy that has to be started again.

    Decided by the record alone, when the flow is seized: signs of life are another machine's times, and the
    second change by hand follows the first one's layout and no run's.
    """
    if previous is None:
        return False
    if previous.ended_at_ms is not None:
        return previous.ended_why == FAILED
    return previous.interrupted if previous.seized else True


def check_clusters(previous: Layout | None, source_id: str, target_id: str) -> None:
    """Refuse to continue a flow between other clusters than it was started with.

    Raises:
        NeedsOperator: a cluster id differs.
    """
    if previous is None:
        return
    for side, expected, seen in (
        ("source", previous.source_cluster_id, source_id),
        ("target", previous.target_cluster_id, target_id),
    ):
        if expected != seen:
            raise NeedsOperator(
                f"the {side} cluster is not the one this flow copies",
                code=KafkaCode.FOREIGN_CLUSTER,
                where=side,
                expected=f"cluster id {expected}",
                seen=f"cluster id {seen}",
                resolve="correct bootstrap.servers, or give the flow a new name for the new cluster",
            )


def check_distinct(source_id: str, target_id: str) -> None:
    """Refuse a flow from a cluster to itself: it would copy its own copies for ever.

    Raises:
        UsageError: both ids are the same, whatever the addresses are.
    """
    if source_id == target_id:
        raise UsageError(
            "source and target of the flow are the same cluster",
            code=StateCode.SAME_CLUSTER,
            expected="two clusters",
            seen=f"cluster id {source_id} behind both",
            resolve="correct bootstrap.servers of one side in the flow file",
        )


def check_mine(seen: Layout | None, generation: int, run: str) -> Layout:
    """Return ``seen`` when it is this run's own, ready and not ended.

    Raises:
        Fenced: another generation or another run owns the flow, or it is not ready.
    """
    if seen is not None and (seen.generation, seen.run) == (generation, run) and seen.ready:
        return seen
    raise taken_over(seen, f"generation {generation}, ready")


def check_told(told: int, own: int, flow: str, where: str) -> None:
    """Believe no state of before one's own generation, which could be read when it began.

    Args:
        told: the newest generation that is shown; 0 for none. ``own`` is the caller's.
        where: the target's alias.

    Raises:
        NotNow: it is of before. Nobody has taken over.
    """
    if told < own:
        raise NotNow(
            f"{names.state_topic(flow)} is told as it was before generation {own}",
            code=StateCode.STATE_SHORTENED,
            where=where,
            expected=f"generation {own}, or a newer one",
            seen=f"generation {told}, as of a broker that leads it no more, or a log that has lost its end to"
            " an unclean election",
            resolve="if it lasts, start the flow again: it leads above all that has copied",
        )


def shortened_need(flow: str, told: int, newest: int) -> dict[str, Any]:
    """Return what somebody has to do where the state is told as of before what has copied.

    Args:
        told: the newest generation that is shown; 0 for none. ``newest`` the newest that has copied.
    """
    shown = f"generation {told} is the newest that it shows" if told else "it shows none"
    return {
        "code": StateCode.STATE_SHORTENED,
        "message": f"{names.state_topic(flow)} is told as it was before generation {newest}, which has "
        f"copied: {shown}, so whether a run goes on is not known. The log has lost its end, to an unclean "
        "election or a disk that was put back, or a broker tells it that leads it no more",
        "resolve": f"look again; if it lasts, {commands.replicate(flow)} leads above all that has copied"
        if told
        else "look again; if it lasts, docs/operations.md says how to go on from the copies, which are there",
    }


def never_started(flow: str, where: str) -> UsageError:
    """Return the error of who asks for something of a flow that has no layout yet.

    Args:
        where: the target's alias.
    """
    return UsageError(
        f"flow {flow} has never been started on {where}",
        code=StateCode.NOT_STARTED,
        resolve=f"{commands.replicate(flow)} starts it",
    )


def taken_over(seen: Layout | None, expected: str) -> Fenced:
    """Return the error of a start that is not the newest one."""
    owner = "nobody" if seen is None else f"generation {seen.generation}, started on {seen.host}"
    return Fenced(
        "another start of this flow has taken over; this one stops and leaves everything as it is",
        code=StateCode.FENCED,
        expected=expected,
        seen=f"{owner}{'' if seen is None or seen.ready else ', not ready'}",
        resolve="nothing to do if the newer start was meant; see `onceover status`",
    )
