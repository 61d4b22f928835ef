"""Spark's archive of classes is used only where nobody else could have put something into it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

from onceover.spark.launch import archive

# Takes options of Java apart as Spark's launcher does, and dumps the classes where Java would.
_SUBMIT: Final = """\
#!{python}
import shlex, sys
(options,) = [each for each in sys.argv if each.startswith("spark.driver.extraJavaOptions=")]
(dumped,) = shlex.split(options.partition("=")[2])
open(dumped.removeprefix("-XX:ArchiveClassesAtExit="), "w").close()
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive, as `make setup` leaves it."""
    monkeypatch.setenv(archive.CACHE_VARIABLE, str(tmp_path))
    path = archive.archive_path()
    path.parent.mkdir(0o755)
    path.write_bytes(b"classes")
    path.chmod(0o444)
    return path


def test_archive_is_used_when_it_is_there(made: Path) -> None:
    """And nothing is said of it when it is not."""
    assert archive.archive_flags() == [f"-XX:SharedArchiveFile={made}"]
    made.unlink()
    assert archive.archive_flags() == []


@pytest.mark.parametrize("name", ["file", "folder"])
def test_archive_that_others_may_write_is_not_used(
    made: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Java would run what it holds, whatever the jars say; a start takes longer, and it is said why."""
    place = made if name == "file" else made.parent
    place.chmod(0o775)
    assert archive.archive_flags() == []
    assert f"others could change it ({place}: mode 0775)" in caplog.text


def test_archive_is_made_in_a_folder_whose_name_has_blanks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java took the rest of the name for the class to run, and `make setup` ended."""
    submit = tmp_path / "spark-submit"
    submit.write_text(_SUBMIT.format(python=sys.executable))
    submit.chmod(0o755)
    monkeypatch.setattr(archive, "spark_submit", lambda: submit)
    monkeypatch.setenv(archive.CACHE_VARIABLE, str(tmp_path / 'my "own" project'))
    made = archive.make_archive()
    assert made == archive.archive_path()
    assert archive.archive_flags() == [f"-XX:SharedArchiveFile={made}"]
