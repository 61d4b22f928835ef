"""Whether the flow the other way would copy a topic back as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceover.config.flow.load import load_flow
from onceover.wiring.orphans import _untaken
from tests.support.flows import write_flow


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ({}, None),
        ({"topics": {"include": ["payments"], "naming": "identity"}}, "does not take it in as orders"),
        ({"topics": {"include": ["orders"], "naming": "prefix"}}, "does not take it in as orders"),
        ({"handler": "tests.support.handled:Doubled"}, "its handler"),
    ],
)
def test_a_topic_comes_back_where_it_is_taken_in_as_it_is(
    tmp_path: Path, more: dict[str, Any], part: str | None
) -> None:
    client = {"bootstrap.servers": "127.0.0.1:9092"}
    why = _untaken(load_flow(str(write_flow(tmp_path, "back", client, client, ["orders"], **more))))("orders")
    assert part in why if part and why else (part, why) == (None, None)


def test_without_such_a_flow_nothing_comes_back() -> None:
    assert _untaken(None)("orders") is not None
