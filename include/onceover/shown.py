"""Texts of others, as people are shown them: anybody may name a group, a connector or a header. Pure.

Invariant: what comes out is seen as it is and does nothing. It commands no terminal and no page of a log,
turns no text round, begins no line of its own and is no HTML; whatever cannot be seen is written as an escape
(``\\n``, ``\\u202e``), so that no name looks like another one. Each kind of output has its one function here;
those of Markdown are beside the questions that need them (``onceover_airflow.approvals.markdown``), made of
``visible``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# What Unicode calls printable although nothing is printed: fillers, selectors of variants, an empty Braille
# cell, a note without a head, blanks among hieroglyphs. Everything else that cannot be seen, controls and
# directions included, it does not.
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U00013441\U00013442\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
# Wherever in a line they stand: Airflow's page of a log drops the line, or hides what follows (3.3.2).
_COMMAND: Final = re.compile(r":(?=:(?:end)?group::)", re.IGNORECASE)


def visible(value: object) -> str:
    """Return a text in one line, everything that cannot be seen, or would hide something, as an escape."""
    text = str(value)
    if "::" in text:
        text = _COMMAND.sub(r"\\x3a", text)
    if text.isprintable() and _BLANK.search(text) is None:
        return text
    return "".join(char if _is_seen(char) else char.encode("unicode_escape").decode() for char in text)


def lined(lines: Iterable[str]) -> str:
    """Return lines as a text: as many as were given, whatever is in them."""
    return "\n".join(map(visible, lines))


def some(names: Iterable[object], most: int) -> str:
    """Return the first of these names, and how many more there are."""
    every = list(map(str, names))
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return f"{', '.join(every[:most])}{more}"


def screen(text: str) -> str:
    """Return a text for a terminal or a log, with its lines and nothing else that moves the cursor."""
    return lined(text.expandtabs(4).split("\n"))


def content(data: bytes | None, at_most: int) -> str:
    """Return what a record holds, between quotes, in at most so many characters; none is ``null``.

    What cannot be seen is a dot: it is a look at somebody's bytes, not a name to be told from another one.
    """
    if data is None:
        return "null"
    # Four bytes a character, and one character more: so that what is cut looks cut.
    plain = data[: 4 * (at_most + 1)].decode("utf-8", "replace")
    text = "".join(char if _is_seen(char) else "." for char in plain)
    return f'"{text}"' if len(text) <= at_most else f'"{text[: at_most - 1]}…"'


def record(
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[bytes, bytes | None]],
    at_most: int,
) -> str:
    """Return what a record holds, each part of it as ``content`` shows it."""
    shown = "".join(f" {content(name, at_most)}={content(data, at_most)}" for name, data in headers)
    return f"key {content(key, at_most)} value {content(value, at_most)}{shown}"


def _is_seen(char: str) -> bool:
    return char.isprintable() and _BLANK.match(char) is None
