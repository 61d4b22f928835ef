"""The process that Spark forks its Python workers from: what they need is loaded once, before the first.

Otherwise each of them imports it for itself: a second of CPU a lane, at the start and after every kill.
Spark starts it by name (``spark.python.daemon.module``).
"""

from __future__ import annotations

import importlib
from typing import Final

from pyspark.daemon import manager

_WANTED: Final = ("pyspark.worker", "onceover.spark.worker", "onceover.spark.auditing.auditwork")

if __name__ == "__main__":
    for name in _WANTED:
        importlib.import_module(name)
    manager()
