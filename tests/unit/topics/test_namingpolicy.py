"""Names on the target and back; what has been there already."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.topics.namingpolicy import IDENTITY, PREFIX, NamingPolicy, colliding

# Aliases hold no dot: a name could otherwise be taken apart in two ways.
aliases = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,8}", fullmatch=True)
topics = st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True)
namings = st.builds(NamingPolicy, st.sampled_from([IDENTITY, PREFIX]), aliases, aliases)


@given(namings, topics, topics)
def test_different_topics_have_different_copies(naming: NamingPolicy, one: str, other: str) -> None:
    """Two topics in one copy would mix their records."""
    assert (naming.target_name(one) == naming.target_name(other)) == (one == other)


@given(aliases, aliases, topics)
def test_a_prefixed_copy_is_never_sent_back(east: str, west: str, topic: str) -> None:
    """The flow in the other direction sees where it came from; also after more clusters in between."""
    copied = NamingPolicy(PREFIX, east, west).target_name(topic)
    back = NamingPolicy(PREFIX, west, east)
    assert back.hop(copied) == east
    assert back.hop(NamingPolicy(PREFIX, "north", west).target_name(copied)) == east


@pytest.mark.parametrize(
    ("policy", "topic", "hop"),
    [
        (PREFIX, "west.orders", "west"),
        (PREFIX, "north.west.orders", "west"),
        (PREFIX, "payments.west.tx", "west"),
        (PREFIX, "orders.west", None),
        (PREFIX, "west", None),
        (PREFIX, "westend.orders", None),
        (IDENTITY, "west.orders", "west"),
        (IDENTITY, "payments.west.tx", None),
        (IDENTITY, "orders", None),
        (IDENTITY, "orders.west", None),
    ],
)
def test_hop(policy: str, topic: str, hop: str | None) -> None:
    """The last part is the topic's own name; under identity a name in the middle is nobody's mark."""
    assert NamingPolicy(policy, "east", "west").hop(topic) == hop


def test_dots_and_underscores_collide() -> None:
    """As the broker sees it (its metrics replace one by the other)."""
    assert colliding("a.b_c") == colliding("a_b.c") != colliding("a-b.c")
