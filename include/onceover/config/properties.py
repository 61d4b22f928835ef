"""Java ``.properties`` text, read as ``java.util.Properties`` reads it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from onceover.config.faults import Invalid

_BLANK: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|u|.|\Z)", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_KEY: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)


class Property(NamedTuple):
    """One entry of a properties file; ``line`` counts from 1."""

    key: str
    value: str
    line: int


def parse_properties(text: str) -> list[Property]:
    """Return the entries of ``text`` in their order, duplicates included.

    Comments (``#``, ``!``), continued lines (an odd number of backslashes at the end), the three
    separators (``=``, ``:``, blank) and escapes (``\\t``, ``\\u0041``, ``\\\\``) are understood. The mark by
    which editors of Windows say that a file is UTF-8 is no part of its first key.

    Raises:
        Invalid: a ``\\u`` escape without four hexadecimal digits; names the line, never the value.
    """
    entries = []
    for number, line in _logical_lines(text.removeprefix("\ufeff")):
        match = _KEY.match(line)
        key = match.group() if match else ""
        separator = _SEPARATOR.match(line, len(key))
        value = line[separator.end() :] if separator else ""
        entries.append(Property(_unescape(key, number), _unescape(value, number), number))
    return entries


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    pending: str | None = None
    start = 0
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        line = raw.lstrip(_BLANK)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            pending, start = "", number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield start, pending + line
        pending = None
    if pending:
        yield start, pending


def _unescape(text: str, line: int) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match.group(1)
        if code == "u":
            raise Invalid(
                f"line {line}: \\u without four hexadecimal digits",
                "write a backslash that is meant literally twice",
            )
        if len(code) == 5:
            return chr(int(code[1:], 16))
        return _ESCAPES.get(code, code)

    return _ESCAPE.sub(replace, text)
