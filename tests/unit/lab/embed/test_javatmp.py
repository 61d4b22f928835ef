"""A JVM that was killed leaves nothing that the next start does not take away."""

from __future__ import annotations

from pathlib import Path

from onceover_lab.embed.javatmp import temporary_flag


def test_what_a_killed_jvm_has_unpacked_goes_at_its_next_start(tmp_path: Path) -> None:
    first = temporary_flag(tmp_path / "node-1")
    folder = Path(first.removeprefix("-Djava.io.tmpdir="))
    (folder / "liblz4-java-1.so").write_bytes(b"library")
    assert temporary_flag(tmp_path / "node-1") == first
    assert (list(folder.iterdir()), folder.parent) == ([], tmp_path / "node-1")
