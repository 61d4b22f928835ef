"""How many examples a test of a property looks at: a few in each run, many more in soak."""

from __future__ import annotations

import os
from typing import Final

# `make soak` sets it. Hypothesis begins anew with others each time, so runs add up as well: half of what a
# test asks for took 30 s of CPU less in each of them.
_TIMES: Final = float(os.environ.get("ONCEOVER_EXAMPLES", "0.5"))


def examples(count: int) -> int:
    """Return ``count``, or as much less or more as the run asks for."""
    return max(1, int(count * _TIMES))
