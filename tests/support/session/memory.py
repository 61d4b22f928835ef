"""How much memory this process took at most, while something was done."""

from __future__ import annotations

from pathlib import Path


class Peak:
    """The most memory that the process had resident, over what it had when this began; a context manager."""

    grown_mib = 0.0

    def __enter__(self) -> Peak:
        Path("/proc/self/clear_refs").write_text("5")
        self._before_kib = _kib("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.grown_mib = (_kib("VmHWM") - self._before_kib) / 1024


def _kib(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{name}:")[1].split()[0])
