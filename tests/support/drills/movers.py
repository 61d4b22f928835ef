"""Applications that nobody restarts in a switchover, with each client library, and what happens to them.

All of them do what most applications do. A reader commits what it has read, from its own memory. A writer
numbers its records, writes the next one once the one before is there, and tries again what was refused.
Each library has a process of its own, which is killed in the end: some cannot be closed once their cluster is
gone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from onceover.process.children import ChildProcess
from onceover.process.java import find_java
from onceover_lab.embed.archive import archive_flags
from onceover_lab.embed.jars import classpath, kafka_jars
from onceover_lab.embed.node import QUICK_FLAG

_JAVA: Final = Path(__file__).parents[1] / "java" / "MovingClients.java"
_PYTHON: Final = Path(__file__).with_name("moving_process.py")
SUBSCRIBED, ASSIGNED, PLAIN, TRANSACTIONAL = "subscribed", "assigned", "plain", "transactional"
LIBRDKAFKA, KAFKA_PYTHON = "librdkafka", "kafka-python"


class Said(NamedTuple):
    """What an application said: when (epoch), and of which record; ``words`` is a value, or what went wrong.

    ``what``: read, committed, acked; failed (it went on), died (it ended).
    """

    at_s: float
    what: str
    partition: int
    offset: int
    words: str


@dataclass(frozen=True)
class Role:
    """An application: its name is its group's, or its transactional id, and in the values that it writes.

    Args:
        partition: that it writes to, or is assigned to.
        first: the number that it writes first.
        settings: of its client, by the names that its library has for them.
    """

    name: str
    kind: str
    topic: str
    partition: int = 0
    first: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reads(self) -> bool:
        """True for a consumer."""
        return self.kind in (SUBSCRIBED, ASSIGNED)

    def shared_settings(self) -> dict[str, str]:
        """Return what Java and librdkafka call by the same names."""
        if self.reads:
            return {"group.id": self.name, "enable.auto.commit": "false", "isolation.level": "read_committed"}
        if self.kind == TRANSACTIONAL:
            return {"transactional.id": self.name, "linger.ms": "0"}
        return {"enable.idempotence": "true", "linger.ms": "0"}


class Applications:
    """Applications with one client library, in one process. They say nothing before ``start``.

    Args:
        library: LIBRDKAFKA, KAFKA_PYTHON, or the release of Kafka whose Java clients are meant.
    """

    def __init__(self, roles: Sequence[Role], folder: Path, library: str) -> None:
        self.roles, self.library = tuple(roles), library
        self._folder = folder
        self._child: ChildProcess | None = None

    def start(self) -> None:
        """Begin."""
        self._folder.mkdir(parents=True)
        described = self._folder / "roles"
        described.touch(mode=0o600)
        if self.library in (LIBRDKAFKA, KAFKA_PYTHON):
            described.write_text(json.dumps([asdict(role) for role in self.roles]))
            command = [sys.executable, str(_PYTHON), self.library, str(described)]
        else:
            described.write_text("".join(f"{_for_java(role)}\n" for role in self.roles))
            flags = [QUICK_FLAG, *archive_flags(self.library), "-cp", classpath(kafka_jars(self.library))]
            command = [str(find_java().executable), *flags, str(_JAVA), str(described)]
        self._child = ChildProcess.start(command, name=self.library, log_path=self._folder / "log")

    def end(self) -> None:
        """Kill it."""
        if self._child is not None:
            self._child.kill()

    def said(self, role: Role) -> list[Said]:
        """Return what an application has said until now."""
        path = self._folder / "log"
        found = []
        for line in path.read_text(errors="replace").splitlines(keepends=True) if path.exists() else []:
            words = line.rstrip("\n").split("\t")
            if line.endswith("\n") and words[0] == "said" and words[1] == role.name:
                found.append(Said(int(words[2]) / 1000, words[3], int(words[4]), int(words[5]), words[6]))
        return found


def _for_java(role: Role) -> str:
    settings = {**role.shared_settings(), **role.settings}
    words = [role.name, role.kind, role.topic, str(role.partition), str(role.first)]
    return "\t".join([*words, *(f"{key}={value}" for key, value in settings.items())])
