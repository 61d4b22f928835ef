"""Which flow takes a topic in when several want it at once: claims, and the rule between them. Pure.

Two flows must never write one target topic, nor copy one topic round in a circle. Each looks at the others
before it enrols, but two that look at the same time see nothing of each other. So a flow that wants a topic
first writes a claim into its own state, waits until everybody can read it, and only then looks at the others:
of two flows, at least the one whose claim came later sees the other's. Nobody enrols while the claim or the
enrolment of another one is in the way.

Invariant: of rivals at most one enrols, whoever is killed or paused in between
(``tests/unit/state/records/test_ownership.py`` goes through all interleavings).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from onceover.state import names
from onceover.state.records.value import as_unreadable, mapping, name, named_like, record

VERSION = 1


class FlowId(NamedTuple):
    """A flow among all clusters; compares by name, then by the cluster that it copies to.

    Args:
        name: of the flow.
        home: id of the cluster that holds its state; empty where that is not known.
    """

    name: str
    home: str


class Rival(NamedTuple):
    """Another flow that wants, or has, what this one wants.

    Args:
        flow: which.
        enrolled: True when it has it already, False while it claims it.
    """

    flow: FlowId
    enrolled: bool


class ClaimAnswer(Enum):
    """What a look at the rivals says to a flow whose own claim everybody can read."""

    MINE = auto()
    """Nobody is in the way: enrol."""
    THEIRS = auto()
    """Another one has it, or goes first: take the claim back."""
    WAIT = auto()
    """Another one has to give way and has not done so yet: it may have looked before our claim, and enrol."""


@dataclass(frozen=True)
class Claim:
    """A topic that a flow is about to enrol.

    Args:
        source: topic; ``target`` its counterpart.
        at_ms: when it was claimed, for people.
    """

    source: str
    target: str
    at_ms: int

    def to_json(self) -> dict[str, Any]:
        """Return the value written under ``claim/<target>``."""
        return {"v": VERSION, "source": self.source, "target": self.target, "at_ms": self.at_ms}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Claim:
        """Read what ``to_json`` wrote; of later versions what both know.

        Raises:
            NeedsOperator: it is no claim.
        """
        found = record(cls, mapping(value, "claim"), "claim")
        try:
            name(found.source), name(found.target)
        except ValueError as error:
            raise as_unreadable(error, "claim") from error
        return found


def read_claims(state: Mapping[str, Any]) -> dict[str, Claim]:
    """Return the claims among the values of the state's first partition, by target topic.

    Raises:
        NeedsOperator: one is none, or is under another topic's key.
    """
    return named_like(state, names.CLAIM_PREFIX, Claim.from_json, lambda claim: claim.target)


def decide(me: FlowId, rivals: Iterable[Rival]) -> tuple[ClaimAnswer, FlowId | None]:
    """Return what the rivals mean for ``me``, and which of them it is about."""
    seen = sorted(rivals)
    for rival in seen:
        if rival.enrolled or rival.flow < me:
            return ClaimAnswer.THEIRS, rival.flow
    return (ClaimAnswer.WAIT, seen[0].flow) if seen else (ClaimAnswer.MINE, None)
