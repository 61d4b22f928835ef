"""A class data archive for Spark's JVM: a start takes a fifth less CPU time.

Measured on two shared cores, Spark 4.2.0, Java 17: 20-21 s of CPU per start without, 16 s with. The
archive is a by-product of ``make setup``: without it, or when Java rejects it because something was
upgraded, Spark starts as always.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import onceover
from onceover.errors import Retriable
from onceover.private import open_to_others
from onceover.process.java import with_any_names
from onceover.spark.launch.locate import conf_flags, quoted, spark_submit
from onceover.spark.launch.quickstart import QUICK_START

log = logging.getLogger(__name__)

CACHE_VARIABLE: Final = "ONCEOVER_CACHE"
_TRIAL: Final = Path(__file__).with_name("trial.py")
_DIGITS: Final = 12
# Dumping 175 MB took 20 s beside other work.
_TIMEOUT_S: Final = 300.0


def archive_path() -> Path:
    """Return where the archive of this Spark is kept."""
    cache = os.environ.get(CACHE_VARIABLE)
    folder = Path(cache) if cache else Path(onceover.__file__).parents[2] / ".cache"
    # Of the query that it was made with, too: another one loads other classes.
    made_with = _TRIAL.read_bytes() + repr(QUICK_START).encode()
    query = hashlib.sha256(made_with).hexdigest()[:_DIGITS]
    return folder / "spark" / f"classes-{importlib.metadata.version('pyspark')}-{query}.jsa"


def archive_flags() -> list[str]:
    """Return the JVM flags that use the archive; none when it was not made, or when others may write it.

    Java runs what it holds in the jars' stead, and nobody has its digest.
    """
    path = archive_path()
    if not path.exists():
        return []
    for each in (path.parent, path):
        if (seen := open_to_others(each)) is not None:
            log.warning("Spark starts without %s: others could change it (%s: %s)", path.name, each, seen)
            return []
    return [f"-XX:SharedArchiveFile={path}"]


def make_archive() -> Path:
    """Make the archive unless it is there: run a small query, and let Java write down its classes.

    Raises:
        Retriable: the query did not run.
    """
    path = archive_path()
    if path.exists():
        return path
    path.parent.mkdir(0o755, parents=True, exist_ok=True)
    # In the same file system: it has to appear in one step.
    with tempfile.TemporaryDirectory(prefix=".archive-", dir=path.parent) as work:
        dumped = Path(work) / path.name
        conf = {
            "spark.driver.extraJavaOptions": quoted(f"-XX:ArchiveClassesAtExit={dumped}"),
            "spark.ui.port": "0",
            "spark.log.level": "ERROR",
        }
        command = [
            str(spark_submit()),
            *("--master", "local[1,2]"),
            *conf_flags({**QUICK_START, **conf}),
            str(_TRIAL),
            work,
        ]
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        done = subprocess.run(
            command,
            env=with_any_names({**os.environ, **python, "SPARK_LOCAL_IP": "127.0.0.1"}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if done.returncode or not dumped.exists():
            raise Retriable(
                f"the trial query ended with {done.returncode}",
                where=str(path),
                seen=done.stderr.strip()[-400:],
                resolve="run `make setup` again",
            )
        dumped.chmod(0o444)
        dumped.rename(path)
    for other in path.parent.glob("classes-*.jsa"):
        if other != path:
            other.unlink(missing_ok=True)
    return path
