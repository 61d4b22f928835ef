"""Libraries of ours that are compiled from C (scripts/native.py), where this machine has them.

Invariant: nothing depends on one. Whoever asks for it has Python code that does the same, only slower, and a
library that is missing, of another machine, or not of the version that was asked for is not used.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


def functions(
    source: Path, abi: int, slower: str, signatures: Mapping[str, tuple[Any, Sequence[Any]]]
) -> ctypes.CDLL | None:
    """Return the library that was compiled from ``source``, as ``library`` does, its functions ready to call.

    Args:
        signatures: what each function returns, and what it is given.
    """
    found = library(source, abi, slower)
    if found is not None:
        for name, (result, arguments) in signatures.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    return found


def address(buffer: bytearray | memoryview) -> int:
    """Return where a writable buffer of at least one byte lies, for as long as it is held and not resized."""
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


@cache
def library(source: Path, abi: int, slower: str) -> ctypes.CDLL | None:
    """Return the library that was compiled from ``source``, loaded when it is first asked for; None without.

    Calls let go of the interpreter's lock. A process that forks afterwards may go on to use it.

    Args:
        abi: what its function ``onceover_abi`` has to return: the version of what is passed and given back.
        slower: what takes longer without it, told once a process.
    """
    path = source.with_name(f"lib{source.stem}.so")
    try:
        found = ctypes.CDLL(str(path))
        seen = found.onceover_abi()
    except (OSError, AttributeError) as error:
        reason = "is not there" if not path.exists() else f"cannot be loaded ({error})"
    else:
        if seen == abi:
            return found
        reason = f"is of version {seen} instead of {abi}"
    log.warning("%s: %s %s; scripts/native.py compiles it", slower, path.name, reason)
    return None
