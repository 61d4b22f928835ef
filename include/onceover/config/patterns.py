"""Regular expressions that are typed on a command line or in a form."""

from __future__ import annotations

import re

from onceover.errors import UsageError


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
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f"{option} {pattern!r} is no regular expression: {error.msg}",
            resolve="give a whole name, or a pattern such as 'flights[.].*'",
        ) from error
