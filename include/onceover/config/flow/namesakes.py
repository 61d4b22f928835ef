"""Files of the flows directory that say they are one flow: mostly a copy that somebody has left there.

Invariant: none is taken for the flow silently. The one that is called after the flow is the flow's, and it is
said that there is another; every other one is refused, and all of them where none is called after it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from onceover.config.faults import BadConfig, Fault
from onceover.config.files import FLOW_FILES

_FIX: Final = "take one of them out of the directory, or call its flow otherwise"


@dataclass(frozen=True)
class NameClash:
    """Two files or more for one flow.

    Args:
        flow: what they say.
        path: the file that is asked about.
        others: the other ones.
    """

    flow: str
    path: Path
    others: tuple[Path, ...]

    @property
    def is_refused(self) -> bool:
        """Tell whether the file may not be taken for the flow's."""
        return self.path.stem != self.flow or self.flow in {path.stem for path in self.others}

    def error(self) -> BadConfig:
        """Return what is wrong, with the names of all of them."""
        others = ", ".join(path.name for path in self.others)
        return BadConfig([Fault(str(self.path), "flow", f"is {self.flow}, as in {others}", _FIX)])


def clash_of(path: Path, files: Iterable[Path]) -> NameClash | None:
    """Return which of the directory's ``files`` say the same name as ``path``, where any does.

    A file that cannot be read stands for the flow that it is called after.
    """
    flow = name_said(path)
    others = tuple(each for each in files if each != path and name_said(each) == flow)
    return NameClash(flow, path, others) if others else None


def name_said(path: Path) -> str:
    """Return which flow a file says it is; one that cannot be read, the one that it is called after."""
    try:
        stat = os.stat(path)
    except OSError:
        return path.stem
    return _read(path, (stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_ctime_ns))


# Every flow of a directory is held against every other one, and the exporter does so every few seconds.
@lru_cache(maxsize=4096)
def _read(path: Path, _stamp: tuple[int, ...]) -> str:
    try:
        name = FLOW_FILES.read(path)[1].data.get("flow")
    except Exception:  # noqa: BLE001 - whatever is wrong with it, who reads it for itself says so
        return path.stem
    return name if isinstance(name, str) else path.stem
