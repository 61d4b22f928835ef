"""What a message says has to be done, taken apart into prose and commands."""

from __future__ import annotations

import pytest

from onceover.planning.commands import command, split_advice
from tests.support.raw.hostilenames import HOSTILE


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


@pytest.mark.parametrize("name", [*HOSTILE, "a`b'c", 'a"`x'])
def test_a_quoted_name_stays_within_its_command(name: str) -> None:
    """Also one with backticks of its own."""
    quoted = command("groups", "plan", "orders", "--group", name)
    assert commands(f"run {quoted}, then again") == [quoted[1:-1]]


def test_it_takes_no_longer_than_the_text() -> None:
    """Whatever somebody has called a group."""
    for piece in ("`", "`'", "`'a", "``'\"", "`a "):
        assert commands(piece * 750) == []
