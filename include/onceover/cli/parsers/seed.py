"""``onceover seed``: write a flow's progress from somewhere else. Plan first, then apply."""

from __future__ import annotations

import argparse
from typing import Final

from onceover.cli.parser import Subparsers, Work, add_actions, add_command, add_flow, end
from onceover.seeding.spec import FORMS

# As `seeding.plan` has it, which takes its libraries along.
MISSING: Final = ("refuse", "earliest", "latest")
_EXAMPLES: Final = """examples:
  onceover seed plan  flights-dr --from group:connect-mirror     where a consumer group on the source stands
  onceover seed apply flights-dr --from timestamp:2026-01-01T00:00:00Z
  onceover seed apply flights-dr --from map                      rebuild a lost progress group, exactly
  onceover seed apply flights-dr --from file:offsets.csv --topic 'flights[.]jfk' --replace

A file is CSV with the header topic,partition,offset, or a JSON list of objects with these fields.

apply acts as a start: a running copy of the flow is fenced and ends with exit code 4; start it again
afterwards. An interrupted apply is simply run again; what it did is in
ONCEOVER_HOME/<flow>/journal/seed.jsonl.

Exit code 0: done. 3: something is refused, see the plan; the rest is done. 5: run again.
"""
_ACTIONS: Final = (
    ("plan", "say what would be written, repeated and skipped; change nothing"),
    ("apply", "fence the flow and write its progress"),
)


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(
        subparsers,
        "seed",
        "write a flow's progress from a group, a time, a file or the offset map",
        _EXAMPLES,
    )
    actions = add_actions(parser, *(name for name, _ in _ACTIONS))
    for name, text in _ACTIONS:
        action = add_command(actions, name, text, _EXAMPLES)
        add_flow(action)
        action.add_argument("--from", dest="origin", required=True, metavar="ORIGIN", help=FORMS)
        _add_choices(action)
        end(action, Work("seed", name))


def _add_choices(action: argparse.ArgumentParser) -> None:
    action.add_argument("--topic", metavar="REGEX", help="only these source topics (anchored)")
    action.add_argument("--replace", action="store_true", help="write although there is progress already")
    action.add_argument(
        "--missing",
        choices=MISSING,
        default=MISSING[0],
        help="where partitions begin that the origin leaves out of a topic (default: refuse)",
    )
