"""Makes a class data archive (``archive``), with a broker that runs once for that."""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path
from typing import Final

from onceover_lab.embed.archive import archive_path
from onceover_lab.embed.kafka import KafkaCluster

# Writing it took 7 s beside other work; SIGKILL in the middle would leave none.
_DUMP_TIMEOUT_S: Final = 120.0


def make_archive(version: str) -> Path:
    """Make the archive unless it is there: start a broker, stop it, and let Java write down its classes.

    Raises:
        Retriable: the broker did not start.
    """
    path = archive_path(version)
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            # In the same file system: it has to appear in one step.
            with tempfile.TemporaryDirectory(prefix=".archive-", dir=path.parents[1]) as work:
                dumped = Path(work) / path.name
                flags = [f"-XX:ArchiveClassesAtExit={dumped}"]
                cluster = KafkaCluster.start(Path(work), "trial", version=version, java_flags=flags)
                cluster.nodes[0].stop(_DUMP_TIMEOUT_S)
                cluster.close(remove=True)
                dumped.chmod(0o444)
                dumped.rename(path)
            for other in path.parent.glob("classes-*.jsa"):
                if other != path:
                    other.unlink()
    return path
