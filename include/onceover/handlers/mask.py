"""``onceover.handlers.mask:MaskFields``: hide fields of JSON values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from onceover.errors import UsageError
from onceover.handlers.record import Record

# What is wanted below a place of a document; None: the place itself is hidden.
_Wanted: TypeAlias = "dict[str, _Wanted] | None"

_BLANK: Final = " \t\n\r"
_DECODER: Final = json.JSONDecoder()


class MaskFields:
    """Write ``replacement`` in place of fields; every other byte of the value stays as it is.

    Args:
        fields: dotted paths, ``customer.card``. A list on the way stands for all of its elements. A
            field that a value does not have is not missed.
        replacement: any JSON value.

    A null value passes. A value that is no JSON (UTF-8) is a handler error: it may hold what is to be
    hidden.
    """

    def __init__(self, fields: list[str], replacement: Any = "***") -> None:
        if not isinstance(fields, list) or not fields or not all(isinstance(f, str) and f for f in fields):
            raise UsageError(
                "fields names nothing",
                expected='a list of paths, e.g. ["customer.card"]',
                resolve="correct handler_args",
            )
        self._wanted: dict[str, _Wanted] = {}
        for field in fields:
            _plant(self._wanted, field.split("."))
        self._replacement = json.dumps(replacement, ensure_ascii=False)

    def __call__(self, record: Record) -> Iterable[Record]:
        """Return the record with its fields hidden."""
        if record.value is None:
            return (record,)
        text = record.value.decode()
        spans = list(_spans(text, self._wanted))
        if not spans:
            return (record,)
        parts: list[str] = []
        at = 0
        for first, end in spans:
            parts += (text[at:first], self._replacement)
            at = end
        return (record.replace(value="".join([*parts, text[at:]]).encode()),)


def _plant(wanted: dict[str, _Wanted], path: list[str]) -> None:
    """Add a path; one that is a part of another hides the larger part."""
    for step in path[:-1]:
        below: _Wanted = wanted.setdefault(step, {})
        if below is None:
            return
        wanted = below
    wanted[path[-1]] = None


def _spans(text: str, wanted: dict[str, _Wanted]) -> Iterator[tuple[int, int]]:
    """Yield where the wanted fields' values stand, in order; the whole text is checked to be JSON."""
    found: list[tuple[int, int]] = []
    end = _skip(text, _value(text, _skip(text, 0), wanted, found))
    if end != len(text):
        raise ValueError("more than one JSON value")
    yield from found


def _value(text: str, at: int, wanted: _Wanted, found: list[tuple[int, int]]) -> int:
    """Note the wanted parts of the value at ``at``; return where it ends."""
    head = text[at : at + 1]
    # An empty wish: nothing below is wanted, and the C decoder steps over it.
    if wanted and head == "{":
        return _object(text, at + 1, wanted, found)
    if wanted and head == "[":
        return _list(text, at + 1, wanted, found)
    end = _DECODER.raw_decode(text, at)[1]
    if wanted is None:
        found.append((at, end))
    return end


def _object(text: str, at: int, wanted: dict[str, _Wanted], found: list[tuple[int, int]]) -> int:
    at = _skip(text, at)
    if text[at : at + 1] == "}":
        return at + 1
    while True:
        if text[at : at + 1] != '"':
            raise ValueError("an object's key is no text")
        name, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        at = _skip(text, _value(text, at, wanted.get(name, {}), found))
        if text[at : at + 1] == "}":
            return at + 1
        at = _skip(text, _expect(text, at, ","))


def _list(text: str, at: int, wanted: dict[str, _Wanted], found: list[tuple[int, int]]) -> int:
    at = _skip(text, at)
    if text[at : at + 1] == "]":
        return at + 1
    while True:
        at = _skip(text, _value(text, at, wanted, found))
        if text[at : at + 1] == "]":
            return at + 1
        at = _skip(text, _expect(text, at, ","))


def _expect(text: str, at: int, char: str) -> int:
    if text[at : at + 1] != char:
        raise ValueError("no JSON value")
    return at + 1


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at
