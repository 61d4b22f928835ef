"""Writes what the benchmark found: JSON, page and picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onceover_lab.bench.findings.plot import draw
from onceover_lab.bench.findings.report import DATA_FILE, PAGE_FILE, PLOT_FILE, render_page
from onceover_lab.bench.findings.results import WorkloadResult, as_document


def publish(
    out_dir: Path, results: Sequence[WorkloadResult], machine: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the three files into ``out_dir`` and return the JSON document."""
    out_dir.mkdir(parents=True, exist_ok=True)
    document = as_document(results, machine, settings)
    (out_dir / DATA_FILE).write_text(json.dumps(document, indent=2) + "\n")
    (out_dir / PAGE_FILE).write_text(render_page(results, machine, settings))
    draw(results, out_dir / PLOT_FILE)
    return document
