"""Makes what Prometheus and Grafana are given, and the tables of docs/, from metrics and alerts in the code.

docker/monitoring holds the rules, the dashboard, and configurations that find the rules, one of them for
docker-compose.yaml; docs/metrics.md and docs/operations.md have tables between two marks. A test makes all of
it anew and compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import BigValueColorMode, StackingMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataSourceRef,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from onceover.metrics import catalogue as m
from onceover.metrics.alerts import ALERTS, rules_document
from onceover.metrics.catalogue import ALL, MetricSpec

PROJECT: Final = Path(__file__).parents[1]
MONITORING: Final = PROJECT / "docker" / "monitoring"
_MADE: Final = "# Made by scripts/make_monitoring.py from include/onceover/metrics: change it there.\n"
_PORT: Final = 9464
_SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${source}")
_CHOSEN: Final = 'flow=~"$flow"'
_GONE: Final = ',state=~"gone|failed"'
_HALTED: Final = ',state=~"stopped|stuck"'
_WIDTH: Final = 24


def files() -> dict[Path, str]:
    """Return every file that is made, with its text."""
    return {
        MONITORING / "alerts.yaml": _MADE + _yaml(rules_document()),
        MONITORING / "prometheus.yaml": _MADE + _yaml(_prometheus("127.0.0.1")),
        MONITORING / "prometheus-compose.yaml": _MADE + _yaml(_prometheus("onceover-metrics")),
        MONITORING / "dashboard.json": JSONEncoder(sort_keys=True, indent=1).encode(flows()) + "\n",
        PROJECT / "docs" / "metrics.md": _between(PROJECT / "docs" / "metrics.md", _tables()),
        PROJECT / "docs" / "operations.md": _between(PROJECT / "docs" / "operations.md", _runbook()),
    }


def _yaml(document: Any) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=1000, allow_unicode=True)


def _prometheus(exporter: str) -> dict[str, Any]:
    """Return Prometheus' configuration.

    Args:
        exporter: the host of ``onceover metrics``, as Prometheus' own knows it.
    """
    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [
            {"job_name": "onceover", "static_configs": [{"targets": [f"{exporter}:{_PORT}"]}]},
        ],
    }


# ---- the tables of docs/


def _between(page: Path, made: dict[str, str]) -> str:
    """Return a page with what stands between its marks made anew."""
    text = page.read_text()
    for name, table_text in made.items():
        begin, end = f"<!-- made: {name} -->\n", f"<!-- end: {name} -->"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        new = begin + table_text + end
        text, count = pattern.subn(new.replace("\\", r"\\"), text)
        if count != 1:
            raise ValueError(f"{page} has {count} places for {name}")
    return text


def _tables() -> dict[str, str]:
    return {"metrics": _rows(ALL), "alerts": _alert_rows()}


def _rows(specs: Iterable[MetricSpec]) -> str:
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    lines += [f"| `{s.name}` | {s.kind} | {', '.join(s.labels)} | {s.text} |" for s in specs]
    return "\n".join(lines) + "\n"


def _alert_rows() -> str:
    lines = ["| alert | severity | after | when |", "|---|---|---|---|"]
    for alert in ALERTS:
        link, expr = f"[{alert.alert}](operations.md#{alert.anchor})", alert.expr.replace("|", r"\|")
        lines.append(f"| {link} | {alert.severity} | {alert.after} | `{expr}` |")
    return "\n".join(lines) + "\n"


def _runbook() -> dict[str, str]:
    parts = []
    for alert in ALERTS:
        command = alert.resolve.replace("{{ $labels.flow }}", "FLOW")
        parts.append(f"### {alert.alert}\n{alert.meaning}\n\n```\n{command}\n```\n")
    return {"alerts": "\n".join(parts)}


# ---- the dashboard


def flows() -> Any:
    """Return the dashboard: what needs somebody first, then each flow from lag to drills."""
    board = (
        dashboard.Dashboard("Onceover: flows")
        .uid("onceover-flows")
        .tags(["onceover", "kafka"])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .editable()
        .with_variable(dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("flow")
            .label("Flow")
            .query(f"label_values({m.LOOK_FRESH.name}, flow)")
            .datasource(_SOURCE)
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True)
            .include_all(True)
            .all_value(".*")
        )
        .link(
            dashboard.DashboardLink("The Onceover page")
            .type(DashboardLinkType.LINK)
            .url("/onceover/")
            .tooltip("in Airflow: what each flow needs, with the command that resolves it")
        )
    )
    for row, panels in _panels():
        board = board.with_row(dashboard.Row(row))
        for panel in panels:
            board = board.with_panel(panel)
    return board.build()


def _panels() -> Sequence[tuple[str, Sequence[Any]]]:
    return (
        ("Does anything need somebody?", (*_tiles(), _needs())),
        (
            "What the target lacks",
            (
                _lines("Age of the oldest missing record", "s", (_all(m.OLDEST), "{{flow}}")),
                _lines("Lag", "short", (_all(m.LAG), "{{flow}}")),
                _lines(
                    "Held back by open transactions of the source",
                    "short",
                    (_all(m.OPEN_OFFSETS), "{{flow}}"),
                ),
                _lines("Age of the oldest open transaction", "s", (_all(m.OPEN_AGE), "{{flow}}")),
                _lines(
                    "Topics that lack most",
                    "short",
                    (f"topk(10, {_all(m.TOPIC_LAG)})", "{{flow}} {{topic}}"),
                ),
            ),
        ),
        (
            "What is copied",
            (
                _lines("Records", "cps", (_rate(m.LANE_RECORDS), "{{flow}}")),
                _lines("Bytes", "Bps", (_rate(m.LANE_BYTES), "{{flow}}")),
                _lines("Offsets fetched from the source", "cps", (_rate(m.LANE_FETCHED), "{{flow}}")),
                _lines(
                    "Transactions",
                    "cps",
                    (_rate(m.LANE_COMMITTED), "{{flow}} committed"),
                    (_rate(m.LANE_ABORTED), "{{flow}} given up"),
                ),
                _lines(
                    "Partitions by state",
                    "short",
                    (f"sum by (state) ({_all(m.PARTITIONS)})", "{{state}}"),
                    stacked=True,
                ),
                _lines(
                    "Starts",
                    "short",
                    (_hourly(m.STARTS), "{{flow}} in an hour"),
                    (_hourly(m.TAKEOVERS), "{{flow}} that fenced a run"),
                    (_hourly(m.RESTARTS), "{{flow}} after a failure"),
                ),
            ),
        ),
        (
            "Canary",
            (
                _lines(
                    "Round trip",
                    "s",
                    *((_quantile(q), f"{{{{flow}}}} p{q:g}") for q in (50, 99)),
                ),
                _lines(
                    "Numbered records",
                    "short",
                    (_rate(m.CANARY_PRODUCED), "{{flow}} produced"),
                    (_rate(m.CANARY_RECEIVED), "{{flow}} received"),
                ),
                _lines(
                    "Lost, twice, out of order",
                    "short",
                    (_all(m.CANARY_LOST), "{{flow}} lost"),
                    (_all(m.CANARY_DUPLICATES), "{{flow}} twice"),
                    (_all(m.CANARY_DISORDER), "{{flow}} out of order"),
                ),
                _lines("The oldest that has not come", "s", (_all(m.CANARY_WAITING), "{{flow}}")),
            ),
        ),
        (
            "Proof and drills",
            (
                _lines("Age of what is proven of all", "s", (f"time() - {_all(m.UNPROVEN)}", "{{flow}}")),
                _lines(
                    "How long clients waited in the last drill, and may",
                    "s",
                    (_all(m.DRILL_RTO), "{{flow}} {{mode}}"),
                    (_all(m.OBJECTIVE_RTO), "{{flow}} objective"),
                ),
                _lines(
                    "Age of what the last drill would have lost, and may",
                    "s",
                    (_all(m.DRILL_RPO_AGE), "{{flow}} {{mode}}"),
                    (_all(m.OBJECTIVE_RPO), "{{flow}} objective"),
                ),
                _lines(
                    "Age of the last drill", "s", (f"time() - {_all(m.DRILL_ENDED)}", "{{flow}} {{mode}}")
                ),
                _lines(
                    "Groups by how they stand, dead letters",
                    "short",
                    (_all(m.GROUPS), "{{flow}} groups {{standing}}"),
                    (_all(m.DEAD_LETTERS), "{{flow}} dead letters"),
                ),
            ),
        ),
        (
            "The exporter",
            (
                _lines("Age of what is shown", "s", (f"time() - {_all(m.LOOK_ENDED)}", "{{flow}}")),
                _lines("How long a look takes", "s", (_all(m.LOOK_DURATION), "{{flow}}")),
            ),
        ),
    )


def _once(spec: MetricSpec, expr: str) -> str:
    """Return an expression of a metric without what a second exporter of the same flow says again."""
    return f"max by ({', '.join(spec.labels)}) ({expr})"


def _all(spec: MetricSpec, selector: str = _CHOSEN) -> str:
    return _once(spec, f"{spec.name}{{{selector}}}")


def _rate(spec: MetricSpec) -> str:
    rate = _once(spec, f"rate({spec.name}{{{_CHOSEN}}}[$__rate_interval])")
    return f"sum by (flow) ({rate})"


def _zeros(spec: MetricSpec) -> str:
    """Return an expression for how many are 0, by whichever exporter."""
    zeros = _once(spec, f"{spec.name}{{{_CHOSEN}}} == 0")
    return f"count({zeros}) or vector(0)"


def _hourly(spec: MetricSpec) -> str:
    return _once(spec, f"increase({spec.name}{{{_CHOSEN}}}[1h])")


def _quantile(percent: int) -> str:
    name = f"{m.CANARY_ROUND_TRIP.name}_bucket"
    rate = f"rate({name}{{{_CHOSEN}}}[$__rate_interval])"
    return f"histogram_quantile({percent / 100:g}, sum by (flow, le) ({rate}))"


def _query(expr: str, legend: str, *, instant: bool = False) -> prometheus.Dataquery:
    query = prometheus.Dataquery().expr(expr).legend_format(legend).datasource(_SOURCE)
    return query.instant() if instant else query.range()


def _lines(title: str, unit: str, *queries: tuple[str, str], stacked: bool = False) -> timeseries.Panel:
    panel = timeseries.Panel().title(title).unit(unit).min(0).datasource(_SOURCE).span(_WIDTH // 2).height(8)
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(30)
    for expr, legend in queries:
        panel = panel.with_target(_query(expr, legend))
    return panel


def _tiles() -> list[stat.Panel]:
    """Return what is 0 while all is well."""
    wanted = (
        ("Flows that need somebody", f"count({_all(m.FLOW_EXIT)} > 0) or vector(0)"),
        ("Drivers gone or failed", f"sum({_all(m.RUN_STATE, _CHOSEN + _GONE)}) or vector(0)"),
        ("Partitions stopped or stuck", f"sum({_all(m.PARTITIONS, _CHOSEN + _HALTED)}) or vector(0)"),
        ("Clusters that do not answer", _zeros(m.CLUSTER_UP)),
        ("Files not in order", _zeros(m.FILE_VALID)),
        ("Flows that cannot be looked at", _zeros(m.LOOK_FRESH)),
    )
    limits = (
        dashboard.ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps([Threshold(color="green", value=None), Threshold(color="red", value=1)])
    )
    return [
        stat.Panel()
        .title(title)
        .datasource(_SOURCE)
        .color_mode(BigValueColorMode.BACKGROUND)
        .thresholds(limits)
        .span(_WIDTH // len(wanted))
        .height(4)
        .with_target(_query(expr, "", instant=True))
        for title, expr in wanted
    ]


def _needs() -> table.Panel:
    panel = table.Panel().title("What they need, by code").datasource(_SOURCE).span(_WIDTH).height(6)
    target = _query(f"sum by (flow, code, exit) ({_all(m.NEEDS)})", "", instant=True).format(
        PromQueryFormat.TABLE
    )
    hidden = [DynamicConfigValue(id_val="custom.hidden", value=True)]
    return panel.with_target(target).override_by_name("Time", hidden)


def main() -> None:
    """Write every file."""
    MONITORING.mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
