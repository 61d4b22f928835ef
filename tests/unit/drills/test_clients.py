"""Who uses a flow's topics, out of what brokers tell."""

from __future__ import annotations

from onceover.drills.clients import Consumer, Producer, readers, writers
from onceover.kafka.groups.members import DescribedGroup, GroupMember
from onceover.kafka.usage import ActiveProducer, ListedTransaction
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
