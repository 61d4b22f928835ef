"""What a run leaves for people and for other DAGs: a table and counts. Pure.

Shapes are those of ``onceover status`` and ``onceover replicate --json`` (docs/operations.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onceover.ages import age_text
from onceover.operate.states import PartitionState

_HEADINGS: Final = ("topic", "partitions", "caught up", "lag (offsets)", "oldest missing", "stopped")


def count_run(copied: Mapping[str, Any] | None, status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run as names and counts, for the XCom and the asset event.

    Args:
        copied: what the task that copied returned; None unless it ended well.
        status: of the live clusters.
    """
    from onceover.operate.caughtup import is_caught_up

    partitions = status["partitions"]
    return {
        "flow": status["flow"],
        "generation": status["generation"],
        "records": (copied or {}).get("records"),
        "bytes": (copied or {}).get("bytes"),
        "transactions": (copied or {}).get("transactions"),
        "partitions": len(partitions),
        "partitions_stopped": sum(1 for partition in partitions if partition.get("stop")),
        "lag_offsets": status["lag_offsets"],
        "caught_up": is_caught_up(copied, status),
    }


def status_table(status: Mapping[str, Any]) -> list[str]:
    """Return lines for the log: one per topic, then one for each thing to be done, with what resolves it."""
    topics: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for partition in status["partitions"]:
        topics[partition["topic"]].append(partition)
    rows = [_HEADINGS, *(_row(topic, partitions) for topic, partitions in sorted(topics.items()))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    needs = status["needs"]
    return lines + [f"{need['code']}: {need['message']}; to resolve: {need['resolve']}" for need in needs]


def _row(topic: str, partitions: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    from onceover.operate.statusshape import oldest_of

    lags = [partition["lag_offsets"] for partition in partitions]
    lag = "unknown" if None in lags else str(sum(lags))
    oldest_s = oldest_of([partition["oldest_missing_s"] for partition in partitions])
    if all(partition["state"] == PartitionState.NOT_ENROLLED for partition in partitions):
        lag += ", not taken in"
    caught_up = sum(1 for partition in partitions if partition["state"] == PartitionState.CAUGHT_UP)
    stopped = sum(1 for partition in partitions if partition.get("stop"))
    return (
        topic,
        str(sum(partition.get("partitions", 1) for partition in partitions)),
        str(caught_up),
        lag,
        "unknown" if oldest_s is None else age_text(oldest_s) if oldest_s else "-",
        str(stopped),
    )
