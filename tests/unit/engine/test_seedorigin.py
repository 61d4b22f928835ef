"""Where the positions of a seeding come from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from onceover.engine.enrolment import Enrolment
from onceover.engine.seed import Offer, SeatedTopic
from onceover.engine.seedmap import LagOrigin, Newest
from onceover.engine.seedorigin import FileOrigin, FlowOrigin, GroupOrigin, Place
from onceover.errors import Retriable, UsageError
from onceover.kafka.calls import CommittedOffset
from onceover.model import TopicPartition
from tests.support.waysout import commands
from tests.unit.engine.test_seed import seat, topic

ONE, TWO, OTHER = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("elsewhere", 0)


class FakeSource:
    """A coordinator that tells of a pending first commit only who names its partition."""

    alias = "east"

    def __init__(self, *committed: TopicPartition, pending: TopicPartition | None = None) -> None:
        self._committed = committed
        self._pending = pending

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, CommittedOffset]:
        wanted = list(self._committed if partitions is None else partitions)
        if self._pending in wanted:
            raise Retriable("pending")
        return {tp: CommittedOffset(0, 4, -1, "") for tp in self._committed if tp in wanted}


def offered(source: FakeSource) -> set[TopicPartition]:
    place = Place("f", cast(Any, source), cast(Any, SimpleNamespace()))
    topics: list[SeatedTopic] = [topic(seat(0), seat(1))]
    return set(GroupOrigin("g").read(place, topics).offers)


def test_a_groups_first_commit_that_is_pending_is_waited_for() -> None:
    """Taken for none, its partition would be seeded from elsewhere."""
    assert offered(FakeSource(ONE)) == {ONE}
    with pytest.raises(Retriable):
        offered(FakeSource(ONE, pending=TWO))


def test_a_group_that_has_committed_nothing_at_all_is_unknown() -> None:
    assert offered(FakeSource(OTHER)) == set()
    with pytest.raises(UsageError, match="has committed nothing") as caught:
        offered(FakeSource())
    # Brokers leave out topics that may not be described: nobody can tell here which it is.
    assert "grant DESCRIBE on its topics" in str(caught.value.resolve)


def test_another_flows_progress_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all partitions a topic that may not be described would be left out, as if nothing were copied."""
    enrolled = Enrolment("a", "east.a", UUID(int=1), UUID(int=2), {0: 0, 1: 0, 2: 0}, 5)
    state = SimpleNamespace(layout=SimpleNamespace(source_cluster_id="s"), enrolled={"east.a": enrolled})
    monkeypatch.setattr("onceover.engine.seedorigin.read_flow_state", lambda *_: state)
    copies = [TopicPartition("east.a", 0), TopicPartition("east.a", 1)]
    target = FakeSource(copies[0], pending=copies[1])
    place = Place("f", cast(Any, SimpleNamespace(cluster_id=lambda: "s")), cast(Any, SimpleNamespace()))
    origin = FlowOrigin("other", cast(Any, target))
    assert origin.read(place, [topic(seat(0))]).offers == {ONE: Offer(4, "copied by flow other to east")}
    with pytest.raises(Retriable):
        origin.read(place, [topic(seat(0), seat(1))])


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_lag_group_is_not_believed_where_an_older_release_has_put_the_partition(
    by_hand: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wrote down that somebody has, and not where to: behind that offset, the group would skip records."""
    monkeypatch.setattr("onceover.engine.seedmap.newest_records", lambda *_: Newest())
    one = topic(seat(0, start=2), enrolled=True)
    assert one.enrolment is not None
    one = replace(one, enrolment=replace(one.enrolment, changed={0: "approval"} if by_hand else {}))
    place = Place("f", cast(Any, FakeSource(ONE)), cast(Any, SimpleNamespace()))
    found = LagOrigin().read(place, [one])
    assert bool(found.offers) is not by_hand
    for refusal in found.refused.values():
        assert refusal.code == "LAG_GROUP_STALE"
        assert [c.arguments[2:] for c in commands(refusal.resolve)] == [["f", "a:0", "2"], ["f", "a:0", "4"]]


def test_a_file_that_names_other_partitions_is_refused_and_not_quoted() -> None:
    """Which of its entries they are is enough to correct it."""
    place = Place("f", cast(Any, FakeSource()), cast(Any, SimpleNamespace()))
    origin = FileOrigin({OTHER: 1, ONE: 2, TopicPartition("SECRET", 0): 3}, "july.csv")
    with pytest.raises(UsageError, match="2 partitions") as caught:
        origin.read(place, [topic(seat(0), seat(1))])
    said = caught.value.as_dict()
    assert (said["where"], said["seen"]) == ("july.csv", "entry 1, entry 3")
