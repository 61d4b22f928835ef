"""What a rehearsal leaves is taken away wherever somebody answers, and told where nobody does."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from onceover.backoff import Deadline
from onceover.drills.rehearsing import remains
from onceover.drills.rehearsing.remains import Removal
from onceover.errors import Fenced, Retriable
from onceover.state import names
from tests.support.fakes.fakecluster import FakeCluster

FLOW = "orders-dr"
CANARY = names.canary_topic(FLOW)
COPY = f"{names.rehearsal_copies(FLOW)}.orders"


class Deleting:
    """Deletes, as an administrator of the fake cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def delete_topics(self, topics: Sequence[str]) -> None:
        for topic in topics:
            del self._cluster.all_topics[topic]

    def groups(self) -> SimpleNamespace:
        if self._cluster.down:
            raise Retriable(f"no broker of {self._cluster.alias} answers")
        return SimpleNamespace(groups=set(self._cluster.groups), unheard=())

    def delete(self, group: str) -> None:
        del self._cluster.groups[group]


@pytest.fixture(autouse=True)
def administrators(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Admin", "GroupAdmin"):
        monkeypatch.setattr(remains, name, Deleting)


def left() -> tuple[FakeCluster, FakeCluster]:
    east, west = FakeCluster("east"), FakeCluster("west")
    east.make_topic(CANARY, 1)
    east.make_topic("orders", 1)
    west.make_topic(COPY, 1)
    west.make_topic("orders", 1)
    return east, west


def nobody() -> None:
    """Whose it is by now: still this drill's."""


def test_everything_of_the_rehearsals_is_taken_away_and_nothing_else() -> None:
    east, west = left()
    found = Removal(FLOW, east, west).remove(Deadline(5.0), nobody)
    assert (found.source_topics, found.target_topics) == ((CANARY,), (COPY,))
    assert (set(east.all_topics), set(west.all_topics)) == ({"orders"}, {"orders"})


@pytest.mark.parametrize("away", ["east", "west"])
def test_a_cluster_that_is_away_keeps_nothing_on_the_other_one(away: str) -> None:
    """A copy that stays on the target would be there when clients come; the command that goes on is named."""
    clusters = dict(zip(("east", "west"), left(), strict=True))
    clusters[away].down.add(0)
    with pytest.raises(Retriable, match=f"no broker of {away} answers") as caught:
        Removal(FLOW, clusters["east"], clusters["west"]).remove(Deadline(0.1), nobody)
    assert caught.value.code == "REMAINS"
    assert "`onceover drill abort orders-dr`" in str(caught.value.resolve)
    assert {alias for alias, each in clusters.items() if set(each.all_topics) == {"orders"}} == (
        {"east", "west"} - {away}
    )


def test_what_is_another_drills_by_now_is_left_alone() -> None:
    east, west = left()

    def taken() -> None:
        raise Fenced("another one runs")

    with pytest.raises(Fenced):
        Removal(FLOW, east, west).remove(Deadline(5.0), taken)
    assert COPY in west.all_topics and CANARY in east.all_topics
