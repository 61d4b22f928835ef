"""``onceover receipts``: the table of what was copied, made anew from the offset map."""

from __future__ import annotations

from typing import Final

from onceover.cli.parser import Subparsers, Work, add_actions, add_command, add_flow, end

_EXAMPLES: Final = """examples:
  onceover receipts rebuild flights-dr

The table under var/<flow>/receipts is a projection of the offset map: deleting it loses nothing.
The flow may not run meanwhile: a run writes to the table, and ends when its part of it is gone.
"""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(
        subparsers, "receipts", "make the receipts table anew from the offset map", _EXAMPLES
    )
    actions = add_actions(parser, "rebuild")
    action = add_command(actions, "rebuild", "replace the table by what the offset map says", _EXAMPLES)
    add_flow(action)
    end(action, Work("receipts", "rebuild"))
