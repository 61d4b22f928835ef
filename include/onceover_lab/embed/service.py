"""One detached process beside the clusters, with a record of its own.

Invariant: what is ended is the process on record, or the same program with a path that is its
alone: never a process that was given its id since then, nor an editor of that path.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from onceover_lab.embed.registry import ProcessIdentity, find_by_argument, read_or_none, terminate
from onceover_lab.embed.security import write_private

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
        return self.running is not None

    @property
    def running(self) -> ProcessIdentity | None:
        """The process on record, None when there is none or it has ended."""
        identity = read_or_none(self.folder / _RECORD, ProcessIdentity.parse)
        return identity if identity is not None and identity.find() is not None else None

    def record(self, pid: int) -> None:
        """Write down which process it is."""
        write_private(self.folder / _RECORD, json.dumps(asdict(ProcessIdentity.of(pid))).encode())

    def end(self) -> bool:
        """End it: SIGTERM, then SIGKILL. Return whether there was anything to end."""
        found = set(find_by_argument(self.program, str(self.argument)))
        running = self.running
        if running is not None:
            found.add(running)
        terminate(list(found))
        (self.folder / _RECORD).unlink(missing_ok=True)
        return bool(found)
