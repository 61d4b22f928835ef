"""Which topics are in, and why."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.kafka.ports import TopicInfo
from onceover.topics.namingpolicy import IDENTITY, PREFIX, NamingPolicy
from onceover.topics.scope import Rules, explain, explain_all, in_scope

names = st.from_regex(r"[a-z._-]{1,30}", fullmatch=True)


def rules(*include: str, exclude: tuple[str, ...] = (), policy: str = IDENTITY) -> Rules:
    """Return the rules of a flow from east to west."""
    return Rules(include, exclude, NamingPolicy(policy, "east", "west"))


@pytest.mark.parametrize(
    ("topic", "inside", "reason"),
    [
        ("orders", True, "include: ord.*"),
        ("preorders", False, "no include pattern matches"),
        ("orders.tmp", False, r"exclude: .*\.tmp"),
        ("west.orders", False, "hop: its name carries west, so it came from the target"),
        ("__consumer_offsets", False, "internal: an internal topic of Kafka or Onceover"),
        ("__onceover.f.state", False, "internal: an internal topic of Kafka or Onceover"),
        ("mm2-offset-syncs.west.internal", False, "internal: MirrorMaker 2's own"),
        ("west.checkpoints.internal", False, "internal: MirrorMaker 2's own"),
        ("heartbeats", False, "internal: MirrorMaker 2's own"),
        ("connect-offsets", False, "internal: Kafka Connect's own"),
    ],
)
def test_reason(topic: str, inside: bool, reason: str) -> None:
    """The pattern that decides is named; patterns match whole names."""
    decision = explain(topic, rules("ord.*", exclude=(r".*\.tmp",)))
    assert (decision.inside, decision.reason) == (inside, reason)
    assert decision.target_topic == topic


def test_what_kafka_calls_internal_is_left_out() -> None:
    """A renamed internal topic is known by its flag only."""
    assert explain("shares", rules(".*")).inside
    assert explain("shares", rules(".*"), is_internal=True).reason.startswith("internal")


def test_of_all_topics_those_in_scope_are_picked_by_name() -> None:
    """Whether the source calls one internal counts, as it does for one topic."""
    theirs, ours = (TopicInfo("a", UUID(int=1), {}, is_internal) for is_internal in (True, False))
    topics = {"orders": ours, "audits": ours, "shares": theirs, "orders.tmp": ours}
    which = rules(".*", exclude=(r".*\.tmp",))
    assert [each.topic for each in explain_all(topics, which)] == ["audits", "orders", "orders.tmp", "shares"]
    assert list(in_scope(topics, which).items()) == [("audits", ours), ("orders", ours)]


@pytest.mark.parametrize("topic", ["east.heartbeats", "west.heartbeats"])
def test_copied_heartbeats_are_internal_under_prefix_naming_only(topic: str) -> None:
    """Under identity somebody's service may be called so."""
    assert explain(topic, rules(".*", policy=PREFIX)).reason.startswith("internal")
    assert not explain(topic, rules(".*")).reason.startswith("internal")


def test_heartbeats_of_a_third_cluster_may_be_taken_along_a_chain() -> None:
    """By them MirrorMaker's clients find it (docs/mirrormaker-output.md)."""
    assert explain("north.heartbeats", rules("north.heartbeats", policy=PREFIX)).inside
    assert not explain("heartbeats", rules(".*", policy=PREFIX)).inside


def test_the_verdict_names_the_copy() -> None:
    """Also of a topic that is left out."""
    assert explain("orders", rules("x", policy=PREFIX)).target_topic == "east.orders"


@given(names, st.sampled_from([IDENTITY, PREFIX]))
def test_nothing_is_in_that_no_pattern_names(topic: str, policy: str) -> None:
    """And what is excluded never is."""
    assert not explain(topic, rules(policy=policy)).inside
    assert not explain(topic, rules(".*", exclude=(".*",), policy=policy)).inside
