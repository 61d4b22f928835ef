"""What a switchover takes from an audit of what nobody had compared yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from onceover.audit.course.content import Content
from onceover.audit.model import DECIDED, Reason, Side

# What time has taken, or brings; everything else that cannot be compared has another cause.
_PASSES: Final = frozenset(
    {
        Reason.RETENTION,
        Reason.COMPACTED_HISTORY,
        Reason.OPEN_TRANSACTION,
        Reason.NOT_COPIED_YET,
        Reason.NOT_ENROLLED,
        Reason.NOT_IN_MAP,
    }
)


@dataclass(frozen=True)
class TailCompared:
    """What an audit of what is not verified yet has found.

    Args:
        records: of the source that were compared.
        different: records that are not as they should be; ``unverifiable`` offsets that nobody can compare.
        gone: offsets that cannot be compared for a reason that no time explains, such as a topic made anew;
            ``why`` that is so of the first.
    """

    records: int
    different: int
    unverifiable: int
    gone: int = 0
    why: str = ""

    @classmethod
    def of(cls, content: Content) -> Self:
        """Return what is found in the records of both sides."""
        everything = (*content.partitions, *content.beside)
        gaps = [gap for each in everything for gap in each.unverifiable]
        gone = [gap for gap in gaps if gap.reason not in _PASSES and gap.reason not in DECIDED]
        return cls(
            records=sum(each.records(Side.SOURCE) for each in content.partitions),
            different=sum(each.by_kind.total() for each in everything),
            unverifiable=sum(gap.offsets for gap in gaps if gap.reason in _PASSES),
            gone=sum(gap.offsets for gap in gone),
            why=next((gap.message for gap in gone), ""),
        )
