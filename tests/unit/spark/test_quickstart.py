"""Spark's launcher is told where its classes are, if that can be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceover.spark.launch.locate import spark_submit
from onceover.spark.launch.quickstart import launcher_options


def test_the_launchers_own_jar_comes_first() -> None:
    """By the name that it has in the installed Spark."""
    assert "-Xbootclasspath/a:/" in launcher_options(spark_submit().parents[1])


@pytest.mark.parametrize("name", ["a b", "a*", "[a]", "a$b", "a\nb"])
def test_a_place_that_a_shell_would_take_apart_is_not_told(tmp_path: Path, name: str) -> None:
    """The launcher looks for it, as ever."""
    jars = tmp_path / name / "jars"
    jars.mkdir(parents=True)
    (jars / "spark-launcher_2.13-4.2.0.jar").touch()
    assert launcher_options(tmp_path / name).endswith("stderr")
