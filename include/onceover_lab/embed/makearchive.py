"""Makes class data archives (``archive``), with a broker or a worker that runs once for that."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from onceover_lab.embed.archive import archive_path
from onceover_lab.embed.connect import ConnectWorker, render_worker_properties, worker_java_arguments
from onceover_lab.embed.jars import JarSet
from onceover_lab.embed.kafka import KafkaCluster
from onceover_lab.embed.security import Security
from onceover_lab.embed.trials import use_broker, use_worker

# Writing it took 7 s beside other work; SIGKILL in the middle would leave none.
_DUMP_TIMEOUT_S: Final = 120.0
_HEAP_MB: Final = 384
_EXACTLY_ONCE: Final = {"exactly.once.source.support": "enabled"}


def make_archive(version: str, jar_set: JarSet = "broker") -> Path:
    """Make the archive unless it is there: start one, use it, stop it, and let Java write down its classes.

    Raises:
        Retriable: it did not start, or did not answer.
    """
    path = archive_path(version, jar_set)
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            # In the same file system: it has to appear in one step.
            with tempfile.TemporaryDirectory(prefix=".archive-", dir=path.parents[1]) as work:
                dumped = Path(work) / path.name
                _TRIALS[jar_set](Path(work), version, f"-XX:ArchiveClassesAtExit={dumped}")
                dumped.chmod(0o444)
                dumped.rename(path)
            for other in path.parent.glob("classes-*.jsa"):
                if other != path:
                    other.unlink()
    return path


def _try_broker(work: Path, version: str, flag: str) -> None:
    """Rights, TLS and logins among the rest: brokers of tests have them."""
    security = Security("SCRAM-SHA-256", authorizer=True)
    cluster = KafkaCluster.start(work, "trial", version=version, security=security, java_flags=[flag])
    try:
        use_broker(cluster.admin_client)
        cluster.nodes[0].stop(_DUMP_TIMEOUT_S)
    finally:
        cluster.close(remove=True)


def _try_worker(work: Path, version: str, flag: str) -> None:
    cluster = KafkaCluster.start(work, "trial", version=version)
    worker = ConnectWorker(work / "worker", [flag, *worker_java_arguments(version, _HEAP_MB)])
    try:
        worker.write_files(render_worker_properties(cluster.bootstrap, "trial", worker.port, _EXACTLY_ONCE))
        worker.start()
        use_worker(worker.port, work)
        worker.stop(_DUMP_TIMEOUT_S)
    finally:
        worker.kill()
        worker.release_port()
        cluster.close(remove=True)


_TRIALS: Final[dict[JarSet, Callable[[Path, str, str], None]]] = {
    "broker": _try_broker,
    "connect": _try_worker,
}
