"""The file of an export: whole and read back, or not there."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceover.drills.orphans.exporttopic import ExportedOrphan, OrphanOrigin, missing_from
from onceover.drills.orphans.files import put_orphans
from onceover.errors import NeedsOperator, Retriable
from onceover.model import TopicPartition
from onceover.wire.batches.records import DecodedRecord

ORIGIN = OrphanOrigin("id", TopicPartition("t", 3))


def record(offset: int, value: bytes | None = b"v") -> DecodedRecord:
    return DecodedRecord(offset, 17, None, value, ((b"\xff", None), (b"h", b"")))


def orphans(*offsets: int) -> list[ExportedOrphan]:
    return [ExportedOrphan(ORIGIN, record(offset)) for offset in offsets]


def test_it_holds_a_line_for_each_and_is_its_owners_alone(tmp_path: Path) -> None:
    """Nothing is lost of what is null, empty or no text."""
    folder = tmp_path / "flow" / "orphans"
    written = put_orphans(folder, orphans(4, 6))
    data = written.path.read_bytes()
    assert [json.loads(line) for line in data.splitlines()] == [
        {
            "topic": "t",
            "topic_id": "id",
            "partition": 3,
            "offset": offset,
            "timestamp_ms": 17,
            "key": None,
            "value": "dg==",
            "headers": [["/w==", None], ["aA==", ""]],
        }
        for offset in (4, 6)
    ]
    assert (written.records, written.sha256) == (2, hashlib.sha256(data).hexdigest())
    assert stat.S_IMODE(written.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_nothing_of_it_is_held_in_memory(tmp_path: Path) -> None:
    """However much it is: a tenth of what is written here would be noticed."""
    many, value = 20_000, bytes(1_000)
    tracemalloc.start()
    try:
        written = put_orphans(tmp_path, (ExportedOrphan(ORIGIN, record(n, value)) for n in range(many)))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert written.size_bytes > many * len(value)
    assert peak_bytes < written.size_bytes / 5


def test_a_run_that_fails_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    before = put_orphans(tmp_path, orphans(1)).path.read_bytes()

    def breaks() -> Iterator[ExportedOrphan]:
        yield from orphans(1, 2)
        raise Retriable("the target is away")

    with pytest.raises(Retriable, match="away"):
        put_orphans(tmp_path, breaks())
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_what_a_killed_run_has_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".orphans.jsonl.12ab34cd").write_text("half a li")
    assert [path.name for path in [put_orphans(tmp_path, orphans(1)).path]] == os.listdir(tmp_path)


def test_a_disk_that_is_full_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NeedsOperator, match="No space left on device") as refused:
        put_orphans(tmp_path, orphans(1))
    assert (refused.value.code, list(tmp_path.iterdir())) == ("PATH_UNUSABLE", [])


def test_a_disk_that_loses_bytes_gives_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def loses(descriptor: int) -> None:
        os.ftruncate(descriptor, 5)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", loses)
    with pytest.raises(NeedsOperator) as refused:
        put_orphans(tmp_path, orphans(1))
    assert (refused.value.code, list(tmp_path.iterdir())) == ("EXPORT_DIFFERS", [])


@pytest.mark.parametrize(
    ("source", "exported", "missing"),
    [
        ((1, 2, 3), (1, 2, 3), None),
        ((2,), (1, 2, 3), None),
        ((), (1,), None),
        ((1, 2, 3), (1, 3), 2),
        ((1, 2), (1,), 2),
        ((1,), (), 1),
    ],
)
def test_what_is_missing_is_found(
    source: tuple[int, ...], exported: tuple[int, ...], missing: int | None
) -> None:
    """What the source does not hold any more is in the export alone; the other way round is a loss."""
    assert missing_from(map(record, source), map(record, exported)) == missing


def test_another_content_is_a_missing_record() -> None:
    assert missing_from([record(1)], [record(1, b"other")]) == 1


def test_a_file_that_holds_what_the_new_one_lacks_is_kept(tmp_path: Path) -> None:
    """The topic was emptied since: it may be the last copy. One that goes on is one file."""
    put_orphans(tmp_path, orphans(1, 2))
    grown = put_orphans(tmp_path, orphans(1, 2, 3))
    assert os.listdir(tmp_path) == [grown.path.name]
    before = grown.path.read_bytes()
    put_orphans(tmp_path, orphans(2, 3))
    (kept,) = (path for path in tmp_path.iterdir() if path != grown.path)
    assert kept.read_bytes() == before
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    put_orphans(tmp_path, orphans(2, 3))
    assert len(os.listdir(tmp_path)) == 2
