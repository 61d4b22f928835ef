"""What failed in a Spark worker, as the error that it was: Spark hands tracebacks over as text."""

from __future__ import annotations

import re
from typing import Final

import onceover.errors
from onceover.errors import OnceoverError, Retriable

_ERROR_IN_TRACE: Final = re.compile(r"onceover\.errors\.(\w+): (.*)|onceover\.\S+?\.(\w+): (.*)")


def error_of(failure: Exception) -> OnceoverError:
    """Find our own error in a worker's traceback; without one it counts as temporary."""
    text = str(failure)
    for match in reversed(list(_ERROR_IN_TRACE.finditer(text))):
        kind = getattr(onceover.errors, match.group(1) or match.group(3), None)
        if isinstance(kind, type) and issubclass(kind, OnceoverError):
            return kind((match.group(2) or match.group(4)).strip())
    return Retriable(
        f"the Spark query failed: {text.strip().splitlines()[0]}",
        resolve="see the driver's log; run it again",
    )
