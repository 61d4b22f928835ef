"""A shell that asks the command line for the words that may follow."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_PROGRAM = Path(sys.executable).with_name("onceover")
# As argcomplete's own function does it; what it answers is printed, a line for each word.
_ASK = """
eval "$(register-python-argcomplete onceover)"
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
_python_argcomplete "$2"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def words(typed: str, environment: Mapping[str, str]) -> list[str]:
    """Return what bash offers behind ``typed``; fail where anything else is printed."""
    path = os.pathsep.join([str(_PROGRAM.parent), os.environ["PATH"]])
    ended = subprocess.run(
        ["bash", "-c", _ASK, "bash", typed, str(_PROGRAM)],
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert ended.stderr == ""
    return [line.rstrip() for line in ended.stdout.splitlines() if line]
