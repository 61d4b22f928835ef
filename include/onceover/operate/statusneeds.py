"""What waits for somebody, of a flow as ``status`` tells it: pure.

Invariant: whatever waits for a person is among the needs, with the command that resolves it and the exit code
that it stands for; the worst is the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from onceover.acls.codes import AclCode
from onceover.ages import age_text
from onceover.errors import OnceoverError, Retriable
from onceover.exitstatus import PERSON, VIOLATED, severity, worst
from onceover.operate.codes import StatusCode
from onceover.operate.states import PartitionState
from onceover.operate.statusfacts import StatusFacts, StatusSide, exit_of_error, since_s
from onceover.operate.statusread import FlowFacts
from onceover.operate.stuck import stuck_need
from onceover.state.codes import StateCode
from onceover.state.records.layout import shortened_need
from onceover.state.records.runstate import FlowRun, run_need
from onceover.state.records.verdicts import audit_need

# What a run, or that there is none, has somebody do: the reason of partitions that nobody copies.
RUN_NEEDS: Final = frozenset(
    {StateCode.DRIVER_GONE, StateCode.RUN_FAILED, StateCode.FENCED, StateCode.STATE_SHORTENED}
)


def needs_of(
    facts: StatusFacts, state: FlowFacts, run: FlowRun, entry: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return what somebody has to do, the worst first; each with the exit code that it stands for."""
    found = []
    if (failed := audit_need(facts.flow, entry["audit"])) is not None:
        found.append({**failed, "exit": VIOLATED})
    if (problem := run_need(facts.flow, run, facts.now_ms)) is not None:
        found.append({**problem, "exit": PERSON})
    if facts.is_shortened:
        shortened = shortened_need(facts.flow, facts.told_generation or 0, facts.newest)
        found.append({**shortened, "exit": PERSON})
    found += [{**problem, "exit": PERSON} for problem in state.problems]
    found += [{**_stop_need(p), "exit": PERSON} for p in entry["partitions"] if p["stop"]]
    stuck = [p for p in entry["partitions"] if p["state"] == PartitionState.STUCK]
    found += [{**stuck_need(facts.flow, p), "exit": PERSON} for p in stuck]
    found += [
        {**{name: each[name] for name in ("code", "message", "resolve")}, "exit": PERSON}
        for each in state.refused
        if each["code"] == AclCode.ACLS_STAY
    ]
    for name, side, code in (
        ("source", facts.source, StatusCode.SOURCE_UNREACHABLE),
        ("target", facts.target, StatusCode.TARGET_UNREACHABLE),
    ):
        if side.error is not None:
            found.append(_side_need(name, side, side.error, code, facts.now_ms))
    return sorted(found, key=lambda need: severity(need["exit"]))


def _stop_need(partition: Mapping[str, Any]) -> dict[str, Any]:
    name, stop = partition_name(partition), partition["stop"]
    word = "is not copied" if is_outside(partition) else "is stopped"
    return {
        "code": stop["code"],
        "message": f"{name} {word}: {stop['message']}",
        "resolve": stop["resolve"],
        "topic": partition["topic"],
        "partition": partition["partition"],
    }


def _side_need(
    name: str, side: StatusSide, error: OnceoverError, unreachable: StatusCode, now_ms: float
) -> dict[str, Any]:
    code, text = error.code, error.message
    if isinstance(error, Retriable):
        heard_s = since_s(now_ms, side.heard_ms)
        since = "" if heard_s is None else f"; it has answered the flow's driver {age_text(heard_s)} ago"
        code, text = unreachable, f"the {name} does not answer: {error.message}{since}"
    elif error.where:
        text = f"{error.message}: {error.where}"
    resolve = error.resolve or f"bring {side.alias} back, then look again"
    return {"code": code, "message": text, "resolve": resolve, "exit": exit_of_error(error)}


def partition_name(entry: Mapping[str, Any]) -> str:
    """Return ``topic:partition`` of an entry, or the topic where it is about all of it."""
    return entry["topic"] if entry["partition"] is None else f"{entry['topic']}:{entry['partition']}"


def is_outside(partition: Mapping[str, Any]) -> bool:
    """Tell whether an entry is of what is in scope and not copied."""
    return bool(partition["state"] == PartitionState.NOT_ENROLLED)


def with_fault(entry: Mapping[str, Any], error: OnceoverError) -> dict[str, Any]:
    """Return an entry with what is wrong with its file beside it: everything else was read all the same."""
    return {**with_need(entry, error), "fault": error_told(error)[0]}


def with_need(entry: Mapping[str, Any], error: OnceoverError) -> dict[str, Any]:
    """Return an entry with one thing more that waits for somebody."""
    needs = sorted([*entry["needs"], error_told(error)[1]], key=lambda each: severity(each["exit"]))
    return {**entry, "needs": needs, "exit": worst(each["exit"] for each in needs)}


def error_told(error: OnceoverError) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an error as an entry has it, and the need that it is."""
    code = exit_of_error(error)
    need = {"code": error.code, "message": error.message, "resolve": error.resolve, "exit": code}
    return {**error.as_dict(), "exit": code}, need
