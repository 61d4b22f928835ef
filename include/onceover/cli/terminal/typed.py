"""Texts name commands as ``onceover COMMAND``; people see them as they can be typed where they are. Pure
but for the question where the program was found.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

NAME: Final = "onceover"


def as_typed(text: str, commands: Iterable[str], program: str | None = None) -> str:
    """Return ``text`` with every ``onceover COMMAND`` as it can be typed.

    Args:
        commands: the words that make it a command.
        program: what to type; by default what was typed to start this process.
    """
    # Not what only contains the name, such as a path or a group's name.
    command = re.compile(rf"(?<![\w./-]){NAME}(?= (?:--[a-z]|(?:{'|'.join(commands)})\b))")
    typed = program or typed_program(sys.argv[0], os.environ.get("PATH"))
    return command.sub(lambda _: typed, text)


def typed_program(argv0: str, search: str | None) -> str:
    """Return what to type to start this program again.

    That is its name when a shell finds it, else its path: relative in the project, absolute elsewhere.
    """
    path = Path(os.path.abspath(argv0))
    if path.name != NAME:
        # Run by something else, such as a test: nobody typed anything.
        return NAME
    found = shutil.which(NAME, path=search)
    if found is not None and Path(found).resolve() == path.resolve():
        return NAME
    # .venv/bin/onceover of the project in which this is typed.
    project = path.parent.parent.parent
    return str(path.relative_to(project) if project == Path.cwd() else path)
