"""What ``onceover groups plan`` shows and ``apply`` does: decisions, group by group. Pure.

Invariant: a group with members on the receiving side, or of which anything is not known, has no step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from onceover.ages import age_text
from onceover.errors import OnceoverError, Retriable
from onceover.groups.codes import GroupCode
from onceover.groups.decide import PASSING, Allowed, Decision, Direction, GroupAction, PartitionFacts, decide
from onceover.kafka.codes import KafkaCode
from onceover.planning import commands
from onceover.planning.approval import ApprovablePlan, Item, ObjectState, items_of
from onceover.planning.plan import Change, Refusal, exit_of
from onceover.shown import lined
from onceover.state.codes import StateCode
from onceover.wire.offsetlookup import Translated

_EMPTY: Final = frozenset({"empty", "dead"})
# Their state is not a committed offset: share groups keep what was acknowledged record by record, streams
# groups (KIP-1071) keep tasks and state stores that offsets alone would contradict.
_NOT_MOVED: Final = {
    "share": "a share group keeps acknowledgements record by record, not offsets",
    "streams": "a streams group keeps state that offsets alone would contradict",
}
_RISKS: Final = {"repeat": "repeats", "skip": "skips"}
_PAIR_HEADERS: Final = ("partition", "committed", "lag", "translated", "there", "new", "decision")


@dataclass(frozen=True, kw_only=True)
class GroupFacts:
    """What is known about one group.

    Args:
        name: of the group.
        type: ``classic``, ``consumer``, ``share`` or ``streams``, on the giving side.
        there_type: on the receiving side, None where it does not exist; ``there_state`` likewise.
        partitions: what it has committed in topics of the flow.
        error: why nothing more is known; nothing is done then.
        seen_s: monotonic time just before its offsets were read on the giving side.
    """

    name: str
    type: str
    there_type: str | None = None
    there_state: str | None = None
    partitions: tuple[PartitionFacts, ...] = ()
    error: OnceoverError | None = None
    seen_s: float = 0.0


@dataclass(frozen=True)
class GroupView:
    """Both clusters at one moment.

    Args:
        flow: name of the flow.
        direction: which way groups are moved.
        giving: alias of that side; ``receiving`` likewise.
        groups: those that the flow and the command line select.
        errors: what could not be listed on the giving side; ``errors_there`` likewise on the receiving one.
        now_ms: time of the look.
        away: why the giving side cannot be asked at all, where it is the source of a failover.
        lag_unknown: why some lags are not known, and what that means; None where all are.
        hidden: the flow's topics that may not be described on the giving side, and its answer: it tells
            nobody what groups have committed there.
    """

    flow: str
    direction: Direction
    giving: str
    receiving: str
    groups: tuple[GroupFacts, ...]
    errors: tuple[OnceoverError, ...]
    now_ms: int
    away: OnceoverError | None = None
    lag_unknown: str | None = None
    hidden: Mapping[str, OnceoverError] = field(default_factory=dict)
    errors_there: tuple[OnceoverError, ...] = ()


@dataclass(frozen=True)
class Row:
    """One partition of one group in the plan."""

    group: str
    facts: PartitionFacts
    decision: Decision

    @property
    def is_risky(self) -> bool:
        """True when a person should look first: it goes back, skips, or loses what it had."""
        return self.decision.kind is GroupAction.REWIND or self.decision.risk in ("skip", "destructive")

    @property
    def goes_unasked(self) -> bool:
        """True when a switchover does it although it is risky: an old commit of the group's own clients is
        replaced, looked at twice."""
        return self.decision.watch

    @property
    def object(self) -> str:
        """Group and receiving partition, as plans name them."""
        return f"{self.group} {self.facts.receiving}"

    @property
    def change(self) -> Change:
        """What is done, in the form of every plan."""
        d = self.decision
        to = None if d.kind is GroupAction.DELETE else d.to
        return Change(f"{d.kind} group", self.object, self.facts.current, to, d.reason, d.risk, d.records)

    @property
    def item(self) -> Item:
        """What a person approves: this move, from where the group stands now."""
        standing = {self.object: ObjectState(f"at {self.facts.current}")}
        return items_of([self.change], standing)[0]

    @property
    def refusal(self) -> Refusal:
        """Why nothing is done."""
        d = self.decision
        return Refusal(self.object, d.code, d.reason, d.resolve, d.blocks, passes=d.code in PASSING)

    def document(self) -> dict[str, Any]:
        """Return one entry of ``positions``."""
        f, d = self.facts, self.decision
        return {
            "group": self.group,
            "topic": f.giving.topic,
            "partition": f.giving.partition,
            "to_topic": f.receiving.topic,
            "committed": f.committed,
            "lag": f.lag,
            "translated": f.translation.offset if isinstance(f.translation, Translated) else None,
            "to_copy": f.uncopied,
            "current": f.current,
            "new": d.to,
            "decision": str(d.kind),
            "code": d.code or None,
            "reason": d.reason,
            "forerunner": f.forerunner,
        }

    def cells(self) -> tuple[str, ...]:
        """Return its line of the table; what is decided, and why, comes last."""
        entry, d = self.document(), self.decision
        keys = ("committed", "lag", "translated", "current", "new")
        shown = ["-" if entry[key] is None else str(entry[key]) for key in keys]
        cost = f" ({_RISKS[d.risk]} {d.records} offsets)" if d.records else ""
        resolve = f"; {d.resolve}" if d.resolve else ""
        return (str(self.facts.giving), *shown, f"{d.kind}: {d.reason}{cost}{resolve}")


# Tells whether a risky row may be written.
Approves = Callable[[Row], bool]


@dataclass(frozen=True)
class GroupSteps:
    """What is written for one group: rows whose decision writes, and those to remember as they are."""

    group: str
    writes: tuple[Row, ...]
    keeps: tuple[Row, ...]
    seen_s: float


@dataclass(frozen=True, kw_only=True)
class GroupPlan(ApprovablePlan):
    """The plan for groups.

    Args:
        view: what it was computed from.
        rows: every partition of every group, with its decision.
        steps: what is written, by group.
        temporary: True when something could not be read now and may be later.
    """

    view: GroupView = field(compare=False)
    rows: tuple[Row, ...] = ()
    steps: tuple[GroupSteps, ...] = ()
    temporary: bool = False

    @property
    def title(self) -> str:
        """First line of the text."""
        v = self.view
        return f"groups of flow {v.flow}, {v.direction}: {v.giving} -> {v.receiving}"

    @property
    def watched(self) -> bool:
        """True when somebody else's commits would be replaced."""
        return any(row.decision.watch for step in self.steps for row in step.writes)

    @property
    def risky(self) -> list[Row]:
        """What a person should look at first."""
        return [row for step in self.steps for row in step.writes if row.is_risky]

    @property
    def items(self) -> tuple[Item, ...]:
        """What a person approves: each risky move, from where its group stands now."""
        return tuple(row.item for row in self.risky)

    @property
    def counts(self) -> dict[str, Any]:
        """Names, ids and counts."""
        return {**super().counts, "risky": len(self.risky)}

    @property
    def exit_code(self) -> int:
        """5 when something could not be read, 3 when somebody has to decide, else 0."""
        return exit_of(self.refused, passes=self.temporary)

    def misplaced(self, approves: Approves = lambda _: True) -> list[Refusal]:
        """Return what is refused of groups that have a position on the giving side, or may have one.

        Of the others nothing is to be put in place: what is committed for them there is deleted, or expired.

        Args:
            approves: asked about each risky row; what it does not approve is refused, too.
        """
        unapproved = [_approved(row, approves, self.flow).refusal for row in self.risky if not approves(row)]
        nowhere = {row.object for row in self.rows if not _stands(row.facts)}
        # Of a group that could not be read nobody knows that; nor of what is no offset.
        gone = {g.name for g in self.view.groups if g.error is None and not any(map(_stands, g.partitions))}
        refused = [
            r
            for r in self.refused
            if r.object not in nowhere and not (r.code == KafkaCode.HAS_MEMBERS and r.object in gone)
        ]
        return refused + unapproved

    def document(self) -> dict[str, Any]:
        """Return the plan's JSON, with every position."""
        v = self.view
        positions = [row.document() for row in self.rows]
        return {
            **super().document(),
            "direction": str(v.direction),
            "giving": v.giving,
            "receiving": v.receiving,
            "positions": positions,
            "lag_unknown": v.lag_unknown,
        }

    def describe(self) -> str:
        """Return a table for each group, what is refused, and what would be done in all."""
        lines = [self.title]
        by_group: dict[str, list[Row]] = {}
        for row in self.rows:
            by_group.setdefault(row.group, []).append(row)
        for facts in self.view.groups:
            if facts.name in by_group:
                lines += ["", f"group {facts.name} ({facts.type})", *_table(by_group[facts.name])]
        shown = {(name, row.decision.code) for row in self.rows for name in (row.object, row.group)}
        remarks = [
            f"left alone: {r.object}: {r.message}; {r.resolve}"
            for r in self.refused
            if (r.object, r.code) not in shown
        ]
        if self.view.lag_unknown is not None:
            remarks.append(self.view.lag_unknown)
        lines += ["", *remarks] if remarks else []
        lines += ["", summary(self.changes, self.refused)]
        return lined(lines)


def plan_groups(view: GroupView, allowed: Allowed, approves: Approves | None = None) -> GroupPlan:
    """Return what is done about every group of the view.

    Args:
        view: both clusters.
        allowed: what is allowed beyond moving forward.
        approves: asked about each risky row; None approves all.
    """
    rows: list[Row] = []
    steps: list[GroupSteps] = []
    refused = [_unlisted(view.giving, error) for error in view.errors]
    refused += [_unlisted(view.receiving, error) for error in view.errors_there]
    refused += [_hidden(view, topic, error) for topic, error in sorted(view.hidden.items())]
    if view.away is not None:
        refused.append(_away(view, view.away))
    for group in view.groups:
        blocked = _blocked(group, view)
        decided = ((f, decide(f, allowed, view.now_ms)) for f in group.partitions)
        mine = [_approved(Row(group.name, f, d), approves, view.flow) for f, d in decided if d is not None]
        if blocked is not None:
            if group.error is not None or mine or group.type in _NOT_MOVED:
                refused.append(blocked)
            mine = [
                Row(
                    r.group,
                    r.facts,
                    Decision(GroupAction.LEFT, _why(blocked, r.facts, view), code=blocked.code),
                )
                for r in mine
            ]
        else:
            refused += [row.refusal for row in mine if row.decision.code]
            writes = tuple(row for row in mine if row.decision.kind.writes)
            keeps = tuple(
                row for row in mine if row.decision.kind is GroupAction.IN_PLACE and _is_news(row.facts)
            )
            if writes or keeps:
                steps.append(GroupSteps(group.name, writes, keeps, group.seen_s))
        rows += mine
    away = () if view.away is None else (view.away,)
    errors = [
        *view.errors,
        *view.errors_there,
        *away,
        *(group.error for group in view.groups if group.error is not None),
    ]
    return GroupPlan(
        operation=f"groups {view.direction}",
        flow=view.flow,
        changes=tuple(row.change for step in steps for row in step.writes),
        refused=tuple(refused),
        computed_at_ms=view.now_ms,
        view=view,
        rows=tuple(rows),
        steps=tuple(steps),
        temporary=any(isinstance(error, Retriable) for error in errors)
        or any(row.decision.code in PASSING for row in rows),
    )


def summary(changes: Iterable[Change], refused: Iterable[Refusal]) -> str:
    """Return one line: how much of what."""
    counts: dict[str, int] = {}
    for change in changes:
        counts[change.what] = counts.get(change.what, 0) + 1
    for refusal in refused:
        counts[f"left alone {refusal.code}"] = counts.get(f"left alone {refusal.code}", 0) + 1
    return ", ".join(f"{what}: {count}" for what, count in counts.items()) or "nothing to do"


def _approved(row: Row, approves: Approves | None, flow: str) -> Row:
    if approves is None or not row.is_risky or approves(row):
        return row
    decision = Decision(
        GroupAction.LEFT,
        f"nobody has approved this: {row.decision.kind} to {row.decision.to}, {row.decision.reason}",
        code=GroupCode.NOT_APPROVED,
        resolve=f"{commands.command('groups', 'apply', flow)} shows it and asks, or approve it in the DAG "
        "sync_group_offsets",
        blocks=True,
    )
    return replace(row, decision=decision)


def _stands(facts: PartitionFacts) -> bool:
    """Tell whether a group has a position there on the giving side, as far as that can be told."""
    is_gone = facts.problem is not None and facts.problem[0] == GroupCode.GONE
    return facts.committed is not None and not is_gone


def _is_news(facts: PartitionFacts) -> bool:
    """Tell whether a position that is in place already has to be remembered: nothing of ours says so."""
    if facts.is_back:
        # Where it is is on record from the way over; a pair of these positions is none of the map's.
        return False
    held = facts.held
    if held is None or not facts.is_known or held.given != facts.committed:
        return True
    # What was meant is there by now: what it has replaced is known no longer.
    return facts.current in held.meant


def _blocked(group: GroupFacts, view: GroupView) -> Refusal | None:
    for kind in (group.type, group.there_type):
        if kind in _NOT_MOVED:
            return Refusal(
                group.name,
                GroupCode.NOT_MOVED,
                _NOT_MOVED[kind],
                # It is listed as long as it is there, with readers or without.
                "move its readers by hand, then leave it out with groups.exclude, or delete it",
                False,
            )
    if group.error is not None:
        return _unknown(group.name, group.error)
    if group.there_state is not None and group.there_state not in _EMPTY:
        return Refusal(
            group.name,
            KafkaCode.HAS_MEMBERS,
            f"it has members on {view.receiving} (state {group.there_state})",
            "nothing, if it consumes there; otherwise stop its consumers there, then run again",
            False,
        )
    return None


def _unknown(what: str, error: OnceoverError) -> Refusal:
    resolve = error.resolve or "run again"
    code = StateCode.STATE_UNREADABLE if error.code == StateCode.STATE_UNREADABLE else GroupCode.UNKNOWN
    text = f"nothing is done, because it is not known: {error.message}"
    return Refusal(what, code, text, resolve, passes=isinstance(error, Retriable))


def _unlisted(cluster: str, error: OnceoverError) -> Refusal:
    """Return what it means that not all groups of a cluster are known: the others are gone on with."""
    found = _unknown(cluster, error)
    return replace(found, message=f"nothing is done for groups that are not known: {error.message}")


def _hidden(view: GroupView, topic: str, error: OnceoverError) -> Refusal:
    return Refusal(
        topic,
        KafkaCode.NOT_AUTHORIZED,
        f"what groups have committed for {topic} on {view.giving} is not shown, nor moved: {error.message}",
        f"grant the flow's principal DESCRIBE on {topic} (docs/groups.md)",
    )


def _away(view: GroupView, error: OnceoverError) -> Refusal:
    return Refusal(
        view.giving,
        GroupCode.UNKNOWN,
        f"what groups have committed on {view.giving} cannot be asked: {error.message}. Those that were put "
        f"in place before stand there, and read again what they have read on {view.giving} since; of others "
        "nothing is known",
        error.resolve or "run again",
        passes=isinstance(error, Retriable),
    )


def _why(blocked: Refusal, facts: PartitionFacts, view: GroupView) -> str:
    """Return why a group is left alone; where it is not known what it has committed, what was the last."""
    if blocked.code != GroupCode.UNKNOWN or facts.last is None:
        return blocked.message
    ago = age_text((view.now_ms - facts.last.at_ms) / 1000)
    return f"it stands where a look put it {ago} ago, for offset {facts.last.given}; {blocked.message}"


def _table(rows: list[Row]) -> list[str]:
    lines = [_PAIR_HEADERS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_PAIR_HEADERS) - 1)]
    return ["  " + "  ".join(_padded(line, widths)) for line in lines]


def _padded(line: tuple[str, ...], widths: list[int]) -> list[str]:
    numbers = [cell.rjust(width) for cell, width in zip(line[1:-1], widths[1:], strict=True)]
    return [line[0].ljust(widths[0]), *numbers, line[-1]]
