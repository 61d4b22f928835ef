"""The topics that a flow keeps for itself, as brokers know them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

import pytest

from onceover.state import names
from onceover.state.read import read_flow_state
from onceover.state.records.enrolment import MOST_PARTITIONS
from onceover.topics.own import STATE_CONFIG
from onceover.wiring.flows import open_clusters
from tests.support.flows.replica import Replica, alter_config, topic_config
from tests.unit.kafka.produce.test_rounds import largest_enrolment

_HOUR_NS: Final = 3600 * 10**9


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


def test_a_machine_whose_clock_is_ahead_copies_all_the_same(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own topics take what it writes, also those that an earlier version has made."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(3))
    right_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + 2 * _HOUR_NS)
    assert replica.copy().records == 3
    limits = {"message.timestamp.after.max.ms": "3600000"}
    for own in (names.state_topic, names.map_topic, names.owned_topic):
        alter_config(replica.target_client, own(replica.name), limits)
    replica.source.plain(topic, 0, replica.source.records(3))
    assert replica.copy().records == 3
    replica.assert_same()


def test_the_largest_record_of_a_topic_is_taken_and_read(replica: Replica) -> None:
    """3.6 MB of it, in a state topic with the broker's own limits. The flow's next start reads it, too."""
    largest = largest_enrolment(MOST_PARTITIONS)
    largest = replace(largest, active=False)
    with replica.flow.running() as (lead, _):
        lead.leader.enrol([largest], {})
        lead.end()
    source, target = open_clusters(replica.flow.watch.flow)
    with source, target:
        assert read_flow_state(target, replica.name).enrolled[largest.target] == largest
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(3))
    assert replica.copy().records == 3
