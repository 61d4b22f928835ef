"""``onceover flow check`` and ``onceover flow import``: look at flow files."""

from __future__ import annotations

from typing import Final

from onceover.cli import numbers
from onceover.cli.parser import Subparsers, Work, add_actions, add_command, end

_EXAMPLES: Final = """examples:
  onceover flow check flights-dr
  onceover flow import mm2.properties
"""
# What a person looks at; the whole topic is what the copy is for.
_MAX_SAMPLE: Final = 10_000
_CHECK_EXAMPLES: Final = """examples:
  onceover flow check flights-dr            the file include/flows/flights-dr.yaml
  onceover flow check ./orders.yaml --json  any file; the result as JSON
  onceover flow check flights-dr --explain flights.jfk    is this topic copied, and why
  onceover flow check flights-dr --explain      all topics of the source, and patterns that match none
  onceover flow check flights-dr --sample 100    what the handler does to 100 live records; reads only

Exit code 0: in order. 1: the handler fails on a record of the sample. 2: every fault in a line of its
own, with file, key and fix."""
_IMPORT_EXAMPLES: Final = """examples:
  onceover flow import mm2.properties                 into the flows directory
  onceover flow import mm2.properties --out /tmp/new  into another one

Makes one flow file of each enabled A->B pair and lists every setting that has no counterpart.
Passwords are replaced by ${NAME}; the variables to set are listed."""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(subparsers, "flow", "check flow files, or make them from MirrorMaker 2", _EXAMPLES)
    actions = add_actions(parser, "check", "import")
    checker = add_command(actions, "check", "say everything that is wrong with a flow file", _CHECK_EXAMPLES)
    checker.add_argument("flow", metavar="FLOW", help="stem of a file in the flows directory, or a path")
    checker.add_argument(
        "--explain",
        metavar="TOPIC",
        type=numbers.topic,
        action="append",
        nargs="?",
        const=None,
        default=[],
        help="say whether this source topic is copied, and why (may be given several times); "
        "without TOPIC: of every topic of the source, which is read",
    )
    checker.add_argument(
        "--sample",
        metavar="N",
        type=numbers.whole("number of records", 1, _MAX_SAMPLE),
        help="run the flow's handler over up to N live records of the source and show what it changes",
    )
    end(checker, Work("flow", "run_check"))
    importer = add_command(
        actions, "import", "turn a MirrorMaker 2 properties file into flow files", _IMPORT_EXAMPLES
    )
    importer.add_argument("file", metavar="FILE", help="the properties file of connect-mirror-maker.sh")
    importer.add_argument("--out", metavar="DIR", help="where to write (default: the flows directory)")
    importer.add_argument("--force", action="store_true", help="replace files that exist")
    end(importer, Work("flow", "run_import"))
