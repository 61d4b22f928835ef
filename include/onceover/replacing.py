"""Files that are written anew while others read them: these find the old one or the new one, never half."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
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
    path.parent.mkdir(parents=True, exist_ok=True)
    put_together({path: text}, for_all=for_all)


def put_together(files: Mapping[Path, str], *, for_all: bool = False) -> None:
    """Write files as ``put`` does, into folders that are there, once all are written: none on a full disk.

    Raises:
        OSError: one of them cannot be written.
    """
    made = {path: path.with_name(f".{path.name}.{secrets.token_hex(4)}") for path in files}
    try:
        for path, fresh in made.items():
            fresh.write_text(files[path], encoding="utf-8")
            if for_all:
                fresh.chmod(0o644)
        for path, fresh in made.items():
            os.replace(fresh, path)
    finally:
        for fresh in made.values():
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
