"""Files that are nobody's business but their owner's.

Invariant: while ``privately`` holds, whatever this process and those that it starts make is the owner's
alone: folders 0700, files 0600. Below ``ONCEOVER_HOME`` are names, positions and, where somebody asked to see
them, contents of records. What makes its files with a mode of its own has to be told likewise (Hadoop does).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

UMASK: Final = 0o077


@contextmanager
def privately() -> Iterator[None]:
    """Make files for their owner alone meanwhile, in all threads of this process."""
    before = os.umask(UMASK)
    try:
        yield
    finally:
        os.umask(before)
