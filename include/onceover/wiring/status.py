"""The state of a flow, or of all of them, from their files to ``status``'s entries.

Invariant: whatever is wrong with one flow is in its entry; the others' neither lack anything nor wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Final

from onceover.backoff import Deadline, Patience
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import listed_clash, listed_flow_files, load_listed
from onceover.errors import OnceoverError, Retriable, unexpected
from onceover.groups.decide import Allowed
from onceover.groups.plan import plan_groups
from onceover.groups.standing import groups_standing, unknown_standing
from onceover.kafka.ports import Cluster
from onceover.operate.status import flow_status
from onceover.operate.statusneeds import with_fault
from onceover.operate.statusshape import broken_entry
from onceover.planning.background import in_background, side_by_side
from onceover.state.read import read_run
from onceover.state.records.runstate import FlowRun
from onceover.wiring.flows import open_clusters, rules
from onceover.wiring.groups import GroupRequest, group_reader
from onceover.wiring.handlers import dead_letter_of

log = logging.getLogger(__name__)

# A broker on another continent answers within one; people wait for a status no longer than a few.
PATIENCE_S: Final = 5.0
# Each flow opens a handful of connections and mostly waits.
_AT_ONCE: Final = 16
# Beyond the patience: the index of the offset map is brought up to date beside it.
_GRACE_S: Final = 2.0


# Opens source and target; whoever calls it closes them.
OpenClusters = Callable[[], tuple[Cluster, Cluster]]
# Given an entry, and the clusters that it was read from while they are still open.
Beside = Callable[[dict[str, Any], Cluster, Cluster], None]


def read_status(
    flow: Flow,
    *,
    patience_s: float = PATIENCE_S,
    clusters: OpenClusters | None = None,
    beside: Beside | None = None,
    groups: bool = True,
) -> dict[str, Any]:
    """Return the status of one flow; clusters are opened and closed here.

    A cluster that does not answer is an error in the entry: in all, each is waited for in vain no longer than
    ``patience_s``, both at the same time.

    Args:
        clusters: opens them otherwise than the flow file says now.
        beside: reads what else is wanted of the same moment; what it raises, this raises.
        groups: whether to look how groups stand, which takes longer than all the rest.

    Raises:
        UsageError: a client of the flow is not in order.
    """
    opening = clusters or partial(open_clusters, flow)
    source, target = opening()
    source.patience, target.patience = Patience(patience_s), Patience(patience_s)
    deadline = Deadline(patience_s + _GRACE_S)
    start = flow.topics.start_timestamp_ms
    with source, target:
        begin = flow.topics.start if start is None else start
        entry = flow_status(flow.flow, source, target, rules(flow), begin, dead_letter_of(flow.on_bad_record))
        if beside is not None:
            beside(entry, source, target)
    standing = _groups(entry, flow, deadline, opening) if groups else None
    return {**entry, "path": str(flow.path), "groups": standing}


def _groups(
    entry: Mapping[str, Any], flow: Flow, deadline: Deadline, opening: OpenClusters
) -> dict[str, Any] | None:
    """Return how the groups stand, or why nobody knows; None where nothing was ever copied.

    A cluster that was silent a moment ago is not asked again.
    """
    silent = next((error for side in ("source", "target") if (error := entry[side]["error"])), None)
    if entry["generation"] is None:
        return None
    if silent is not None:
        return unknown_standing(silent)
    return _told(in_background(lambda: _read_groups(flow, deadline.left_s, opening)), deadline)


def _read_groups(flow: Flow, patience_s: float, opening: OpenClusters) -> dict[str, Any]:
    """Return how the flow's groups stand; by connections of its own, which end with it."""
    source, target = opening()
    source.patience, target.patience = Patience(patience_s), Patience(patience_s)
    with source, target, group_reader(flow, source, target, GroupRequest()) as reader:
        return groups_standing(plan_groups(reader.read(), Allowed()))


def _told(groups: Future[dict[str, Any]], deadline: Deadline) -> dict[str, Any]:
    """Return how the groups stand, or why nobody knows: it needs nobody, and holds nothing else up."""
    try:
        return groups.result(deadline.left_s)
    except OnceoverError as error:
        told = error
    except TimeoutError:
        told = Retriable("it takes longer than the rest of the status")
    except Exception as error:  # noqa: BLE001 - a bug about groups; what is known of the flow counts
        told = unexpected(error)
    return unknown_standing(told.as_dict())


def newest_run(flow: Flow, *, patience_s: float = PATIENCE_S) -> FlowRun:
    """Return how the flow's newest run stands, as its target knows; nothing else is asked.

    Raises:
        Retriable: the target does not answer within ``patience_s``.
        OnceoverError: a client of the flow is not in order; its state cannot be read.
    """
    source, target = open_clusters(flow)
    target.patience = Patience(patience_s)
    with source, target:
        return read_run(target, flow.flow)


def read_one(flow: Flow, *, patience_s: float = PATIENCE_S) -> dict[str, Any]:
    """Return the status of one flow for people; what nobody foresaw is an error in it, too.

    Another file for the same flow in the flows directory is a fault beside it.

    Raises:
        OnceoverError: a client of the flow is not in order.
    """
    try:
        entry, clash = read_status(flow, patience_s=patience_s), listed_clash(flow.path)
        return entry if clash is None else with_fault(entry, clash.error())
    except OnceoverError:
        raise
    except Exception as error:  # noqa: BLE001 - as one of several flows has it: exit code 1 would be an audit's
        return _unforeseen(flow.flow, flow.path, error)


def read_all(*, patience_s: float = PATIENCE_S) -> list[dict[str, Any]]:
    """Return the status of every flow of the flows directory, in the order of their files."""
    return side_by_side([_one(path, patience_s) for path in listed_flow_files()], _AT_ONCE)


def _one(path: Path, patience_s: float) -> Callable[[], dict[str, Any]]:
    return lambda: of_file(path, lambda: read_one(load_listed(path), patience_s=patience_s))


def of_file(path: Path, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the entry of a flow file that ``read`` reads; whatever is wrong with it is the entry's own."""
    try:
        return read()
    except OnceoverError as error:
        return broken_entry(path.stem, str(path), error)
    except Exception as error:  # noqa: BLE001 - it is that flow's entry: the others' must not miss it
        return _unforeseen(path.stem, path, error)


def _unforeseen(flow: str, path: Path, error: Exception) -> dict[str, Any]:
    """Return the entry of a flow whose status nobody can tell, for a reason that nobody foresaw."""
    log.debug("the status of %s cannot be read", flow, exc_info=error)
    again = "run it again with ONCEOVER_LOG=DEBUG for the traceback"
    return broken_entry(flow, str(path), unexpected(error, resolve=again))
