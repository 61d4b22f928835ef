"""Which start of its machine a process belongs to."""

from __future__ import annotations

from pathlib import Path


def boot_id() -> str | None:
    """Return what the machine's kernel is called until it starts again; None where only Linux would tell.

    Containers of one machine have the same (random(4)).
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None
