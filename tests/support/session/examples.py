"""How many examples a test of a property looks at: a few in each run, many more in soak."""

from __future__ import annotations

import os
from typing import Final

# `make soak` sets it. Hypothesis begins anew with others each time, so runs add up as well.
_TIMES: Final = int(os.environ.get("ONCEOVER_EXAMPLES", "1"))


def examples(count: int) -> int:
    """Return ``count``, and as many times more as the run asks for."""
    return count * _TIMES
