"""Which tests go to which worker of pytest-xdist, and in which order.

A file stays together, as its fixtures are worth sharing. The system tests of all files do, too: they share
one Airflow, which takes half a minute to start. They are the longest part and come first, unit tests fill
up what is left.
"""

from __future__ import annotations

from typing import Final

import pytest
from xdist.scheduler import LoadFileScheduling

_SYSTEM: Final = "tests/system/"


class OneAirflow(LoadFileScheduling):  # type: ignore[misc]
    """By file, but all system tests to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return _SYSTEM if scope.startswith(_SYSTEM) else scope


def make_scheduler(config: pytest.Config, log: object) -> OneAirflow:
    """Return the scheduler for a run with workers."""
    return OneAirflow(config, log)


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests with the system's first."""
    return sorted(items, key=lambda item: not item.nodeid.startswith(_SYSTEM))
