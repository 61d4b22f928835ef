"""Which Python the environment is made from: ``scripts/python``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parents[3] / "scripts" / "python"


@pytest.mark.parametrize(
    ("fitting", "chosen"),
    [
        (["first", "second"], "first/python3"),
        (["second"], "second/python3"),
        ([], ""),
    ],
)
def test_the_first_that_fits_and_was_compiled_well_is_taken(
    tmp_path: Path, fitting: list[str], chosen: str
) -> None:
    """Where there is none, nobody decides for uv."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        python = tmp_path / name / "python3"
        python.write_text(f"#!/bin/sh\nexit {int(name not in fitting)}\n")
        python.chmod(0o755)
    path = os.pathsep.join(str(tmp_path / name) for name in ("first", "second"))
    done = subprocess.run(
        ["/bin/bash", _SCRIPT], env={"PATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout == (f"{tmp_path / chosen}\n" if chosen else "")


@pytest.mark.parametrize("way", ["--enable-optimizations", "--enable-shared"])
def test_pythons_say_how_they_were_compiled(tmp_path: Path, way: str) -> None:
    """The question is asked of a real one, by its own record."""
    record = [
        "import sys, sysconfig",
        f"sysconfig.get_config_var = lambda _: '{way}'",
        "sys.base_prefix = '/opt'",
    ]
    (tmp_path / "sitecustomize.py").write_text("\n".join(record))
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", _SCRIPT], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == (f"{python}\n" if way == "--enable-optimizations" else "")
