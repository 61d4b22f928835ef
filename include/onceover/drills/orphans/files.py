"""Exported records as a file of their owner's alone: a JSON document a line, contents in base64.

Invariant: under its name stands a whole file that was read back from the disk, or none. A file that holds
what the new one lacks is kept beside it: it may be the last copy. Nothing of it is held in memory.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from onceover.codes import GeneralCode
from onceover.drills.codes import DrillCode
from onceover.drills.orphans.exporttopic import ExportedOrphan
from onceover.errors import NeedsOperator

_NAME: Final = "orphans.jsonl"
_BUFFER_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class OrphanFile:
    """A file that was written.

    Args:
        records: how many lines it has.
        sha256: of its bytes.
    """

    path: Path
    records: int
    size_bytes: int
    sha256: str

    def document(self) -> dict[str, Any]:
        """Return its JSON."""
        return {
            "path": str(self.path),
            "records": self.records,
            "bytes": self.size_bytes,
            "sha256": self.sha256,
        }


def path_in(folder: Path) -> Path:
    """Return where the file of a flow is."""
    return (folder / _NAME).absolute()


def put_orphans(folder: Path, orphans: Iterable[ExportedOrphan]) -> OrphanFile:
    """Write all of them, read the file back, and only then give it its name.

    Raises:
        NeedsOperator: PATH_UNUSABLE; EXPORT_DIFFERS, the disk gives something else than was written.
        Whatever iterating raises: the file that was there before stays.
    """
    path = path_in(folder)
    fresh = path.with_name(f".{_NAME}.{secrets.token_hex(4)}")
    try:
        _prepare(folder)
        written = _written(fresh, path, orphans)
        seen = _seen(fresh, path)
        if seen != written:
            raise NeedsOperator(
                "the file does not hold what was written into it",
                code=DrillCode.EXPORT_DIFFERS,
                where=str(path),
                expected=f"{written.records} records, SHA-256 {written.sha256}",
                seen=f"{seen.records} records, SHA-256 {seen.sha256}",
                resolve="look at the disk, or set ONCEOVER_HOME to another one; then run again",
            )
        _keep_older(path, fresh)
        os.replace(fresh, path)
        _sync(folder)
    except OSError as error:
        raise NeedsOperator(
            f"the export cannot be written: {error.strerror}",
            code=GeneralCode.PATH_UNUSABLE,
            where=str(folder),
            resolve="give it room, and this user the right to write there; then run again: what is in the "
            "topic stays",
        ) from error
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
    return written


def _keep_older(path: Path, fresh: Path) -> None:
    """Give the file that is there another name, unless the new one begins with all that is in it.

    The topic may have been deleted or emptied since, by whoever was told to.
    """
    if path.is_symlink() or not path.is_file():
        return
    with path.open("rb") as old, fresh.open("rb") as new:
        while piece := old.read(_BUFFER_BYTES):
            if new.read(len(piece)) != piece:
                break
        else:
            return
    os.link(path, path.with_name(f"orphans.{secrets.token_hex(4)}.jsonl"))


def _prepare(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    for left in folder.glob(f".{_NAME}.*"):
        # Of a run that was killed; only one drill of a flow runs at a time.
        left.unlink(missing_ok=True)


def _written(fresh: Path, path: Path, orphans: Iterable[ExportedOrphan]) -> OrphanFile:
    digest, count, size = hashlib.sha256(), 0, 0
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb", _BUFFER_BYTES) as file:
        for line in map(_line, orphans):
            file.write(line)
            digest.update(line)
            count, size = count + 1, size + len(line)
        file.flush()
        os.fsync(file.fileno())
    return OrphanFile(path, count, size, digest.hexdigest())


def _seen(fresh: Path, path: Path) -> OrphanFile:
    digest, count, size = hashlib.sha256(), 0, 0
    for piece in _pieces(fresh):
        digest.update(piece)
        count, size = count + piece.count(b"\n"), size + len(piece)
    return OrphanFile(path, count, size, digest.hexdigest())


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_BUFFER_BYTES):
            yield piece


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _line(one: ExportedOrphan) -> bytes:
    record, source = one.record, one.origin.source
    value = {
        "topic": source.topic,
        "topic_id": one.origin.topic_id,
        "partition": source.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[_text(name), _text(content)] for name, content in record.headers],
    }
    return f"{json.dumps(value, separators=(',', ':'))}\n".encode()


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()
