"""Which pyspark a driver or worker loads, by where the two of an installation lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceover.spark.unpacked import unpacked_first


def installed(site: Path) -> list[str]:
    """Return the zips of a pyspark that pip has put into a folder."""
    package = site / "pyspark"
    (package / "python" / "lib").mkdir(parents=True)
    (package / "__init__.py").touch()
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


@pytest.mark.parametrize("missing", ["package", "site"])
def test_what_is_only_in_the_zip_is_loaded_from_it(tmp_path: Path, missing: str) -> None:
    """Without the package, or where Python would not find it, there is nothing but the zip."""
    zips = installed(tmp_path)
    if missing == "package":
        (tmp_path / "pyspark" / "__init__.py").unlink()
    path = [*zips, *([] if missing == "site" else [str(tmp_path)]), ""]
    assert unpacked_first(path) == path
