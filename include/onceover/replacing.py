"""Files that are written anew while others read them: these find the old one or the new one, never half."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path


def is_replaceable(path: Path) -> bool:
    """Tell whether ``put`` may put a file there: nothing is, or a file.

    Anything else would be replaced as well: for root, ``/dev/null`` by a page that nobody else may open.
    """
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return True


def put(text: str, path: Path, *, for_all: bool = False) -> None:
    """Write a file; its folder is created, an older file replaced.

    Args:
        for_all: every user may read it; otherwise who may is up to the process.

    Raises:
        OSError: the file cannot be written.
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(text, encoding="utf-8")
        if for_all:
            fresh.chmod(0o644)
        os.replace(fresh, path)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
