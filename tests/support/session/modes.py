"""Who may look at what a command has left."""

from __future__ import annotations

import stat
from pathlib import Path


def open_to_others(path: Path) -> list[str]:
    """Return every file and folder, ``path`` included, that anybody but its owner may do something with."""
    # Links have no mode of their own.
    found = [each for each in (path, *path.rglob("*")) if not each.is_symlink()]
    return sorted(str(each) for each in found if stat.S_IMODE(each.stat().st_mode) & 0o077)
