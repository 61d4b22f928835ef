"""Which tests go to which worker of pytest-xdist, and in which order.

A file stays together, as its fixtures are worth sharing. The system tests of all files do, too: they share
one Airflow, which takes half a minute to start. So do those of Kafka Connect, with three workers of it, and
after them the machine of `make up`, so that no more than two of these are heavy at once; and so do those on
clusters with authorizers, of which one pair is enough. They are the longest parts and begin first, the
longest at the very first: none of them may be what the others wait for at the end. Unit tests fill up what is
left.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling

# Beginnings of test ids with the part they belong to.
_TOGETHER: Final = {
    "tests/system/": "airflow",
    "tests/integration/connectors/": "connect",
    "tests/integration/around/test_up.py": "connect",
    "tests/integration/guarded/": "guarded",
}


class SharedSystems(LoadFileScheduling):
    """By file, but all parts that belong together to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        scope = super()._split_scope(nodeid)
        return next((part for start, part in _TOGETHER.items() if scope.startswith(start)), scope)


def make_scheduler(config: pytest.Config, log: Any) -> SharedSystems:
    """Return the scheduler for a run with workers."""
    return SharedSystems(config, log)


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests with the longest parts first."""

    def place(item: pytest.Item) -> int:
        return next((n for n, start in enumerate(_TOGETHER) if item.nodeid.startswith(start)), len(_TOGETHER))

    return sorted(items, key=place)
