"""Class data archives: a broker with one starts with two thirds of the CPU time.

Measured on two shared cores, Kafka 4.3.0, Java 17: 3.4-3.6 s of CPU per start without, 2.1-2.2 s with. A test
run starts dozens of brokers. The archive is a by-product: without it, or when Java rejects it because
the jars changed, brokers start as always.
"""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path
from typing import Final

from onceover.embed.jars import kafka_jars
from onceover.embed.java import find_java

# Writing it took 7 s beside other work; SIGKILL in the middle would leave none.
DUMP_TIMEOUT_S: Final = 120.0


def archive_path(version: str) -> Path:
    """Return where the archive for this Java is kept: with the jars, so that they vanish together."""
    return kafka_jars(version) / f"classes-{find_java().version}.jsa"


def archive_flags(version: str) -> list[str]:
    """Return the flags that use the archive; none when it was not made."""
    path = archive_path(version)
    return [f"-XX:SharedArchiveFile={path}"] if path.exists() else []


def make_archive(version: str) -> Path:
    """Make the archive unless it is there: start a broker, stop it, and let Java write down its classes.

    Raises:
        Retriable: the broker did not start.
    """
    # Imported here: brokers use the archive that this function makes with one of them.
    from onceover.embed.kafka import KafkaCluster

    path = archive_path(version)
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            # In the same file system: it has to appear in one step.
            with tempfile.TemporaryDirectory(prefix=".archive-", dir=path.parent) as work:
                dumped = Path(work) / path.name
                flags = [f"-XX:ArchiveClassesAtExit={dumped}"]
                cluster = KafkaCluster.start(Path(work), "trial", version=version, java_flags=flags)
                cluster.nodes[0].stop(DUMP_TIMEOUT_S)
                cluster.close(remove=True)
                dumped.rename(path)
    return path
