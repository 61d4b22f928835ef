"""Alerts, dashboard and docs are made from the metrics that there are, and lead to what resolves them."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any, Final

import pytest

from onceover.cli.parsers import metrics as parser
from onceover.cli.parsers.status import PATIENCE_S
from onceover.cli.parsing import parse
from onceover.metrics.alerts import ALERTS, RUNBOOK
from onceover.metrics.catalogue import ALL, MetricKind
from onceover.metrics.fromstatus import MAX_PARTITIONS

PROJECT: Final = Path(__file__).parents[3]
MADE: Final = runpy.run_path(str(PROJECT / "scripts" / "make_monitoring.py"))["files"]()
SERIES: Final = {
    spec.name + suffix
    for spec in ALL
    for suffix in (("_bucket", "_sum", "_count") if spec.kind is MetricKind.HISTOGRAM else ("",))
}
_NAMED: Final = re.compile(r"\bonceover_[a-z_]+")


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.name)
def test_what_is_made_is_what_is_there(path: Path) -> None:
    """If not: PYTHONPATH=include .venv/bin/python scripts/make_monitoring.py"""
    assert path.read_text() == MADE[path]


def test_rules_and_panels_name_metrics_that_there_are() -> None:
    """In expressions; a metric that was renamed would never fire, and its panel be empty."""
    named = {name for alert in ALERTS for name in _NAMED.findall(alert.expr)}
    (dashboard,) = (json.loads(text) for path, text in MADE.items() if path.suffix == ".json")
    shown = {name for expr in exprs(dashboard) for name in _NAMED.findall(expr)}
    assert len(named) > 20
    assert len(shown) > 25
    assert named | shown <= SERIES


def exprs(part: Any) -> list[str]:
    """Return every query of a dashboard, the variables' too."""
    if isinstance(part, list):
        return [expr for each in part for expr in exprs(each)]
    if not isinstance(part, dict):
        return []
    own = [part[key] for key in ("expr", "query") if isinstance(part.get(key), str)]
    return own + [expr for each in part.values() for expr in exprs(each)]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_each_alert_has_a_runbook_and_a_command_that_there_is(alert: Any) -> None:
    """The link leads to a heading of the page; the command line takes the command."""
    headings = re.findall(r"^### (Onceover\w+)$", (PROJECT / RUNBOOK).read_text(), re.MULTILINE)
    assert [heading.lower() for heading in headings].count(alert.anchor) == 1
    assert alert.document()["annotations"]["runbook_url"] == f"{RUNBOOK}#{alert.anchor}"
    program, *words = alert.resolve.replace("{{ $labels.flow }}", "flights-dr").split()
    if program == "onceover":
        parse(words)
    else:
        assert program == "kafka-transactions.sh"


def test_defaults_are_the_same_everywhere() -> None:
    """The parser loads no library, and says them again."""
    assert parser.MAX_PARTITIONS == MAX_PARTITIONS
    page = (PROJECT / "docs" / "metrics.md").read_text()
    assert f"{MAX_PARTITIONS:,}" in page
    args = parse(["metrics"])
    assert (args.port, args.interval, args.patience, args.host) == (9464, 15.0, PATIENCE_S, "127.0.0.1")
