"""Whether the flow the other way would copy a topic back as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceover.config.flow.load import load_flow
from onceover.errors import UsageError
from onceover.wiring.failovers.orphans import _untaken
from tests.support.flows.flows import write_flow

EAST, WEST = ({"bootstrap.servers": f"127.0.0.1:{port}"} for port in (9092, 9093))
TURNED = {"source": {"alias": "west"}, "target": {"alias": "east"}}


def untaken(tmp_path: Path, **back: Any) -> str | None:
    """Return why ``orders`` would not come back by a flow of that kind."""
    write_flow(tmp_path, "back", WEST, EAST, ["orders"], **TURNED, **back)
    path = write_flow(tmp_path, "there", EAST, WEST, ["orders"], switchover={"reverse": "back"})
    return _untaken(load_flow(str(path)), ["orders"]).get("orders")


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ({}, None),
        ({"topics": {"include": ["payments"], "naming": "identity"}}, "does not take it in as orders"),
        ({"topics": {"include": ["orders"], "naming": "prefix"}}, "does not take it in as orders"),
        ({"handler": "tests.support.flows.handled:Doubled"}, "its handler"),
    ],
)
def test_a_topic_comes_back_where_it_is_taken_in_as_it_is(
    tmp_path: Path, more: dict[str, Any], part: str | None
) -> None:
    why = untaken(tmp_path, **more)
    assert part in why if part and why else (part, why) == (None, None)


def test_its_file_counts_as_it_is_by_now(tmp_path: Path) -> None:
    """Between a plan and a deletion lie the hours in which a person says yes."""
    assert untaken(tmp_path) is None
    flow = load_flow(str(tmp_path / "there.yaml"))
    write_flow(tmp_path, "back", WEST, EAST, ["payments"], **TURNED)
    assert set(_untaken(flow, ["orders"])) == {"orders"}
    (tmp_path / "back.yaml").unlink()
    with pytest.raises(UsageError):
        _untaken(flow, ["orders"])


def test_without_such_a_flow_nothing_comes_back(tmp_path: Path) -> None:
    path = write_flow(tmp_path, "alone", EAST, WEST, ["orders"])
    assert set(_untaken(load_flow(str(path)), ["orders", "payments"])) == {"orders", "payments"}
