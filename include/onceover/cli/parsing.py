"""The whole command line: which words and options there are, and what was meant by those that are not."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final

from onceover.cli.numbers import short
from onceover.cli.parser import COMMANDS, Parser, Version, register
from onceover.errors import UsageError

_EPILOG: Final = """exit codes:
  0 done   1 a check found a violation   2 bad usage or config, nothing was changed
  3 needs an operator   4 fenced by a newer start   5 temporary failure: run again
  130 interrupted   141 nobody reads any more, and it was not done

examples:
  onceover flow check flights-dr
  onceover replicate flights-dr --until caught-up
  onceover status
"""


def build_parser() -> Parser:
    """Return the parser of everything that can be typed."""
    parser = Parser(
        prog="onceover",
        description="Exactly-once replication between Kafka clusters.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=Version, nargs=0, help="show which version this is, and end")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        register(subparsers, command)
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return what was typed behind the program's name.

    Raises:
        Answered: help or the version was asked for.
        UsageError: something in it is not understood; names what comes nearest.
    """
    parser = build_parser()
    reached, rest = _reached(parser, list(arguments))
    if not {"-h", "--help"} & set(rest):
        _check_words(reached, rest)
        _check_options(reached, rest)
    found, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise _too_much(reached, unknown[0])
    return found


def _reached(parser: Parser, words: list[str]) -> tuple[Parser, list[str]]:
    """Return the parser of the last command that is named, and what is behind it."""
    while below := parser.below():
        number = next((n for n, word in enumerate(words) if not word.startswith("-")), None)
        if number is None:
            break
        word = words[number]
        if word not in below:
            raise UsageError(
                f"{parser.prog} {_shown(word)} is no command",
                expected=f"one of {', '.join(below)}",
                resolve=_advice(parser, word, below),
            )
        parser, words = below[word], words[number + 1 :]
    return parser, words


def _check_words(parser: Parser, words: Iterable[str]) -> None:
    """Refuse words that are empty: a variable that is not set must not be taken for every flow, or none."""
    for word in words:
        option, equals, value = word.partition("=") if word.startswith("--") else ("a word", "=", word)
        if equals and not value.strip():
            raise UsageError(
                f"{parser.prog}: {option} is empty",
                expected="something in it, or to be left out; is a variable of the shell not set?",
                resolve=_see(parser),
            )


def _check_options(parser: Parser, words: Iterable[str]) -> None:
    """Refuse an option that there is not: whatever is missing besides may be missing because of it."""
    known = parser.options()
    for word in takewhile(lambda word: word != "--", words):
        name, _, _ = word.partition("=")
        # The parser's own rules: an option may be cut short, and a word with a space in it is none.
        if name.startswith("--") and " " not in word and not any(each.startswith(name) for each in known):
            raise _too_much(parser, name)


def _too_much(parser: Parser, word: str) -> UsageError:
    if not word.startswith("-"):
        return UsageError(f"{parser.prog}: {short(word)} is one word too many", resolve=_see(parser))
    if word in parser.options():
        return UsageError(f"{word} belongs behind {parser.prog}", resolve=_see(parser))
    return UsageError(
        f"{parser.prog} has no option {_shown(word)}", resolve=_advice(parser, word, parser.options())
    )


def _shown(word: str) -> str:
    return short(word)[1:-1]


def _advice(parser: Parser, word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]}? {_see(parser)}" if close else _see(parser)


def _see(parser: Parser) -> str:
    return f"see `{parser.prog} --help`"
