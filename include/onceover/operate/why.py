"""Why a topic or a partition is copied, or is not: one line, and what stands behind it. Pure.

Invariant: it is read from a flow's ``status`` alone, so that the command line, the page and others give one
answer; what its clusters do not tell is said to be unknown, and no topic is called missing while
nobody knows.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from onceover.ages import age_text
from onceover.exitstatus import OK, PERSON, TEMPORARY, USAGE, worst
from onceover.operate.codes import StatusCode
from onceover.operate.states import CopyState, PartitionState
from onceover.operate.statusneeds import RUN_NEEDS
from onceover.operate.stuck import stuck_need, transaction_words
from onceover.planning.plan import Refusal
from onceover.shown import lined
from onceover.state.codes import StateCode
from onceover.state.records.runstate import RunState, describe_run
from onceover.stops.codes import WaitCode
from onceover.topics.scope import ScopeDecision, ScopeRule

_SHOWN: Final = 8


class Answer(StrEnum):
    """How it is with a topic or a partition, the worst of its partitions' first.

    NOT_TAKEN_IN: in scope, and waits for the flow to take it in. HELD: all that readers of the source see is
    copied, and more is behind an open transaction. LEFT_OUT: by the flow file, or its name.
    PROMOTED: the copy is its clients' own. MISSING: not on the source. NO_SUCH: neither side knows of it.
    """

    STOPPED = "stopped"
    REFUSED = "refused"
    STUCK = "stuck"
    UNKNOWN = "unknown"
    NOT_TAKEN_IN = "not_taken_in"
    WAITING = "waiting"
    IDLE = "idle"
    BEHIND = "behind"
    HELD = "held"
    COPIED = "copied"
    PROMOTED = "promoted"
    LEFT_OUT = "left_out"
    MISSING = "missing"
    NO_SUCH = "no_such"


_EXITS: Final[Mapping[Answer, int]] = {
    Answer.STOPPED: PERSON,
    Answer.REFUSED: PERSON,
    Answer.STUCK: PERSON,
    Answer.UNKNOWN: TEMPORARY,
    Answer.NO_SUCH: USAGE,
    Answer.MISSING: USAGE,
}
_ORDER: Final = tuple(Answer)
_UNREACHABLE: Final = {"source": StatusCode.SOURCE_UNREACHABLE, "target": StatusCode.TARGET_UNREACHABLE}


@dataclass(frozen=True, kw_only=True)
class Why:
    """What is answered about one name.

    Args:
        topic: on the source; ``partition`` is None for all of it.
        answer: how it is.
        line: that in one line.
        code: of a refusal, a stop or a wait; ``resolve`` what to do.
        rule: which list of the flow file, or what else, has decided; ``pattern`` the one of that list.
        target_topic: how the copy is called; None where nobody knows.
        asked_as: the name that was asked for, where it is that of a copy.
        details: what stands behind it.
        close: names that may have been meant.
        partitions: the entries of ``status``.
        is_refused: what would tell was asked, and has refused it: a right is missing, or a setting is wrong.
    """

    topic: str
    partition: int | None
    answer: Answer
    line: str
    code: str | None = None
    resolve: str | None = None
    rule: str | None = None
    pattern: str | None = None
    target_topic: str | None = None
    asked_as: str | None = None
    details: tuple[str, ...] = ()
    close: tuple[str, ...] = ()
    partitions: tuple[Mapping[str, Any], ...] = ()
    is_refused: bool = False

    @property
    def exit_code(self) -> int:
        """0 where it is as it should be, 3 for a person, 5 where nobody knows now, 2 for no such name."""
        if self.is_refused:
            return PERSON
        return worst([_EXITS.get(self.answer, OK), *(_EXITS.get(_state(p), OK) for p in self.partitions)])

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "answer": str(self.answer),
            "line": self.line,
            "code": self.code,
            "resolve": self.resolve,
            "rule": self.rule,
            "pattern": self.pattern,
            "target_topic": self.target_topic,
            "asked_as": self.asked_as,
            "details": list(self.details),
            "did_you_mean": list(self.close),
            "partitions": list(self.partitions),
            "exit": self.exit_code,
        }

    def describe(self) -> str:
        """Return it as text: the line, what to do, what is behind it."""
        lines = [self.line]
        if self.resolve:
            lines.append(f"  do: {self.resolve}")
        if self.close:
            lines.append(f"  did you mean {' or '.join(self.close)}?")
        return lined([*lines, *(f"  {detail}" for detail in self.details)])


def explain_name(
    status: Mapping[str, Any],
    topic: str,
    partition: int | None = None,
    decide: Callable[[str], ScopeDecision] | None = None,
) -> Why:
    """Return why a topic, or a partition of it, is copied or not.

    Args:
        status: a flow's entry of ``status``.
        topic: on the source, or the name of a copy.
        decide: what the flow file says about any name, for those that ``status`` does not list; None where
            only listed names are asked for.
    """
    name = _Name(status, decide)
    if name.is_known(topic):
        return name.explain(topic, partition)
    origins = name.origins(topic)
    if origins:
        found = name.explain(origins[0], partition)
        line = f"{_named(topic, partition)} is the copy of {_named(origins[0], partition)}: {found.line}"
        return replace(found, line=line, asked_as=topic)
    return name.unlisted(topic, partition)


def with_plan(found: Why, changes: Iterable[str], refused: Sequence[Refusal]) -> Why:
    """Return the answer about what is not taken in with what `topics plan` says of it now.

    Args:
        changes: what has to be done on the target before.
        refused: why it is not taken in.
    """
    for refusal in refused:
        line = f"{_named(found.topic, found.partition)} is not copied: {refusal.code}: {refusal.message}"
        return replace(found, answer=Answer.REFUSED, line=line, code=refusal.code, resolve=refusal.resolve)
    planned = [f"planned, and not done yet: {change}" for change in changes]
    return replace(found, details=(*planned, *found.details))


class _Name:
    """Names, as one status knows them."""

    def __init__(self, status: Mapping[str, Any], decide: Callable[[str], ScopeDecision] | None) -> None:
        self._status = status
        self._decide = decide
        self._topics = {entry["topic"]: entry for entry in status["topics"]}
        self._partitions: dict[str, list[Mapping[str, Any]]] = {}
        for entry in status["partitions"]:
            self._partitions.setdefault(entry["topic"], []).append(entry)

    def is_known(self, topic: str) -> bool:
        return topic in self._topics or topic in self._partitions

    def origins(self, target: str) -> list[str]:
        """Return the source topics whose copy has that name, those that are copied, or were, first."""
        taken = {p["topic"] for p in self._status["partitions"] if p["target_topic"] == target}
        known = [t for t in self._topics.values() if t["target_topic"] == target and t["topic"] not in taken]
        return [*sorted(taken), *(t["topic"] for t in sorted(known, key=lambda t: not t["enrolled"]))]

    def explain(self, topic: str, partition: int | None) -> Why:
        """Answer about a name that the status lists."""
        entry = self._topics.get(topic)
        if entry is not None and entry["promoted"] is not None:
            return self._promoted(entry, partition)
        rows = self._partitions.get(topic, [])
        if entry is not None and partition is not None and partition >= max(1, entry["partitions"]):
            return self._no_partition(topic, partition)
        if not rows and entry is not None:
            return self._left_out(entry, partition)
        if partition is not None:
            rows = _of(rows, partition)
            if not rows:
                return self._no_partition(topic, partition)
        told = [self._row(row, partition) for row in rows]
        return _together(topic, partition, told, rows)

    # ---- what is not copied

    def _left_out(self, entry: Mapping[str, Any], partition: int | None) -> Why:
        topic = entry["topic"]
        details = []
        if entry["enrolled"]:
            details.append("it was copied before; its progress is kept, and it goes on there when it is back")
        return Why(
            topic=topic,
            partition=partition,
            answer=Answer.LEFT_OUT,
            line=f"{_named(topic, partition)} is not copied: {_rule_words(entry)}",
            rule=entry["rule"],
            pattern=entry["pattern"],
            target_topic=entry["target_topic"],
            resolve=_rule_resolve(entry["rule"], self._path()),
            details=tuple(details),
        )

    def _promoted(self, entry: Mapping[str, Any], partition: int | None) -> Why:
        topic, promoted = entry["topic"], entry["promoted"]
        cuts = {int(number): cut for number, cut in promoted["cuts"].items()}
        wanted = cuts if partition is None else {n: cut for n, cut in cuts.items() if n == partition}
        details = [
            f"partition {number}: records from source offset {cut} on are not copied"
            for number, cut in sorted(wanted.items())
        ]
        return Why(
            topic=topic,
            partition=partition,
            answer=Answer.PROMOTED,
            line=f"{_named(topic, partition)} is not copied any more: switchover {promoted['drill']} has "
            f"given its copy {entry['target_topic']} to clients",
            rule=entry["rule"],
            pattern=entry["pattern"],
            target_topic=entry["target_topic"],
            details=_some(details),
        )

    def _no_partition(self, topic: str, partition: int) -> Why:
        entry = self._topics.get(topic)
        count = entry["partitions"] if entry is not None else len(self._partitions[topic])
        return Why(
            topic=topic,
            partition=partition,
            answer=Answer.NO_SUCH,
            line=f"{topic} has no partition {partition}: it has {count}, counted from 0",
        )

    def unlisted(self, topic: str, partition: int | None) -> Why:
        """Answer about a name that the status does not list."""
        status = self._status
        decision = None if self._decide is None else self._decide(topic)
        common: dict[str, Any] = {"topic": topic, "partition": partition}
        if decision is not None:
            common |= {"rule": str(decision.ruling.rule), "pattern": decision.ruling.pattern}
            common["target_topic"] = decision.target_topic
        if decision is not None and decision.ruling.rule is ScopeRule.INTERNAL:
            whose = decision.reason.partition(": ")[2]
            line = f"{_named(topic, partition)} is not copied: it is internal ({whose}) for every flow"
            return Why(answer=Answer.LEFT_OUT, line=line, **common)
        if status["error"] is not None:
            line, error = f"whether {topic} is copied is not known: nothing of its flow is", status["error"]
            line += _refusal(error)
            common |= {"code": error["code"], "resolve": error["resolve"], "is_refused": _refuses(error)}
            return Why(answer=Answer.UNKNOWN, line=line, **common)
        if not status["topics"] and (silent := self._silent()):
            who = " and ".join(side["alias"] for side in silent)
            line = f"whether {topic} is there is not known: {who} cannot be asked{self._why_silent()}"
            common |= {"code": self._silence_code(), "resolve": silent[0]["error"]["resolve"]}
            common["is_refused"] = self._is_refused()
            return Why(answer=Answer.UNKNOWN, line=line, details=_by_file(decision), **common)
        inside = decision is not None and decision.inside
        close = difflib.get_close_matches(topic, [*self._topics, *self._copies()], n=2)
        answer = Answer.MISSING if inside else Answer.NO_SUCH
        line = f"{topic} is not on {status['source']['alias']}, and no copy of this flow has that name"
        return Why(answer=answer, line=line, close=tuple(close), details=_by_file(decision), **common)

    def _copies(self) -> set[str]:
        return {p["target_topic"] for p in self._status["partitions"]}

    def _silent(self) -> list[Mapping[str, Any]]:
        sides = [self._status[side] for side in ("source", "target")]
        return [side for side in sides if side["error"] is not None]

    def _is_refused(self) -> bool:
        return any(_refuses(side["error"]) for side in self._silent())

    def _why_silent(self) -> str:
        """Return what the clusters that have refused it said, as the end of a line."""
        return "".join(_refusal(side["error"]) for side in self._silent())

    def _silence_code(self) -> str | None:
        """Return the code that ``status`` has for the first cluster that does not answer."""
        for side, unreachable in _UNREACHABLE.items():
            error = self._status[side]["error"]
            if error is not None:
                return str(unreachable if error["exit"] == TEMPORARY else error["code"])
        return None

    def _path(self) -> str:
        return str(self._status.get("path") or "the flow file")

    # ---- partitions

    def _row(self, row: Mapping[str, Any], partition: int | None) -> Why:
        number = row["partition"] if row["partition"] is not None else partition
        answer = _state(row)
        name = _named(row["topic"], number)
        line, code, resolve = self._words(answer, row, name)
        if answer is Answer.BEHIND and (waits := self._waits(row, name)) is not None:
            answer, (line, code, resolve) = Answer.WAITING, waits
        return Why(
            topic=row["topic"],
            partition=number,
            answer=answer,
            line=line,
            code=code,
            resolve=resolve,
            target_topic=row["target_topic"],
            details=tuple(self._standing(row)),
            partitions=(row,),
            is_refused=answer is Answer.UNKNOWN and self._is_refused(),
        )

    def _words(self, answer: Answer, row: Mapping[str, Any], name: str) -> tuple[str, str | None, str | None]:
        """Return the line, the code and what to do."""
        stop, copy = row["stop"], _named(row["target_topic"], row["partition"])
        if answer in (Answer.STOPPED, Answer.REFUSED):
            word = "stopped" if answer is Answer.STOPPED else "not copied"
            return f"{name} is {word}: {stop['code']}: {stop['message']}", stop["code"], stop["resolve"]
        if answer is Answer.STUCK:
            need = stuck_need(self._status["flow"], row)
            return f"{name} is stuck: {need['code']}: {need['message']}", need["code"], need["resolve"]
        if answer is Answer.NOT_TAKEN_IN:
            return self._not_taken_in(row, name)
        if answer is Answer.UNKNOWN:
            return self._unknown(row, name, copy)
        if answer is Answer.COPIED:
            return f"{name} is copied to {copy}, all up to source offset {row['position']}", None, None
        if answer is Answer.HELD:
            line = f"{name} is copied to {copy} as far as readers of the source see it, up to offset"
            wait = f"{row['open_offsets']} offsets wait for {transaction_words(row['open_transaction'])}"
            return f"{line} {row['position']}; {wait}", None, None
        lacks = f"{name} is copied to {copy} up to source offset {row['position']}, {_behind(row)}"
        if answer is Answer.IDLE:
            return f"{lacks}: nobody copies (run: {self._run()})", *self._start()
        return lacks, None, None

    def _not_taken_in(self, row: Mapping[str, Any], name: str) -> tuple[str, str | None, str | None]:
        line = f"{name} is to be copied to {row['target_topic']}, and is not taken in yet"
        if self._status["run"]["state"] in (RunState.RUNNING, RunState.STARTING):
            return f"{line}: the flow does so at its next look for topics", None, None
        return f"{line}: nobody does (run: {self._run()})", *self._start()

    def _unknown(self, row: Mapping[str, Any], name: str, copy: str) -> tuple[str, str | None, str | None]:
        silent = self._silent()
        code, start = self._start()
        if not silent and code == StateCode.STATE_SHORTENED:
            told = next(need["message"] for need in self._status["needs"] if need["code"] == code)
            return f"{name} is copied to {copy}, {_behind(row)}; who copies is not known: {told}", code, start
        who = " and ".join(side["alias"] for side in silent) or "a broker of the source"
        stands = f" up to source offset {row['position']}" if row["position"] is not None else ""
        why = self._why_silent() or f": {who} does not answer"
        line = f"{name} is copied to {copy}{stands}; what it lacks is not known{why}"
        resolve = next((side["error"]["resolve"] for side in silent if side["error"]["resolve"]), None)
        return line, self._silence_code(), resolve

    def _waits(self, row: Mapping[str, Any], name: str) -> tuple[str, str | None, str | None] | None:
        """Return what a partition that lacks something waits for; None where it is being copied."""
        notes = {(note["object"], note["code"]): note for note in self._status["notes"]}
        note = notes.get((f"{row['topic']}:{row['partition']}", str(WaitCode.WAITING)))
        note = note or notes.get((f"lane {row['lane']}", str(WaitCode.TARGET_QUOTA)))
        if note is not None:
            line = f"{name} waits, {_behind(row)}: {note['code']}: {note['message']}"
            return line, note["code"], note["resolve"]
        if self._status["state"] == CopyState.WAITING:
            line = f"{name} waits, {_behind(row)}: no lane of this start has begun yet"
            return line, None, "Spark gives its cores to lanes as they are free; the log of the run says more"
        if not row["begun"] and self._status["state"] == CopyState.COPYING:
            line = f"{name} waits, {_behind(row)}: lane {row['lane']} has not come to it since the start"
            return line, None, None
        return None

    def _standing(self, row: Mapping[str, Any]) -> Iterable[str]:
        """Yield where a partition stands."""
        if row["position"] is None:
            if row["lag_offsets"]:
                yield f"missing on the target: {row['lag_offsets']} offsets"
            return
        ends = "unknown" if row["lso"] is None else row["lso"]
        yield f"position {row['position']}, the source's last stable offset {ends}, lane {row['lane']}"
        if row["open_offsets"] and row["state"] != PartitionState.CAUGHT_UP:
            yield f"{row['open_offsets']} offsets wait for {transaction_words(row['open_transaction'])}"
        if self._status["last_commit_s"] is not None:
            yield f"last commit of the flow {age_text(self._status['last_commit_s'])} ago"
        verified = row["verified"]
        yield f"proven up to source offset {verified['offset']}" if verified else "not proven by an audit yet"

    def _run(self) -> str:
        return describe_run(self._status["run"])

    def _start(self) -> tuple[str | None, str | None]:
        """Return what starts the flow, and the code of why it does not run."""
        need = next((n for n in self._status["needs"] if n["code"] in RUN_NEEDS), None)
        start = f"`onceover replicate {self._status['flow']}`"
        return (None, start) if need is None else (need["code"], need["resolve"])


_STATES: Final[Mapping[str, Answer]] = {
    PartitionState.STOPPED: Answer.STOPPED,
    PartitionState.CAUGHT_UP: Answer.COPIED,
    PartitionState.STUCK: Answer.STUCK,
    PartitionState.IDLE: Answer.IDLE,
    PartitionState.COPYING: Answer.BEHIND,
    PartitionState.UNKNOWN: Answer.UNKNOWN,
}


def _state(row: Mapping[str, Any]) -> Answer:
    if row["state"] == PartitionState.NOT_ENROLLED:
        return Answer.REFUSED if row["stop"] else Answer.NOT_TAKEN_IN
    found = _STATES[row["state"]]
    return Answer.HELD if found is Answer.COPIED and row["open_offsets"] else found


def _of(rows: Iterable[Mapping[str, Any]], partition: int) -> list[Mapping[str, Any]]:
    """Return the row of a partition; of a topic that is not taken in, that of the topic."""
    return [
        row
        for row in rows
        if row["partition"] == partition
        or (row["partition"] is None and partition < max(1, row["partitions"]))
    ]


def _together(
    topic: str, partition: int | None, told: Sequence[Why], rows: Sequence[Mapping[str, Any]]
) -> Why:
    """Return the answer about a topic: that of its worst partition, and how many are how."""
    worst_one = min(told, key=lambda one: _ORDER.index(one.answer))
    if len(told) == 1:
        one = told[0]
        return replace(one, partition=partition, partitions=tuple(rows)) if partition is None else one
    alike = [one for one in told if one.answer is worst_one.answer]
    if worst_one.answer is Answer.COPIED:
        line = f"{topic} is copied to {worst_one.target_topic}, all of its {len(told)} partitions"
    else:
        line = f"{len(alike)} of {len(told)} partitions of {topic}: {worst_one.line}"
    others = [one for one in told if one is not worst_one]
    others.sort(key=lambda one: (_ORDER.index(one.answer), one.partition or 0))
    return replace(
        worst_one,
        partition=None,
        line=line,
        details=_some([one.line for one in others]),
        partitions=tuple(rows),
    )


def _some(lines: Sequence[str]) -> tuple[str, ...]:
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return (*lines[:_SHOWN], *more)


def _refuses(error: Mapping[str, Any]) -> bool:
    """Tell whether who was asked has answered, so that it does not pass by itself."""
    return bool(error["exit"] != TEMPORARY)


def _refusal(error: Mapping[str, Any]) -> str:
    return f": {error['message']}" if _refuses(error) else ""


def _named(topic: str, partition: int | None) -> str:
    return topic if partition is None else f"{topic}:{partition}"


def _behind(row: Mapping[str, Any]) -> str:
    oldest = row["oldest_missing_s"]
    age = f", the oldest {age_text(oldest)} old" if oldest else ""
    return f"{row['lag_offsets']} offsets behind{age}"


def _rule_words(entry: Mapping[str, Any]) -> str:
    rule, pattern = entry["rule"], entry["pattern"]
    words = {
        ScopeRule.EXCLUDED: f"topics.exclude has `{pattern}`, which matches it",
        ScopeRule.NOT_INCLUDED: "no pattern of topics.include matches it",
        ScopeRule.INTERNAL: f"it is {entry['reason']}",
    }
    return words.get(rule, str(entry["reason"]))


def _rule_resolve(rule: str, path: str) -> str | None:
    """Return what would bring a topic in."""
    change = {
        ScopeRule.EXCLUDED: "take that pattern out of topics.exclude",
        ScopeRule.NOT_INCLUDED: "add it to topics.include",
    }.get(ScopeRule(rule))
    return None if change is None else f"if it is to be copied, {change} in {path}"


def _by_file(decision: ScopeDecision | None) -> tuple[str, ...]:
    if decision is None:
        return ()
    if decision.inside:
        return (f"by the flow file it would be taken in, as {decision.target_topic}: {decision.reason}",)
    return (f"by the flow file it would be left out: {decision.reason}",)
