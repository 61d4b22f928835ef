"""The state of a flow, or of all of them, from their files to ``status``'s entries.

Invariant: whatever is wrong with one flow is in its entry; the others' neither lack anything nor wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from onceover.backoff import Patience
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import find_flow_files, load_flow
from onceover.errors import OnceoverError, unexpected
from onceover.kafka.ports import Cluster
from onceover.operate.status import flow_status
from onceover.operate.statusshape import broken_entry
from onceover.planning.background import side_by_side
from onceover.wiring.flows import open_clusters, rules
from onceover.wiring.handlers import dead_letter_of

log = logging.getLogger(__name__)

# A broker on another continent answers within one; people wait for a status no longer than a few.
PATIENCE_S: Final = 5.0
# Each flow opens a handful of connections and mostly waits.
_AT_ONCE: Final = 16


# Given an entry, and the clusters that it was read from while they are still open.
Beside = Callable[[dict[str, Any], Cluster, Cluster], None]


def read_status(
    flow: Flow,
    *,
    patience_s: float = PATIENCE_S,
    environ: Mapping[str, str] | None = None,
    beside: Beside | None = None,
) -> dict[str, Any]:
    """Return the status of one flow; clusters are opened and closed here.

    A cluster that does not answer is an error in the entry: in all, each is waited for in vain no longer than
    ``patience_s``, both at the same time.

    Args:
        beside: reads what else is wanted of the same moment; what it raises, this raises.

    Raises:
        UsageError: a client of the flow is not in order.
    """
    source, target = open_clusters(flow, environ)
    source.patience, target.patience = Patience(patience_s), Patience(patience_s)
    start = flow.topics.start_timestamp_ms
    with source, target:
        begin = flow.topics.start if start is None else start
        entry = flow_status(flow.flow, source, target, rules(flow), begin, dead_letter_of(flow.on_bad_record))
        if beside is not None:
            beside(entry, source, target)
    return {**entry, "path": str(flow.path)}


def read_one(flow: Flow, *, patience_s: float = PATIENCE_S) -> dict[str, Any]:
    """Return the status of one flow for people; what nobody foresaw is an error in it, too.

    Raises:
        OnceoverError: a client of the flow is not in order.
    """
    try:
        return read_status(flow, patience_s=patience_s)
    except OnceoverError:
        raise
    except Exception as error:  # noqa: BLE001 - as one of several flows has it: exit code 1 would be an audit's
        return _unforeseen(flow.flow, flow.path, error)


def read_all(*, patience_s: float = PATIENCE_S) -> list[dict[str, Any]]:
    """Return the status of every flow of the flows directory, in the order of their files."""
    return side_by_side([_one(path, patience_s) for path in find_flow_files()], _AT_ONCE)


def _one(path: Path, patience_s: float) -> Callable[[], dict[str, Any]]:
    return lambda: of_file(path, lambda: read_status(load_flow(path), patience_s=patience_s))


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
