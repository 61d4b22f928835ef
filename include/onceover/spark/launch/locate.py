"""Where the installed Spark is, and what it is told to run. Nothing is imported: that takes half a second."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import onceover
from onceover.errors import UsageError

_PACKAGE: Final = Path(onceover.__file__).parent
_JOBS: Final = "spark_jobs"


def spark_submit() -> Path:
    """Return the spark-submit of the installed pyspark.

    Raises:
        UsageError: pyspark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise UsageError("pyspark is not installed", resolve="run `make setup`")
    return Path(spec.origin).parent / "bin" / "spark-submit"


def conf_flags(conf: Mapping[str, str]) -> list[str]:
    """Return a configuration as options of spark-submit, always in the same order."""
    return [part for key, value in sorted(conf.items()) for part in ("--conf", f"{key}={value}")]


def quoted(option: str) -> str:
    """Return an option of Java as Spark's launcher reads it: in one piece, whatever is in it."""
    escaped = option.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


def packages() -> Path:
    """Return the folder that other machines' Python has to look in, too: the one that holds the package."""
    return _PACKAGE.parent


def job_script(name: str) -> Path:
    """Return the file of ``spark_jobs`` that spark-submit runs.

    A wheel brings them in the package (pyproject.toml); in a checkout they are beside ``include``.

    Args:
        name: ``replicate.py`` or ``audit.py``.
    """
    installed = _PACKAGE / _JOBS
    return (installed if installed.is_dir() else _PACKAGE.parents[1] / _JOBS) / name
