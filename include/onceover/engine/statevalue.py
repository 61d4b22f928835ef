"""Values of a flow's state as the records that they claim to be, whoever wrote them. Pure.

Invariant: a record that is handed out has the types that it declares, so nothing that computes with it fails
over what somebody else has written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from onceover.errors import NeedsOperator, OnceoverError

T = TypeVar("T")
UNREADABLE: Final = "STATE_UNREADABLE"
RESOLVE: Final = "if a newer Onceover wrote it, use that one; otherwise find who else writes there"
# What reading a value of an unexpected shape raises; JSON knows no bounds for numbers.
MALFORMED: Final = (OnceoverError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
# Offsets and times are of 64 bits: a larger number is no float's any more.
_LARGEST: Final = (1 << 63) - 1


def record(cls: type[T], value: Mapping[str, Any], what: str) -> T:
    """Return the record of ``cls`` in ``value``; fields that it does not declare are left out.

    Args:
        cls: dataclass of whole numbers, texts and truth values, alone, optional, in tuples or mappings.
        what: in the error.

    Raises:
        NeedsOperator: STATE_UNREADABLE, a field is missing or of another type.
    """
    hints, found = _hints(cls), {}  # type: ignore[arg-type]  # classes can be hashed
    for field in fields(cls):  # type: ignore[arg-type]
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
        raise unreadable(what, "an object", type(value).__name__)
    return value


def whole_number(value: object) -> int:
    """Return a whole number of at most 64 bits.

    Raises:
        ValueError: it is none.
    """
    if not _is_number(value):
        raise ValueError("no whole number of 64 bits")
    return value  # type: ignore[return-value]


def text(value: object) -> str:
    """Return a text.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str):
        raise ValueError("no text")  # noqa: TRY004 - one error for all that is not of its kind
    return value


def unreadable(what: str, expected: str, seen: str) -> NeedsOperator:
    """Return the error for a value that is not what it claims to be."""
    return NeedsOperator(
        f"the {what} in the flow's state cannot be read",
        code=UNREADABLE,
        expected=expected,
        seen=seen,
        resolve=RESOLVE,
    )


def _is_number(value: object) -> bool:
    # Not isinstance: JSON's true is an int to Python.
    return type(value) is int and -_LARGEST <= value <= _LARGEST


_PLAIN: Final[dict[Any, Callable[[object], bool]]] = {
    int: _is_number,
    str: lambda value: isinstance(value, str),
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
