"""What is typed wrong is told with what was meant, and every help shows how it is typed right."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from onceover.cli.main import main
from onceover.cli.parser import Parser
from onceover.cli.parsing import build_parser, parse
from onceover.errors import UsageError
from tests.support.commands.parsers import leaves, walk


def examples(parser: Parser) -> Iterator[str]:
    """Yield what a help shows to type, as arguments; without the remark behind it."""
    named = re.escape(parser.prog).replace(r"\ ", " +")
    # A few blanks line commands up; more set a remark off.
    shown = rf"^  {named}(?: {{1,7}}(\S.*?))?(?: {{2,}}.*)?$"
    for arguments in re.findall(shown, parser.epilog or "", re.MULTILINE):
        yield " ".join([*parser.prog.split()[1:], arguments]).strip()


@pytest.mark.parametrize("parser", list(walk(build_parser())), ids=lambda parser: parser.prog)
def test_every_help_has_an_example_of_its_own_command(parser: Parser) -> None:
    """A person copies a line from it."""
    assert list(examples(parser))


@pytest.mark.parametrize("parser", list(leaves(build_parser())), ids=lambda parser: parser.prog)
def test_examples_are_in_order(parser: Parser) -> None:
    """What was copied works."""
    for typed in examples(parser):
        assert parse(shlex.split(typed)).work == parser.get_default("work")


@pytest.mark.parametrize("parser", list(leaves(build_parser())), ids=lambda parser: parser.prog)
def test_every_command_prints_a_document(parser: Parser) -> None:
    """Whoever automates one need not ask."""
    assert "--json" in parser.options()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("statsu", "did you mean status?"),
        ("topics aply flights-dr", "did you mean apply?"),
        ("seed plan flights-dr --form map", "did you mean --from?"),
        ("replicate flights-dr --untill forever", "did you mean --until?"),
        ("replicate --untill=forever", "did you mean --until?"),
        ("status --jsn", "did you mean --json?"),
        ("partition skip flights-dr flights.jfk:0 5", "did you mean skip-to?"),
    ],
)
def test_what_comes_nearest_is_named(typed: str, meant: str) -> None:
    """Where something comes near."""
    with pytest.raises(UsageError) as refused:
        parse(typed.split())
    assert (refused.value.resolve or "").startswith(meant)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("xyzzy", "onceover xyzzy is no command"),
        ("status --xyzzy", "onceover status has no option --xyzzy"),
        ("status flights-dr other", "onceover status: 'other' is one word too many"),
        ("stop -x flights-dr", "onceover stop has no option -x"),
        ("--json status", "--json belongs behind onceover status"),
        ("translate flights-dr flights.jfk 3 8812", "'flights.jfk' names no partition"),
    ],
)
def test_what_is_not_understood_is_named(typed: str, message: str) -> None:
    """With the help of the command that was reached."""
    with pytest.raises(UsageError) as refused:
        parse(typed.split())
    error = refused.value
    assert error.message == message
    assert "help`" in (error.resolve or "") or "in one word, such as flights.jfk:0" in (error.expected or "")


@pytest.mark.parametrize(
    "typed",
    [
        ("status", "--js"),
        ("connectors", "plan", "flights", "--connector=--all"),
        ("stop", "--wait=3", "flights-dr"),
        ("flow", "check", "--", "--name"),
        ("audit", "flights-dr", "--topics", "--a b"),
    ],
)
def test_what_is_right_is_parsed(typed: tuple[str, ...]) -> None:
    """Options cut short, names that look like options, words behind `--`."""
    assert parse(typed).command == typed[0]


@pytest.mark.parametrize("typed", ["--version", "--help", "status --xyzzy --help", "seed -h"])
def test_what_is_asked_for_is_answered(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever else is wrong."""
    assert main(typed.split()) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith(("usage: onceover", f"onceover {version('onceover')}\n"))


def test_a_partition_is_one_word_everywhere() -> None:
    """As messages print it, so that it can be copied from one into the next command."""
    metavars = [str(action.metavar) for parser in leaves(build_parser()) for action in parser._actions]
    assert "TOPIC:PARTITION" in metavars
    assert "PARTITION" not in metavars
