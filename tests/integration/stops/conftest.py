"""What the tests of stops share."""

from __future__ import annotations

import pytest

from onceover.stops.aside import WaitPolicy


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is gone here is gone: no broker is behind another one, and no leader moves by itself."""
    monkeypatch.setattr("onceover.stops.aside.TOO_SHORT", WaitPolicy(0.5, 0.1, 0.1))
