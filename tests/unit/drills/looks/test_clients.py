"""Who uses a flow's topics, out of what brokers tell."""

from __future__ import annotations

from typing import Any

import pytest

from onceover.drills.looks import clients
from onceover.drills.looks.clients import Consumer, Producer, readers, unsettled, writers
from onceover.kafka.groups.admin import GroupListing
from onceover.kafka.groups.calls import ListedGroup
from onceover.kafka.groups.members import DescribedGroup, GroupMember
from onceover.kafka.logs.usage import ActiveProducer, ListedTransaction
from onceover.model import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_members_count_that_are_assigned_one_of_the_topics() -> None:
    """A group may read other topics, too, and some of its members these alone."""
    group = DescribedGroup(
        "stable",
        "range",
        (
            GroupMember("1", "app", "/10.0.0.7", topics=frozenset({"a", "other"})),
            GroupMember("2", "app", "/10.0.0.8", topics=frozenset({"other"})),
        ),
    )
    assert readers("g", group, {"a", "b"}) == [Consumer("g", "app", "10.0.0.7", ("a",))]


MEMBER = GroupMember("1", "app", "/10.0.0.7")


@pytest.mark.parametrize("state", ["preparingrebalance", "completingrebalance", "assigning", "reconciling"])
def test_a_group_that_rebalances_may_read_anything(state: str) -> None:
    """Its coordinator names the members, and gives none of them a topic: they are not nobody."""
    group = DescribedGroup(state, "", (MEMBER,))
    assert readers("g", group, {"a"}) == []
    (told,) = unsettled("east", "g", group)
    assert (told.exit_code, state in told.message) == (5, True)
    assert unsettled("east", "g", DescribedGroup(state, "", ())) == []
    assert unsettled("east", "g", DescribedGroup("stable", "range", (MEMBER,))) == []


class Listing:
    """The groups of a cluster without the cluster."""

    def __init__(self, _: Any) -> None:
        pass

    def groups(self) -> GroupListing:
        found = [
            ListedGroup("shared", "share", "stable"),
            ListedGroup("stream", "streams", "stable"),
            ListedGroup("left", "share", "empty"),
        ]
        return GroupListing({each.group_id: each for each in found})


def test_members_that_are_not_asked_are_not_counted_as_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share groups and streams groups: a person has to ask them, where they have members."""
    monkeypatch.setattr(clients, "GroupAdmin", Listing)
    cluster: Any = type("East", (), {"alias": "east"})()
    found, unseen = clients.consumers(cluster, {"a"})
    assert found == []
    assert [error.exit_code for error in unseen] == [3, 3]
    assert [name in error.message for name, error in zip(("shared", "stream"), unseen, strict=True)] == [
        True,
        True,
    ]


def test_a_producer_is_named_once_by_its_transactional_id() -> None:
    """Partitions of all its topics together; without a name by its number."""
    active = {
        A0: [ActiveProducer(7, 500, -1), ActiveProducer(8, -1, -1)],
        A1: [ActiveProducer(7, 600, 12)],
        B0: [ActiveProducer(7, 100, -1)],
    }
    assert writers(active, [ListedTransaction("tx", 7, "Ongoing")]) == [
        Producer(7, "tx", ("a", "b"), 600, (A1,)),
        Producer(8, None, ("a",), None, ()),
    ]


def test_of_groups_that_are_not_asked_for_none_keeps_anybody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's, whose members come and go all the time."""

    class Restless(Listing):
        def groups(self) -> GroupListing:
            found = [ListedGroup(name, "classic", "preparingrebalance") for name in ("mine", "theirs")]
            return GroupListing({each.group_id: each for each in found})

    group = DescribedGroup("preparingrebalance", "", (MEMBER,))
    monkeypatch.setattr(clients, "GroupAdmin", Restless)
    monkeypatch.setitem(clients._DESCRIBED, "classic", lambda *_: group)
    cluster = type("Cluster", (), {"alias": "east"})()
    (told,) = clients.consumers(cluster, {"a"}, {"mine"}.__contains__)[1]
    assert "group mine" in told.message
