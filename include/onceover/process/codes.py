"""What processes are refused. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class ProcessCode(Code):
    """What a process lacks that it has to be given."""

    SPARK_SECRET = auto()
