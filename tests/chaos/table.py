"""What was done in all rounds, as a table: ``python -m tests.chaos.table FOLDER`` prints it.

FOLDER is what ``ONCEOVER_CHAOS_OUT`` named; runs that failed are in it like all others.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_FIGURES = ("rounds", "records", "positions", "anomalies", "source_lost")
_WORLD = re.compile(r"\[(.+)\]")


def merged(tallies: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Add up what was done in worlds of the same kind."""
    worlds: dict[str, dict[str, Any]] = {}
    for tally in tallies:
        found = _WORLD.search(tally["name"])
        name = found[1] if found and "whatever" in tally["name"] else tally["name"].partition("[")[0]
        known = worlds.setdefault(name, {"runs": 0, **dict.fromkeys(_FIGURES, 0), "faults": Counter()})
        known["runs"] += 1
        for figure in _FIGURES:
            known[figure] += tally[figure]
        known["faults"].update(tally["faults"])
    return worlds


def rows(worlds: Mapping[str, Mapping[str, Any]]) -> Sequence[str]:
    """Return the lines of two Markdown tables: the worlds, and the faults in all of them."""
    faults: Counter[str] = Counter()
    lines = [
        "| world | runs | rounds | records judged | group positions | faults | anomalies | S-lost |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, known in sorted(worlds.items()):
        faults.update(known["faults"])
        figures = (known["runs"], known["rounds"], known["records"], known["positions"])
        outcome = (sum(known["faults"].values()), known["anomalies"], known["source_lost"])
        cells = [f"{figure:,}" for figure in (*figures, *outcome)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "| fault | times |", "|---|---:|"]
    lines += [f"| {name.replace('_', ' ')} | {times:,} |" for name, times in sorted(faults.items())]
    return lines


def main(folder: Path) -> None:
    """Print the tables."""
    tallies = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    sys.stdout.write("\n".join(rows(merged(t for t in tallies if "faults" in t))) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
