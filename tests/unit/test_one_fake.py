"""Tests have one cluster in memory: what answers as a cluster does is held to what brokers answer."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

_TESTS: Final = Path(__file__).parents[1]
# What a class has that plays a cluster.
_ASKED: Final = {
    "each_committed",
    "each_leader",
    "each_offset",
    "each_open",
    "each_topic",
    "epoch_ends",
    "hidden_topics",
    "init_producer_id",
    "list_offsets",
}
# The fake itself; what plays a log, or the course of a few looks, of which some answers are a cluster's; the
# real class over connections of its own; and one that plays who asks about groups.
_OTHERS: Final = {
    "FakeCluster",
    "FakeTarget of state",
    "FakeView of mirrormaker",
    "Log of audit",
    "OneConnection of kafka",
    "Side of lead",
    "Source of operate",
    "_Admin",
}


def players() -> set[str]:
    """Return the classes of the unit tests, and of what they share, that answer what a cluster is asked."""
    found = set()
    for path in sorted([*(_TESTS / "unit").rglob("*.py"), *(_TESTS / "support").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                room = (
                    path.relative_to(_TESTS / "unit").parts[0] if path.is_relative_to(_TESTS / "unit") else ""
                )
                found |= {f"{node.name} of {room}" if room else node.name} if methods & _ASKED else set()
    return found


def test_nobody_has_a_cluster_of_their_own_in_memory() -> None:
    """Use ``tests.support.fakes.fakecluster``; what it lacks is taught to it, and tried on brokers, too."""
    assert players() == _OTHERS
