"""Spark's Python without what nothing of ours goes through: pandas, and what Spark is tested with.

A driver spent a tenth of its start on loading them, and 60 MB.
"""

from __future__ import annotations

from py4j.protocol import INPUT_CONVERTER
from pyspark.sql.pandas import functions
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter


def leave_out_pandas() -> None:
    """Have PySpark ask for pandas only where pandas is used; before a context is opened."""
    # Asked whether an argument for the JVM is NumPy's, these load all of `pyspark.testing`. None of ours is.
    of_numpy = (NumpyArrayConverter, NumpyScalarConverter)
    INPUT_CONVERTER[:] = [each for each in INPUT_CONVERTER if not isinstance(each, of_numpy)]
    # `mapInArrow` asks for its version, and hands over Arrow. The lock file says which one is there.
    functions.require_minimum_pandas_version = _not_asked  # pyrefly: ignore[missing-attribute]


def _not_asked() -> None:
    """Take the version for good."""
