"""What spares Spark work at the start and the end of a job, which is there for a few small files.

Without Hadoop's native library each look at a link is a program of its own (``readlink``), as each mode of a
file is (``chmod``): some 100 in a run that has nothing to copy, and two of three looked at links.
"""

from __future__ import annotations

from typing import Final

QUICK_START: Final = {
    # The one that Spark takes by itself asks eight times for links to move a file. Both move it by one
    # rename; this one looks before whether the name is taken, which is enough: each run has its own folder.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # As SQL sets it: the process that is woken for its workers before SQL is loaded has to be the same.
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
}
