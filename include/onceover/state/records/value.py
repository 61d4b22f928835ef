"""Values of a flow's state as the records that they claim to be, whoever wrote them. Pure.

Invariant: a record that is handed out has the types that it declares, so nothing that computes with it fails
over what somebody else has written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from onceover.errors import NeedsOperator, OnceoverError
from onceover.state.codes import StateCode

T = TypeVar("T")
RESOLVE: Final = "if a newer Onceover wrote it, use that one; otherwise find who else writes there"
# What reading a value of an unexpected shape raises; JSON knows no bounds for numbers.
MALFORMED: Final = (OnceoverError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
# Offsets and times are of 64 bits: a larger number is no float's any more. Partitions have 31.
_LARGEST: Final = (1 << 63) - 1
_LARGEST_PARTITION: Final = (1 << 31) - 1
# What a flow writes is smaller: the enrolment of a topic with 20,000 partitions and everything in it has
# 3.8 MB and 300,000 parts (measured), the other records 1 MiB at most.
VALUE_BYTES: Final = 8 << 20
VALUE_PARTS: Final = 500_000
# Each begins, parts or names something: it costs up to 80 bytes as an object, and may be a byte on the wire.
_PARTS: Final = (b",", b":", b"[", b"{")
# Kafka's longest name of a topic; flows have 100 characters at most, ids of clusters 22.
_NAME: Final = re.compile(r"[!-~]{1,249}")
_HALVES: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Illegible:
    """Stands where a value is that nobody can read, and says why. The next value of its key replaces it."""

    why: str


def parts_of(value: bytes) -> int:
    """Return how many objects a value may become at most."""
    return 1 + sum(map(value.count, _PARTS))


def parsed(value: bytes, parts: int) -> Any:
    """Return what a value of that many parts says as JSON; ``Illegible`` where it says nothing.

    Nothing that is larger than a flow's own values is expanded: a few hundred bytes in a compressed batch
    would take gigabytes.
    """
    if len(value) > VALUE_BYTES or parts > VALUE_PARTS:
        return Illegible(f"{len(value)} bytes of {parts} parts")
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return Illegible("no JSON")
    # Who asks for a key that is not there is told None.
    return Illegible("null") if found is None else found


def record(cls: type[T], value: Mapping[str, Any], what: str) -> T:
    """Return the record of ``cls`` in ``value``; fields that it does not declare are left out.

    Args:
        cls: dataclass of whole numbers, texts and truth values, alone, optional, in tuples or mappings.
        what: in the error.

    Raises:
        NeedsOperator: STATE_UNREADABLE, a field is missing or of another type.
    """
    hints, found = _hints(cls), {}
    for field in fields(cls):  # pyrefly: ignore[bad-argument-type]
        if field.name in value:
            found[field.name] = value[field.name]
            if not _fits(value[field.name], hints[field.name]):
                seen = type(value[field.name]).__name__
                raise unreadable(what, f"{field.type} in {field.name!r}", seen)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise unreadable(what, f"a field {field.name!r}", "none")
    return cls(**found)


def mapping(value: object, what: str) -> Mapping[str, Any]:
    """Return ``value`` when it is a JSON object.

    Raises:
        NeedsOperator: STATE_UNREADABLE, it is something else.
    """
    if not isinstance(value, Mapping):
        raise unreadable(
            what, "an object", value.why if isinstance(value, Illegible) else type(value).__name__
        )
    return value


def whole_number(value: object) -> int:
    """Return a whole number of at most 64 bits.

    Raises:
        ValueError: it is none.
    """
    if not _is_number(value):
        raise ValueError("no whole number of 64 bits")
    return value  # pyrefly: ignore[bad-return]


def partition_number(value: object) -> int:
    """Return the number of a partition that is written as the name of a field.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str) or not value.isascii() or not value.isdecimal():
        raise ValueError("no number of a partition")
    return _within(int(value), _LARGEST_PARTITION)


def text(value: object) -> str:
    """Return a text.

    Raises:
        ValueError: it is none.
    """
    if not _is_text(value):
        raise ValueError("no text")
    return value  # pyrefly: ignore[bad-return]


def name(value: object) -> str:
    """Return the name of a topic or a flow, or a cluster's id.

    Raises:
        ValueError: it cannot be one. An overlong one would not fit into a record of whoever passes it on.
    """
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise ValueError("no name")
    return value


def named_like(
    values: Mapping[str, Any], prefix: str, read: Callable[[Any], T], name_of: Callable[[T], str]
) -> dict[str, T]:
    """Return the records under keys that begin with ``prefix``, by what the keys name behind it.

    Raises:
        NeedsOperator: STATE_UNREADABLE, one is none, or calls itself something else than its key does;
            ``where`` is the key.
    """
    return {
        key.removeprefix(prefix): own(key, prefix, value, read, name_of)
        for key, value in values.items()
        if key.startswith(prefix)
    }


def readable(
    values: Mapping[str, Any], prefix: str, read: Callable[[str, Any], T]
) -> tuple[dict[str, T], dict[str, OnceoverError]]:
    """Return the records under keys that begin with ``prefix``, and why others there are none, by key."""
    found: dict[str, T] = {}
    failed: dict[str, OnceoverError] = {}
    for key, value in values.items():
        if key.startswith(prefix):
            try:
                found[key] = read(key, value)
            except MALFORMED as error:
                failed[key] = as_unreadable(error, f"value of {key!r}")
    return found, failed


def own(key: str, prefix: str, value: Any, read: Callable[[Any], T], name_of: Callable[[T], str]) -> T:
    """Return one of them.

    Raises:
        NeedsOperator: as ``named_like``.
    """
    try:
        found = read(value)
        if (told := name_of(found)) != key.removeprefix(prefix):
            raise unreadable(f"value of {key!r}", "one about what its key names", f"one about {told!r}")
    except MALFORMED as error:
        ours = as_unreadable(error, f"value of {key!r}")
        ours.where = ours.where or key
        raise ours from error
    return found


def unreadable(what: str, expected: str, seen: str) -> NeedsOperator:
    """Return the error for a value that is not what it claims to be."""
    return NeedsOperator(
        f"the {what} in the flow's state cannot be read",
        code=StateCode.STATE_UNREADABLE,
        expected=expected,
        seen=seen,
        resolve=RESOLVE,
    )


def as_unreadable(error: Exception, what: str) -> OnceoverError:
    """Return the error that reading ``what`` has ended in, as one of ours."""
    if isinstance(error, OnceoverError):
        return error
    return unreadable(what, "what a flow writes", str(error) or type(error).__name__)


def _is_number(value: object) -> bool:
    # Not isinstance: JSON's true is an int to Python.
    return type(value) is int and -_LARGEST <= value <= _LARGEST


def _is_text(value: object) -> bool:
    """Tell a text from what is none; halves of characters, which JSON can name, can be written nowhere."""
    return isinstance(value, str) and (value.isascii() or _HALVES.search(value) is None)


def _within(number: int, largest: int) -> int:
    if number > largest:
        raise ValueError(f"a number above {largest}")
    return number


_PLAIN: Final[dict[Any, Callable[[object], bool]]] = {
    int: _is_number,
    str: _is_text,
    bool: lambda value: isinstance(value, bool),
    NoneType: lambda value: value is None,
}


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def _fits(value: object, hint: Any) -> bool:
    kind, inner = get_origin(hint), get_args(hint)
    if kind is UnionType:
        return any(_fits(value, each) for each in inner)
    if kind is tuple:
        return isinstance(value, tuple) and _each_fits(value, inner)
    if kind is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(item, each) for pair in value.items() for item, each in zip(pair, inner, strict=True)
        )
    return _PLAIN[hint](value)


def _each_fits(values: tuple[object, ...], hints: tuple[Any, ...]) -> bool:
    if hints[-1] is Ellipsis:
        return all(_fits(value, hints[0]) for value in values)
    return len(values) == len(hints) and all(map(_fits, values, hints))
