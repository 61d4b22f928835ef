"""Which findings of a stretch are listed, and how many more there are.

Invariant: listed and counted together are all: what a list leaves out, its count does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from onceover.audit.model import Finding, FindingKind, Range, Unlisted


class ListedFindings(NamedTuple):
    """The findings of one stretch."""

    findings: tuple[Finding, ...]
    unlisted: tuple[Unlisted, ...]


def listing(
    span: Range, findings: Iterable[Finding], limit: int, counts: Counter[FindingKind] | None = None
) -> ListedFindings:
    """Return the first findings, and the counts of the rest.

    Args:
        span: the stretch.
        limit: how many are listed.
        counts: of all findings, where that is known: the rest is not made then.
    """
    left = iter(findings)
    listed = tuple(islice(left, limit))
    if counts is None:
        rest = Counter(each.kind for each in left)
    else:
        rest = counts - Counter(each.kind for each in listed)
    return ListedFindings(
        listed,
        tuple(Unlisted(kind, span.source, span.target, rest[kind]) for kind in FindingKind if rest[kind]),
    )
