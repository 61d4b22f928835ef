"""What the sections of the audit's report say, from the audit's document; the templates say how. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from onceover.audit.checks.suites import SUITES
from onceover.audit.model import FindingKind, Reason, Side
from onceover.state.records.verdicts import Verdict

# Longer lists are for the JSON document, which has more of them.
MAX_ROWS: Final = 100
MAX_STRIPS: Final = 40
MAX_NUMBERS: Final = 20
_SIDES: Final = ("source", "target")

MEANING: Final[Mapping[str, str]] = {
    Reason.RETENTION: "One side no longer holds them: retention has removed them.",
    Reason.DELETED: "One side no longer holds them: somebody deleted records, or the topic.",
    Reason.OPEN_TRANSACTION: "A transaction on the source is still open: nobody can read them yet.",
    Reason.COMPACTED_HISTORY: "Compaction keeps the latest value of a key only; that was compared instead.",
    Reason.NOT_ENROLLED: "They are from before the flow's start, or of a partition it does not copy.",
    Reason.STOPPED: "The partition's copy is stopped until an operator decides.",
    Reason.HANDLER_CHANGED: "They were copied through another handler than today's.",
    Reason.HANDLER_FAILED: "The handler fails on them now.",
    Reason.DEAD_LETTER: "They were diverted to the dead-letter topic, as the flow file says.",
    Reason.SKIPPED: "An operator told the flow to go past them.",
    Reason.NOT_COPIED_YET: "The flow had not copied them when the audit began.",
    Reason.NOT_IN_MAP: "The offset map no longer reaches back that far.",
    Reason.NO_LEADER: "A broker is away: nobody tells what its partitions hold.",
    Reason.UNREADABLE: "Their batch cannot be decoded, or a right is missing on one of the topics.",
    Reason.TOO_LARGE: "A record among them takes more memory than the audit may use.",
}
SUITE_NAMES: Final = {
    "topics": "Records",
    "digests": "Fingerprints of ranges",
    "unverifiable": "What could not be compared",
    "positions": "The flow's positions",
    "map": "Offset map",
    "receipts": "Receipts",
    "groups": "Consumer groups",
}
_MARKS: Final = {Verdict.PASS: "✓", Verdict.FAIL: "✕", Verdict.UNVERIFIABLE: "?"}


class BarMark(NamedTuple):
    """A stretch or a place in a bar; percentages of its width, and what it says under the pointer."""

    kind: str
    left: str
    width: str
    title: str


class PartitionBar(NamedTuple):
    """One partition's bar: ``state`` is the verdict on it, ``note`` what stands beside it."""

    name: str
    marks: tuple[BarMark, ...]
    state: Verdict
    note: str


class ListedRows(NamedTuple):
    """What of a list is on the page, and how many more there are."""

    shown: Sequence[Any]
    more: int


def sides_of(told: Mapping[str, Any]) -> str:
    """Return both clusters' names, as a line."""
    names: list[str] = [told.get(side, {}).get("alias", side) for side in _SIDES]
    return " → ".join(names)


def about(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what was audited and by whom, line for line; nothing in documents that do not say it."""
    said = told.get("about")
    if said is None:
        return []
    clusters = [(f"{side} cluster", f"{told[side]['alias']}: {told[side]['cluster_id']}") for side in _SIDES]
    same = said["flow_sha256"] == said["running_sha256"]
    version = said["flow_sha256"][:16] + ("" if same else f" (the flow runs {said['running_sha256'][:16]})")
    return [
        *clusters,
        ("flow file", f"{said['flow_file']}, version {version}"),
        ("generation", str(said["generation"])),
        ("started by", f"{said['started_by']} on {said['host']}"),
        ("made by", ", ".join(f"{name} {release}" for name, release in said["versions"].items())),
    ]


def tiles(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the numbers at the top, each with its words."""
    source, target = told["records"][str(Side.SOURCE)], told["records"][str(Side.TARGET)]
    size = sum(told["bytes"].values())
    ranges = told["ranges"]
    seconds = max(told["seconds"], 0.001)
    verified = told["verified"]
    return [
        (f"{source:,}", "records compared on the source"),
        (f"{target:,}", "records compared on the target"),
        (size_text(size), f"read from both sides in {seconds:,.1f} s ({size_text(size / seconds)}/s)"),
        (
            f"{ranges['bytes'] + ranges['mixed']:,} of {ranges['compared']:,}",
            "ranges were equal as bytes, wholly or in part",
        ),
        (f"{verified['partitions']:,} of {verified['of']:,}", "partitions have a verified watermark"),
    ]


def strips(told: Mapping[str, Any]) -> ListedRows:
    """Return one bar for each partition: what is proven, what is not, and where something is wrong."""
    partitions = sorted(
        told["partitions"],
        key=lambda p: (-p["findings"], -p["unverifiable"], p["source_topic"], p["partition"]),
    )
    return ListedRows([*map(_strip, partitions[:MAX_STRIPS])], max(0, len(partitions) - MAX_STRIPS))


def _strip(partition: Mapping[str, Any]) -> PartitionBar:
    name = f"{partition['source_topic']}:{partition['partition']}"
    return PartitionBar(name, tuple(_marks(partition)), *_note(partition))


def _marks(partition: Mapping[str, Any]) -> Iterator[BarMark]:
    stretches = partition["stretches"]
    begin = min([partition["source_from"], *(each["from"] for each in stretches)])
    end = max([partition["source_to"], *(each["to"] for each in stretches), begin + 1])

    def share(offsets: int) -> str:
        return f"{100 * offsets / (end - begin):.3f}%"

    before, now = partition["verified_before"], partition["verified_to"]
    spans = [
        ("done", begin, now, f"proven up to {now:,}"),
        ("before", begin, before, f"proven by an earlier audit up to {before:,}"),
        *(("open", s["from"], s["to"], f"{s['reason']} [{s['from']:,}, {s['to']:,})") for s in stretches),
    ]
    for kind, first, last, title in spans:
        first, last = max(first, begin), min(last, end)
        if first < last:
            yield BarMark(kind, share(first - begin), share(last - first), title)
    for offset in partition["at"][:MAX_ROWS]:
        if begin <= offset <= end:
            yield BarMark("bad", share(offset - begin), "", f"{offset:,}")


def _note(partition: Mapping[str, Any]) -> tuple[Verdict, str]:
    if partition["findings"]:
        counted = ", ".join(f"{count:,} {kind.lower()}" for kind, count in partition["by_kind"].items())
        return Verdict.FAIL, counted
    if partition["unverifiable"]:
        return Verdict.UNVERIFIABLE, f"{partition['unverifiable']:,} not comparable"
    return Verdict.PASS, f"{partition['source_records']:,} records"


def findings(told: Mapping[str, Any]) -> ListedRows:
    """Return the records that are not as they should be, as the columns of a table."""
    listed = told["findings"]["listed"]
    rows = [
        {
            "kind": each["kind"],
            "source": _place(each, "source"),
            "target": _place(each, "target"),
            "field": each["field"] or "",
            "detail": each["detail"],
            "payload": each.get("payload"),
        }
        for each in listed[:MAX_ROWS]
    ]
    return ListedRows(rows, max(0, len(listed) - MAX_ROWS))


def _place(finding: Mapping[str, Any], side: str) -> str:
    if finding[f"{side}_topic"] is None:
        return "–"
    offset = finding[f"{side}_offset"]
    where = f"{finding[f'{side}_topic']}:{finding[f'{side}_partition']}"
    return where if offset is None else f"{where} @ {offset:,}"


def expectations(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every expectation with its answer by suite, and the numbers that failed."""
    return [
        {
            "name": SUITE_NAMES[suite],
            "rules": [_rule(each) for each in told["expectations"] if each["suite"] == suite],
        }
        for suite in SUITES
    ]


def _rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    answer = rule["answer"]
    lines: list[str] = []
    if answer == Verdict.PASS:
        seen = f"({rule['checked']:,})"
    elif rule["problem"]:
        seen = f"not evaluated: {rule['problem'][:200]}"
    else:
        seen = f"not so in {rule['unexpected']:,} of {rule['checked']:,}"
        lines = [_line(row) for row in rule["numbers"][:MAX_NUMBERS]]
    mark = _MARKS[Verdict(answer)]
    return {"answer": answer, "mark": mark, "expected": rule["expected"], "seen": seen, "lines": lines}


def _line(row: Mapping[str, Any]) -> str:
    return ", ".join([str(row["what"]), *(f"{k}={v}" for k, v in row.items() if k not in ("what", "code"))])


def kinds(told: Mapping[str, Any]) -> str:
    """Return the findings' counts as one sentence, in the order of their kinds."""
    counts = told["findings"]["by_kind"]
    return ", ".join(f"{counts[kind]:,} {kind.lower()}" for kind in map(str, FindingKind) if counts[kind])


def size_text(value: float) -> str:
    """Return a number of bytes as people say it."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= unit:
            return f"{value / unit:.3g} {name}" if value < 1000 * unit else f"{value / unit:,.0f} {name}"
    return f"{value:.0f} B"
