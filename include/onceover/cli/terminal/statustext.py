"""The status of a flow as text. Pure.

Invariant: what needs a person comes first, with the command that resolves it; numbers that nobody knows are
"unknown" or "-", never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from onceover.ages import age_text
from onceover.config.codes import ConfigCode
from onceover.config.faults import message_lines
from onceover.config.flow.runsettings import AT_LEAST_ONCE
from onceover.exitstatus import OK, TEMPORARY, USAGE
from onceover.groups.standing import describe_standing
from onceover.operate.codes import StatusCode
from onceover.operate.states import CopyState, PartitionState
from onceover.operate.statusneeds import partition_name
from onceover.operate.stuck import transaction_words
from onceover.shown import lined
from onceover.state.records.runstate import describe_run
from onceover.state.records.verdicts import describe_audit
from onceover.state.records.verified import describe_verified
from onceover.topics.status import describe_topics

# So many rows fit on a screen; of more, those that are caught up are counted only.
_ROWS: Final = 24
_COLUMNS: Final = "  {:40} {:>4} {:12} {:>12} {:>12} {:>10}"
_NEEDS_SHOWN: Final = 12
_WAITING: Final = "waiting for Spark"


def headline(flows: Sequence[Mapping[str, Any]]) -> str:
    """Return in one line which flows need somebody."""
    waiting = [flow["flow"] for flow in flows if flow["exit"] not in (OK, TEMPORARY)]
    silent = [flow["flow"] for flow in flows if flow["exit"] == TEMPORARY]
    parts = [f"{len(flows)} flows"]
    if waiting:
        parts.append(f"NEEDING A PERSON: {', '.join(waiting)}")
    if silent:
        parts.append(f"not fully known: {', '.join(silent)}")
    return "; ".join(parts if len(parts) > 1 else [*parts, "none needs a person"])


def describe(status: Mapping[str, Any]) -> str:
    """Return a flow's status for people."""
    lines = [_title(status), *_needs(status)]
    if status["error"] is None:
        lines += _summary(status)
        lines += _table(status["partitions"])
        if summary := describe_topics(status["topics"], status["flow"]):
            lines.append(summary)
        lines += [f"  note: {n['object']}: {n['message']}; {n['resolve']}" for n in status["notes"]]
    return lined(lines)


def lag_text(status: Mapping[str, Any]) -> str:
    """Return what is missing on the target, in words."""
    lag = status["lag"]
    if lag is None:
        return "lag unknown"
    known = lag["known_offsets"]
    if status["lag_offsets"] is not None:
        parts = [f"lag {known} offsets"]
    elif known:
        parts = [f"lag at least {known} offsets"]
    else:
        parts = ["lag unknown"]
    if lag["not_enrolled_offsets"]:
        topics = lag["not_enrolled_topics"]
        word = "topic" if topics == 1 else "topics"
        parts.append(f"{lag['not_enrolled_offsets']} of them in {topics} {word} not taken in yet")
    if lag["stopped_offsets"]:
        parts.append(f"{lag['stopped_offsets']} of them stopped")
    if status["oldest_missing_s"]:
        parts.append(f"oldest missing {age_text(status['oldest_missing_s'])}")
    return ", ".join(parts)


def progress_line(status: Mapping[str, Any]) -> str:
    """Return the status in one line, for a display that is written over."""
    silent = [status[side]["alias"] for side in ("source", "target") if status[side]["error"]]
    problem = f", {' and '.join(silent)} cannot be read" if silent else ""
    return f"{status['flow']}: {_state_words(status)}, {lag_text(status)}{problem}"


def _state_words(status: Mapping[str, Any]) -> str:
    return _WAITING if status["state"] == CopyState.WAITING else str(status["state"]).replace("_", " ")


def _title(status: Mapping[str, Any]) -> str:
    word = {OK: "", TEMPORARY: ", NOT FULLY KNOWN"}.get(status["exit"], ", NEEDS A PERSON")
    if status["error"] is not None:
        return f"{status['flow']}{word}: {_broken_words(status)}"
    run = status["run"]["state"].replace("_", " ")
    state = _state_words(status)
    said = run if state not in (run, "caught up", "copying", _WAITING) else state
    generation = f", generation {status['generation']}" if status["generation"] else ""
    mode = f", {AT_LEAST_ONCE.replace('_', ' ')}" if status["delivery"] == AT_LEAST_ONCE else ""
    route = f"{status['source']['alias']} -> {status['target']['alias']}"
    return f"{status['flow']}: {said}{word}  ({route}{generation}{mode})"


def _broken_words(status: Mapping[str, Any]) -> str:
    if status["error"]["code"] == ConfigCode.NO_CONNECTION:
        return "its Airflow Connections are not given to this process"
    bad = status["exit"] == USAGE
    return f"its file {status['path']} is not in order" if bad else "its status cannot be read"


def _needs(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield what has to be done; of a topic's partitions that are stopped alike, the first one."""
    alike: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for number, need in enumerate(status["needs"]):
        alike.setdefault((need["code"], need.get("topic") or str(number)), []).append(need)
    for need, *others in list(alike.values())[:_NEEDS_SHOWN]:
        first, *more = message_lines(need["code"], need["message"])
        yield f"  ! {need['code']}: {first}"
        yield from (f"    {line}" for line in more)
        if need["resolve"]:
            yield f"    do: {need['resolve']}"
        if others:
            numbers = ", ".join(str(other["partition"]) for other in others[:_NEEDS_SHOWN])
            cut = ", ..." if len(others) > _NEEDS_SHOWN else ""
            yield f"    likewise partition {numbers}{cut} of {need['topic']}"
    if len(alike) > _NEEDS_SHOWN:
        yield f"  ! and {len(alike) - _NEEDS_SHOWN} more: see --json"


def _summary(status: Mapping[str, Any]) -> Iterator[str]:
    yield f"  run      {describe_run(status['run'])}"
    yield f"  missing  {lag_text(status)}"
    if status["last_commit_s"] is not None:
        yield f"  copied   last commit {age_text(status['last_commit_s'])} ago"
    if status["dead_letters"] is not None:
        yield f"  letters  {_letters_words(status['dead_letters'])}"
    if status["groups"] is not None:
        yield f"  groups   {describe_standing(status['groups'], status['flow'])}"
    if status["generation"]:
        yield f"  proven   {describe_verified(status['verified'])}"
        if (audit := describe_audit(status["audit"])) is not None:
            yield f"  audit    {audit}"


def _letters_words(letters: Mapping[str, Any]) -> str:
    """Return how many records could not be copied: offsets say no more than how many at most."""
    count, topic = letters["at_most"], letters["topic"]
    if not count:
        return f"{'unknown' if count is None else 'none'} in {topic}"
    return f"at most {count} in {topic}; markers of transactions and other flows' records are counted, too"


def _table(partitions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not partitions:
        return
    rows = [p for p in partitions if len(partitions) <= _ROWS or p["state"] != PartitionState.CAUGHT_UP]
    yield _COLUMNS.format("partition", "lane", "state", "position", "source LSO", "lag")
    for p in rows:
        cells = (_cell(p[key]) for key in ("lane", "state", "position", "lso", "lag_offsets"))
        code = (
            f"  {p['stop']['code']}"
            if p["stop"]
            else f"  {StatusCode.NOT_MOVING}"
            if p["state"] == PartitionState.STUCK
            else ""
        )
        yield _COLUMNS.format(partition_name(p), *cells) + code
        if p["open_offsets"]:
            yield f"    {p['open_offsets']} offsets wait for {transaction_words(p['open_transaction'])}"
    if len(rows) < len(partitions):
        yield f"  and {len(partitions) - len(rows)} partitions that are caught up"


def _cell(value: object) -> str:
    return "-" if value is None else str(value)
