"""Where a consumer group goes on after it has moved to the other cluster: one decision per partition. Pure.

Invariant (G6), for every input: a decision to write never moves a group backwards unless that was asked for,
never past the end of the receiving log, never below its start, and never onto what the map does not cover.
New position = max(log start, min(translation of what is committed, log end)).

Two sides: the *giving* cluster, where the group has consumed, and the *receiving* one, where it goes on.
``failover`` gives from the flow's source to its target, ``failback`` the other way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from onceover.groups.codes import GroupCode
from onceover.kafka.calls import NO_EPOCH
from onceover.kafka.codes import KafkaCode
from onceover.model import TopicPartition
from onceover.state.codes import StateCode
from onceover.stops.codes import StopCode
from onceover.wire.offsetlookup import NotCovered, Translated, Translation

# Brokers forget a group's offset after 7 days without a commit (offsets.retention.minutes); a group that
# stands still on a cluster where nobody consumes would be lost there.
RENEW_AFTER_MS: Final = 24 * 3600 * 1000
# What may pass: the partition could not be read, or what is committed there.
PASSING: Final = frozenset({GroupCode.UNREADABLE, GroupCode.COMMIT_PENDING})
_BY_HAND: Final = "set the group's position there by hand, for example by timestamp"
_READ_ONCE: Final = (
    "let the group read and commit once where it is, or leave it out with groups.exclude; "
    "`onceover translate {forerunner} {place} {offset} --to source` shows what that flow knows"
)
_RESOLVED: Final[dict[str, str]] = {
    StateCode.NOT_ENROLLED: "see `onceover status`: a running flow takes it in at its next discovery, or has "
    "refused it and says why; or exclude it in the flow file",
    GroupCode.GONE: "nothing; a topic of that name that comes back is looked at again",
    **dict.fromkeys(PASSING, "run again"),
    KafkaCode.NOT_AUTHORIZED: "grant the flow's principal the rights listed in docs/groups.md",
    **dict.fromkeys(
        (GroupCode.RECREATED, StopCode.SOURCE_DIVERGED, StopCode.TARGET_SHORTENED),
        "see `onceover status`: the partition needs an operator",
    ),
}
_DAYS_TOLD: Final = "so that it does not expire"


class Direction(StrEnum):
    """Which way groups are moved."""

    FAILOVER = "failover"
    FAILBACK = "failback"

    @property
    def opposite(self) -> Direction:
        """The other way."""
        return Direction.FAILBACK if self is Direction.FAILOVER else Direction.FAILOVER


class GroupAction(StrEnum):
    """What is done about one partition of a group."""

    MOVE = "move"
    REWIND = "rewind"
    RENEW = "renew"
    DELETE = "delete"
    IN_PLACE = "in place"
    LEFT = "left alone"

    @property
    def writes(self) -> bool:
        """True when the receiving cluster is changed."""
        return self in (GroupAction.MOVE, GroupAction.REWIND, GroupAction.RENEW, GroupAction.DELETE)


@dataclass(frozen=True)
class Allowed:
    """What an operator has asked for beyond moving forward.

    Args:
        rewind: move groups backwards, records are read again.
        follow_rewinds: move backwards where the group was moved backwards on the giving side.
        follow_deletions: delete what we wrote where the group or its offset is gone on the giving side.
        take_over: move groups forward although somebody else commits for them on the receiving side.
    """

    rewind: bool = False
    follow_rewinds: bool = False
    follow_deletions: bool = False
    take_over: bool = False


class OtherPosition(NamedTuple):
    """What a position stands for that is not the counterpart of what was committed.

    Args:
        given: what was committed on the giving side.
        skipped: offsets between the counterpart and the position, which the group does not read there.
    """

    given: int
    skipped: int


@dataclass(frozen=True)
class Remembered:
    """What was written for a partition of a group the last time, kept on the target.

    Args:
        given: what was committed on the giving side then.
        known: what the receiving side may hold if nobody else has committed since: the position that was
            written, and the one it replaced, should the writer have been killed in between.
        at_ms: when.
        stands: what known positions stand for that were put there and are not exact: the receiving log began
            behind the counterpart, or what was read is not copied yet. Older releases did not say.
        meant: which of the known positions were about to be written, and were not seen there yet. Older
            releases did not say.
        overdue: which of these were not seen there, though another one was that was meant beside them.
    """

    given: int
    known: frozenset[int]
    at_ms: int
    stands: Mapping[int, OtherPosition] = field(default_factory=dict)
    meant: frozenset[int] = frozenset()
    overdue: frozenset[int] = frozenset()

    def is_ours(self, position: int | None, epoch: int) -> bool:
        """Tell whether what is committed on the receiving side was written, or seen there, by us.

        We commit no epoch, readers that have read up to there do: whoever was killed before the write, or
        refused it, has not written what it meant to.
        """
        return position in self.known and (position not in self.meant or epoch == NO_EPOCH)


@dataclass(frozen=True, kw_only=True)
class PartitionFacts:
    """All that is known about one group and partition.

    Args:
        giving: partition that the group consumes now; ``receiving`` its counterpart.
        committed: next offset to read on the giving side, None when nothing is committed there any more.
        metadata: text committed beside it, carried over.
        giving_end: LSO of the giving partition; None when it is not needed.
        copied: giving offset up to which records are on the other side; None where all are.
        translation: exact counterpart of ``committed``, or of ``copied`` where that is smaller.
        current: what the group has committed on the receiving side; ``current_metadata`` and
            ``current_epoch`` beside it.
        start: first offset of the receiving log; ``end`` its high watermark.
        last: what was written in this direction, ``opposite`` in the other one.
        problem: why this partition cannot be translated at all: code and text.
        forerunner: the flow whose promoted copy the group stands in, where that one's map is asked.
    """

    giving: TopicPartition
    receiving: TopicPartition
    committed: int | None
    metadata: str = ""
    giving_end: int | None = None
    copied: int | None = None
    translation: Translation | None = None
    current: int | None = None
    current_metadata: str = ""
    current_epoch: int = NO_EPOCH
    start: int = 0
    end: int = 0
    last: Remembered | None = None
    opposite: Remembered | None = None
    problem: tuple[str, str] | None = None
    forerunner: str | None = None

    @property
    def is_over(self) -> bool:
        """True when the group has nothing here: its offset is gone on both sides, as with a deleted topic."""
        gone = self.committed is None and self.current is None
        return gone and (self.problem is None or self.problem[0] not in {*PASSING, KafkaCode.NOT_AUTHORIZED})

    @property
    def lag(self) -> int | None:
        """Offsets between the group and the giving log's end."""
        if self.committed is None or self.giving_end is None:
            return None
        return max(0, self.giving_end - self.committed)

    @property
    def uncopied(self) -> int:
        """Offsets that the group has read and that are not on the other side yet."""
        if self.committed is None or self.copied is None:
            return 0
        return max(0, self.committed - self.copied)

    @property
    def held(self) -> Remembered | None:
        """What we wrote, while this direction was the last one in use; a group that has been home since
        has moved on its own and is looked at afresh."""
        if self.last is None or (self.opposite is not None and self.opposite.at_ms > self.last.at_ms):
            return None
        return self.last

    @property
    def stood(self) -> int | None:
        """What the position on the giving side stands for on the receiving one, where it was put there from
        here and is not exact: the group has read nothing there since. None where it is exact, or its own."""
        if self.opposite is None or self.committed is None:
            return None
        stand = self.opposite.stands.get(self.committed)
        return None if stand is None else stand.given

    @property
    def is_back(self) -> bool:
        """True when the group returns to where it comes from, having read nothing where it was."""
        return self.stood is not None and self.stood == self.current and self.start <= self.stood <= self.end

    @property
    def exact(self) -> int | None:
        """Where the group goes on if the receiving log reaches so far, None where that is not known."""
        translated = self.translation.offset if isinstance(self.translation, Translated) else None
        if self.is_back:
            return self.stood
        if self.stood is None or translated is None:
            # What is remembered names no topic: where the map does not tell, it may be of one that is gone.
            return translated
        # It is not in place any more: nothing is passed over for what was so back then.
        return min(self.stood, translated)

    @property
    def wanted(self) -> int | None:
        """Where the group goes on, None where that is not known."""
        return None if self.exact is None else max(self.start, min(self.exact, self.end))

    @property
    def skipped(self) -> int:
        """Offsets that the group may never read, should it follow: they were gone on the giving side when it
        was put there, and are here."""
        there, wanted = self.opposite, self.wanted
        if there is None or wanted is None or self.committed is None or self.stood is not None:
            return 0
        if self.current not in (None, there.given):
            return 0
        if self.committed in there.known:
            # An exact counterpart leads back to where it comes from: this one is none, and nothing says for
            # what it was put there (an older release did not), or whether the group has read up to it.
            return max(0, wanted - there.given)
        passed = [s.skipped for at, s in there.stands.items() if at < self.committed]
        return max(passed, default=0)

    @property
    def is_known(self) -> bool:
        """True when what the receiving side holds was written, or seen there, by us."""
        if self.held is None and self.opposite is not None and self.current == self.opposite.given:
            return True
        return self.last is not None and self.last.is_ours(self.current, self.current_epoch)


@dataclass(frozen=True)
class Decision:
    """What is done about one partition, and why.

    Args:
        kind: what is done.
        to: next offset to read on the receiving side; None unless something is committed.
        reason: one sentence.
        code: name of the reason where nothing is written; empty when all is well.
        risk: ``none``, ``repeat``, ``skip`` or ``destructive``; ``records`` how many offsets it concerns.
        resolve: what resolves it, where something does.
        blocks: True when the group does not go on where it should until somebody decides.
        watch: True when somebody else's commit is replaced, which is looked at twice before.
    """

    kind: GroupAction
    reason: str
    to: int | None = None
    code: str = ""
    risk: str = "none"
    records: int | None = None
    resolve: str = ""
    blocks: bool = False
    watch: bool = False


def decide(facts: PartitionFacts, allowed: Allowed, now_ms: int) -> Decision | None:
    """Return the decision about one partition; None when it does not concern us (any more)."""
    if facts.is_over:
        return None
    if facts.problem is not None:
        code, text = facts.problem
        return _left(code, text, _RESOLVED.get(code, _BY_HAND), blocks=code != GroupCode.GONE)
    if facts.committed is None:
        return _decide_deleted(facts, allowed)
    if facts.is_back:
        text = f"in place: it has read nothing since it was put at {facts.committed} on the giving side"
        text += _told(facts)
        return Decision(GroupAction.IN_PLACE, text, facts.current)
    wanted = facts.wanted
    if wanted is None:
        return _not_covered(facts)
    if facts.current is None:
        return _forward(facts, wanted, f"not committed there yet{_told(facts)}")
    if wanted == facts.current:
        return _decide_in_place(facts, wanted, now_ms)
    if wanted > facts.current:
        return _decide_forward(facts, wanted, facts.current, allowed)
    return _decide_backward(facts, wanted, facts.current, facts.committed, allowed)


def remembered(facts: PartitionFacts, decision: Decision, now_ms: int) -> Remembered:
    """Return what to remember before a decision is carried out, or of a position that is in place already."""
    known = frozenset(offset for offset in (facts.current, decision.to) if offset is not None)
    given = facts.committed or 0
    if decision.kind is GroupAction.REWIND and facts.held is not None:
        # Killed before the commit, the next look still has to see that the giving side was moved back; done,
        # it finds the group in place and remembers the lower offset.
        given = max(given, facts.held.given)
    # Which direction was the last one is told by these times: whoever comes after one whose clock is ahead is
    # the later one all the same.
    at_ms = now_ms if facts.opposite is None else max(now_ms, facts.opposite.at_ms + 1)
    meant = known - {facts.current}
    return Remembered(given, known, at_ms, _stands(facts, decision.to), meant)


def _stands(facts: PartitionFacts, to: int | None) -> dict[int, OtherPosition]:
    """Return what the positions stand for that may be committed: the new one, and the one it replaces."""
    before = {} if facts.last is None else facts.last.stands
    stands = {at: stand for at, stand in before.items() if at == facts.current != to}
    if to is None or facts.committed is None or facts.exact is None:
        return stands
    # What is in place already may be the group's own: it stands for something else only if we put it there.
    is_ours = to != facts.current or to in before
    if is_ours and (to != facts.exact or facts.uncopied):
        stands[to] = OtherPosition(facts.committed, max(0, to - facts.exact))
    return stands


def _decide_deleted(facts: PartitionFacts, allowed: Allowed) -> Decision | None:
    if facts.last is None or facts.current is None:
        return None
    gone = "nothing is committed for it on the giving side any more"
    if not facts.is_known:
        return _left(GroupCode.COMMITTED_ELSEWHERE, f"{gone}, but {_elsewhere(facts, facts.current)}")
    if allowed.follow_deletions:
        return Decision(GroupAction.DELETE, gone, risk="destructive")
    resolve = "--follow-deletions deletes it on the receiving side too"
    return _left(GroupCode.DELETED, f"{gone}: deleted, or expired", resolve)


def _not_covered(facts: PartitionFacts) -> Decision:
    known = facts.translation
    why = "the offset map knows nothing of this partition"
    if isinstance(known, NotCovered):
        why = known.why or why
        if known.start is not None:
            why = f"the offset map covers {known.start} to {known.end}"
    if facts.forerunner is not None:
        why = (
            f"flow {facts.forerunner} wrote the copy and promoted it, nothing was committed since, and {why}"
        )
    return _left(
        GroupCode.NOT_COVERED,
        f"{why}: where offset {facts.committed} is on the other side is not known",
        _way_out(facts),
        blocks=True,
    )


def _way_out(facts: PartitionFacts) -> str:
    if facts.forerunner is None:
        return _BY_HAND
    return _READ_ONCE.format(forerunner=facts.forerunner, place=facts.giving, offset=facts.committed)


def _decide_in_place(facts: PartitionFacts, wanted: int, now_ms: int) -> Decision:
    ours = facts.held is not None and facts.is_known
    if ours and facts.metadata != facts.current_metadata:
        return Decision(GroupAction.MOVE, "its metadata has changed", wanted)
    if ours and facts.held is not None and now_ms - facts.held.at_ms >= RENEW_AFTER_MS:
        return Decision(GroupAction.RENEW, f"unchanged for a day: committed again {_DAYS_TOLD}", wanted)
    return Decision(GroupAction.IN_PLACE, f"in place{_told(facts)}", wanted)


def _decide_forward(facts: PartitionFacts, wanted: int, current: int, allowed: Allowed) -> Decision:
    if facts.stood is not None and current < facts.stood and not allowed.take_over:
        return _left(
            GroupCode.NOTHING_READ,
            f"it has read nothing since it was put at {facts.committed} on the giving side, and was moved "
            f"back from {facts.stood} to {current} on the receiving one",
            "nothing, if it consumes there; --take-over moves it forward",
        )
    if facts.is_known:
        return _forward(facts, wanted, f"follows{_told(facts)}")
    if facts.held is not None and not allowed.take_over:
        return _left(
            GroupCode.COMMITTED_ELSEWHERE,
            _elsewhere(facts, current),
            "stop the consumer that uses assign(), if there is one, then run again with --take-over",
            blocks=True,
        )
    return Decision(
        GroupAction.MOVE,
        f"replaces what somebody else committed there{_told(facts)}",
        wanted,
        risk="skip",
        records=wanted - current,
        watch=True,
    )


def _elsewhere(facts: PartitionFacts, current: int) -> str:
    """Return whose a position is that is not known as ours: without an epoch, as we commit, it may be."""
    if facts.current_epoch != NO_EPOCH:
        return f"somebody else has committed {current} on the receiving side since we wrote there"
    return (
        f"{current} is committed on the receiving side, and not remembered as ours: somebody else has done "
        "so since we wrote there, or what we remember has lost its end, to an unclean election, say"
    )


def _forward(facts: PartitionFacts, wanted: int, reason: str) -> Decision:
    if facts.skipped:
        text = f"{reason}; {facts.skipped} offsets before it may have been gone where it has been"
        return Decision(GroupAction.MOVE, text, wanted, risk="skip", records=facts.skipped)
    translated = wanted if facts.exact is None else facts.exact
    if wanted > translated:
        missing = wanted - translated
        text = f"{reason}; {missing} offsets before it are no longer in the receiving log"
        return Decision(GroupAction.MOVE, text, wanted, risk="skip", records=missing)
    if facts.uncopied:
        return Decision(GroupAction.MOVE, reason, wanted, risk="repeat", records=facts.uncopied)
    return Decision(GroupAction.MOVE, reason, wanted)


def _decide_backward(
    facts: PartitionFacts, wanted: int, current: int, committed: int, allowed: Allowed
) -> Decision:
    given = facts.held.given if facts.held is not None and facts.is_known else None
    rewound = given is not None and committed < given
    if allowed.rewind or (rewound and allowed.follow_rewinds):
        reason = "moved back on the giving side" if rewound else "moved back because that was asked for"
        records = current - wanted
        return Decision(
            GroupAction.REWIND, reason, wanted, risk="repeat", records=records, watch=not facts.is_known
        )
    if rewound:
        return _left(
            GroupCode.REWOUND,
            f"it was moved back on the giving side, from {given} to {committed}",
            "--follow-rewinds moves it back here too",
            blocks=True,
        )
    return _left(
        GroupCode.AHEAD,
        f"it has read up to {current} on the receiving side, {current - wanted} offsets further",
        "nothing, if it consumes there; --allow-rewind moves it back",
    )


def _told(facts: PartitionFacts) -> str:
    if facts.forerunner is not None:
        return f"; by the map of flow {facts.forerunner}, as it has committed nothing since the promotion"
    return f"; {facts.uncopied} offsets still to copy" if facts.uncopied else ""


def _left(code: str, reason: str, resolve: str = "", *, blocks: bool = False) -> Decision:
    return Decision(GroupAction.LEFT, reason, code=code, resolve=resolve, blocks=blocks)
