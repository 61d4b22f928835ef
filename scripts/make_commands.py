"""Makes docs/commands.md: every command with its arguments and options, from the parsers themselves.

A test makes it anew and compares.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from onceover.cli.parser import Parser
from onceover.cli.parsing import build_parser

PROJECT: Final = Path(__file__).parents[1]
PAGE: Final = PROJECT / "docs" / "commands.md"
# Where each command is explained, beside what it takes.
EXPLAINED: Final = {
    "flow": "flow-file.md",
    "topics": "topics.md",
    "replicate": "first-flow.md",
    "stop": "first-flow.md",
    "status": "operations.md#watching",
    "metrics": "metrics.md",
    "partition": "operations.md#when-a-partition-is-stopped",
    "groups": "groups.md",
    "seed": "seeding.md",
    "adopt": "adopting-mirrormaker.md",
    "translate": "positions.md",
    "receipts": "positions.md",
    "audit": "audit.md",
    "drill": "drills.md",
    "connectors": "connectors.md",
    "clusters": "../README.md",
    "demo": "../README.md",
    "bench": "benchmark/README.md",
}
_HEAD: Final = """# Commands

<!-- Made by scripts/make_commands.py from include/onceover/cli: change it there. -->
What `onceover COMMAND --help` says of each, on one page. `FLOW` is the name of a file in the folder of flow
files, or a path ([flow-file.md](flow-file.md)). Where a REGEX may stand it has to match a whole name. What
each may do on a cluster: [operations.md](operations.md#rights-least-privilege).
"""


def page() -> str:
    """Return the whole page."""
    parser = build_parser()
    return "\n".join([_HEAD, *_index(parser), "", "```", _epilog(parser), "```", *_commands(parser)]) + "\n"


def _index(parser: Parser) -> Iterator[str]:
    yield "| command | what it does | explained in |"
    yield "|---|---|---|"
    for word, text in _helps(parser).items():
        where = EXPLAINED[word]
        shown = where.removeprefix("../").partition("#")[0]
        yield f"| [`{word}`](#onceover-{word}) | {text} | [{shown}]({where}) |"


def _commands(parser: Parser) -> Iterator[str]:
    for command, text in _helps(parser).items():
        yield from _command(parser.below()[command], text)


def _command(parser: Parser, text: str, above: str | None = None) -> Iterator[str]:
    """Yield a command's section, and those of the words behind it; what a help says again is left out."""
    level = parser.prog.count(" ") + 1
    yield f"\n{'#' * level} {parser.prog}\n{text[0].upper()}{text[1:]}.\n"
    epilog = _epilog(parser)
    if below := parser.below():
        yield f"```\n{epilog}\n```"
        helps = _helps(parser)
        for word, each in below.items():
            yield from _command(each, helps[word], epilog)
        return
    yield f"    {' '.join([parser.prog, *(_usage(action) for action in _arguments(parser))])}\n"
    yield "| argument | meaning |"
    yield "|---|---|"
    yield from (f"| {_name(action)} | {_meaning(action)} |" for action in _arguments(parser))
    if epilog != above:
        yield f"\n```\n{epilog}\n```"


def _helps(parser: Parser) -> dict[str, str]:
    """Return the words that may follow, each with its line of help."""
    return {
        choice.dest: str(choice.help)
        for action in parser.actions()
        if isinstance(action, argparse._SubParsersAction)
        for choice in action._choices_actions
    }


def _arguments(parser: Parser) -> list[argparse.Action]:
    """Return what may be typed behind a command: first what stands by its place, then the options."""
    actions = [action for action in parser.actions() if "--help" not in action.option_strings]
    return sorted(actions, key=lambda action: bool(action.option_strings))


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar is not None:
        return action.metavar
    if action.choices is not None:
        return "|".join(str(choice) for choice in action.choices)
    return action.dest.upper()


def _typed(action: argparse.Action) -> str:
    """Return an argument as it is typed once."""
    if not action.option_strings:
        return _value(action)
    option = action.option_strings[-1]
    return option if action.nargs == 0 else f"{option} {_value(action)}"


def _usage(action: argparse.Action) -> str:
    typed = _typed(action)
    more = action.nargs in (argparse.ZERO_OR_MORE, argparse.ONE_OR_MORE)
    typed += "..." if more else ""
    usage = typed if action.required and action.nargs != argparse.ZERO_OR_MORE else f"[{typed}]"
    # The option itself comes again, not its value.
    return f"{usage}..." if isinstance(action, argparse._AppendAction) and not more else usage


def _name(action: argparse.Action) -> str:
    return f"`{_typed(action)}`".replace("|", r"\|")


def _meaning(action: argparse.Action) -> str:
    text = (action.help or "") % {**vars(action)}
    chosen = action.choices is not None and action.metavar is not None and action.option_strings == []
    text += f": {', '.join(str(choice) for choice in action.choices or ())}" if chosen else ""
    # A page would take what stands between angle brackets for HTML, and show nothing.
    return text.replace("|", r"\|").replace("<", "&lt;")


def _epilog(parser: Parser) -> str:
    return (parser.epilog or "").strip()


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
