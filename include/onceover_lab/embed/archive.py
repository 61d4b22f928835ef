"""Class data archives: a broker with one starts with two thirds of the CPU time.

Java runs what an archive holds in the jars' stead, and looks at no digest of it: it is as trusted as who may
write to the cache, and that is nobody but this user and root (``jars.refuse_open_cache``).

Measured on two shared cores, Kafka 4.3.0, Java 17: 3.4-3.6 s of CPU per start without, 2.1-2.2 s with. A test
run starts dozens of brokers. The archive is a by-product: without it, or when Java rejects it because
the jars changed, brokers start as always.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from onceover.process.java import find_java
from onceover_lab.embed.jars import classpath, kafka_jars, refuse_open_cache


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
