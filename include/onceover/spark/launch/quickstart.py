"""What spares Spark work at the start and the end of a job, which is there for a few small files.

Without Hadoop's native library each look at a link is a program of its own (``readlink``), as each mode of a
file is (``chmod``): some 100 in a run that has nothing to copy, and two of three looked at links.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from onceover.process.java import collector_flags

# spark-class takes options apart at blanks, and expands what looks like a pattern.
_IN_ONE_PIECE: Final = re.compile(r"[\w/.+@%:=,-]+")

QUICK_START: Final = {
    # The one that Spark takes by itself asks eight times for links to move a file. Both move it by one
    # rename; this one looks before whether the name is taken, which is enough: each run has its own folder.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # As SQL sets it: the process that is woken for its workers before SQL is loaded has to be the same.
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
}


def launcher_options(spark_home: Path) -> str:
    """Return what Java is told for Spark's launcher, which makes one command line and ends.

    It finds its classes at once, where it would open some 150 jars to look for them. What it prints is the
    answer: Java's warnings, that its archive of classes is for another class path, must not be among it.
    """
    options = [*collector_flags(), "-XX:TieredStopAtLevel=1", "-Xlog:disable", "-Xlog:all=error:stderr"]
    found = [f"-Xbootclasspath/a:{jar}" for jar in spark_home.glob("jars/spark-launcher_*.jar")]
    return " ".join([*options, *filter(_IN_ONE_PIECE.fullmatch, found)])
