"""The topics that a flow keeps for itself, as brokers know them."""

from __future__ import annotations

from onceover.engine import names
from onceover.engine.flowtopics import STATE_CONFIG
from tests.support.replica import Replica, alter_config, topic_config


def test_the_state_is_compacted_soon_also_where_an_earlier_version_made_it(replica: Replica) -> None:
    """Every session reads it from its beginning, heartbeats included."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(3))
    replica.copy()
    state = names.state_topic(replica.name)
    assert STATE_CONFIG.items() <= topic_config(replica.target_client, state).items()
    before = {"segment.ms": str(7 * 86_400_000), "min.cleanable.dirty.ratio": "0.5"}
    alter_config(replica.target_client, state, before)
    replica.copy()
    assert STATE_CONFIG.items() <= topic_config(replica.target_client, state).items()
    replica.assert_same()
