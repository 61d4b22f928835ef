"""Topics that come, leave, return, grow and vanish while a flow runs, and configuration that follows them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from onceover.copy.loop import CopyLoop
from onceover.kafka.admin.topics import Admin
from onceover.kafka.calls import CommittedOffset
from onceover.model import TopicPartition
from onceover.state import names
from onceover.wiring.flows import open_clusters
from tests.support.flows.flows import assert_same
from tests.support.flows.replica import Replica, alter_config, delete_topics
from tests.support.raw.adversary import Traffic
from tests.support.session.wait import wait_until

_TIMEOUT_S = 30.0
# `status` opens both clusters anew each time.
_POLL_S = 0.2


def committed(replica: Replica) -> dict[TopicPartition, CommittedOffset]:
    """Return the flow's progress."""
    source, target = open_clusters(replica.flow.watch.flow)
    with source, target:
        return target.retry(lambda: target.committed(names.progress_group(replica.name), None))


def entry(replica: Replica, topic: str) -> dict[str, Any]:
    """Return what status says about a topic, empty when it says nothing."""
    entries: dict[str, dict[str, Any]] = {t["topic"]: t for t in replica.flow.status()["topics"]}
    return entries.get(topic, {})


def caught_up(replica: Replica, topic: str) -> bool:
    """Tell whether all partitions of a topic are enrolled and copied."""
    partitions = [p for p in replica.flow.status()["partitions"] if p["topic"] == topic]
    return bool(partitions) and all(p["lag_offsets"] == 0 for p in partitions)


def until_caught_up(replica: Replica, topic: str) -> None:
    """Wait until a topic is copied."""
    wait_until(lambda: caught_up(replica, topic), _TIMEOUT_S, f"{topic} is copied", poll_s=_POLL_S)


def overrides(client: Mapping[str, str], topic: str) -> dict[str, str]:
    """Return what is set on a topic itself."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(dict(client))
    entries = admin.describe_configs([resource])[resource].result(_TIMEOUT_S)
    return {name: e.value for name, e in entries.items() if e.source == 1}


def remove_config(client: Mapping[str, str], topic: str, key: str) -> None:
    """Remove an override; return when the broker shows none."""
    gone = ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[gone])
    admin = AdminClient(dict(client))
    admin.incremental_alter_configs([resource])[resource].result(_TIMEOUT_S)
    wait_until(lambda: key not in overrides(client, topic), _TIMEOUT_S, f"{topic} has no {key} of its own")


def test_a_topic_leaves_and_returns_while_the_flow_runs(
    replica: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    """The file is changed, nothing is restarted; it resumes from its progress and not from its start."""
    stays, leaves = replica.topic("stays"), replica.topic("leaves")
    for topic in (stays, leaves):
        replica.source.plain(topic, 0, replica.source.records(5))
    with replica.running() as live:
        until_caught_up(replica, leaves)
        before = committed(replica)[TopicPartition(leaves, 0)].offset
        caplog.set_level(logging.INFO, logger="onceover.copy.lane")
        replica.configure(topics={"exclude": [f"{replica.name}[.]leaves"]})
        replica.write_flow()
        wait_until(lambda: "partitions have changed" in caplog.text, _TIMEOUT_S, "its lane leaves it alone")
        assert not any(p["topic"] == leaves for p in replica.flow.status()["partitions"])
        replica.source.plain(leaves, 0, replica.source.records(3))
        replica.source.plain(stays, 0, replica.source.records(3))
        until_caught_up(replica, stays)
        assert len(replica.target_records(leaves)) == 5
        assert committed(replica)[TopicPartition(leaves, 0)].offset == before
        replica.flow.watch.current()
        assert (entry(replica, leaves)["in"], entry(replica, leaves)["reason"]) == (
            False,
            f"exclude: {replica.name}[.]leaves",
        )
        replica.configure(topics={"exclude": []})
        replica.write_flow()
        until_caught_up(replica, leaves)
        assert entry(replica, leaves)["in"]
    assert live.records == 16
    replica.assert_same()


def test_a_topic_that_left_keeps_its_progress_over_a_restart(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lane commits it again, as it is: the offsets of an idle group would expire."""
    topic = replica.topic("kept", partitions=2)
    replica.topic("other")
    replica.source.plain(topic, 0, replica.source.records(4))
    replica.copy()
    before = committed(replica)
    replica.configure(topics={"exclude": [topic.replace(".", "[.]")]})
    replica.write_flow()
    renewed: set[TopicPartition] = set()
    original = CopyLoop.claim

    def spy(loop: CopyLoop) -> None:
        renewed.update(loop.resting)
        original(loop)

    monkeypatch.setattr(CopyLoop, "claim", spy)
    assert replica.copy().records == 0
    assert renewed == {(topic, 0), (topic, 1)}
    after = committed(replica)
    assert {tp: after[tp] for tp in before if tp.topic == topic} == {
        tp: offset for tp, offset in before.items() if tp.topic == topic
    }
    replica.source.plain(topic, 0, replica.source.records(2))
    replica.configure(topics={"exclude": []})
    replica.write_flow()
    assert replica.copy().records == 2
    replica.assert_same()


def test_a_topic_born_and_deleted_during_a_run(replica: Replica, capsys: pytest.CaptureFixture[str]) -> None:
    """Its partitions stop with a message, the others go on; once the filter leaves it out, all is well."""
    stays = replica.topic("stays")
    with replica.running():
        born = replica.topic("born", partitions=2)
        replica.source.plain(born, 0, replica.source.records(5))
        until_caught_up(replica, born)
        delete_topics(replica.source_client, [born])
        wait_until(
            lambda: replica.stop_of(born).get("code") == "SOURCE_MISSING",
            _TIMEOUT_S,
            "the deletion is noticed",
            poll_s=_POLL_S,
        )
        replica.source.plain(stays, 0, replica.source.records(5))
        until_caught_up(replica, stays)
        assert replica.command(capsys, "status", str(replica.flow.path))[0] == 3
        replica.configure(topics={"exclude": [".*[.]born"]})
        replica.write_flow()
        wait_until(
            lambda: replica.command(capsys, "status", str(replica.flow.path))[0] == 0,
            _TIMEOUT_S,
            "nothing is left to decide",
            poll_s=_POLL_S,
        )
    replica.assert_same(stays)


def test_prefixed_copies_grow_under_load(replica: Replica) -> None:
    """Partitions added while producers write: each new one is copied from its first record."""
    replica.configure(topics={"naming": "prefix"})
    topic = replica.topic("growing", partitions=2, config={"max.message.bytes": "2000000"})
    with (
        replica.running(),
        Traffic(replica.source.bootstrap, {topic: 2}, seed=5, pause_s=0.02) as traffic,
    ):
        wait_until(lambda: traffic.total > 50, _TIMEOUT_S, "traffic flows")
        replica.source.add_partitions(topic, 4)
        for partition in (2, 3):
            replica.source.plain(topic, partition, replica.source.records(7))
        wait_until(
            lambda: (
                len(entries := replica.flow.status()["partitions"]) == 4
                and all(p["position"] for p in entries if p["partition"] in (2, 3))
            ),
            _TIMEOUT_S,
            "the new partitions are copied",
            poll_s=_POLL_S,
        )
    replica.copy()
    assert replica.partition_status(topic)["target_topic"] == f"east.{topic}"
    assert overrides(replica.target_client, f"east.{topic}")["max.message.bytes"] == "2000000"
    assert_same(replica.source_client, replica.target_client, {topic: f"east.{topic}"})


def test_configuration_follows_the_source(replica: Replica) -> None:
    """Set, changed, removed; never what depends on the cluster, never what an operator has set there."""
    topic = replica.topic("conf", config={"retention.ms": "700000000", "min.insync.replicas": "1"})
    theirs = replica.topic("theirs", config={"retention.ms": "700000000"})
    replica.target_topic(theirs, config={"retention.ms": "800000000"})
    target = replica.target_client
    with replica.running():
        # Broker defaults are not frozen: the source's own settings, and that records keep their timestamps.
        assert overrides(target, topic) == {
            "retention.ms": "700000000",
            "message.timestamp.type": "CreateTime",
        }
        alter_config(target, topic, {"max.message.bytes": "3000000", "min.insync.replicas": "1"})
        alter_config(replica.source_client, topic, {"retention.ms": "600000000", "segment.ms": "500000"})
        wait_until(
            lambda: overrides(target, topic).get("segment.ms") == "500000", _TIMEOUT_S, "it is followed"
        )
        remove_config(replica.source_client, topic, "segment.ms")
        wait_until(lambda: "segment.ms" not in overrides(target, topic), _TIMEOUT_S, "it is removed")
        seen = overrides(target, topic)
        assert (seen["retention.ms"], seen["max.message.bytes"]) == ("600000000", "3000000")
        assert overrides(target, theirs)["retention.ms"] == "800000000"
        notes = replica.flow.status()["notes"]
    assert [(n["object"], n["code"]) for n in notes] == [(theirs, "NOT_MANAGED")]
    assert not [p for p in replica.flow.status()["partitions"] if p["stop"]]


def test_a_record_that_came_before_its_wider_limit_is_copied_without_anybody(replica: Replica) -> None:
    """The source's limit is raised and used at once; the copy's follows at the next look, and is too late."""
    topic = replica.topic("wider", config={"max.message.bytes": "1048588"})
    replica.source.plain(topic, 0, replica.source.records(3))
    replica.configure(topics={"discovery_interval": "4s"})
    with replica.running():
        until_caught_up(replica, topic)
        alter_config(replica.source_client, topic, {"max.message.bytes": "5000000"})
        replica.source.plain(topic, 0, replica.source.records(1, value=b"x" * 2_500_000))
        wait_until(lambda: bool(replica.stop_of(topic)), _TIMEOUT_S, "its lane stops it", poll_s=_POLL_S)
        assert replica.stop_of(topic)["code"] == "RECORD_TOO_LARGE"
        until_caught_up(replica, topic)
        assert not replica.stop_of(topic)
    replica.assert_same()


def test_a_key_that_the_target_refuses_is_left_out(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target is older, or has a policy of its own: the topic is created with the rest."""
    topic = replica.topic("odd", config={"retention.ms": "700000000"})
    replica.source.plain(topic, 0, replica.source.records(3))
    original = Admin.topic_configs

    def with_odd_key(admin: Admin, topics: Any, **asked: Any) -> Any:
        found = original(admin, topics, **asked)
        for own in found.overrides.values():
            if "retention.ms" in own and isinstance(own, dict):
                own["odd.key"] = "1"
        # As if neither cluster told its keys: what a flow sees that knows no topic of the target.
        object.__setattr__(found, "keys", frozenset())
        return found

    monkeypatch.setattr(Admin, "topic_configs", with_odd_key)
    assert replica.copy().records == 3
    assert overrides(replica.target_client, topic)["retention.ms"] == "700000000"
    assert "odd.key" not in overrides(replica.target_client, topic)


def test_status_and_explain_agree(replica: Replica, capsys: pytest.CaptureFixture[str]) -> None:
    """Every topic of the source is there, with the pattern that decides."""
    inside, outside = replica.topic("in"), replica.topic("out")
    replica.configure(topics={"exclude": [".*out"]})
    replica.copy()
    _, document = replica.command(capsys, "status", str(replica.flow.path))
    seen = {t["topic"]: t for t in document["flows"][0]["topics"]}
    assert not [topic for topic in seen if topic.startswith("__")]
    arguments = [word for topic in (inside, outside) for word in ("--explain", topic)]
    _, checked = replica.command(capsys, "flow", "check", str(replica.flow.path), *arguments)
    for told, shown in zip(checked["topics"], [seen[inside], seen[outside]], strict=True):
        assert told == {key: shown[key] for key in told}
    assert [t["in"] for t in checked["topics"]] == [True, False]


def test_filter_that_reaches_nothing_is_told_everywhere(
    replica: Replica, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The run's log, ``status``, ``topics plan`` and ``flow check --explain`` name the pattern."""
    misspelt = replica.topic("in") + "-misspelt"
    replica.configure(topics={"include": [misspelt]})
    replica.copy()
    assert [
        (r.levelname, misspelt in r.getMessage()) for r in caplog.records if "in scope" in r.getMessage()
    ] == [("WARNING", True)]
    path = str(replica.flow.path)
    _, document = replica.command(capsys, "status", path)
    assert [note["code"] for note in document["flows"][0]["notes"]] == ["NOTHING_IN_SCOPE"]
    _, planned = replica.command(capsys, "topics", "plan", path)
    assert [each["code"] for each in planned["refused"]] == ["NOTHING_IN_SCOPE"]
    _, checked = replica.command(capsys, "flow", "check", path, "--explain")
    assert any(misspelt in warning for warning in checked["warnings"])
    assert len(checked["topics"]) > 0 and not any(topic["in"] for topic in checked["topics"])


def test_a_changed_flow_file_counts_at_once(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when only the interval is new; an unchanged one waits until the interval is over."""
    replica.topic()
    replica.configure(topics={"discovery_interval": "1h"})
    with replica.flow.running() as (lead, _):
        looked: list[float] = []
        original = lead.discover

        def spy() -> object:
            looked.append(lead._scope().interval_s)
            return original()

        monkeypatch.setattr(lead, "discover", spy)
        for _ in range(3):
            lead.tick()
        assert looked == []
        replica.configure(topics={"discovery_interval": "30m"})
        replica.write_flow()
        lead.tick()
        replica.configure(topics={"discovery_interval": "30m", "exclude": ["x"]})
        replica.write_flow()
        lead.tick()
        lead.tick()
        assert looked == [1800.0, 1800.0]
        lead.end()
