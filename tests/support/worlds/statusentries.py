"""What ``status`` says of flows, made up: for whatever shows it."""

from __future__ import annotations

from typing import Any, Final

from onceover.operate.statusfacts import StatusFacts, StatusSide
from onceover.operate.statusshape import shape

NOW_MS: Final = 1_000_000


def status_entry(flow: str = "orders", **changes: Any) -> dict[str, Any]:
    """Return the entry of a flow that was never started, with changes."""
    source, target = StatusSide(alias="east"), StatusSide(alias="west")
    return {**shape(StatusFacts(flow=flow, now_ms=NOW_MS, source=source, target=target)), **changes}


def partition_entry(
    number: int | None, state: str = "caught_up", lag: int | None = 0, **changes: Any
) -> dict[str, Any]:
    """Return the entry of a partition."""
    told = {
        "topic": "orders", "partition": number, "lane": 0, "state": state, "stop": None, "open_offsets": 0,
        "position": 5, "lso": 5, "lag_offsets": lag, "oldest_missing_s": 0.0 if lag == 0 else 7.0,
        "verified": None, "enrolled_ms": NOW_MS,
    }  # fmt: skip
    return {**told, **changes}


def running_entry(flow: str = "orders", **changes: Any) -> dict[str, Any]:
    """Return the entry of a flow that runs, has copied all that there is, and needs nobody."""
    told = status_entry(flow)
    return {
        **told,
        "state": "caught_up",
        "run": {**told["run"], "state": "running", "started_ms": NOW_MS - 60_000},
        "generation": 3,
        "fenced_starts": 1,
        "restarts": 1,
        "lanes": 2,
        "lag_offsets": 0,
        "oldest_missing_s": 0.0,
        "last_commit_ms": NOW_MS,
        "driver": {"host": "here", "pid": 7, "silent_ms": 1_000, "alive": True},
        "partitions": [partition_entry(0), partition_entry(1)],
        "needs": [],
        "exit": 0,
        **changes,
    }
