"""Where Onceover keeps files on this machine, and the variables that configuration files read.

Invariant: neither depends on the directory in which a command is typed, but for an ``ONCEOVER_HOME`` that is
a relative path.
"""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import onceover
from onceover.config.document import EMBEDDED_VARIABLES
from onceover.errors import UsageError

HOME_VARIABLE: Final = "ONCEOVER_HOME"
# Not beside the flows' folders: a flow may be called environment.
ENVIRONMENT_FILE: Final = "clusters/environment"


def onceover_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return ``ONCEOVER_HOME``, absolute; by default the project's ``var``, else the user's ``.onceover``."""
    environment = os.environ if environ is None else environ
    named = environment.get(HOME_VARIABLE)
    if named:
        return Path(named).absolute()
    project = Path(onceover.__file__).parents[2]
    # Installed as a package there is no project around it.
    return project / "var" if (project / "pyproject.toml").is_file() else Path.home() / ".onceover"


def variables(environ: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return what ``${NAME}`` and names of directories read.

    That is ``environ`` where it is given. Otherwise it is the process's environment and, for what is not set
    there, the file that ``onceover clusters up`` leaves in ``ONCEOVER_HOME``: so the embedded clusters are
    found from any shell.

    A file that cannot be read matters to nobody but those who ask for a variable that it holds: looking one
    up raises UsageError.
    """
    if environ is not None:
        return environ
    return ChainMap(dict(os.environ), _read(onceover_home() / ENVIRONMENT_FILE))


def render_environment(values: Mapping[str, str]) -> str:
    """Return the file's text: a line ``NAME=VALUE`` for each variable."""
    return "".join(f"{name}={value}\n" for name, value in values.items())


class _Unreadable(dict[str, str]):
    """In place of a file: it holds variables, but nobody can tell what they are."""

    def __init__(self, error: UsageError) -> None:
        super().__init__()
        self._error = error

    def __contains__(self, name: object) -> bool:
        return name in EMBEDDED_VARIABLES

    def __missing__(self, name: str) -> str:
        raise self._error if name in self else KeyError(name)


def _read(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except NotADirectoryError:
        raise UsageError(
            f"{HOME_VARIABLE} is no directory",
            where=str(path.parent),
            resolve=f"set {HOME_VARIABLE} to a directory that this user can write to",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        # The text may be anybody's: it is not repeated.
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        unreadable = UsageError(
            "the variables of the embedded clusters cannot be read",
            where=str(path),
            seen=reason,
            resolve="remove the file, then start the clusters again: onceover clusters up",
        )
        return _Unreadable(unreadable)
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value for name, separator, value in pairs if separator}
