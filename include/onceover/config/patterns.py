"""Regular expressions that are typed on a command line or in a form."""

from __future__ import annotations

import re
from typing import Final

from onceover.errors import UsageError

# A dot stands for every character: a name may hold a line break, and ``.*`` is all names.
ANY_CHARACTER: Final = re.DOTALL


def whole_name(expression: str, name: str) -> bool:
    """Tell whether a regular expression, known to be one, names all of ``name``."""
    return re.fullmatch(expression, name, ANY_CHARACTER) is not None


def compiled(option: str, pattern: str) -> re.Pattern[str]:
    """Return ``pattern``, ready for use.

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
    try:
        return re.compile(pattern, ANY_CHARACTER)
    except re.error as error:
        raise UsageError(
            f"{option} {pattern!r} is no regular expression: {error.msg}",
            resolve="give a whole name, or a pattern such as 'flights[.].*'",
        ) from error
