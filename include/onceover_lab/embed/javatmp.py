"""Where a JVM puts what it unpacks: some megabytes of libraries, which one that is killed never removes."""

from __future__ import annotations

import shutil
from pathlib import Path


def temporary_flag(home: Path) -> str:
    """Return what lets Java use a folder below ``home``, which is made anew: nobody else may be using it."""
    folder = home / "tmp"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return f"-Djava.io.tmpdir={folder}"
