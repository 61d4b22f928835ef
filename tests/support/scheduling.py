"""Which tests go to which worker of pytest-xdist, and in which order.

A file stays together, as its fixtures are worth sharing. The system tests of all files do, too: they share
one Airflow, which takes half a minute to start. So do those of Kafka Connect, with three workers of it. They
and the machine of `make up` are the longest parts, each on a worker of its own, and begin first, the longest
at the very first: none of them may be what the others wait for at the end. Unit tests fill up what is left.
"""

from __future__ import annotations

from typing import Final

import pytest
from xdist.scheduler import LoadFileScheduling

_TOGETHER: Final = ("tests/system/", "tests/integration/test_connectors", "tests/integration/test_up.py")


class SharedSystems(LoadFileScheduling):  # type: ignore[misc]
    """By file, but all that share an Airflow, or Connect's workers, to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return next((shared for shared in _TOGETHER if scope.startswith(shared)), scope)


def make_scheduler(config: pytest.Config, log: object) -> SharedSystems:
    """Return the scheduler for a run with workers."""
    return SharedSystems(config, log)


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests with the longest parts first."""

    def place(item: pytest.Item) -> int:
        return next((n for n, part in enumerate(_TOGETHER) if item.nodeid.startswith(part)), len(_TOGETHER))

    return sorted(items, key=place)
