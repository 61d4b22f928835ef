"""Kafka's archives of classes: one of each set of jars, used by whoever starts from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceover.errors import UsageError
from onceover_lab.embed import archive, connect, mirrormaker
from onceover_lab.embed.jars import DEFAULT_VERSION, JAR_SETS, JarSet


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[JarSet, Path]:
    """The archives, as `make setup` leaves them; no jars."""

    def folder(_version: str, jar_set: JarSet = "broker") -> Path:
        place = tmp_path / jar_set
        place.mkdir(0o755, exist_ok=True)
        return place

    for module in (archive, connect, mirrormaker):
        monkeypatch.setattr(module, "kafka_jars", folder)
    paths = {jar_set: archive.archive_path(DEFAULT_VERSION, jar_set) for jar_set in JAR_SETS}
    for path in paths.values():
        path.write_bytes(b"classes")
        path.chmod(0o444)
    return paths


def test_each_set_of_jars_has_one(made: dict[JarSet, Path]) -> None:
    """And nothing is said of it when it is not there."""
    for jar_set in JAR_SETS:
        assert archive.archive_flags(DEFAULT_VERSION, jar_set) == [f"-XX:SharedArchiveFile={made[jar_set]}"]
        made[jar_set].unlink()
        assert archive.archive_flags(DEFAULT_VERSION, jar_set) == []


def test_a_worker_starts_from_its_own_and_its_plugins_come_behind(
    made: dict[JarSet, Path], tmp_path: Path
) -> None:
    """Java takes an archive for a class path that begins with the one that it was made with."""
    arguments = connect.worker_java_arguments(DEFAULT_VERSION, 128, [tmp_path / "plugin"])
    assert f"-XX:SharedArchiveFile={made['connect']}" in arguments
    assert arguments[-1].split(":")[-1] == str(tmp_path / "plugin")


def test_what_was_asked_for_names_it(
    made: dict[JarSet, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who changes what a broker is asked for gets a new one with the next setup."""
    other = tmp_path / "trials.py"
    other.write_text("something else")
    monkeypatch.setattr(archive, "_TRIALS", other)
    assert archive.archive_path(DEFAULT_VERSION) not in made.values()


def test_one_that_others_may_write_is_refused(made: dict[JarSet, Path]) -> None:
    """Java would run what it holds, whatever the jars say."""
    made["connect"].chmod(0o666)
    with pytest.raises(UsageError):
        archive.archive_flags(DEFAULT_VERSION, "connect")
