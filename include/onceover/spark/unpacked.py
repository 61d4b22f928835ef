"""Which of the two pyspark of an installation Python loads: the one whose bytecode is kept.

spark-submit puts ``python/lib/pyspark.zip`` of its own Spark before everything else on the path of drivers
and workers. Python keeps no bytecode of what is in a zip: each process compiled it anew, which was half of
what it took to load its modules. What pip installs has the same files unpacked, around that zip.

Loads nothing itself: it comes before pyspark.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

_ZIPS: Final = ("python", "lib")
_NAME: Final = "pyspark.zip"
_PACKAGES: Final = ("pyspark", "py4j")


def prefer_unpacked() -> None:
    """Have Python look last into the zips of an installed pyspark.

    Those of a Spark elsewhere, such as a standalone worker's own, stay first: its jars want that version.
    """
    sys.path[:] = unpacked_first(sys.path)


def unpacked_first(path: Sequence[str]) -> list[str]:
    """Return ``path``, a process's ``sys.path``, with the zips of an installed pyspark behind all else.

    Unchanged where another package than the one around the zip, or the py4j beside it, would be found then.
    """
    for archive in (Path(entry) for entry in path if entry.endswith(_NAME)):
        if archive.parent.parts[-2:] != _ZIPS:
            continue
        # That of py4j is among them: pip has installed the one that its pyspark wants.
        last = [entry for entry in path if Path(entry).parent == archive.parent]
        found = [entry for entry in path if entry not in last] + last
        site = archive.parents[2].parent
        if all(_folder_of(name, found) == site / name for name in _PACKAGES):
            return found
    return list(path)


def _folder_of(name: str, path: Sequence[str]) -> Path | None:
    found = PathFinder.find_spec(name, path)
    return None if found is None or found.origin is None else Path(found.origin).parent
