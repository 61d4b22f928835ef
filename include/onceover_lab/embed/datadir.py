"""Preparing a broker's data directory without starting Java, once that was done for the version.

Kafka's storage tool takes half a second of CPU, a quarter of a broker's start, and writes two files: who the
node is, and the first metadata of a cluster. The latter is the same for every cluster of a version, apart
from the time in it, so it is kept beside the version's jars: they vanish together.

Invariant: a directory is formatted when it has ``meta.properties``, which is written last and in one step.
"""

from __future__ import annotations

import base64
import os
import shutil
import uuid
from pathlib import Path
from typing import Final

META_FILE: Final = "meta.properties"
_FIRST_METADATA: Final = "bootstrap.checkpoint"


def new_id() -> str:
    """Return a random id in Kafka's form: 22 characters, never beginning with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def is_formatted(data: Path) -> bool:
    """Tell whether the storage tool, or ``format_as_kept``, has finished there."""
    return (data / META_FILE).exists()


def keep(data: Path, jars: Path) -> None:
    """Keep what the storage tool of these jars has written, unless that was done before."""
    kept = jars / _FIRST_METADATA
    if not kept.exists():
        _place(data / _FIRST_METADATA, kept, 0o644)


def format_as_kept(data: Path, jars: Path, *, cluster_id: str, node_id: int) -> bool:
    """Format a directory with what was kept; False where nothing was, and then nothing is done."""
    kept = jars / _FIRST_METADATA
    if not kept.exists():
        return False
    data.mkdir(parents=True, exist_ok=True)
    _place(kept, data / _FIRST_METADATA, 0o600)
    partial = data / f"{META_FILE}.partial"
    partial.write_text(
        f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={new_id()}\n", encoding="utf-8"
    )
    partial.replace(data / META_FILE)
    return True


def _place(source: Path, destination: Path, mode: int) -> None:
    # Several brokers may start at once: none finds half a file.
    partial = destination.with_name(f"{destination.name}.{os.getpid()}-{uuid.uuid4().hex}")
    shutil.copyfile(source, partial)
    partial.chmod(mode)
    partial.replace(destination)
