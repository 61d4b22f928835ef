"""What an audit learns from the flow's own records of its work, beside comparing content.

Invariant: these are claims of the flow (receipts, positions), each turned into a check against what is really
there; nothing here is believed when content is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from onceover.audit.checks.result import Area, Check
from onceover.audit.model import Side
from onceover.audit.records.batches import Unreadable
from onceover.audit.records.recordhash import AuditedRecord
from onceover.audit.records.refusals import said
from onceover.model import TopicPartition


class RecordLooks(Protocol):
    """Looks at single records, as a reader of committed records sees them."""

    def first(self, side: Side, tp: TopicPartition, offset: int) -> AuditedRecord | None:
        """Return the first record at or after ``offset``, None when there is none below the LSO.

        Raises:
            Retriable: the cluster is away.
            Unreadable: it is in a batch that is damaged, or too large, or in a log that may not be read.
        """

    def begins(self, side: Side, tp: TopicPartition) -> int:
        """Return the first offset of the log as it is now.

        Raises:
            As ``first``.
        """

    def last_before(self, side: Side, tp: TopicPartition, offset: int) -> AuditedRecord | None:
        """Return the last record before ``offset``, None when the log holds none.

        Raises:
            Retriable: the cluster is away.
            Unreadable: it is in a batch that is damaged, or too large, or in a log that may not be read.
        """


class Commit(NamedTuple):
    """A transaction, or several neighbouring ones, of one partition, as the receipts tell.

    Args:
        source: partition it was copied from.
        source_end: source offset behind what was copied.
        records: how many were written.
        commit_ms: when, in ms since 1970.
    """

    source: TopicPartition
    source_end: int
    records: int
    commit_ms: int


@dataclass(frozen=True, slots=True)
class BookkeepingChecks:
    """What came of checking the flow's records of its work.

    Args:
        checks: everything that was checked, right or wrong.
        commits: when what was copied, oldest first.
    """

    checks: tuple[Check, ...] = ()
    commits: tuple[Commit, ...] = ()


def not_readable(
    area: Area,
    name: str,
    source: TopicPartition,
    error: Unreadable,
    *,
    group: str | None = None,
    offset: int | None = None,
) -> Check:
    """Return the check of a claim about a record that cannot be read: neither right nor wrong."""
    return Check(
        area, name, source, "a readable record", "none", None, group=group, offset=offset, detail=said(error)
    )
