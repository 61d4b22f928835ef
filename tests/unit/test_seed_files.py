"""Files of offsets that are named on a command line or in a form."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceover.errors import UsageError
from onceover.wiring.seeding import read_file


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
    monkeypatch.setattr("onceover.wiring.seeding._LARGEST_FILE_BYTES", 1 << 20)
    with pytest.raises(UsageError, match="too large"):
        read_file("/dev/zero")
