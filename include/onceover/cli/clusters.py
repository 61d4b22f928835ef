"""``onceover clusters``: the embedded clusters east and west, and Airflow beside them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import onceover
from onceover.cli.output import CommandResult, Subparsers
from onceover.config.load import onceover_home
from onceover.embed import up as embedded
from onceover.embed.airflow import AirflowStandalone, stop_detached

_EXAMPLES: Final = """examples:
  onceover clusters up            two Kafka clusters on free loopback ports
  onceover clusters up --airflow  and Airflow with the project's DAGs
  onceover clusters down
"""
_ROOT: Final = Path(onceover.__file__).parents[2]


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "clusters",
        help="two real Kafka clusters for trying things out",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="up|down|status")
    for name, function, text in (
        ("up", up, "start what does not run"),
        ("down", down, "stop everything that `up` started"),
        ("status", status, "show what runs and where"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("--json", action="store_true", help="print one JSON document")
        if name == "up":
            action.add_argument("--airflow", action="store_true", help="start Airflow too")
        action.set_defaults(func=function)


def up(args: argparse.Namespace) -> CommandResult:
    """Start the clusters, and Airflow when asked for."""
    home = onceover_home()
    clusters = embedded.up(home)
    document: dict[str, Any] = {"clusters": clusters, **_environment(clusters)}
    lines = _describe(clusters)
    if args.airflow:
        airflow = AirflowStandalone.start(
            home / "airflow",
            dags=_ROOT / "dags",
            plugins=_ROOT / "plugins",
            port=None,
            environ=_environment(clusters) | {"ONCEOVER_HOME": str(home)},
            detached=True,
        )
        document["airflow"] = {"url": airflow.url, "username": airflow.username}
        lines.append(f"Airflow: {airflow.url}  user {airflow.username}, password in {airflow.password_path}")
    lines += ["", "to use them in this shell:"]
    lines += [f"  export {key}={value}" for key, value in _environment(clusters).items()]
    lines.append("stop with: onceover clusters down")
    return CommandResult(document, "\n".join(lines))


def down(args: argparse.Namespace) -> CommandResult:
    """Stop everything; harmless when nothing runs."""
    home = onceover_home()
    airflow = stop_detached(home / "airflow")
    clusters = embedded.down(home)
    text = "stopped" + (" Airflow and" if airflow else "") + " east and west"
    return CommandResult({"clusters": clusters, "airflow_stopped": airflow}, text)


def status(args: argparse.Namespace) -> CommandResult:
    """Show what runs."""
    clusters = embedded.status(onceover_home())
    return CommandResult({"clusters": clusters}, "\n".join(_describe(clusters)))


def _environment(clusters: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that the shipped flow files read."""
    return {f"ONCEOVER_{name.upper()}": c["bootstrap"] for name, c in clusters.items() if c["bootstrap"]}


def _describe(clusters: Mapping[str, Any]) -> list[str]:
    return [
        f"{name}: {'up, ' + str(c['bootstrap']) if c['alive'] else 'down'}"
        for name, c in sorted(clusters.items())
    ]
