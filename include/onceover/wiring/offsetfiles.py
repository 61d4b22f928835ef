"""Files of offsets: any that somebody types on a command line, and those of one folder for everybody else.

Invariant: whoever only fills in a form reads nothing but plain files below that folder. Each part of the
name is opened by itself and never through a link, so nothing is won by exchanging one meanwhile; and
whatever else is named gets the same answer, so that nobody learns what is on the machine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final

from onceover.config.home import onceover_home
from onceover.errors import UsageError
from onceover.wiring.codes import WiringCode

# Several times what the positions of a million partitions take.
_LARGEST_FILE_BYTES: Final = 256 << 20
# With an underscore: no flow can be called so, whose folder would be at the same place.
_FOLDER: Final = "offset_files"
_STEP: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not waiting: a pipe is opened and looked at, instead of waiting for a writer.
_FILE: Final = _STEP | os.O_NONBLOCK

ReadFile = Callable[[str], str]


def offset_files() -> Path:
    """Return the folder from which forms may name files of offsets."""
    return onceover_home() / _FOLDER


def read_file(path: str) -> str:
    """Return the text of a file that was named on the command line.

    Raises:
        UsageError: it cannot be read, or does not end, such as a device.
    """
    try:
        with Path(path).open("rb") as file:
            return _text(file, path)
    # A path with a NUL character is a ValueError.
    except (OSError, ValueError) as error:
        raise UsageError(f"{path!r} cannot be read: {error}") from error


def within(folder: Path) -> ReadFile:
    """Return what reads files of ``folder``, and of those below it, by name."""

    def read(name: str) -> str:
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise _none_there(folder)
        try:
            with ExitStack() as stack:
                return _text(stack.enter_context(_opened(folder, parts)), name)
        # A name with a NUL character is a ValueError.
        except (OSError, ValueError):
            # Neither which of the reasons, nor as its cause: a traceback in a task's log says it as well.
            raise _none_there(folder) from None

    return read


def _opened(folder: Path, parts: list[str]) -> BinaryIO:
    """Open the file step by step.

    Raises:
        OSError: there is none, it is none, or a step is a link.
    """
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            below = os.open(part, _STEP | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
        found = os.open(parts[-1], _FILE, dir_fd=at)
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise IsADirectoryError
    return os.fdopen(found, "rb")


def _none_there(folder: Path) -> UsageError:
    return UsageError(
        "there is no file of offsets of that name",
        code=WiringCode.NO_OFFSET_FILE,
        where=str(folder),
        expected="a plain file below that folder, named from there, without links on the way",
        resolve="put the file there, or seed from the command line",
    )


def _text(file: BinaryIO, name: str) -> str:
    content = file.read(_LARGEST_FILE_BYTES + 1)
    if len(content) > _LARGEST_FILE_BYTES:
        raise UsageError(f"{name} is too large", expected=f"up to {_LARGEST_FILE_BYTES >> 20} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError:
        # Its own words quote a byte.
        raise UsageError(f"{name} is no UTF-8 text") from None
