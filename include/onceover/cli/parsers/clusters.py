"""``onceover clusters``: two Kafka clusters and Kafka Connect on this machine, Airflow, records."""

from __future__ import annotations

from typing import Final

from onceover.cli.parser import Subparsers, Work, add_actions, add_command, end

_EXAMPLES: Final = """examples:
  onceover clusters up                   clusters east and west, and Kafka Connect, on free loopback ports
  onceover clusters up --airflow --feed  and Airflow with the project's DAGs, and flights that flow into east
  onceover clusters status
  onceover clusters down                 stop everything; the data are kept

up starts what is missing: run it again at any time, also after a part was killed
"""
_ACTIONS: Final = (
    ("up", "start what does not run"),
    ("down", "stop everything that `up` started"),
    ("status", "show what runs and where"),
)


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(
        subparsers,
        "clusters",
        "two real Kafka clusters, Kafka Connect and Airflow for trying things out",
        _EXAMPLES,
    )
    actions = add_actions(parser, *(name for name, _ in _ACTIONS))
    for name, text in _ACTIONS:
        action = add_command(actions, name, text, _EXAMPLES)
        if name == "up":
            action.add_argument("--airflow", action="store_true", help="start Airflow too")
            action.add_argument(
                "--feed", action="store_true", help="let the demo's flights flow into cluster east"
            )
        end(action, Work("clusters", name))
