"""The journal of drills as a chain: each entry holds the hash of the one before it. Pure.

Invariant: an entry that was changed, removed or put in between is told by every entry behind it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import Any, Final

from onceover.drills.codes import DrillCode
from onceover.errors import NeedsOperator
from onceover.state.records.value import MALFORMED, mapping, text, whole_number

VERSION: Final = 1
KEY_PREFIX: Final = "entry/"
BEGINNING: Final = "0" * 64
# Of a run: it has begun, each of its steps, somebody wants it to end, and its end.
BEGUN: Final = "begun"
STEP: Final = "step"
ABORT: Final = "abort"
# What takes away what a drill has left begins in this mode.
ABORT_MODE: Final = "abort"
ENDED: Final = "ended"
# Of a switchover: topics whose writers are about to be kept off, or were let in again; a person's word.
FENCED: Final = "fenced"
UNFENCED: Final = "unfenced"
CONFIRMED: Final = "confirmed"
# Of a planned one: where the groups stood when everything was carried over.
PLACED: Final = "placed"
# Said at the beginning of what ends a drill from outside: whose approval is good for no other try.
WITHDRAWS: Final = "withdraws"


class DrillResult(StrEnum):
    """How a drill has ended, as its journal says."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    FAIL = "FAIL"
    PARTLY = "PARTLY"
    """Of an export: something is left, and the outcome says why."""
    REFUSED = "refused"
    """It was planned for something that was not so any more when it began: nothing was done."""
    INTERRUPTED = "interrupted"
    REMOVED = "removed"
    """What took away what a dead drill had left."""
    DIED = "died"
    """Somebody else has found it dead."""


@dataclass(frozen=True)
class JournalEntry:
    """One entry.

    Args:
        number: from 1 on, over all drills of the flow.
        drill: id of the drill.
        what: ``begun``, ``step``, ``abort``, ``fenced``, ``unfenced``, ``placed``, ``confirmed`` or
            ``ended``.
        at_ms: when it was written, in ms since 1970, by the writer's clock.
        said: names, counts and codes; never a payload, never a secret.
        before: hash of the entry before it.
    """

    number: int
    drill: str
    what: str
    at_ms: int
    said: Mapping[str, Any]
    before: str

    @property
    def key(self) -> str:
        """Key of its record: in the order of the numbers when sorted."""
        return f"{KEY_PREFIX}{self.number:012d}"

    def to_json(self) -> dict[str, Any]:
        """Return its value."""
        return {
            "v": VERSION,
            "number": self.number,
            "drill": self.drill,
            "what": self.what,
            "at_ms": self.at_ms,
            "said": dict(self.said),
            "before": self.before,
        }

    @property
    def hash(self) -> str:
        """Hash of everything in it, and so of everything before it."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    @classmethod
    def from_json(cls, value: Any) -> JournalEntry:
        """Read what ``to_json`` wrote.

        Raises:
            LookupError, TypeError, ValueError: it is not of that shape.
        """
        found = mapping(value, "journal entry")
        if whole_number(found["v"]) != VERSION:
            raise ValueError("an entry of another version")
        return cls(
            whole_number(found["number"]),
            text(found["drill"]),
            text(found["what"]),
            whole_number(found["at_ms"]),
            mapping(found["said"], "what is said"),
            text(found["before"]),
        )


def next_entry(
    chain: Sequence[JournalEntry], drill: str, what: str, at_ms: int, said: Mapping[str, Any]
) -> JournalEntry:
    """Return what comes behind a chain."""
    before = chain[-1].hash if chain else BEGINNING
    number = chain[-1].number + 1 if chain else 1
    return JournalEntry(number, drill, what, at_ms, said, before)


def continued(chain: Sequence[JournalEntry], kept: Iterable[JournalEntry]) -> list[JournalEntry]:
    """Return what follows on a chain, of entries that were kept elsewhere: each holds the hash of the one
    before it. Pure.

    None follows on an empty one: a journal that was deleted is not brought back.
    """
    following = {entry.before: entry for entry in kept}
    found: list[JournalEntry] = []
    last = chain[-1] if chain else None
    while last is not None and (entry := following.get(last.hash)) is not None:
        found.append(entry)
        last = entry
    return found


class ChainReader:
    """Reads a chain again and again; what it has proven, and is the very same value, is not proven again.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._proven: list[tuple[str, Any, JournalEntry]] = []

    def read(self, values: Mapping[str, Any], where: str) -> list[JournalEntry]:
        """Return the entries in their order.

        Args:
            values: of the journal's topic, by key; nobody changes one, a new one takes its place.
            where: the topic, for messages.

        Raises:
            NeedsOperator: JOURNAL_DAMAGED, an entry was changed, removed or put in between.
        """
        keys = sorted(key for key in values if key.startswith(KEY_PREFIX))
        same = zip(keys, self._proven, strict=False)
        known = sum(1 for _ in takewhile(lambda at: _is_proven(at[0], values[at[0]], at[1]), same))
        del self._proven[known:]
        chain = [entry for _, _, entry in self._proven]
        for key in keys[known:]:
            try:
                entry = JournalEntry.from_json(values[key])
            except MALFORMED as error:
                raise _damaged(where, key, "it cannot be read") from error
            wanted = next_entry(chain, entry.drill, entry.what, entry.at_ms, entry.said)
            if entry != wanted or entry.key != key:
                raise _damaged(where, key, "it does not follow on the one before it")
            chain.append(entry)
            self._proven.append((key, values[key], entry))
        return chain


def _is_proven(key: str, value: object, proven: tuple[str, Any, JournalEntry]) -> bool:
    return proven[0] == key and proven[1] is value


def running(chain: Iterable[JournalEntry]) -> JournalEntry | None:
    """Return the beginning of the drill that has not ended, None without one."""
    begun: JournalEntry | None = None
    for entry in chain:
        if entry.what == BEGUN:
            begun = entry
        elif entry.what == ENDED and begun is not None and entry.drill == begun.drill:
            begun = None
    return begun


def is_asked_to_end(chain: Iterable[JournalEntry], drill: str) -> bool:
    """Tell whether somebody wants a drill to end."""
    return any(entry.what == ABORT and entry.drill == drill for entry in chain)


def approval_of(entry: JournalEntry) -> str | None:
    """Return the id of the approval under which a drill was begun; None where it needs none."""
    said = entry.said.get("approval")
    found = said.get("id") if isinstance(said, Mapping) else None
    return found if isinstance(found, str) else None


def is_withdrawn(chain: Iterable[JournalEntry], approval: str) -> bool:
    """Tell whether somebody has ended a drill that was begun under an approval, running or not."""
    under: set[str] = set()
    for entry in chain:
        if entry.what == BEGUN and approval_of(entry) == approval:
            under.add(entry.drill)
        if (entry.what == ABORT and entry.drill in under) or entry.said.get(WITHDRAWS) in under:
            return True
    return False


def open_approval(chain: Sequence[JournalEntry]) -> str | None:
    """Return the newest drill with an approval under which it may be tried again; None where it may not."""
    begun = [entry for entry in chain if entry.what == BEGUN and approval_of(entry) is not None]
    if not begun or is_withdrawn(chain, approval_of(begun[-1]) or ""):
        return None
    approval = approval_of(begun[-1])
    under = {entry.drill for entry in begun if approval_of(entry) == approval}
    ended = [entry.said for entry in chain if entry.what == ENDED and entry.drill in under]
    done = any(s.get("done") is True or s.get("result") == DrillResult.PASS for s in ended)
    return None if done else begun[-1].drill


def fenced(chain: Iterable[JournalEntry]) -> dict[str, set[tuple[str, str]]]:
    """Return what keeps writers off by now, of whichever drill it was, by the kind of fence.

    Each is a source topic with whom it keeps off there; empty for everybody.
    """
    found: dict[str, set[tuple[str, str]]] = {}
    for entry in chain:
        if entry.what not in (FENCED, UNFENCED):
            continue
        kind, marks = entry.said.get("kind"), entry.said.get("marks")
        if not isinstance(kind, str) or not isinstance(marks, list):
            continue
        named = {tuple(mark) for mark in marks if _is_mark(mark)}
        before = found.get(kind, set())
        found[kind] = before | named if entry.what == FENCED else before - named
    return {kind: marks for kind, marks in found.items() if marks}


def fenced_kinds(chain: Iterable[JournalEntry], topics: Collection[str]) -> dict[str, list[str]]:
    """Return which of these topics are fenced, by the kind of fence, in the order of both. Pure."""
    found = {
        kind: sorted({topic for topic, _ in marks} & set(topics)) for kind, marks in fenced(chain).items()
    }
    return {kind: found[kind] for kind in sorted(found) if found[kind]}


def fenced_topics(chain: Iterable[JournalEntry]) -> set[str]:
    """Return the source topics whose writers are kept off by a drill."""
    return {topic for marks in fenced(chain).values() for topic, _ in marks}


def _is_mark(value: object) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(v, str) for v in value)


def confirmed(chain: Iterable[JournalEntry], drill: str, step: str) -> JournalEntry | None:
    """Return a person's word that a step of a drill was done by hand, None without one."""
    return next(
        (e for e in chain if e.what == CONFIRMED and e.drill == drill and e.said.get("step") == step), None
    )


def is_at(entry: JournalEntry, step: str, state: str) -> bool:
    """Tell whether an entry says that a step is in a state. Pure."""
    return (entry.what, entry.said.get("step"), entry.said.get("state")) == (STEP, step, state)


def of_drill(chain: Iterable[JournalEntry], drill: str) -> list[JournalEntry]:
    """Return what was written of one drill."""
    return [entry for entry in chain if entry.drill == drill]


def _damaged(where: str, key: str, why: str) -> NeedsOperator:
    return NeedsOperator(
        f"the journal of drills is not as it was written: {why}",
        code=DrillCode.JOURNAL_DAMAGED,
        where=f"{where}, {key}",
        expected="entries that each hold the hash of the one before",
        seen="another one",
        resolve=f"keep a copy of {where} as evidence, find out who writes there, then delete the topic: "
        "the next drill begins a new journal, which knows neither what was fenced "
        "before nor whether it was finished",
    )
