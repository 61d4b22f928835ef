"""What a message says has to be done, taken apart into prose and commands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from onceover.cli.parsing import parse
from onceover.errors import UsageError
from onceover.planning.commands import command, split_advice
from tests.support.raw.hostilenames import HOSTILE

INCLUDE: Final = Path(__file__).parents[3] / "include"


def commands(text: str) -> list[str]:
    return [part.text for part in split_advice(text) if part.is_command]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("save it as UTF-8", []),
        ("", []),
        ("`onceover replicate orders` starts it again: it goes on", ["onceover replicate orders"]),
        ("`onceover stop a`, then `onceover replicate a`", ["onceover stop a", "onceover replicate a"]),
        ("end it with `kafka-transactions.sh abort`", ["kafka-transactions.sh abort"]),
        ("lower `lanes`, or see `--from map`", []),
        ("an open ` and `onceover status", []),
        ("`onceover status x; rm -rf /`", []),
        ("`onceover status $(rm -rf /)`", []),
        ("`onceover status x > /etc/passwd`", []),
        ("`rm -rf /`", []),
        ("who writes to a`, then `onceover stop x` again", ["onceover stop x"]),
        ("of ` and ', `onceover stop x`", ["onceover stop x"]),
        ("`onceover status it's`", []),
    ],
)
def test_only_whole_commands_are_commands(text: str, expected: list[str]) -> None:
    """Nothing is lost of the rest, and no more is run by whoever pastes one."""
    assert commands(text) == expected
    parts = split_advice(text)
    assert "".join(f"`{part.text}`" if part.is_command else part.text for part in parts) == text


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield what a module says to people, by its line: its texts, but for docstrings."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    described = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, kinds) and node.body
                 and isinstance(node.body[0], ast.Expr)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
            yield node.lineno, node.value


def test_what_stands_as_a_command_in_a_message_is_a_whole_one() -> None:
    """Whoever pastes one without its flow, or its Connect cluster, is told how it is used, and no more."""
    wrong = []
    for path in (
        path for name in ("onceover", "onceover_airflow") for path in INCLUDE.glob(f"{name}/**/*.py")
    ):
        source = path.read_text()
        # What a parser says of itself is shown behind its own name.
        if "parsers" in path.parts or "`onceover " not in source:
            continue
        for line, text in texts(ast.parse(source)):
            for words in re.findall(r"`onceover ([^`{}]+)`", text):
                try:
                    parse(words.split())
                except UsageError as error:
                    wrong.append(f"{path.relative_to(INCLUDE)}:{line}: {words}: {error.message}")
    assert wrong == []


@pytest.mark.parametrize("name", [*HOSTILE, "a`b'c", 'a"`x'])
def test_a_quoted_name_stays_within_its_command(name: str) -> None:
    """Also one with backticks of its own."""
    quoted = command("groups", "plan", "orders", "--group", name)
    assert commands(f"run {quoted}, then again") == [quoted[1:-1]]


def test_it_takes_no_longer_than_the_text() -> None:
    """Whatever somebody has called a group."""
    for piece in ("`", "`'", "`'a", "``'\"", "`a "):
        assert commands(piece * 750) == []
