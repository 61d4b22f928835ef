"""What the Onceover page shows, read from the live clusters and from what lies on this machine.

Invariant: whatever cannot be read of a flow is said in its entry, and costs no other one; nothing here
changes anything. It is a process of its own (``main``), so that whoever serves the page reads no flow file,
holds no connection to a cluster and no secret of one. Each entry is told as soon as it is there: one that
takes too long costs nobody theirs.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import IO, Any, Final

from onceover.audit.report.datadocs import FOLDER, INDEX
from onceover.backoff import Patience
from onceover.board.talk import GIVEN, MISSING
from onceover.config.clients.connection import variable_of
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import listed_flow_files, load_listed
from onceover.config.values import next_time
from onceover.errors import NeedsOperator, OnceoverError, UsageError, unexpected
from onceover.logs import quiet_libraries
from onceover.operate.statusneeds import with_need
from onceover.operate.statusshape import broken_entry
from onceover.planning.background import side_by_side
from onceover.planning.operation import wait
from onceover.wiring.failovers.drills import drill_history, drills_dir, objectives_of, report_page
from onceover.wiring.status import PATIENCE_S, read_one

# Each mostly waits; a hundred flows between clusters that are away are given up on within seconds.
_AT_ONCE: Final = 64
_DRILLS: Final = 20


# A flow file as it was read, or why it cannot be.
Loaded = Mapping[Path, Flow | OnceoverError]


def connections_of(flows: Loaded) -> list[str]:
    """Return the names of the Connections that flow files name; one that is not in order names none."""
    found: set[str] = set()
    for flow in flows.values():
        if isinstance(flow, Flow):
            found |= {spec.connection for spec in (flow.source, flow.target) if spec.connection}
    return sorted(found)


def read_board(
    flows: Loaded,
    missing: Mapping[str, str],
    tell: Callable[[Mapping[str, Any]], None],
    *,
    patience_s: float = PATIENCE_S,
) -> None:
    """Tell an entry for each flow file: that of ``status``, with its drills and their reports.

    Args:
        missing: by name of a Connection that there is none of, what to say.
        tell: hears of each as soon as it is there, from several threads.
    """
    side_by_side([_one(path, flow, missing, tell, patience_s) for path, flow in flows.items()], _AT_ONCE)


def _one(
    path: Path,
    loaded: Flow | OnceoverError,
    missing: Mapping[str, str],
    tell: Callable[[Mapping[str, Any]], None],
    patience_s: float,
) -> Callable[[], None]:
    def read() -> None:
        try:
            flow = _usable(loaded, missing)
            entry = read_one(flow, patience_s=patience_s)
            started = entry["target"]["error"] is None and entry["generation"] is not None
            docs = {"data_docs": _data_docs(entry["audit"])}
            shown = {**entry, "path": str(path), **_nothing(), **docs}
            tell(with_drills(shown, flow, patience_s) if started else shown)
        except OnceoverError as error:
            tell({**broken_entry(path.stem, str(path), error), **_nothing()})
        except Exception as error:  # noqa: BLE001 - it is that flow's entry: the others' must not miss it
            tell({**broken_entry(path.stem, str(path), unexpected(error)), **_nothing()})

    return read


def _usable(flow: Flow | OnceoverError, missing: Mapping[str, str]) -> Flow:
    """Return the flow where its file is in order and its Connections are there; raise why it is of no use."""
    if isinstance(flow, OnceoverError):
        raise flow
    for side, spec in (("source", flow.source), ("target", flow.target)):
        if spec.connection is not None and spec.connection in missing:
            raise UsageError(
                missing[spec.connection],
                where=f"{flow.path}: {side}",
                resolve=f"create Connection {spec.connection} under Admin > Connections, or correct the "
                "variable that is named; or change the file",
            )
    return flow


def _nothing() -> dict[str, Any]:
    return {"drills": None, "drills_error": None, "data_docs": None}


def _data_docs(audit: Mapping[str, Any] | None) -> str | None:
    """Return where the last audit's Data Docs are, as seen from its report; None where not here."""
    if audit is None:
        return None
    index = Path(audit["report"]).parent / FOLDER / INDEX
    return f"{FOLDER}/{INDEX}" if os.path.isfile(index) else None


def with_drills(entry: Mapping[str, Any], flow: Flow, patience_s: float) -> dict[str, Any]:
    """Return an entry with the flow's drills; a journal that is not in order waits for somebody."""
    try:
        history = drill_history(flow, wait, Patience(patience_s))
    except OnceoverError as error:
        unknown = {**entry, "drills": {"drills": [], **_expected(flow)}, "drills_error": str(error)}
        return with_need(unknown, error) if isinstance(error, NeedsOperator) else unknown
    told = history.document()
    reports = {
        each["drill"]: str(page)
        for each in told["drills"][:_DRILLS]
        if (page := report_page(flow, each["drill"])).is_file() and page.is_relative_to(drills_dir(flow))
    }
    shown = {**told, "drills": told["drills"][:_DRILLS], "reports": reports, **_expected(flow)}
    with_them = {**entry, "drills": shown}
    return reduce(with_need, history.needs, with_them)


def _expected(flow: Flow) -> dict[str, Any]:
    due = next_time(flow.schedules.rehearse, flow.flow, datetime.now(UTC))
    return {
        "objective_s": flow.objectives.rto_ms / 1000,
        "rpo": objectives_of(flow).rpo_document(),
        "schedule": flow.schedules.rehearse,
        "next_ms": None if due is None else int(due.timestamp() * 1000),
    }


def _loaded(path: Path) -> Flow | OnceoverError:
    try:
        return load_listed(path)
    except OnceoverError as error:
        return error
    except Exception as error:  # noqa: BLE001 - its entry says so: the others' must not miss it
        return unexpected(error)


def main() -> None:
    """Ask for Connections, then print an entry a line; between this process and its parent is JSON alone."""
    quiet_libraries()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What anything prints goes to where errors go.
    os.dup2(2, 1)
    try:
        paths = listed_flow_files()
    except UsageError as error:
        # Whoever has started this shows it on the page.
        sys.exit(str(error))
    flows = {path: _loaded(path) for path in paths}
    told = threading.Lock()

    def tell(document: object) -> None:
        with told:
            answers.write(json.dumps(document) + "\n")
            answers.flush()

    tell({"paths": [str(path) for path in flows], "connections": connections_of(flows)})
    read_board(flows, _take(sys.stdin), tell)


def _take(given: IO[str]) -> Mapping[str, str]:
    """Take the Connections into this process's environment; return which there are none of."""
    answer = json.loads(given.readline())
    os.environ.update({variable_of(name): text for name, text in answer[GIVEN].items()})
    missing: Mapping[str, str] = answer[MISSING]
    return missing


if __name__ == "__main__":
    main()
