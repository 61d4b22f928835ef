"""What to do after an audit that did not pass, and where it went wrong first, from its document. Pure.

Invariant: an audit repairs nothing; what is named here is a command that a person runs. Places are named,
contents never.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from onceover.audit.checks.suites import GROUPS, MAP, POSITIONS, RECEIPTS
from onceover.audit.model import FindingKind, Reason
from onceover.planning.commands import command
from onceover.state.records.verdicts import Verdict

_NAMED: Final = 3
# Records of the copy itself are wrong; the other kinds may be somebody else's beside a copy that is right.
_OF_THE_COPY: Final = frozenset(set(FindingKind) - {FindingKind.PHANTOM, FindingKind.LEAKED})


def next_steps(told: Mapping[str, Any]) -> list[str]:
    """Return what a person does next, the first first; nothing after a PASS."""
    if told["verdict"] == Verdict.FAIL:
        return list(_after_failing(told))
    if told["verdict"] == Verdict.UNVERIFIABLE:
        return list(_after_not_seeing(told))
    return []


def first_wrong(told: Mapping[str, Any]) -> str | None:
    """Return where the first record is that is not as it should be; None without one."""
    listed = told["findings"]["listed"]
    if not listed:
        return None
    found = listed[0]
    places = [place for side in ("source", "target") if (place := _place(found, side)) is not None]
    field = f" ({found['field']})" if found["field"] else ""
    return f"{found['kind']}{field}: {', '.join(places)}"


def failing_partitions(told: Mapping[str, Any]) -> list[str]:
    """Return the names of partitions with findings, those with most first."""
    failing = sorted((p for p in told["partitions"] if p["findings"]), key=lambda p: -p["findings"])
    return [f"{p['source_topic']}:{p['partition']}" for p in failing]


def _place(finding: Mapping[str, Any], side: str) -> str | None:
    if finding[f"{side}_topic"] is None:
        return None
    offset = finding[f"{side}_offset"]
    where = f"{finding[f'{side}_topic']}:{finding[f'{side}_partition']}"
    return f"{side} {where}" + ("" if offset is None else f" at offset {offset}")


def _after_failing(told: Mapping[str, Any]) -> Iterator[str]:
    flow = told["flow"]
    kinds = {kind for kind, count in told["findings"]["by_kind"].items() if count}
    names = failing_partitions(told)
    if kinds & _OF_THE_COPY:
        for name in names[:_NAMED]:
            yield (
                f"keep this report, {command('stop', flow)}, find out who else writes to the copy of {name}, "
                f"delete its target topic, then {command('partition', 'reseed', flow, name)} copies it again"
            )
        if len(names) > _NAMED:
            yield f"likewise {len(names) - _NAMED} more partitions"
    elif kinds:
        yield "take WRITE on the target topics from everybody but the flow: what was copied is right"
        yield from _removing(flow, names)
    failed = {each["suite"] for each in told["expectations"] if each["answer"] == Verdict.FAIL}
    if GROUPS in failed:
        yield f"{command('groups', 'plan', flow)}, then {command('groups', 'apply', flow)}"
    if not kinds and failed & {MAP, RECEIPTS, POSITIONS}:
        yield f"keep this report: records are right, what the flow says is not; {command('status', flow)}"
    yield f"when that is done, {command('audit', flow, '--full')}"


def _removing(flow: str, names: list[str]) -> Iterator[str]:
    """Yield how records go that are nobody's: no audit removes them, and readers of the target meet them."""
    for name in names[:_NAMED]:
        yield (
            f"they stay in the copy of {name} until they are removed: if nothing was copied before them, "
            "delete its records up to them (`kafka-delete-records`); otherwise "
            f"`onceover stop {flow}`, delete its target topic, then `onceover partition reseed {flow} {name}`"
        )
    if len(names) > _NAMED:
        yield f"likewise {len(names) - _NAMED} more partitions"


def _after_not_seeing(told: Mapping[str, Any]) -> Iterator[str]:
    flow, reasons = told["flow"], told["unverifiable"]["by_reason"]
    if Reason.NOT_COPIED_YET in reasons:
        yield f"{command('replicate', flow, '--until', 'caught-up')}, then {command('audit', flow)}"
    if Reason.STOPPED in reasons or Reason.NOT_ENROLLED in reasons:
        yield f"{command('status', flow)} says what is stopped, or not taken in, and what to do"
    if Reason.NO_LEADER in reasons:
        yield f"bring the broker back that leads what is named there, then {command('audit', flow)}"
    if Reason.UNREADABLE in reasons:
        yield from _unreadable(flow, told["unverifiable"]["listed"])
    if Reason.OPEN_TRANSACTION in reasons:
        yield f"wait until it has ended, then {command('audit', flow)}"
    unshown = [check for check in told["checks"]["listed"] if check["ok"] is None]
    for check in unshown[:_NAMED]:
        whose = f"group {check['group']} at " if check["group"] else ""
        where = f"{whose}{check['source_topic']}:{check['partition']}"
        yield f"{where} could not be checked: {check['detail'] or check['seen']}"
    if len(unshown) > _NAMED:
        yield f"likewise {len(unshown) - _NAMED} more; the report lists them"


def _unreadable(flow: str, listed: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield which topics could not be read, and why: a right that is missing is named, with its cluster."""
    why: dict[str, str] = {}
    for row in listed:
        if row["reason"] == Reason.UNREADABLE:
            why.setdefault(row["source_topic"], row["message"])
    for topic, message in list(why.items())[:_NAMED]:
        yield f"{topic} could not be read: {message}; then {command('audit', flow)}"
    if len(why) > _NAMED:
        yield f"likewise {len(why) - _NAMED} more topics"
