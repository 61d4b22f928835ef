"""The document of an audit: what ``onceover audit --json`` prints, and all that the HTML report knows. Pure.

Invariant: the verdict in it is the expectations'; no payload is in it but what findings carry because a
person asked for it; lists are cut, their true lengths are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onceover.audit.checks.evidence import BookkeepingChecks
from onceover.audit.checks.result import Area, AuditResult, Check, PartitionResult
from onceover.audit.checks.verdict import QualityVerdict
from onceover.audit.model import ComparedAs, Finding, FindingKind, Side, Unverifiable
from onceover.audit.report.timeline import ages, committed, histogram
from onceover.state.records.verdicts import WHOLE, Verdict

# Enough to find the cause; a topic copied wrongly as a whole would otherwise fill a disk.
MAX_LISTED: Final = 1_000

COMPARED: Final = "compared"
_NOTHING: Final = "Nothing was compared, so nothing is proven"


def document(
    result: AuditResult, quality: QualityVerdict, bookkeeping: BookkeepingChecks | None = None
) -> dict[str, Any]:
    """Return the document, without the fields that every command's has.

    Args:
        result: what was seen.
        quality: what the expectations made of it.
        bookkeeping: when what was copied, for the plots.
    """
    digests = [each for partition in result.partitions for each in partition.digests]
    commits = bookkeeping.commits if bookkeeping else ()
    seconds = (result.finished_ms - result.started_ms) / 1000
    verified = _verified(result.partitions)
    compared = sum(p.records(side) for p in result.partitions for side in Side)
    return {
        "flow": result.flow,
        "verdict": str(quality.verdict),
        "since": result.since,
        "topics": list(result.topics),
        # A watermark with a time behind it was proven of records, in this audit or before.
        "nothing_compared": compared == 0 and verified["oldest_timestamp_ms"] is None,
        # Source offsets before the copies began: seeded, adopted, made again, or from the end on.
        "begun_behind": sum(partition.begin for partition in result.partitions),
        "started_ms": result.started_ms,
        "finished_ms": result.finished_ms,
        "seconds": round(seconds, 3),
        "complete": all(partition.complete for partition in result.partitions),
        "records": {str(side): sum(p.records(side) for p in result.partitions) for side in Side},
        "bytes": {str(side): sum(p.bytes(side) for p in result.partitions) for side in Side},
        "ranges": {
            COMPARED: sum(1 for each in digests if each.side is Side.SOURCE),
            **{
                str(how): sum(1 for each in digests if each.side is Side.SOURCE and each.compared is how)
                for how in ComparedAs
            },
        },
        "findings": _findings(result),
        "unverifiable": _unverifiable(result.unverifiable),
        "partitions": [_partition(each) for each in result.partitions],
        "checks": _checks(result.checks),
        "expectations": [outcome.document() for outcome in quality.outcomes],
        "verified": verified,
        "records_over_time": histogram(digests),
        "committed_over_time": committed(commits),
        "age_at_commit": [list(point) for point in ages(digests, commits)],
    }


def summary(told: Mapping[str, Any]) -> str:
    """Return the audit in one sentence, for people.

    Args:
        told: the document.
    """
    findings = told["findings"]
    if told["verdict"] == Verdict.FAIL:
        kinds = ", ".join(f"{count} {kind.lower()}" for kind, count in findings["by_kind"].items() if count)
        if findings["total"]:
            more = f" {findings['more']:,} of them are counted only." if findings["more"] else ""
            return f"{findings['total']:,} records are not as they should be: {kinds}.{more}"
        broken = sorted({each["expected"] for each in told["expectations"] if each["answer"] == Verdict.FAIL})
        return f"Not so: {'; '.join(broken)}."
    if told["verdict"] == Verdict.UNVERIFIABLE:
        reasons = told["unverifiable"]["by_reason"]
        if reasons:
            listed = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
            return f"Nothing wrong was found, but not everything could be compared: {listed}."
        unshown = (each for each in told["expectations"] if each["answer"] == Verdict.UNVERIFIABLE)
        open_ = sorted({each["expected"] for each in unshown})
        return f"Nothing wrong was found, but this could not be shown: {'; '.join(open_)}."
    records = told["records"][str(Side.SOURCE)]
    if told["nothing_compared"] and told["begun_behind"]:
        return (
            f"{_NOTHING}: no record has come since the copies began. The {told['begun_behind']:,} source "
            "offsets before that were not copied by this flow, and are not looked at."
        )
    if told["nothing_compared"]:
        return f"{_NOTHING}: neither side holds a record in scope."
    if not records and told["since"] not in WHOLE:
        return f"{_NOTHING}: no record is as young as {told['since']}."
    if not records:
        return "No record has come since the last audit; what was proven then still stands."
    part = "" if told["complete"] else " of the sample"
    return f"{records:,} records{part} are the same on both sides, every one and in order."


def _findings(result: AuditResult) -> dict[str, Any]:
    counts = result.by_kind
    listed = [_without_empty_payload(each) for each in result.findings[:MAX_LISTED]]
    return {
        "total": counts.total(),
        "by_kind": {str(kind): counts[str(kind)] for kind in FindingKind},
        "listed": listed,
        "more": counts.total() - len(listed),
    }


def _without_empty_payload(finding: Finding) -> dict[str, Any]:
    row = finding.as_row()
    if row["payload"] is None:
        del row["payload"]
    return row


def _unverifiable(stretches: Sequence[Unverifiable]) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for each in stretches:
        counts[str(each.reason)] += each.offsets
    return {
        "total": sum(counts.values()),
        "by_reason": dict(counts.most_common()),
        "listed": [each.as_row() for each in stretches[:MAX_LISTED]],
    }


def _partition(result: PartitionResult) -> dict[str, Any]:
    return {
        **result.as_row(),
        "by_kind": dict(result.by_kind),
        "at": sorted({each.source_offset for each in result.findings if each.source_offset is not None})[
            :MAX_LISTED
        ],
        "stretches": [
            {
                "reason": str(each.reason),
                "from": each.offset_from,
                "to": each.offset_to,
                "offsets": each.offsets,
            }
            for each in result.unverifiable
        ],
    }


def _checks(checks: Sequence[Check]) -> dict[str, Any]:
    return {
        "by_area": {
            str(area): {
                "made": sum(1 for each in checks if each.area is area),
                "wrong": sum(1 for each in checks if each.area is area and each.ok is False),
                "not_checked": sum(1 for each in checks if each.area is area and each.ok is None),
            }
            for area in Area
        },
        "skipped": sum(each.skipped for each in checks),
        "repeated": sum(each.repeated for each in checks),
        "listed": [each.as_row() for each in checks if not each.ok][:MAX_LISTED],
    }


def _verified(partitions: Sequence[PartitionResult]) -> dict[str, Any]:
    """Return how far everything is proven: the recovery point that can be shown."""
    known = [each for each in partitions if each.verified_to >= 0]
    times = [each.verified_timestamp_ms for each in known if each.verified_timestamp_ms >= 0]
    return {
        "partitions": len(known),
        "of": len(partitions),
        "advanced": sum(1 for each in known if each.verified_to > each.verified_before),
        "offsets_after": sum(max(0, each.source_to - each.verified_to) for each in known),
        "oldest_timestamp_ms": min(times, default=None),
    }
