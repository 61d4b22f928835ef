"""``onceover audit``: compare both sides of a flow, record by record, through spark-submit."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from onceover.cli import numbers
from onceover.cli.parser import Subparsers, Work, add_command, add_flow, end

_EXAMPLES: Final = """examples:
  onceover audit flights-dr                              what has come since the last audit
  onceover audit flights-dr --full                       everything that both sides still hold
  onceover audit flights-dr --topics 'flights[.]delays.*' --since 2026-01-31T12:00:00Z
  onceover audit flights-dr --full --sample 20 --report audit.html

ends with 0 PASS, 1 FAIL, 3 UNVERIFIABLE: something could not be compared, and it is said what and why
"""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(subparsers, "audit", "prove that both sides hold the same records", _EXAMPLES)
    add_flow(parser)
    parser.add_argument(
        "--topics",
        action="append",
        default=[],
        metavar="REGEX",
        help="only these source topics (anchored); may be repeated",
    )
    parser.add_argument(
        "--since",
        default="watermark",
        metavar="watermark|start|TIME",
        help="where to begin (default: where the last audit ended)",
    )
    parser.add_argument("--full", action="store_true", help="the same as --since start")
    parser.add_argument(
        "--sample",
        type=numbers.whole("number of ranges", 1, 2**31 - 1),
        metavar="N",
        help="read N ranges only, the newest among them",
    )
    parser.add_argument("--show-payload", action="store_true", help="show keys and values of what is wrong")
    parser.add_argument("--report", type=Path, metavar="PATH", help="where to write the HTML report")
    parser.add_argument("--master", help="Spark master instead of the flow file's")
    end(parser, Work("audit"))
