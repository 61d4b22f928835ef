"""Texts name commands as ``onceover COMMAND``; people see them as they can be typed where they are. Pure
but for the question where the program was found.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

NAME: Final = "onceover"


class FlowAtPath(NamedTuple):
    """A flow that was named by a file's path: its own name, by which nobody finds it, and that path."""

    name: str
    path: str


def as_typed(
    text: str, commands: Iterable[str], program: str | None = None, flow: FlowAtPath | None = None
) -> str:
    """Return ``text`` with every ``onceover COMMAND`` as it can be typed.

    Args:
        commands: the words that make it a command.
        program: what to type; by default what was typed to start this process.
        flow: whose name is to be its path in them.
    """
    # Not what only contains the name, such as a path or a group's name.
    begin = rf"(?<![\w./-]){NAME}(?= (?:--[a-z]|(?:{'|'.join(commands)})\b))"
    typed = program or typed_program(sys.argv[0], os.environ.get("PATH"))
    if flow is None:
        return re.sub(begin, lambda _: typed, text)
    command = re.compile(rf"{begin}(?:((?: [a-z-]+){{1,3}}? ){re.escape(flow.name)}(?![\w./-]))?")
    return command.sub(lambda f: typed + (f[1] + shlex.quote(flow.path) if f[1] else ""), text)


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
