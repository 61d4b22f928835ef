"""The sections of the audit's report, each from the audit's document. Pure.

Invariant: every text from the document is escaped; it may hold names that other people chose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onceover.audit.model import FindingKind, Reason, Side, Verdict
from onceover.audit.suites import SUITES
from onceover.shown import html

# Longer lists are for the JSON document, which has more of them.
MAX_ROWS: Final = 100
MAX_STRIPS: Final = 40
MAX_NUMBERS: Final = 20

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
    Reason.UNREADABLE: "Their batch cannot be decoded.",
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


def tiles(told: Mapping[str, Any]) -> str:
    """Return the numbers at the top."""
    source, target = told["records"][str(Side.SOURCE)], told["records"][str(Side.TARGET)]
    size = sum(told["bytes"].values())
    ranges = told["ranges"]
    seconds = max(told["seconds"], 0.001)
    verified = told["verified"]
    shown = [
        (f"{source:,}", "records compared on the source"),
        (f"{target:,}", "records compared on the target"),
        (size_text(size), f"read from both sides in {seconds:,.1f} s ({size_text(size / seconds)}/s)"),
        (
            f"{ranges['bytes'] + ranges['mixed']:,} of {ranges['compared']:,}",
            "ranges were equal as bytes, wholly or in part",
        ),
        (f"{verified['partitions']:,} of {verified['of']:,}", "partitions have a verified watermark"),
    ]
    return "".join(f'<div class="tile"><b>{html(b)}</b><span>{html(s)}</span></div>' for b, s in shown)


def strips(told: Mapping[str, Any]) -> str:
    """Return one bar for each partition: what is proven, what is not, and where something is wrong."""
    partitions = sorted(
        told["partitions"],
        key=lambda p: (-p["findings"], -p["unverifiable"], p["source_topic"], p["partition"]),
    )
    shown = "".join(map(_strip, partitions[:MAX_STRIPS]))
    return shown + _more(len(partitions), MAX_STRIPS, "partitions")


def _strip(partition: Mapping[str, Any]) -> str:
    stretches = partition["stretches"]
    begin = min([partition["source_from"], *(each["from"] for each in stretches)])
    end = max([partition["source_to"], *(each["to"] for each in stretches), begin + 1])

    def place(first: int, last: int, kind: str, title: str) -> str:
        first, last = max(first, begin), min(last, end)
        left, width = 100 * (first - begin) / (end - begin), 100 * max(0, last - first) / (end - begin)
        return (
            f'<i class="{kind}" style="left:{left:.3f}%;width:{width:.3f}%" title="{html(title)}"></i>'
            if width
            else ""
        )

    before, now = partition["verified_before"], partition["verified_to"]
    parts = [
        place(begin, now, "done", f"proven up to {now:,}"),
        place(begin, before, "before", f"proven by an earlier audit up to {before:,}"),
        *(
            place(s["from"], s["to"], "open", f"{s['reason']} [{s['from']:,}, {s['to']:,})")
            for s in stretches
        ),
        *(
            f'<i class="bad" style="left:{100 * (o - begin) / (end - begin):.3f}%" title="{o:,}"></i>'
            for o in partition["at"][:MAX_ROWS]
            if begin <= o <= end
        ),
    ]
    name = f"{partition['source_topic']}:{partition['partition']}"
    state, note = _note(partition)
    return (
        f'<div class="strip"><span class="name" title="{html(name)}">{html(name)}</span>'
        f'<div class="bar">{"".join(parts)}</div><span class="note {state}">{html(note)}</span></div>'
    )


def _note(partition: Mapping[str, Any]) -> tuple[str, str]:
    if partition["findings"]:
        counted = ", ".join(f"{count:,} {kind.lower()}" for kind, count in partition["by_kind"].items())
        return Verdict.FAIL, counted
    if partition["unverifiable"]:
        return Verdict.UNVERIFIABLE, f"{partition['unverifiable']:,} not comparable"
    return Verdict.PASS, f"{partition['source_records']:,} records"


def findings(told: Mapping[str, Any]) -> str:
    """Return the table of records that are not as they should be."""
    listed = told["findings"]["listed"]
    rows = [
        f'<tr><td><span class="pill">{html(each["kind"])}</span></td>'
        f'<td class="code">{_place(each, "source")}</td><td class="code">{_place(each, "target")}</td>'
        f"<td>{html(each['field'] or '')}</td><td>{html(each['detail'])}{_payload(each)}</td></tr>"
        for each in listed[:MAX_ROWS]
    ]
    head = "<tr><th>what</th><th>on the source</th><th>on the target</th><th>differs</th><th></th></tr>"
    more = _more(len(listed), MAX_ROWS, "findings") + _counted_only(told["findings"]["more"])
    return f"<table>{head}{''.join(rows)}</table>{more}"


def _place(finding: Mapping[str, Any], side: str) -> str:
    if finding[f"{side}_topic"] is None:
        return "–"
    offset = finding[f"{side}_offset"]
    where = f"{finding[f'{side}_topic']}:{finding[f'{side}_partition']}"
    return html(where if offset is None else f"{where} @ {offset:,}")


def _payload(finding: Mapping[str, Any]) -> str:
    payload = finding.get("payload")
    return f'<div class="code">{html(payload)}</div>' if payload else ""


def reasons(told: Mapping[str, Any]) -> str:
    """Return the table of what could not be compared, by reason."""
    rows = [
        f'<tr><td><span class="pill UNVERIFIABLE">{html(reason)}</span></td>'
        f'<td class="number">{count:,}</td><td>{html(MEANING.get(reason, ""))}</td></tr>'
        for reason, count in told["unverifiable"]["by_reason"].items()
    ]
    return f"<table><tr><th>reason</th><th>how many</th><th></th></tr>{''.join(rows)}</table>"


def expectations(told: Mapping[str, Any]) -> str:
    """Return every expectation with its answer, and the numbers that failed."""
    blocks = []
    for suite in SUITES:
        rules = [each for each in told["expectations"] if each["suite"] == suite]
        blocks.append(f"<div><h3>{html(SUITE_NAMES[suite])}</h3>{''.join(map(_rule, rules))}</div>")
    return f'<div class="suites">{"".join(blocks)}</div>'


def _rule(rule: Mapping[str, Any]) -> str:
    answer = rule["answer"]
    text = html(rule["expected"])
    if answer == Verdict.PASS:
        rest = f" <small>({rule['checked']:,})</small>"
    elif rule["problem"]:
        rest = f" <small>not evaluated: {html(rule['problem'][:200])}</small>"
    else:
        rest = f" <small>not so in {rule['unexpected']:,} of {rule['checked']:,}</small>{_numbers(rule)}"
    return f'<div class="rule"><b class="{answer}">{_MARKS[Verdict(answer)]}</b><div>{text}{rest}</div></div>'


def _numbers(rule: Mapping[str, Any]) -> str:
    rows: Sequence[Mapping[str, Any]] = rule["numbers"]
    if not rows:
        return ""
    lines = [
        ", ".join([str(row["what"]), *(f"{k}={v}" for k, v in row.items() if k not in ("what", "code"))])
        for row in rows[:MAX_NUMBERS]
    ]
    items = "".join(f"<li>{html(line)}</li>" for line in lines)
    return f"<details><summary>the numbers</summary><ul>{items}</ul></details>"


def kinds(told: Mapping[str, Any]) -> str:
    """Return the findings' counts as one sentence, in the order of their kinds."""
    counts = told["findings"]["by_kind"]
    return ", ".join(f"{counts[kind]:,} {kind.lower()}" for kind in map(str, FindingKind) if counts[kind])


def _more(total: int, shown: int, what: str) -> str:
    return f"<p><small>{total - shown:,} more {what} are in the JSON.</small></p>" if total > shown else ""


def _counted_only(count: int) -> str:
    return f"<p><small>{count:,} more findings are counted, and listed nowhere.</small></p>" if count else ""


def size_text(value: float) -> str:
    """Return a number of bytes as people say it."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= unit:
            return f"{value / unit:.3g} {name}" if value < 1000 * unit else f"{value / unit:,.0f} {name}"
    return f"{value:.0f} B"
