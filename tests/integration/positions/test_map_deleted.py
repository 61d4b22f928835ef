"""The offset map's topic is deleted: the copy goes on, and what it has not mapped any more is not covered."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from onceover.lead import supervisor
from onceover.state import names
from tests.support.flows.flows import InlineFlow
from tests.support.flows.groups import commit
from tests.support.flows.replica import Live, Replica, delete_topics, topic_config
from tests.support.session.wait import wait_until

DONE, OPERATOR = 0, 3
_TIMEOUT_S = 60.0
# A few attempts find out that it is gone; each takes an offset of its records and one of its marker.
_MOST_LOST = 40


def copied(replica: Replica, topic: str, live: Live, records: int) -> bool:
    """Tell whether a running flow has copied so much."""
    assert live.alive
    return bool(replica.partition_status(topic)["position"] == records)


def test_a_map_that_is_deleted_under_a_running_flow_is_made_anew_and_holds_up_nothing_else(
    replica: Replica,
) -> None:
    replica.configure(lanes=1)
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    with replica.running() as live:
        wait_until(partial(copied, replica, topic, live, 10), _TIMEOUT_S, "the first records are copied")
        delete_topics(replica.target_client, [names.map_topic(replica.name)])
        replica.source.plain(topic, 0, replica.source.records(10))
        wait_until(partial(copied, replica, topic, live, 20), _TIMEOUT_S, "the copy goes on")
        replica.source.plain(topic, 0, replica.source.records(10))
        wait_until(partial(copied, replica, topic, live, 30), _TIMEOUT_S, "and on")
    replica.assert_same()
    assert max(replica.target_records(topic)) < 30 + _MOST_LOST


def test_topics_of_a_flow_that_brokers_have_made_for_somebody_else_are_completed(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one partition each, the copy would wait for the map's others, and each command for the state's."""
    topic = replica.topic(partitions=6)
    for partition in range(6):
        replica.source.plain(topic, partition, replica.source.records(3))
    own = [of(replica.name) for of in (names.state_topic, names.map_topic, names.owned_topic)]
    admin = AdminClient(replica.target_client)
    for each in admin.create_topics([NewTopic(each, 1) for each in own]).values():
        each.result(_TIMEOUT_S)
    assert replica.command(capsys, "topics", "apply", str(replica.flow.path))[0] == DONE
    found = admin.list_topics(timeout=_TIMEOUT_S).topics
    assert [len(found[each].partitions) for each in own] == [2, 4, 1]
    policies = [topic_config(replica.target_client, each)["cleanup.policy"] for each in own]
    assert policies == ["compact", "compact,delete", "compact"]
    assert replica.copy().records == 18
    replica.assert_same()


@pytest.mark.soak
def test_a_map_that_cannot_be_made_anew_ends_no_run_and_is_told_until_it_can(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wants more replicas than there are brokers; then somebody helps, and the copy goes on."""
    monkeypatch.setattr(supervisor, "HEARTBEAT_S", 0.5)
    topic, missing = replica.topic(), names.map_topic(replica.name)
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    replica.configure(state={"replication_factor": 3})
    live = Live(InlineFlow(replica.write_flow()), _TIMEOUT_S)

    def told() -> list[dict[str, Any]]:
        assert live.alive
        return [note for note in replica.flow.status()["notes"] if note["object"] == missing]

    live.start()
    try:
        assert told() == []
        delete_topics(replica.target_client, [missing])
        replica.source.plain(topic, 0, replica.source.records(10))
        wait_until(told, _TIMEOUT_S, "that it is missing is told")
        (note,) = told()
        assert (note["code"], note["blocks"]) == ("MAP_MISSING", False)
        assert "nothing is copied" in note["message"] and "eplication" in note["message"]
        assert copied(replica, topic, live, 10)
        made = NewTopic(missing, names.MAP_PARTITIONS, 1, config={"cleanup.policy": "compact,delete"})
        admin = AdminClient(replica.target_client)
        admin.create_topics([made])[missing].result(_TIMEOUT_S)
        wait_until(partial(copied, replica, topic, live, 20), _TIMEOUT_S, "the copy goes on")
        wait_until(lambda: told() == [], _TIMEOUT_S, "and nothing is told any more")
    finally:
        live.stop()
    replica.assert_same()


def test_while_the_map_is_missing_status_is_whole_and_groups_stand_still_that_need_it(
    replica: Replica, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has read all that was copied needs none: the position tells where the next record will be."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    topic, flow = replica.topic(partitions=2), str(replica.flow.path)
    for partition in range(2):
        replica.source.plain(topic, partition, replica.source.records(10))
    replica.copy()
    group = f"{replica.name}-reader"
    commit(replica.source_client, group, topic, {0: 4, 1: 10})
    delete_topics(replica.target_client, [names.map_topic(replica.name)])
    code, status = replica.command(capsys, "status", flow)
    (shown,) = status["flows"]
    assert (code, shown["error"], shown["needs"]) == (DONE, None, [])
    seen = [(p["state"], p["position"], p["lag_offsets"], p["stop"]) for p in shown["partitions"]]
    assert seen == 2 * [("caught_up", 10, 0, None)]

    code, plan = replica.command(capsys, "groups", "plan", flow, "--group", group)
    assert code == OPERATOR
    assert [(p["partition"], p["code"], p["new"]) for p in plan["positions"]] == [
        (0, "NOT_COVERED", None),
        (1, None, max(replica.target_records(topic, 1)) + 1),
    ]
    assert "holds nothing about this partition" in plan["refused"][0]["message"]
    code, found = replica.command(capsys, "translate", flow, f"{topic}:0", "4")
    assert (code, found["answers"][0]["covered"]) == (DONE, False)
