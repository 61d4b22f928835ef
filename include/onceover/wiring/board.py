"""What the Onceover page shows, read from the live clusters and from what lies on this machine.

Invariant: whatever cannot be read of a flow is said in its entry, and costs no other part of it; nothing here
changes anything. Run in a process of its own (``main``), so that whoever serves the page holds no connection
to a cluster, and no secret of one.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import find_flow_files, load_flow
from onceover.errors import OnceoverError
from onceover.logs import quiet_libraries
from onceover.operate.statusshape import broken_entry
from onceover.planning.background import side_by_side
from onceover.planning.operation import wait
from onceover.wiring.drills import drill_history, drills_dir, report_page
from onceover.wiring.status import PATIENCE_S, read_one

_AT_ONCE: Final = 8
_DRILLS: Final = 20


def read_board(*, patience_s: float = PATIENCE_S) -> list[dict[str, Any]]:
    """Return an entry for each flow file: that of ``status``, with its drills and their reports."""
    return side_by_side([_one(path, patience_s) for path in find_flow_files()], _AT_ONCE)


def _one(path: Path, patience_s: float) -> Callable[[], dict[str, Any]]:
    def read() -> dict[str, Any]:
        try:
            flow = load_flow(path)
            entry = read_one(flow, patience_s=patience_s)
        except OnceoverError as error:
            return {**broken_entry(path.stem, str(path), error), **_nothing()}
        started = entry["target"]["error"] is None and entry["generation"] is not None
        drills = _drills(flow) if started else {}
        return {**entry, **_nothing(), **drills}

    return read


def _nothing() -> dict[str, Any]:
    return {"drills": None, "drills_error": None}


def _drills(flow: Flow) -> dict[str, Any]:
    try:
        told = drill_history(flow, wait).document()
    except OnceoverError as error:
        return {"drills_error": str(error)}
    reports = {
        each["drill"]: str(page)
        for each in told["drills"][:_DRILLS]
        if (page := report_page(flow, each["drill"])).is_file() and page.is_relative_to(drills_dir(flow))
    }
    return {"drills": {**told, "drills": told["drills"][:_DRILLS], "reports": reports}}


def main() -> None:
    """Print the entries as one JSON document, for whoever has started this process."""
    quiet_libraries()
    began_s = time.monotonic()
    document = {"flows": read_board(), "seconds": round(time.monotonic() - began_s, 3)}
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main()
