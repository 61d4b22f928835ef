"""docs/flow-file.md says what the code does: every key, every default, every client key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from onceover.config.clients.keys import ALLOWED
from onceover.config.flow.flowfile import Flow, FlowKeys
from onceover.config.flow.load import load_flow
from tests.unit.config.conftest import ENVIRON, FlowWriter

REFERENCE = Path(__file__).parents[3] / "docs" / "flow-file.md"


def _documented() -> dict[str, tuple[str, str]]:
    """Return key -> (default, values) of the reference's first table."""
    rows = re.findall(
        r"^\| (`.*?) \| (.*?) \| (.*) \|$", REFERENCE.read_text().split("## How")[0], re.MULTILINE
    )
    return {
        key: (default, values) for keys, default, values in rows for key in re.findall(r"`([^`]+)`", keys)
    }


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation, f"{key}.")
        else:
            yield key


def _with(key: str, value: Any) -> dict[str, Any]:
    part, _, rest = key.partition(".")
    return {part: _with(rest, value) if rest else value}


def test_the_reference_names_every_key_and_no_other() -> None:
    """A key that is added or renamed has to be documented."""
    assert sorted(_documented()) == sorted(_keys(FlowKeys))


@pytest.mark.parametrize(
    "key", [key for key, (default, _) in _documented().items() if default.startswith("`")]
)
def test_the_documented_default_is_the_real_one(write_flow: FlowWriter, key: str) -> None:
    """Writing a default into the file changes nothing but the hash."""
    text = _documented()[key][0].strip("`")
    # A preset such as @daily is quoted in a flow file: YAML reserves the character.
    default = text if text.startswith("@") else yaml.safe_load(text)
    assert _loaded(write_flow(_with(key, default))) == _loaded(write_flow())


def test_the_reference_lists_every_client_key() -> None:
    """The second table is the allow-list, secrets marked."""
    rows = re.findall(
        r"^\| `([a-z.]+)` \| (.*) \|$", REFERENCE.read_text().split("## Client keys")[1], re.MULTILINE
    )
    expected = [(name, key.doc + (" **(secret)**" if key.secret else "")) for name, key in ALLOWED.items()]
    assert rows == expected


def _loaded(path: Path) -> dict[str, Any]:
    flow: Flow = load_flow(path, environ=ENVIRON)
    return flow.model_dump(exclude={"sha256"})
