"""The project as a wheel, built from this checkout without asking anybody for anything."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[3]


def build_wheel(folder: Path) -> Path:
    """Build the wheel into ``folder``; return it."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=PROJECT, capture_output=True, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpacked(wheel: Path, folder: Path) -> Path:
    """Return ``folder`` with what the wheel installs among the packages of a Python."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder
