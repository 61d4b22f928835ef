"""What a run that copies has proven of its flow: that everything in scope is on the target. Pure.

Invariant: nothing is proven of nothing, of a part, nor by a run that was cut short or did not end well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from onceover.topics.scopecheck import nothing_in_scope


def run_caught_up(
    *,
    came_to_its_end: bool,
    stopped: Sequence[Mapping[str, Any]] | None,
    remarks: Iterable[Mapping[str, Any]],
) -> bool:
    """Tell whether what was on the source when a run began is on the target.

    Args:
        came_to_its_end: every lane has looked at all of that, and nobody has cut the run short.
        stopped: partitions, and topics not taken in, that wait for an operator; None where that is not known.
        remarks: on the flow's filter, as documents.
    """
    return came_to_its_end and stopped is not None and not stopped and nothing_in_scope(remarks) is None


def is_caught_up(copied: Mapping[str, Any] | None, status: Mapping[str, Any]) -> bool:
    """Tell whether a run that is over has proven that everything in scope is on the target.

    Only a run that itself ended well proves anything: one that was fenced or failed says nothing, whatever
    another run has done meanwhile. It has caught up when it came to its own end with ``caught-up`` (the
    source may hold newer records by now), or when nothing is missing on the live clusters. Never with a
    stopped or refused partition, one whose lag is not known, or nothing in scope.

    Args:
        copied: the run's report; None unless it ended well.
        status: of the live clusters.
    """
    partitions = status["partitions"]
    lags = [partition["lag_offsets"] for partition in partitions]
    if copied is None or not partitions or None in lags or any(p.get("stop") for p in partitions):
        return False
    return bool(copied.get("caught_up")) or not any(lags)
