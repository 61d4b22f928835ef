"""A good flow file to change one thing in, and an environment to read it with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

SECRET = "hunter2-planted"
ENVIRON = {"EAST": "127.0.0.1:19092", "WEST": "127.0.0.1:29092", "PASSWORD": SECRET}

FlowWriter = Callable[..., Path]


def good_flow() -> dict[str, Any]:
    """Return the smallest flow file that is in order."""
    return {
        "flow": "orders-dr",
        "source": {"alias": "east", "client": {"bootstrap.servers": "${EAST}"}},
        "target": {"alias": "west", "client": {"bootstrap.servers": "${WEST}"}},
        "topics": {"include": ["orders.*"]},
    }


@pytest.fixture
def write_flow(tmp_path: Path) -> FlowWriter:
    """Write a flow file: the good one with ``changes`` merged in, or the text given."""

    def write(changes: dict[str, Any] | str | None = None, name: str = "orders-dr") -> Path:
        path = tmp_path / f"{name}.yaml"
        if isinstance(changes, str):
            path.write_text(changes)
            return path
        path.write_text(yaml.safe_dump(_merged(good_flow(), changes or {}), sort_keys=False))
        return path

    return write


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in changes.items():
        below = result.get(key)
        both = isinstance(below, dict) and isinstance(value, dict)
        result[key] = _merged(below, value) if both and isinstance(below, dict) else value
    return result
