"""What a Connect worker is asked for before Java writes down its classes."""

from __future__ import annotations

import http.client
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest

from onceover_lab.embed import trials


def test_a_worker_that_is_not_ready_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It rebalances after each new connector, and refuses what it is asked meanwhile: setup goes on."""
    answers = [(409, b'{"error_code": 409, "message": "rebalance"}'), (200, b'{"offsets": [1]}')]
    asked: list[tuple[str, str]] = []

    class Worker:
        def __init__(self, *_: Any, **__: Any) -> None:
            """Nothing is opened."""

        def request(self, method: str, path: str, *_: Any) -> None:
            asked.append((method, path))

        def getresponse(self) -> Any:
            status, body = answers[len(asked) - 1]
            return SimpleNamespace(status=status, read=BytesIO(body).read)

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(http.client, "HTTPConnection", Worker)
    assert trials._ask(8083, "GET", "/connectors/trial/offsets") == {"offsets": [1]}
    assert asked == [("GET", "/connectors/trial/offsets")] * 2
