"""Where the installed Spark is, without importing it: that would cost every command half a second."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from onceover.errors import UsageError


def spark_submit() -> Path:
    """Return the spark-submit of the installed pyspark.

    Raises:
        UsageError: pyspark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise UsageError("pyspark is not installed", resolve="run `make setup`")
    return Path(spec.origin).parent / "bin" / "spark-submit"
