"""Only the pinned jars are ever used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onceover.errors import Retriable, UsageError
from onceover.private import open_to_others
from onceover_lab.embed import jars


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ONCEOVER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, bytes]:
    """What the fake repository delivers; the manifest pins a.jar = 1 and b.jar = 2."""
    delivered = {"a.jar": b"1", "b.jar": b"2"}
    pinned = tmp_path / "pinned"
    pinned.mkdir()
    for name, content in delivered.items():
        (pinned / name).write_bytes(content)
    manifest = jars.make_manifest(pinned)

    def resolve(_version: str, _jar_set: str, destination: Path) -> None:
        for name, content in delivered.items():
            (destination / name).write_bytes(content)

    monkeypatch.setattr(jars, "resolve", resolve)
    monkeypatch.setattr(jars, "read_manifest", lambda _version, _jar_set: manifest)
    return delivered


@pytest.mark.parametrize(("version", "jar_set"), sorted(jars.COORDINATES))
def test_every_pinned_set_has_a_manifest(version: str, jar_set: jars.JarSet) -> None:
    """Each line is a SHA-256 and a jar, and Kafka's client of that very version is among them."""
    lines = [line.split("  ") for line in jars.read_manifest(version, jar_set).splitlines()]

    assert all(len(digest) == 64 and name.endswith(".jar") for digest, name in lines)
    assert f"kafka-clients-{version}.jar" in [name for _, name in lines]


def test_unknown_version_is_a_usage_error() -> None:
    """The error lists the versions there are."""
    with pytest.raises(UsageError, match=r"Kafka 1\.0\.0 \(broker\) is not pinned.*4\.3\.0 \(broker\)"):
        jars.read_manifest("1.0.0", "broker")


def test_fetched_set_is_used_again(
    cache: Path, contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call of a process neither resolves nor reads the jars."""
    first = jars.kafka_jars()

    def fail(*_: object) -> None:
        raise Retriable("resolved again")

    monkeypatch.setattr(jars, "resolve", fail)
    monkeypatch.setattr(jars, "verify", fail)

    assert jars.kafka_jars() == first
    assert sorted(path.name for path in first.glob("*.jar")) == ["a.jar", "b.jar"]


@pytest.mark.parametrize(
    ("change", "name"),
    [({"a.jar": b"evil"}, "a.jar"), ({"c.jar": b"more"}, "c.jar"), ({"b.jar": None}, "b.jar")],
    ids=["changed", "added", "missing"],
)
def test_unexpected_file_is_named_and_nothing_is_kept(
    cache: Path, contents: dict[str, bytes], change: dict[str, bytes | None], name: str
) -> None:
    """A changed, additional or missing jar stops the fetch; the cache stays empty."""
    for key, value in change.items():
        contents.pop(key, None)
        if value is not None:
            contents[key] = value

    with pytest.raises(UsageError, match=f"jar {name} is not the one that was pinned"):
        jars.kafka_jars()

    assert [path.name for path in cache.iterdir()] == ["kafka-4.3.0-broker.lock"]


@pytest.mark.parametrize(
    "cached",
    [
        {"old.jar": b"old"},
        {"a.jar": b"evil", "b.jar": b"2"},
        {"a.jar": b"1"},
        {"a.jar": b"1", "b.jar": b"2", "c.jar": b"more"},
        {"a.jar": b"1", "b.jar": b"2", "zz.JAR": b"more"},
        {"a.jar": b"1", "b.jar": b"2", "classes-17.jsa.zip": b"more"},
        {"a.jar": b"1", "b.jar": b"2", "Planted.class": b"more"},
    ],
    ids=["older manifest", "changed", "missing", "added", "in capitals", "an archive", "a class"],
)
def test_cached_set_that_is_not_the_pinned_one_is_replaced(
    cache: Path, contents: dict[str, bytes], cached: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """When the pins change, or somebody a file, it is fetched anew, swapped as a whole, and said."""
    stale = cache / "kafka-4.3.0-broker"
    stale.mkdir(parents=True)
    for name, content in cached.items():
        (stale / name).write_bytes(content)

    directory = jars.kafka_jars()

    assert directory == stale
    assert "kafka-4.3.0-broker is fetched anew: jar" in caplog.text
    assert (directory / "a.jar").read_bytes() == contents["a.jar"]
    assert sorted(path.name for path in directory.iterdir()) == ["a.jar", "b.jar"]


def test_what_is_kept_beside_the_jars_is_none_of_them(cache: Path, contents: dict[str, bytes]) -> None:
    """An archive of classes and the first metadata are no reason to fetch anew, and on no class path."""
    whole = cache / "kafka-4.3.0-broker"
    whole.mkdir(parents=True)
    beside = [
        "classes-17.0.15.jsa",
        "classes-17.0.15-a1.lock",
        "bootstrap.checkpoint",
        "bootstrap.checkpoint.7-f",
    ]
    for name, content in (*contents.items(), *((name, b"x") for name in beside)):
        (whole / name).write_bytes(content)
    contents.clear()

    directory = jars.kafka_jars()

    assert jars.classpath(directory) == f"{whole / 'a.jar'}:{whole / 'b.jar'}"


@pytest.mark.parametrize("place", [".", "kafka-4.3.0-broker", "kafka-4.3.0-broker/a.jar"])
@pytest.mark.parametrize(
    "how",
    [
        pytest.param(0o020, id="group"),
        pytest.param(0o002, id="all"),
        pytest.param(
            None,
            id="owner",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away"),
        ),
    ],
)
def test_cache_that_others_may_write_to_is_refused(
    cache: Path, contents: dict[str, bytes], place: str, how: int | None
) -> None:
    """Its jars have a digest, what Java makes of them has none; the error names the file and a command."""
    whole = jars.kafka_jars()
    jars._seen_whole.clear()
    (whole / "classes-17.lock").touch()
    (whole / "classes-17.lock").chmod(0o666)
    assert jars.kafka_jars() == whole
    jars._seen_whole.clear()

    if how is None:
        os.chown(cache / place, 4712, -1)
    else:
        (cache / place).chmod((cache / place).stat().st_mode | how)

    with pytest.raises(UsageError, match=r"could be changed by others") as refused:
        jars.kafka_jars()
    assert refused.value.where == str((cache / place).resolve())
    assert f"rm -r {cache}" in str(refused.value)


@pytest.mark.parametrize("umask", [0o000, 0o002])
def test_cache_is_made_so_that_others_may_not_write_to_it(
    cache: Path, contents: dict[str, bytes], umask: int
) -> None:
    """Whatever the shell's umask."""
    before = os.umask(umask)
    try:
        whole = jars.kafka_jars()
    finally:
        os.umask(before)
    assert {path: open_to_others(path) for path in (cache, whole, *whole.iterdir())} == {
        path: None for path in (cache, whole, whole / "a.jar", whole / "b.jar")
    }


def test_proxy_of_the_shell_reaches_java() -> None:
    """Java ignores the usual variables; host and port are handed on."""
    options = jars._proxy_options(
        {"https_proxy": "http://proxy.example:3128", "HTTP_PROXY": "http://other.example"}
    )

    assert options == [
        "-Dhttp.proxyHost=other.example",
        "-Dhttp.proxyPort=80",
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
    ]
