"""The rows that the suites judge, made from what an audit saw. Pure.

Invariant: every row says which it is (``what``, as people say it) and of which kind (``code``), so that a
result names what failed, and has exactly the columns that the suite's rules speak of; nothing in it is
payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from onceover.audit.checks import suites
from onceover.audit.checks.result import Area, AuditResult
from onceover.audit.checks.suites import rules_of
from onceover.audit.model import COUNT, FindingKind, Row, Side

WHAT: Final = "what"
CODE: Final = "code"
# What names a range on both sides: the digests of the two are joined by it.
RANGE_COLUMNS: Final = (
    "source_topic",
    "partition",
    "source_from",
    "source_to",
    "target_topic",
    "target_partition",
    "target_from",
    "target_to",
    "mode",
)
_COMPARED: Final = ("records", "sum", "chain")

_Place = tuple[Any, Any]


def columns_of(suite: str) -> list[str]:
    """Return the columns of a suite's rows."""
    return [WHAT, CODE, *dict.fromkeys(column for rule in rules_of(suite) for column in rule.columns)]


def suite_rows(result: AuditResult) -> dict[str, list[Row]]:
    """Return the rows of every suite, with the columns of ``columns_of``."""
    digests, partitions = result.digest_rows(), result.partition_rows()
    unverifiable = result.unverifiable_rows()
    left_out = unaccounted(partitions, digests, unverifiable)
    checks = result.check_rows()
    return {
        suites.DIGESTS: comparison(digests),
        suites.TOPICS: topics(partitions, result.finding_rows(), left_out),
        suites.UNVERIFIABLE: [_unverifiable(each) for each in unverifiable],
        **{str(area): [_check(each) for each in checks if each["area"] == area] for area in Area},
    }


def comparison(digests: Iterable[Row]) -> list[Row]:
    """Return a row for each range with the digests of both sides; a side that was not read is None there."""
    found: dict[tuple[Any, ...], dict[str, Row]] = {}
    for digest in digests:
        span = tuple(digest[name] for name in RANGE_COLUMNS)
        found.setdefault(span, {})[digest["side"]] = digest
    return [_compared(dict(zip(RANGE_COLUMNS, span, strict=True)), sides) for span, sides in found.items()]


def _compared(span: Row, sides: dict[str, Row]) -> Row:
    where = f"{span['source_topic']}:{span['partition']} [{span['source_from']}, {span['source_to']})"
    numbers = {
        f"{side}_{value}": sides[side][value] if side in sides else None
        for value in _COMPARED
        for side in map(str, Side)
    }
    return {WHAT: where, CODE: span["mode"], **numbers, "both_sides": len(sides) == len(Side) or None}


def topics(partitions: Sequence[Row], findings: Iterable[Row], left_out: dict[_Place, int]) -> list[Row]:
    """Return a row for each partition: findings by kind, and the offsets that nobody accounted for.

    A finding in a partition that belongs to none has a row of its own.
    """
    counterparts = {
        (each["target_topic"], each["target_partition"]): (each["source_topic"], each["partition"])
        for each in reversed(partitions)
    }
    known = {(each["source_topic"], each["partition"]): each for each in partitions}
    counts: dict[_Place, dict[str, int]] = {place: {} for place in known}
    for finding in findings:
        of_place = counts.setdefault(_place(finding, counterparts), {})
        of_place[finding["kind"]] = of_place.get(finding["kind"], 0) + finding[COUNT]
    return [_topic(place, counted, known.get(place), left_out) for place, counted in counts.items()]


def _topic(place: _Place, counted: dict[str, int], known: Row | None, left_out: dict[_Place, int]) -> Row:
    numbers = {kind.lower(): counted.get(kind, 0) for kind in map(str, FindingKind)}
    # Of a sample nobody claims that it covers everything: None is not judged.
    forgotten = left_out.get(place, 0) if known is not None and known["complete"] else None
    code = None if known is None else known["mode"]
    return {WHAT: f"{place[0]}:{place[1]}", CODE: code, **numbers, "unaccounted": forgotten}


def _place(finding: Row, counterparts: dict[_Place, _Place]) -> _Place:
    """Return where a finding counts: one without a source (PHANTOM) where its counterpart does."""
    if finding["source_topic"] is not None:
        return finding["source_topic"], finding["source_partition"]
    target = finding["target_topic"], finding["target_partition"]
    return counterparts.get(target, target)


def unaccounted(
    partitions: Iterable[Row], digests: Iterable[Row], unverifiable: Iterable[Row]
) -> dict[_Place, int]:
    """Return, by partition, how many offsets in scope are neither compared nor said to be unverifiable."""
    stretches: dict[_Place, list[tuple[int, int]]] = {}
    for each in digests:
        place = each["source_topic"], each["partition"]
        stretches.setdefault(place, []).append((each["source_from"], each["source_to"]))
    for each in unverifiable:
        place = each["source_topic"], each["partition"]
        stretches.setdefault(place, []).append((each["offset_from"], each["offset_to"]))
    found = {}
    for each in partitions:
        place = each["source_topic"], each["partition"]
        found[place] = sum(_gaps(each["source_from"], each["source_to"], stretches.get(place, [])))
    return found


def _gaps(begin: int, end: int, stretches: list[tuple[int, int]]) -> Iterator[int]:
    """Yield the lengths of what no stretch covers of ``[begin, end)``. Stretches may overlap."""
    reached = begin
    for first, behind in [*sorted(stretches), (end, end)]:
        yield max(0, min(first, end) - reached)
        reached = max(reached, behind)


def _unverifiable(stretch: Row) -> Row:
    place = f"{stretch['source_topic']}:{stretch['partition']}"
    offsets = f"[{stretch['offset_from']}, {stretch['offset_to']})"
    return {
        WHAT: f"{place} {offsets}: {stretch['message']}",
        CODE: stretch["reason"],
        "offsets": stretch["offsets"],
    }


def _check(check: Row) -> Row:
    about = f"{check['source_topic']}:{check['partition']}"
    if check["group"] is not None:
        about += f" group {check['group']}"
    if check["offset"] is not None:
        about += f" at {check['offset']}"
    detail = f": {check['detail']}" if check["detail"] else ""
    what = f"{about}: expected {check['expected']}, seen {check['seen']}{detail}"
    row = {WHAT: what, CODE: check["name"], "ok": check["ok"]}
    if check["area"] == Area.GROUPS:
        row |= {"skipped": check["skipped"], "repeated": check["repeated"]}
    return row
