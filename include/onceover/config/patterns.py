"""Regular expressions of flow files, and those that are typed on a command line or in a form.

A flow file is as trusted as code, and its expressions are Python's; what is typed is for ``namematch``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from onceover.errors import UsageError
from onceover.namematch import names_whole, objection

# A dot stands for every character: a name may hold a line break, and ``.*`` is all names.
ANY_CHARACTER: Final = re.DOTALL


def whole_name(expression: str, name: str) -> bool:
    """Tell whether a regular expression, known to be one, names all of ``name``."""
    return re.fullmatch(expression, name, ANY_CHARACTER) is not None


def check_typed(option: str, pattern: str) -> str:
    """Return ``pattern``, which was typed and is an expression for ``namematch``.

    Args:
        option: of the command line that it belongs to, for the message.

    Raises:
        UsageError: it is no regular expression, or has spaces around it that nobody sees.
    """
    if pattern != pattern.strip():
        raise UsageError(
            f"{option} {pattern!r} begins or ends with spaces",
            expected=repr(pattern.strip()),
            resolve="leave them out; a space that is meant is written [ ]",
        )
    if (why := objection(pattern)) is not None:
        raise UsageError(
            f"{option} {pattern!r} is no regular expression: {why}",
            expected="RE2's syntax: without looking ahead or behind, or back at what was matched",
            resolve="give a whole name, or a pattern such as 'flights[.].*'",
        )
    return pattern


def check_each(option: str, patterns: Sequence[str]) -> None:
    """Refuse patterns of which one is none.

    Raises:
        UsageError: as ``check_typed``.
    """
    for pattern in patterns:
        check_typed(option, pattern)


def matcher(option: str, patterns: Sequence[str]) -> Callable[[str], bool] | None:
    """Return what tells whether a name was asked for; None where no pattern was typed.

    Raises:
        UsageError: as ``check_typed``, of any of them.
    """
    check_each(option, patterns)
    return (lambda name: any(names_whole(pattern, name) for pattern in patterns)) if patterns else None
