"""The folders of a flow's audits: the evidence of the last ones.

Invariant: only an audit that wrote something counts, and makes an older one go.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

FOLDER: Final = "audit"
_KEEP_RUNS: Final = 10


@contextmanager
def run_folder(runs: Path) -> Iterator[Path]:
    """Make a folder for the files of one audit, and remove those of old ones.

    A folder into which nothing was written is removed at the end, however that comes.

    Args:
        runs: where the folders of all audits of the flow are; it is made where it is not there.
    """
    runs.mkdir(parents=True, exist_ok=True)
    _forget_old(runs)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    made = runs / f"{stamp}-{secrets.token_hex(3)}"
    made.mkdir()
    try:
        yield made
    finally:
        if _is_empty(made):
            made.rmdir()


def _forget_old(runs: Path) -> None:
    """Leave the newest audits that wrote something, and room for one more.

    An empty folder belongs to an audit that runs now, or to one that was killed: it goes once it is older
    than all that are kept.
    """
    found = sorted(path for path in runs.iterdir() if path.is_dir())
    kept = [path for path in found if not _is_empty(path)][1 - _KEEP_RUNS :]
    if len(kept) == _KEEP_RUNS - 1:
        for old in found[: found.index(kept[0])]:
            shutil.rmtree(old)


def _is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())
