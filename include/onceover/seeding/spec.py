"""What ``--from`` may say, and the file of offsets that it may name. Pure.

Invariant: no message quotes the file, whatever is in it: where a form names it, its reader may not be the one
who may read it.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from onceover.ages import NoMoment, moment_ms
from onceover.errors import UsageError
from onceover.model import TopicPartition

GROUP: Final = "group"
FLOW: Final = "flow"
PROMOTED: Final = "promoted"
FILE: Final = "file"
TIMESTAMP: Final = "timestamp"
MAP: Final = "map"
LAG_GROUP: Final = "lag-group"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_PLAIN: Final = (EARLIEST, LATEST, MAP, LAG_GROUP)
_NAMED: Final = (GROUP, FLOW, PROMOTED, FILE, TIMESTAMP)
FORMS: Final = (
    "group:<id>, earliest, latest, timestamp:<iso time>, flow:<other flow>, promoted:<flow the other way>, "
    "file:<path>, map or lag-group"
)
_FIELDS: Final = ("topic", "partition", "offset")
_NAMES: Final = ", ".join(_FIELDS)


@dataclass(frozen=True)
class OriginSpec:
    """Where positions come from; ``value`` is what follows the colon."""

    kind: str
    value: str = ""


def parse_origin(text: str) -> OriginSpec:
    """Read the value of ``--from``.

    Raises:
        UsageError: not one of its forms.
    """
    kind, colon, value = text.partition(":")
    if (kind in _PLAIN and not colon) or (kind in _NAMED and value):
        return OriginSpec(kind, value)
    raise UsageError(f"{text!r} is no origin of positions", expected=FORMS)


def parse_timestamp_ms(text: str) -> int:
    """Return an ISO 8601 time in milliseconds since 1970.

    Raises:
        UsageError: as of ``NoMoment``.
    """
    try:
        return moment_ms(text)
    except NoMoment as error:
        raise UsageError(f"{text!r} {error}", expected="for example 2026-01-01T00:00:00Z") from error


def parse_offsets(text: str, where: str) -> dict[TopicPartition, int]:
    """Read a file of offsets: a JSON list of objects, or CSV with a header line.

    Each entry has ``topic`` (on the source), ``partition`` and ``offset`` (the next one to copy).

    Args:
        where: the file's name, for messages.

    Raises:
        UsageError: of another form, a partition named twice, or a number that cannot be one.
    """
    # Spreadsheets put a mark before the text, which nobody sees in an editor.
    text = text.removeprefix("\ufeff")
    rows = _json_rows(text, where) if text.lstrip().startswith("[") else _csv_rows(text, where)
    found: dict[TopicPartition, int] = {}
    for place, row in rows:
        if set(row) != set(_FIELDS):
            raise UsageError("an entry of the offsets has other fields", where=place, expected=_NAMES)
        tp = TopicPartition(str(row["topic"]), _number(row["partition"], "partition", place))
        if tp in found:
            raise UsageError("a partition is named twice", where=place)
        found[tp] = _number(row["offset"], "offset", place)
    return found


def _json_rows(text: str, where: str) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError("the file of offsets is no JSON", where=where, seen=str(error)) from error
    for number, row in enumerate(rows, 1):
        place = f"{where}, entry {number}"
        if not isinstance(row, dict):
            raise UsageError("an entry of the offsets is no object", where=place, seen=type(row).__name__)
        yield place, row


def _csv_rows(text: str, where: str) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    try:
        rows = csv.DictReader(io.StringIO(text), strict=True)
        # A file without its header would look like one without entries.
        if sorted(rows.fieldnames or ()) != sorted(_FIELDS):
            raise UsageError(
                "the file of offsets is neither a JSON list nor CSV with a header line",
                where=f"{where}, line 1",
                expected=f"the header {','.join(_FIELDS)}",
            )
        for row in rows:
            yield f"{where}, line {rows.line_num}", row
    except csv.Error as error:
        raise UsageError("the file of offsets is no CSV", where=where, seen=str(error)) from error


def _number(value: object, name: str, place: str) -> int:
    text = str(value).strip()
    # Not isinstance alone: JSON's true is an int to Python.
    # Nineteen digits: an offset is a signed number of 64 bits.
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,19}", text) or int(text) >= 2**63:
        raise UsageError(f"{name} is no whole number from 0 on", where=place)
    return int(text)
