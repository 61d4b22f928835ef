"""Find, check and make the handler that a flow file names.

Everything that can be wrong with it is found before the first record, as one clear message. No message
repeats an argument's value (it may come from ``${NAME}``) or the text of a foreign exception (it may
quote one).
"""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from onceover.errors import UsageError
from onceover.handlers.calling import NOT_ITS_OWN, CallFailed, Listener, attempt, described, limited
from onceover.handlers.codes import HandlerCode
from onceover.handlers.record import Record
from onceover.model import TopicPartition

_PLACE = "put it where driver and workers import from (docs/handlers.md), or correct the name"
_FORMS = "record: onceover.handlers.Record, or batch: pyarrow.RecordBatch"


@dataclass(frozen=True)
class Handler:
    """A handler that is ready to be called.

    Args:
        name: as the flow file says.
        vectorised: True when it takes ``pa.RecordBatch``, False when it takes ``Record``.
        call: with its arguments bound.
        target_partitions: partitions of the target topic for so many of the source.
        gained: told the source partitions that a lane gains; ``lost`` likewise.
    """

    name: str
    vectorised: bool
    call: Callable[[Any], Any]
    target_partitions: Callable[[int], int]
    gained: Listener
    lost: Listener


def load_handler(name: str, args: Mapping[str, Any], where: str) -> Handler:
    """Return the handler ``package.module:name``, its arguments checked and bound.

    Args:
        name: as in the flow file.
        args: ``handler_args``, every ``${NAME}`` replaced.
        where: the flow file, named in messages.

    Raises:
        UsageError: it cannot be imported, called or made with these arguments.
    """
    thing = _import(name, where)
    if inspect.isclass(thing):
        instance = _made(thing, name, args, where)
        call: Callable[[Any], Any] = instance
    else:
        _bind(thing, name, args, where, (object(),))
        instance, call = thing, partial(thing, **args) if args else thing
    return Handler(
        name=name,
        vectorised=_takes_batches(instance, name, where),
        call=call,
        target_partitions=partial(_target_partitions, getattr(instance, "target_partitions", None), name),
        gained=getattr(instance, "partitions_gained", _nobody),
        lost=getattr(instance, "partitions_lost", _nobody),
    )


def _nobody(partitions: Sequence[TopicPartition]) -> None:
    pass


def _import(name: str, where: str) -> Any:
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise _fault(
                where, f"there is no module {missing}", name, "an importable module", _PLACE
            ) from error
        raise _fault(
            where, f"{module_name} imports {missing}, which is not there", name, missing, f"install {missing}"
        ) from error
    except NOT_ITS_OWN:
        raise
    except BaseException as error:  # noqa: BLE001 - a foreign module may raise anything
        fix = "run it with Python and correct it"
        raise _fault(where, f"{module_name} cannot be imported", described(error), "no error", fix) from None
    thing = getattr(module, attribute, None)
    if thing is None:
        known = sorted(key for key, value in vars(module).items() if callable(value) and key[:1] != "_")
        raise _fault(
            where, f"{module_name} has no {attribute}", name, f"one of {', '.join(known) or 'none'}", _PLACE
        )
    if not callable(thing):
        fix = "name a function or a class"
        raise _fault(where, f"{name} cannot be called", type(thing).__name__, "a function or class", fix)
    return thing


def _made(kind: type, name: str, args: Mapping[str, Any], where: str) -> Any:
    _bind(kind, name, args, where, ())
    try:
        instance = kind(**args)
    except UsageError as error:
        raise _fault(
            where, error.message, error.seen or name, error.expected or "", error.resolve or ""
        ) from error
    except NOT_ITS_OWN:
        raise
    except BaseException as error:  # noqa: BLE001 - a foreign class may raise anything
        fix = "correct handler_args, or the class"
        raise _fault(where, f"{name} cannot be made", described(error), "an instance", fix) from None
    if not callable(instance):
        fix = "give the class a method __call__"
        raise _fault(where, f"an instance of {name} cannot be called", "no __call__", _FORMS, fix)
    _bind(instance, name, {}, where, (object(),))
    return instance


def _bind(thing: Any, name: str, args: Mapping[str, Any], where: str, record: tuple[object, ...]) -> None:
    """Check that ``thing`` takes the record and the arguments."""
    try:
        signature = inspect.signature(thing)
        signature.bind(*record, **args)
    except TypeError as error:
        # Python's own words name parameters, never their values.
        raise _fault(
            where,
            f"{name} does not take handler_args: {error}",
            f"given: {', '.join(args) or 'none'}",
            "the parameters of the handler",
            "add, remove or rename keys of handler_args",
        ) from None
    except ValueError:
        return  # a builtin without a signature: its first call will tell


def _takes_batches(thing: Any, name: str, where: str) -> bool:
    target = thing if inspect.isfunction(thing) or inspect.ismethod(thing) else type(thing).__call__
    try:
        parameters = list(inspect.signature(target).parameters)
        first = parameters[1 if target is not thing and not inspect.ismethod(thing) else 0]
        kind = typing.get_type_hints(target).get(first)
    except (NameError, AttributeError, TypeError, ValueError, IndexError):
        kind = None
    if kind is pa.RecordBatch:
        return True
    if kind is Record:
        return False
    fix = "annotate the first parameter; the annotation decides which form is called"
    raise _fault(where, f"{name} does not say what it takes", "no such annotation", _FORMS, fix)


def _target_partitions(count_for: Callable[[int], int] | None, name: str, source: int) -> int:
    """Return the target's partition count for ``source`` partitions.

    Raises:
        UsageError: it fails, does not come back, or is smaller than the source's: progress is kept per target
            partition of the same number.
    """
    if count_for is None:
        return source
    try:
        count = limited(lambda: attempt(lambda: count_for(source)))
    except CallFailed as error:
        raise UsageError(
            f"target_partitions of handler {name} fails",
            code=HandlerCode.HANDLER,
            seen=str(error),
            resolve="correct the handler",
        ) from None
    if type(count) is not int or count < source:
        raise UsageError(
            f"handler {name} wants fewer target partitions than the source has",
            code=HandlerCode.HANDLER,
            expected=f"{source} or more: progress is kept per target partition of the same number",
            seen=str(count) if type(count) is int else type(count).__name__,
            resolve="return at least the source's partition count from target_partitions",
        )
    return count


def _fault(where: str, problem: str, seen: str, expected: str, fix: str) -> UsageError:
    return UsageError(
        problem,
        code=HandlerCode.HANDLER,
        where=f"{where}: handler",
        expected=expected,
        seen=seen,
        resolve=fix,
    )
