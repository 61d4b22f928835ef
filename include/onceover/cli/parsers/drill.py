"""The words of ``onceover drill``."""

from __future__ import annotations

from typing import Final

from onceover.cli.parser import Subparsers, Work, add_actions, add_command, add_flow, end

_EXAMPLES: Final = """examples:
  onceover drill plan flights-dr           what a failover would cost now, and what stands in its way
  onceover drill plan flights-dr --json    the same as one JSON document

It changes nothing, and may be asked at any time: what is on the source alone, by topic; where every consumer
group would go on; what topics, configuration and ACLs lack on the target; and who uses the source.

Exit code 0: ready. 2: the flow was never started, or a client of it is not in order. 3: somebody has to
decide something first, see the lines that begin with `first`. 5: a cluster is away, or something may pass:
run again.
"""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(subparsers, "drill", "what a failover would cost now", _EXAMPLES)
    actions = add_actions(parser, "plan")
    action = add_command(actions, "plan", "look at everything; change nothing", _EXAMPLES)
    add_flow(action)
    end(action, Work("drill", "plan"))
