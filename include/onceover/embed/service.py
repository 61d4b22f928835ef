"""One detached process beside the clusters, with a record of its own.

Invariant: what is ended is the process on record, or the same program with a path that is its
alone: never a process that was given its id since then, nor an editor of that path.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from onceover.embed.registry import ProcessIdentity, find_by_argument, terminate

_RECORD: Final = "process.json"


@dataclass(frozen=True, slots=True)
class Service:
    """A process that outlives its starter.

    Args:
        folder: where its files are, and the record.
        argument: a path on its command line.
        program: what runs with that path: see :func:`find_by_argument`.
    """

    folder: Path
    argument: Path
    program: tuple[str, ...]

    @property
    def alive(self) -> bool:
        """Whether the process on record runs."""
        identity = self.identity
        return identity is not None and identity.find() is not None

    @property
    def identity(self) -> ProcessIdentity | None:
        """The process on record, None when there is none."""
        try:
            document = json.loads((self.folder / _RECORD).read_text(encoding="utf-8"))
            return ProcessIdentity(int(document["pid"]), float(document["started_at_s"]))
        except FileNotFoundError:
            return None

    def record(self, pid: int) -> None:
        """Write down which process it is."""
        path = self.folder / _RECORD
        partial = path.with_suffix(".tmp")
        partial.write_text(json.dumps(asdict(ProcessIdentity.of(pid))), encoding="utf-8")
        partial.replace(path)

    def end(self) -> bool:
        """End it: SIGTERM, then SIGKILL. Return whether there was anything to end."""
        found = set(find_by_argument(self.program, str(self.argument)))
        identity = self.identity
        if identity is not None and identity.find() is not None:
            found.add(identity)
        terminate(list(found))
        (self.folder / _RECORD).unlink(missing_ok=True)
        return bool(found)
