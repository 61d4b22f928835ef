"""MirrorMaker 2 in dedicated mode, from Kafka's own jars: what Onceover is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from onceover.process.children import STOP_TIMEOUT_S, ChildProcess
from onceover.process.java import find_java, with_any_names
from onceover_lab.embed import config as broker_config
from onceover_lab.embed.archive import archive_flags
from onceover_lab.embed.jars import DEFAULT_VERSION, classpath, kafka_jars
from onceover_lab.embed.javatmp import temporary_flag
from onceover_lab.embed.security import write_private

_INTERNAL_TOPICS: Final = ("offset.storage", "status.storage", "config.storage")
_MM2_TOPICS: Final = ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.")


def render_mm2_properties(
    source_bootstrap: str, target_bootstrap: str, topics: Sequence[str], overrides: Mapping[str, str]
) -> str:
    """Return ``mm2.properties`` for the one flow ``source->target`` between single-broker clusters."""
    settings = {
        "clusters": "source, target",
        "source.bootstrap.servers": source_bootstrap,
        "target.bootstrap.servers": target_bootstrap,
        "source->target.enabled": "true",
        "target->source.enabled": "false",
        "source->target.topics": ",".join(topics),
        **{f"{prefix}replication.factor": "1" for prefix in _MM2_TOPICS},
        **{f"{name}.replication.factor": "1" for name in _INTERNAL_TOPICS},
        **overrides,
    }
    return "".join(f"{key} = {value}\n" for key, value in settings.items())


class MirrorMaker:
    """A running MirrorMaker; a context manager that stops it. It dies with this process."""

    def __init__(self, process: ChildProcess, home: Path) -> None:
        self.home = home
        self._process = process

    @classmethod
    def start(
        cls,
        home: Path,
        source_bootstrap: str,
        target_bootstrap: str,
        topics: Sequence[str],
        *,
        properties: Mapping[str, str] = {},
        heap_mb: int = 1024,
        version: str = DEFAULT_VERSION,
    ) -> MirrorMaker:
        """Start MirrorMaker with its files in ``home``; returns at once, copying begins seconds later.

        ``topics`` are regular expressions; ``properties`` override everything (``source->target.*``,
        ``target.*`` and so on).

        Raises:
            UsageError: no Java, or a version whose jars are not pinned.
            Retriable: the jars could not be fetched.
        """
        home = home.resolve()
        home.mkdir(parents=True, exist_ok=True)
        text = render_mm2_properties(source_bootstrap, target_bootstrap, topics, properties)
        # May hold a client's password.
        write_private(home / "mm2.properties", text.encode())
        (home / "log4j2.properties").write_text(broker_config.LOG4J2_PROPERTIES, encoding="utf-8")
        process = ChildProcess.start(
            [
                str(find_java().executable),
                f"-Xmx{heap_mb}m",
                "-XX:+ExitOnOutOfMemoryError",
                *archive_flags(version, "connect"),
                temporary_flag(home),
                f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}",
                "-cp",
                classpath(kafka_jars(version, "connect")),
                "org.apache.kafka.connect.mirror.MirrorMaker",
                str(home / "mm2.properties"),
            ],
            name="mirrormaker",
            log_path=home / "mirrormaker.log",
            env=with_any_names(),
        )
        return cls(process, home)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.alive

    @property
    def log_path(self) -> Path:
        return self._process.log_path

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM; SIGKILL when it has not ended after ``timeout_s`` seconds."""
        self._process.stop(timeout_s)

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        self._process.kill()
