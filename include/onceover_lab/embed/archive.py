"""Class data archives: a broker or Connect worker with one starts with half to two thirds of the CPU time.

Java runs what an archive holds in the jars' stead, and looks at no digest of it: it is as trusted as who may
write to the cache, and that is nobody but this user and root (``jars.refuse_open_cache``).

Measured on two shared cores, Kafka 4.3.0, Java 17: 3.4-3.6 s of CPU per start of a broker without, 2.1-2.2 s
with; 2.5-2.9 s per start of a worker without, and 1.1-1.4 s with. What the first requests load is in it, too
(``trials``): 0.2 s less for each broker that is used. A test run starts dozens. The archive is a by-product:
without it, or when Java rejects it because the jars changed, they start as always.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from onceover.process.java import find_java
from onceover_lab.embed.jars import JarSet, classpath, kafka_jars, refuse_open_cache

_TRIALS: Final = Path(__file__).with_name("trials.py")


def archive_path(version: str, jar_set: JarSet = "broker") -> Path:
    """Return where the archive for this Java and class path is: with the jars, so that they vanish together.

    Java takes it for the very class path that it was made with, and what comes behind that. What was asked
    for when it was made names it, too: something else loads other classes.
    """
    jars = kafka_jars(version, jar_set)
    place = hashlib.sha256(classpath(jars).encode() + _TRIALS.read_bytes()).hexdigest()[:12]
    return jars / f"classes-{find_java().version}-{place}.jsa"


def archive_flags(version: str, jar_set: JarSet = "broker") -> list[str]:
    """Return the flags that use the archive; none when it was not made.

    Raises:
        UsageError: others may write it.
    """
    path = archive_path(version, jar_set)
    refuse_open_cache(path)
    return [f"-XX:SharedArchiveFile={path}"] if path.exists() else []
