"""Everything that can be wrong with a handler is found before the first record, in one clear message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceover.errors import UsageError
from onceover.handlers import Record, calling
from onceover.handlers.load import load_handler

SAMPLES = "tests.unit.handlers.samples"


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("no_such_package.module:f", {}, "there is no module no_such_package"),
        (f"{SAMPLES}.deeper:f", {}, f"there is no module {SAMPLES}.deeper"),
        (f"{SAMPLES}:missing", {}, f"{SAMPLES} has no missing"),
        (f"{SAMPLES}:NUMBER", {}, "cannot be called"),
        (f"{SAMPLES}:NotCallable", {}, "cannot be called"),
        (f"{SAMPLES}:untyped", {}, "does not say what it takes"),
        (f"{SAMPLES}:spread", {}, "missing a required argument: 'partitions'"),
        (f"{SAMPLES}:same", {"more": 1}, "unexpected keyword argument 'more'"),
        (f"{SAMPLES}:Wider", {}, "missing a required argument: 'partitions'"),
        (f"{SAMPLES}:Fails", {"text": "hunter2"}, "RuntimeError at samples.py:"),
        ("onceover.handlers.mask:MaskFields", {"fields": "hunter2"}, "fields names nothing"),
        (
            "onceover.handlers.filter:FilterRecords",
            {"action": "keep", "key": "hunter2["},
            "not a regular expression",
        ),
    ],
)
def test_fault_names_the_file_the_key_and_the_fix(name: str, args: dict[str, Any], words: str) -> None:
    """And never the value of an argument."""
    with pytest.raises(UsageError) as raised:
        load_handler(name, args, "flows/f.yaml")
    error = raised.value
    assert words in str(error)
    assert error.where == "flows/f.yaml: handler" and error.resolve
    assert "hunter2" not in str(error)
    assert error.exit_code == 2


def test_module_that_fails_or_misses_another_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own text is not repeated: it may hold anything."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "fails_at_import_h.py").write_text("raise RuntimeError('hunter2')\n")
    (tmp_path / "exits_at_import_h.py").write_text("import sys\nsys.exit('hunter2')\n")
    (tmp_path / "misses_one_h.py").write_text("import not_installed_anywhere_h\n")
    with pytest.raises(UsageError, match=r"RuntimeError at fails_at_import_h\.py:1") as raised:
        load_handler("fails_at_import_h:f", {}, "f.yaml")
    assert "hunter2" not in str(raised.value) and raised.value.__cause__ is None
    with pytest.raises(UsageError, match=r"SystemExit at exits_at_import_h\.py:2") as raised:
        load_handler("exits_at_import_h:f", {}, "f.yaml")
    assert "hunter2" not in str(raised.value)
    with pytest.raises(UsageError, match="misses_one_h imports not_installed_anywhere_h"):
        load_handler("misses_one_h:f", {}, "f.yaml")


def test_annotation_decides_the_form() -> None:
    """A Record, or a RecordBatch; a class is made once and then called."""
    assert not load_handler(f"{SAMPLES}:same", {}, "f.yaml").vectorised
    assert load_handler(f"{SAMPLES}:same_batch", {}, "f.yaml").vectorised
    wider = load_handler(f"{SAMPLES}:Wider", {"partitions": 3}, "f.yaml")
    assert not wider.vectorised
    record = Record("t", 0, 0, 0, None, None)
    assert [r.partition for r in wider.call(record)] == [2]


def test_partition_count_is_the_source_count_unless_the_handler_says_more() -> None:
    """Fewer is refused: progress is kept per target partition of the same number."""
    assert load_handler(f"{SAMPLES}:same", {}, "f.yaml").target_partitions(4) == 4
    wider = load_handler(f"{SAMPLES}:Wider", {"partitions": 6}, "f.yaml")
    assert wider.target_partitions(4) == 6
    with pytest.raises(UsageError, match="fewer target partitions") as raised:
        wider.target_partitions(7)
    assert raised.value.seen == "6"
    narrow = load_handler(f"{SAMPLES}:narrow", {}, "f.yaml")
    with pytest.raises(UsageError, match="fewer target partitions"):
        narrow.target_partitions(4)


def test_record_can_be_changed_where_it_may() -> None:
    """Topic and offset say where it came from."""
    record = Record("t", 0, 7, 5, b"k", b"v", (("h", b"1"), ("g", None), ("h", b"2")))
    assert record.replace(key=None, partition=3) == Record("t", 3, 7, 5, None, b"v", record.headers)
    assert (record.header("h"), record.header("g"), record.header("x")) == (b"2", None, None)
    with pytest.raises(UsageError, match="cannot change offset, topic"):
        record.replace(topic="u", offset=1)


def test_a_partition_count_is_not_waited_for_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for wherever something is planned, too."""
    monkeypatch.setattr(calling, "LONGEST_S", 0.1)
    with pytest.raises(UsageError, match="target_partitions of handler") as raised:
        load_handler(f"{SAMPLES}:Counts", {}, "f.yaml").target_partitions(4)
    assert raised.value.seen == "it did not come back within 0.1 s"
