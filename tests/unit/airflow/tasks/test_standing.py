"""What the reporting tasks say of a flow whose clusters do not answer: nothing, and they fail."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from onceover.wiring import status as wiring
from onceover_airflow.errors import JobInterrupted
from onceover_airflow.tasks import standing
from onceover_airflow.tasks.repair import REPAIR

PARTITION = {
    "topic": "t",
    "partition": 0,
    "state": "copying",
    "position": 5,
    "lag_offsets": 0,
    "oldest_missing_s": 0.0,
    "stop": None,
}
SIDE = {"alias": "east", "cluster_id": "E", "error": None}


def entry(**changes: Any) -> dict[str, Any]:
    """Return what is read of a flow that stands well."""
    status = {
        "flow": "f",
        "state": "copying",
        "generation": 3,
        "partitions": [PARTITION],
        "needs": [],
        "source": SIDE,
        "target": {**SIDE, "alias": "west"},
        "notes": [{"object": "t", "message": "differs", "resolve": "apply"}],
    }
    return {**status, **changes}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What ``status`` finds."""
    found = entry()

    @contextmanager
    def at_hand(flow: str) -> Iterator[str]:
        yield flow

    monkeypatch.setattr(standing, "flow_at_hand", at_hand)
    monkeypatch.setattr(wiring, "read_status", lambda _flow: found)
    return found


def test_a_repair_is_reported_with_its_notes(reads: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """Counts come back, the log has the rest."""
    with caplog.at_level(logging.INFO):
        assert REPAIR.report("f") == {"flow": "f", "state": "copying", "partitions_stopped": 0}
    assert "t: differs; apply" in caplog.text


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize(("code", "error"), [(5, JobInterrupted), (2, AirflowFailException)])
def test_a_cluster_that_does_not_answer_is_no_flow_without_stops(
    reads: dict[str, Any], side: str, code: int, error: type[Exception]
) -> None:
    """Temporary is tried again, everything else fails at once."""
    reads[side] = {**SIDE, "error": {"message": "no broker answers", "exit": code}}
    with pytest.raises(error, match="east: no broker answers"):
        REPAIR.report("f")
