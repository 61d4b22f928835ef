"""The offset map's topic is deleted: the copy goes on, and what it has not mapped any more is not covered."""

from __future__ import annotations

from onceover.engine import names
from tests.support.replica import Replica, delete_topics
from tests.support.wait import wait_until

_TIMEOUT_S = 60.0
# A few attempts find out that it is gone; each takes an offset of its records and one of its marker.
_MOST_LOST = 40


def test_a_map_that_is_deleted_under_a_running_flow_is_made_anew_and_holds_up_nothing_else(
    replica: Replica,
) -> None:
    replica.configure(lanes=1)
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))

    def copied(records: int) -> bool:
        assert live.alive
        return bool(replica.partition_status(topic)["position"] == records)

    with replica.running() as live:
        wait_until(lambda: copied(10), _TIMEOUT_S, "the first records are copied")
        delete_topics(replica.target_client, [names.map_topic(replica.name)])
        replica.source.plain(topic, 0, replica.source.records(10))
        wait_until(lambda: copied(20), _TIMEOUT_S, "the copy goes on")
        replica.source.plain(topic, 0, replica.source.records(10))
        wait_until(lambda: copied(30), _TIMEOUT_S, "and on")
    replica.assert_same()
    assert max(replica.target_records(topic)) < 30 + _MOST_LOST
