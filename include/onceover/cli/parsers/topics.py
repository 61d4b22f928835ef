"""``onceover topics``: what a flow's topics, configuration and ACLs lack on the target, and doing it."""

from __future__ import annotations

from typing import Final

from onceover.cli.parser import Subparsers, Work, add_actions, add_command, add_flow, end

_EXAMPLES: Final = """examples:
  onceover topics plan  flights-dr           what would be done, and why; changes nothing
  onceover topics plan  flights-dr --json    the same as one JSON document
  onceover topics apply flights-dr           show the plan, do it, look again

A running flow does the same by itself, except for target topics that it did not create: those are taken
over by `apply` only. Both work for a flow that was never started, and beside one that runs. An interrupted
`apply` is simply run again; what it did is in ONCEOVER_HOME/<flow>/journal/topics.jsonl.

Exit code 0: in order, or done. 3: something is refused, see the plan. 5: a cluster is away, or the topics
change all the time: run again.
"""
_ACTIONS: Final = (
    ("plan", "say what would be done; change nothing"),
    ("apply", "create topics, add partitions, set configuration and ACLs"),
)


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(
        subparsers, "topics", "compare a flow's topics with their copies, and bring these in line", _EXAMPLES
    )
    actions = add_actions(parser, *(name for name, _ in _ACTIONS))
    for name, text in _ACTIONS:
        action = add_command(actions, name, text, _EXAMPLES)
        add_flow(action)
        end(action, Work("topics", name))
