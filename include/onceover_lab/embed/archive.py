"""Class data archives: a broker with one starts with two thirds of the CPU time.

Java runs what an archive holds in the jars' stead, and looks at no digest of it: it is as trusted as who may
write to the cache, and that is nobody but this user and root (``jars.refuse_open_cache``).

Measured on two shared cores, Kafka 4.3.0, Java 17: 3.4-3.6 s of CPU per start without, 2.1-2.2 s with. A test
run starts dozens of brokers. The archive is a by-product: without it, or when Java rejects it because
the jars changed, brokers start as always.
"""

from __future__ import annotations

import fcntl
import hashlib
import tempfile
from pathlib import Path
from typing import Final

from onceover.process.java import find_java
from onceover_lab.embed.jars import classpath, kafka_jars, refuse_open_cache

# Writing it took 7 s beside other work; SIGKILL in the middle would leave none.
DUMP_TIMEOUT_S: Final = 120.0


def archive_path(version: str) -> Path:
    """Return where the archive for this Java and class path is: with the jars, so that they vanish together.

    Java takes it for the very class path that it was made with, and no other.
    """
    jars = kafka_jars(version)
    place = hashlib.sha256(classpath(jars).encode()).hexdigest()[:12]
    return jars / f"classes-{find_java().version}-{place}.jsa"


def archive_flags(version: str) -> list[str]:
    """Return the flags that use the archive; none when it was not made.

    Raises:
        UsageError: others may write it.
    """
    path = archive_path(version)
    refuse_open_cache(path)
    return [f"-XX:SharedArchiveFile={path}"] if path.exists() else []


def make_archive(version: str) -> Path:
    """Make the archive unless it is there: start a broker, stop it, and let Java write down its classes.

    Raises:
        Retriable: the broker did not start.
    """
    # Imported here: brokers use the archive that this function makes with one of them.
    from onceover_lab.embed.kafka import KafkaCluster

    path = archive_path(version)
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            # In the same file system: it has to appear in one step.
            with tempfile.TemporaryDirectory(prefix=".archive-", dir=path.parents[1]) as work:
                dumped = Path(work) / path.name
                flags = [f"-XX:ArchiveClassesAtExit={dumped}"]
                cluster = KafkaCluster.start(Path(work), "trial", version=version, java_flags=flags)
                cluster.nodes[0].stop(DUMP_TIMEOUT_S)
                cluster.close(remove=True)
                dumped.chmod(0o444)
                dumped.rename(path)
            for other in path.parent.glob("classes-*.jsa"):
                if other != path:
                    other.unlink()
    return path
