"""Which pyspark a driver or worker loads, by where the two of an installation lie."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onceover.spark.unpacked import unpacked_first


def installed(site: Path) -> list[str]:
    """Return the zips of a pyspark that pip has put into a folder, with its py4j."""
    package = site / "pyspark"
    (package / "python" / "lib").mkdir(parents=True)
    (site / "py4j").mkdir()
    for each in (package, site / "py4j"):
        (each / "__init__.py").touch()
    return [str(package / "python" / "lib" / name) for name in ("pyspark.zip", "py4j-1-src.zip")]


def test_zips_of_an_installed_pyspark_come_last(tmp_path: Path) -> None:
    """The rest keeps its order."""
    zips, site = installed(tmp_path), str(tmp_path)
    assert unpacked_first(["job", zips[0], zips[1], "own", site]) == ["job", "own", site, *zips]


def test_a_spark_elsewhere_is_left_as_it_is(tmp_path: Path) -> None:
    """A worker's own: the package beside our Python may be another version than its jars."""
    home = tmp_path / "spark" / "python" / "lib"
    home.mkdir(parents=True)
    installed(tmp_path / "site")
    path = [str(home / "pyspark.zip"), str(home / "py4j-1-src.zip"), str(tmp_path / "site")]
    assert unpacked_first(path) == path


@pytest.mark.parametrize("missing", ["pyspark", "py4j", "site"])
def test_what_is_only_in_the_zip_is_loaded_from_it(tmp_path: Path, missing: str) -> None:
    """Without the packages, or where Python would not find them, there is nothing but the zips."""
    zips = installed(tmp_path)
    (tmp_path / missing / "__init__.py").unlink(missing_ok=True)
    path = [*zips, *([] if missing == "site" else [str(tmp_path)]), ""]
    assert unpacked_first(path) == path


@pytest.mark.parametrize("name", ["pyspark", "py4j"])
def test_another_one_that_somebody_has_put_before_them_is_not_uncovered(tmp_path: Path, name: str) -> None:
    """Of PYTHONPATH: behind the zips nobody has found it so far."""
    zips, other = installed(tmp_path / "site"), tmp_path / "other"
    (other / name).mkdir(parents=True)
    (other / name / "__init__.py").touch()
    path = [*zips, str(other), str(tmp_path / "site")]
    assert unpacked_first(path) == path


def test_what_spark_submit_starts_loads_the_pyspark_that_has_bytecode() -> None:
    """The real one, with the path that spark-submit gives to drivers and workers."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    zips = sorted((Path(spec.origin).parent / "python" / "lib").glob("*.zip"), reverse=True)
    code = (
        "from onceover.spark.unpacked import prefer_unpacked; prefer_unpacked();"
        "import pyspark, py4j; print(pyspark.__file__, py4j.__file__)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, zips), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert zips[0].name == "pyspark.zip"
    assert done.stdout.split() == [spec.origin, str(Path(spec.origin).parents[1] / "py4j" / "__init__.py")]
