"""Spark's launcher is told where its classes are, if that can be told."""

from __future__ import annotations

from pathlib import Path
from subprocess import run

import pytest

from onceover.process.java import find_java
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


@pytest.mark.parametrize(
    "variable", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"]
)
def test_the_collector_that_the_machines_owner_has_chosen_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Java starts with one alone, and says so with a list of options that nobody has typed."""
    assert "-XX:+UseSerialGC" in launcher_options(tmp_path)
    monkeypatch.setenv(variable, "-Xmx64m -XX:+UseG1GC")
    assert "GC" not in launcher_options(tmp_path)
    java = [str(find_java().executable), *launcher_options(tmp_path).split(), "-version"]
    assert run(java, capture_output=True, check=True, timeout=60.0).returncode == 0
    monkeypatch.setenv(variable, "-XX:+UseStringDeduplication")
    assert "-XX:+UseSerialGC" in launcher_options(tmp_path)
