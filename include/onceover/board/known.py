"""What is known of a flow, in the words of its page: none, and unknown, are two things. Pure.

Invariant: what nobody could ask is called unknown, with the error that says why; none is said only of what
was asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from onceover.ages import age_text
from onceover.operate.states import CopyState, PartitionState
from onceover.operate.statusneeds import RUN_NEEDS
from onceover.operate.stuck import stuck_need, transaction_words
from onceover.state.records.runstate import RunState, describe_run
from onceover.state.records.verdicts import describe_audit
from onceover.state.records.verified import describe_verified

UNKNOWN: Final = "unknown"
# Of a text that somebody's file, or somebody's name for a group, has made long; and of such a name.
_LETTERS: Final = 1_500
_NAME: Final = 250
# A run that is over, or not yet there, in a word that is no state of its partitions.
_RUNS: Final = {RunState.GONE: "driver gone"}


def unknown_why(entry: Mapping[str, Any]) -> str | None:
    """Return why nobody knows what the flow's state says; None where that was read."""
    if entry["run"]["state"] != RunState.UNKNOWN:
        return None
    return _silence(entry) or next((need["message"] for need in entry["needs"]), "its state cannot be read")


def topics_unknown_why(entry: Mapping[str, Any]) -> str | None:
    """Return why nobody knows which topics are left out; None where they are told."""
    return None if entry["topics"] else (unknown_why(entry) or _silence(entry))


def groups_unknown_why(entry: Mapping[str, Any]) -> str | None:
    """Return why nobody knows how consumer groups stand; None where that is told, or there are none yet."""
    told = entry["groups"]
    return unknown_why(entry) if told is None else told["error"]["message"] if told["error"] else None


def drills_unknown_why(entry: Mapping[str, Any]) -> str | None:
    """Return why nobody knows of the flow's drills; None where they are told, or it was never started."""
    if entry.get("drills") is not None:
        return entry.get("drills_error")
    was_started = entry["generation"] is not None
    return unknown_why(entry) or (_silence(entry) if was_started else None)


def _silence(entry: Mapping[str, Any]) -> str | None:
    """Return what keeps the clusters from being read, the target's first: it holds the flow's state."""
    errors = (entry["error"], entry["target"]["error"], entry["source"]["error"])
    return next((str(error["message"]) for error in errors if error is not None), None)


def verified_words(entry: Mapping[str, Any]) -> str:
    """Return how far audits have proven the copy."""
    return UNKNOWN if unknown_why(entry) is not None else describe_verified(entry["verified"])


def audit_words(entry: Mapping[str, Any]) -> str:
    """Return what the last audit has answered."""
    return UNKNOWN if unknown_why(entry) is not None else describe_audit(entry["audit"]) or "none yet"


def state_words(entry: Mapping[str, Any]) -> str:
    """Return how it is with the copy; of one that is stopped, how its run has come to that."""
    state = entry["state"] if entry["state"] != CopyState.STOPPED else entry["run"]["state"]
    return _RUNS.get(state, str(state).replace("_", " "))


def oldest_words(entry: Mapping[str, Any]) -> str:
    """Return the age of the oldest record that the target lacks."""
    return UNKNOWN if entry["oldest_missing_s"] is None else age_text(entry["oldest_missing_s"])


def committed_words(entry: Mapping[str, Any]) -> str:
    """Return how long ago anything was committed on the target."""
    if entry["last_commit_s"] is not None:
        return age_text(entry["last_commit_s"])
    is_asked = unknown_why(entry) is None and entry["target"]["error"] is None
    return "none yet" if is_asked else UNKNOWN


def tiles(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the flow's numbers, each with what it counts."""
    lag, states = entry["lag_offsets"], [p["state"] for p in entry["partitions"]]
    is_known = unknown_why(entry) is None
    stopped = f"partitions, {states.count(PartitionState.STOPPED):,} stopped"
    lanes = f"starts so far; {entry['lanes'] or '-'} lanes"
    return [
        (UNKNOWN if lag is None else f"{lag:,}", "offsets that the target lacks"),
        (oldest_words(entry), "age of the oldest of them"),
        (committed_words(entry), "since the last commit"),
        (f"{len(states):,}", stopped) if is_known else (UNKNOWN, "partitions"),
        (str(entry["generation"] or "-"), lanes) if is_known else (UNKNOWN, "starts so far"),
    ]


def partition_row(entry: Mapping[str, Any], partition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a partition as a table shows it, with what keeps it from being copied."""
    is_whole, is_silent = partition["partition"] is None, entry["target"]["error"] is not None
    return {
        **partition,
        "state": partition["state"].replace("_", " "),
        "why": all_shortened(_why(entry, partition)),
        "lane": _cell(partition["lane"], is_unknown=False),
        "position": _cell(partition["position"], is_unknown=is_silent and not is_whole),
        "lso": _cell(partition["lso"], is_unknown=not is_whole),
        "lag_offsets": _cell(partition["lag_offsets"], is_unknown=True),
    }


def _cell(value: object, *, is_unknown: bool) -> object:
    return value if value is not None else UNKNOWN if is_unknown else "-"


def _why(entry: Mapping[str, Any], partition: Mapping[str, Any]) -> dict[str, str]:
    """Return what keeps a partition, in words, with the code and what to do; nothing where nothing does."""
    told: Mapping[str, Any] = {}
    if partition["stop"]:
        told = partition["stop"]
    elif partition["state"] == PartitionState.STUCK:
        told = stuck_need(entry["flow"], partition)
    elif partition["state"] == PartitionState.UNKNOWN:
        told = {"message": _silence(entry) or unknown_why(entry) or "its broker does not answer"}
    elif partition["state"] in (PartitionState.IDLE, PartitionState.NOT_ENROLLED):
        told = _nobody(entry, partition)
    elif partition["open_offsets"]:
        whose = transaction_words(partition["open_transaction"])
        told = {"message": f"{partition['open_offsets']} offsets wait for {whose}"}
    return {name: str(told.get(name) or "") for name in ("code", "message", "resolve")}


def _nobody(entry: Mapping[str, Any], partition: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return why a partition waits that nobody copies; what starts the flow stands above, once."""
    if entry["run"]["state"] in (RunState.STARTING, RunState.RUNNING):
        return {"message": "taken in at the next look for topics"}
    if (unknown := unknown_why(entry)) is not None:
        return {"message": unknown}
    need = next((need for need in entry["needs"] if need["code"] in RUN_NEEDS), {"code": ""})
    return {"code": need["code"], "message": f"nobody copies: {describe_run(entry['run'])}"}


def shortened(text: str, letters: int = _LETTERS) -> str:
    """Return a text no longer than anybody reads."""
    return text if len(text) <= letters else f"{text[:letters]} ..."


def all_shortened(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same with each of its texts no longer than anybody reads; names are shorter still."""
    return {
        name: shortened(value, _NAME if name in ("group", "object") else _LETTERS)
        if isinstance(value, str)
        else value
        for name, value in told.items()
    }
