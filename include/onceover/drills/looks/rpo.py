"""What a failover loses, measured by its drills, and what a flow's objectives allow. Pure.

Invariant: what nobody can know is None, never 0; more than was measured is never said to be allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from onceover.ages import age_text


@dataclass(frozen=True, slots=True)
class Loss:
    """What is on the source alone.

    Args:
        offsets: how many source offsets, markers of transactions and what is behind open ones among them,
            some of which may be committed; None for unknown.
        seconds: age of the oldest record among them; None for unknown.
    """

    offsets: int | None
    seconds: float | None

    @classmethod
    def of(cls, losses: Iterable[Mapping[str, Any]] | None) -> Loss:
        """Return the loss of all topics together, from ``losses`` of a look: none of them is no loss.

        Args:
            losses: each with ``offsets``, ``open_offsets`` and ``seconds``; None where nobody could look.
        """
        if losses is None:
            return cls(None, None)
        told = list(losses)
        offsets = [each[kind] for each in told for kind in ("offsets", "open_offsets")]
        ages = [each["seconds"] for each in told]
        return cls(
            None if None in offsets else sum(offsets),
            None if None in ages else max(ages, default=0.0),
        )

    @classmethod
    def of_drill(cls, drill: Mapping[str, Any]) -> Loss:
        """Return what a drill has measured, as its journal tells (``DrillHistory.drills``)."""
        return cls(drill["rpo_offsets"], drill["rpo_s"])

    def describe(self) -> str:
        """Return it in words."""
        if self.offsets == 0:
            return "nothing"
        offsets = "an unknown number of offsets" if self.offsets is None else f"{self.offsets:,} offsets"
        age = "of unknown age" if self.seconds is None else f"the oldest {age_text(self.seconds)} old"
        return f"{offsets}, {age}"


@dataclass(frozen=True, slots=True)
class Objectives:
    """What a flow's drills are held to: ``objectives`` of its flow file.

    Args:
        rto_ms: how long clients may wait.
        rpo_records: how much may be lost; or ``rpo_age_ms`` how old that may be. One of them is None.
    """

    rto_ms: int
    rpo_records: int | None = 0
    rpo_age_ms: int | None = None

    def allows(self, loss: Loss | None) -> bool | None:
        """Tell whether so much may be lost; None where that is not known.

        Offsets count as records, which are never more.
        """
        if loss is None:
            return None
        if loss.offsets == 0:
            return True
        if self.rpo_age_ms is not None:
            return None if loss.seconds is None else loss.seconds * 1000 <= self.rpo_age_ms
        return None if loss.offsets is None else loss.offsets <= (self.rpo_records or 0)

    @property
    def is_promised_at_any_moment(self) -> bool:
        """Tell whether it can be held at any moment.

        No copy that runs behind its source loses nothing while writers write: that is what a planned
        switchover keeps them off for.
        """
        return bool(self.rpo_age_ms or self.rpo_records)

    def rpo_document(self) -> dict[str, Any]:
        """Return the objective as it stands in reports."""
        seconds = None if self.rpo_age_ms is None else self.rpo_age_ms / 1000
        return {"records": self.rpo_records, "seconds": seconds}


def rpo_text(objective: Mapping[str, Any]) -> str:
    """Return in words what ``rpo_document`` tells."""
    if objective["seconds"] is not None:
        return age_text(objective["seconds"])
    return f"{objective['records']:,} records"
