"""Which of the two pyspark of an installation Python loads: the one whose bytecode is kept.

spark-submit puts ``python/lib/pyspark.zip`` of its own Spark before everything else on the path of drivers
and workers. Python keeps no bytecode of what is in a zip: each process compiled it anew, which was half of
what it took to load its modules. What pip installs has the same files unpacked, around that zip.

Loads nothing itself: it comes before pyspark.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_ZIPS: Final = ("python", "lib")
_NAME: Final = "pyspark.zip"


def prefer_unpacked() -> None:
    """Have Python look last into the zips of an installed pyspark.

    Those of a Spark elsewhere, such as a standalone worker's own, stay first: its jars want that version.
    """
    sys.path[:] = unpacked_first(sys.path)


def unpacked_first(path: Sequence[str]) -> list[str]:
    """Return ``path``, a process's ``sys.path``, with the zips of an installed pyspark behind all else."""
    folders = {Path(entry).parent for entry in path if _has_all(Path(entry), path)}
    # That of py4j is among them: pip has installed the one that its pyspark wants.
    last = [entry for entry in path if Path(entry).parent in folders]
    return [entry for entry in path if entry not in last] + last


def _has_all(archive: Path, path: Sequence[str]) -> bool:
    """Tell whether what is in the zip lies in a package that Python finds by itself."""
    if archive.name != _NAME or archive.parent.parts[-2:] != _ZIPS:
        return False
    package = archive.parents[2]
    return str(package.parent) in path and (package / "__init__.py").is_file()
