"""Files of offsets that are named on a command line or in a form."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onceover.errors import UsageError
from onceover.wiring.offsetfiles import offset_files, read_file, within


def test_file_is_read_whole(tmp_path: Path) -> None:
    """As text."""
    (tmp_path / "f").write_text("topic,partition,offset\nä,0,1\n", encoding="utf-8")
    assert read_file(str(tmp_path / "f")) == "topic,partition,offset\nä,0,1\n"


@pytest.mark.parametrize("path", ["", "/nope", "/", "a\0b", "x" * 5000])
def test_path_of_no_file_is_refused(path: str) -> None:
    """Whatever Python would raise."""
    with pytest.raises(UsageError, match="cannot be read"):
        read_file(path)


def test_what_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of filling the worker's memory."""
    monkeypatch.setattr("onceover.wiring.offsetfiles._LARGEST_FILE_BYTES", 1 << 20)
    with pytest.raises(UsageError, match="too large"):
        read_file("/dev/zero")


def test_bytes_that_are_no_text_are_not_quoted(tmp_path: Path) -> None:
    """Not even one of them."""
    (tmp_path / "f").write_bytes(b"topic\xfe")
    with pytest.raises(UsageError, match="no UTF-8 text") as caught:
        read_file(str(tmp_path / "f"))
    assert "0xfe" not in str(caught.value.as_dict())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The one folder, with a file and a folder in it, and a file beside it that is nobody's business."""
    folder = tmp_path / "offset_files"
    (folder / "july").mkdir(parents=True)
    for name in ("a.csv", "july/b.csv"):
        (folder / name).write_text(f"{name} is read")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.csv").write_text("SECRET")
    (tmp_path / "secret.csv").write_text("SECRET")
    return folder


@pytest.mark.parametrize("name", ["a.csv", "july/b.csv"])
def test_file_of_the_one_folder_is_read(folder: Path, name: str) -> None:
    """By its name in it, and its path below it."""
    assert within(folder)(name) == f"{name} is read"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "/",
        "/etc/passwd",
        "//etc/passwd",
        "..",
        "../secret.csv",
        "july/../a.csv",
        "july/../../secret.csv",
        "./a.csv",
        "july//b.csv",
        "july/",
        "july",
        "nope.csv",
        "a.csv/x",
        "a\0b",
        "x" * 5000,
        "pipe",
        "link.csv",
        "linked/x.csv",
        "inside.csv",
    ],
)
def test_everything_else_is_refused_alike(folder: Path, name: str) -> None:
    """Elsewhere, through links, no file at all: one message, so that nobody learns what is on the machine."""
    os.mkfifo(folder / "pipe")
    (folder / "link.csv").symlink_to(folder.parent / "secret.csv")
    (folder / "linked").symlink_to(folder.parent / "elsewhere")
    (folder / "inside.csv").symlink_to(folder / "a.csv")
    with pytest.raises(UsageError, match="no file of offsets") as caught:
        within(folder)(name)
    said = caught.value.as_dict()
    assert (said["code"], said["where"], said["seen"]) == ("NO_OFFSET_FILE", str(folder), None)
    assert "SECRET" not in str(said)


def test_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    """Nobody has made it yet; the message says where it would be."""
    with pytest.raises(UsageError) as caught:
        within(tmp_path / "nope")("a.csv")
    assert str(caught.value.where) == str(tmp_path / "nope")


def test_one_folder_that_no_flow_can_be_called_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below ONCEOVER_HOME, where flows have folders of their names."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path))
    assert offset_files() == tmp_path / "offset_files"
