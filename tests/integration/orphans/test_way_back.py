"""Where a flow the other way begins: what its topics have become meanwhile is looked at."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from onceover import model as ours
from onceover.state import names
from onceover.wiring.flows import open_clusters
from tests.support.drills.orphaned import DECIDE, DONE, USAGE, Capture, Orphaned
from tests.support.drills.switching import step_of
from tests.support.flows.flows import assert_same
from tests.support.flows.groups import delete_group
from tests.support.flows.replica import delete_topics, read_records

_TIMEOUT_S = 30.0


def copied(replica: Orphaned, capsys: Capture) -> str:
    """Return a topic that was copied whole, and switched over."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    replica.switch_over(capsys)
    assert len(read_records(replica.target_client, topic)) == 10
    return topic


def refused(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["object"], each["code"]) for each in told["refused"]]


@pytest.mark.soak
def test_what_somebody_has_made_anew_and_left_empty_is_copied_whole(
    replica: Orphaned, capsys: Capture
) -> None:
    """A consumer that asks for its topic is enough. Behind the promotion nothing of before would come."""
    topic = copied(replica, capsys)
    delete_topics(replica.source_client, [topic])
    replica.source.create_topic(topic)
    back = replica.back()
    code, told = replica.seed_back(capsys, back)
    assert code == DONE, json.dumps(told, indent=1)
    back.copy()
    assert_same(replica.target_client, replica.source_client, [topic])
    assert len(read_records(replica.source_client, topic)) == 10


@pytest.mark.soak
def test_what_somebody_has_made_anew_and_written_to_is_not_gone_on_with(
    replica: Orphaned, capsys: Capture
) -> None:
    """However many records it has: they are others than those that were copied."""
    topic = copied(replica, capsys)
    delete_topics(replica.source_client, [topic])
    replica.source.create_topic(topic)
    replica.source.plain(topic, 0, replica.source.records(10))
    code, told = replica.seed_back(capsys, replica.back())
    assert (code, refused(told)) == (DECIDE, [(f"{topic}:0", "ORPHANS")])
    assert "another topic" in told["refused"][0]["message"]


@pytest.mark.soak
def test_progress_that_the_brokers_have_forgotten_is_known_from_the_promotion(
    replica: Orphaned, capsys: Capture
) -> None:
    """They forget that of a group without members after a week; what was written since is an orphan still."""
    topic = copied(replica, capsys)
    delete_group(replica.target_client, names.progress_group(replica.name))
    back = replica.back()
    replica.source.plain(topic, 0, replica.source.records(3))
    code, told = replica.seed_back(capsys, back)
    assert (code, refused(told)) == (DECIDE, [(f"{topic}:0", "ORPHANS")])
    assert "3 records from 10 on" in told["refused"][0]["message"]


def test_a_history_that_has_become_another_one_is_not_gone_on_with(
    replica: Orphaned, capsys: Capture
) -> None:
    """As after an unclean election, or a disk that was put back: as many records, and others."""
    topic = copied(replica, capsys)
    remember_another_batch(replica, topic)
    code, told = replica.seed_back(capsys, replica.back())
    assert (code, refused(told)) == (DECIDE, [(f"{topic}:0", "SOURCE_DIVERGED")])


def test_a_switchover_that_was_never_finished_is_over_once_clients_have_gone_back(
    replica: Orphaned, capsys: Capture
) -> None:
    """What is behind its promotion would bring them to a copy that lacks what they have written since."""
    topic, program = replica.topic(), replica.flow.path.with_name("switch")
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    program.write_text("#!/bin/sh\nexit 1\n")
    replica.name_reverse()
    switch = "drill", "run", str(replica.flow.path), "--approve", "--mode"
    code, told = replica.command(capsys, *switch, "unplanned")
    assert (code, step_of(told, "redirect")["error"]["code"]) == (DECIDE, "COMMAND_FAILED")
    program.write_text('#!/bin/sh\necho "$1 $ONCEOVER_FLOW" >> heard\n')
    back = replica.fail_back(capsys, topic)
    replica.source.plain(topic, 0, replica.source.records(7))
    for mode in ("planned", "unplanned"):
        code, told = replica.command(capsys, *switch, mode)
        assert (code, told["error"]["code"]) == (USAGE, "NOTHING_CHOSEN"), told
    assert f"seed apply {replica.name} --from promoted:{back.path.stem}" in told["error"]["resolve"]
    assert program.with_name("heard").read_text() == f"redirect {back.path.stem}\n"
    assert replica.command(capsys, "drill", "abort", str(replica.flow.path))[0] == DONE
    origin = f"promoted:{back.path}"
    seeded = replica.command(capsys, "seed", "apply", replica.name, "--from", origin, "--replace")
    assert seeded[0] == DONE, seeded
    replica.copy()
    assert_same(replica.source_client, replica.target_client, [topic])


def remember_another_batch(replica: Orphaned, topic: str) -> None:
    """Have the progress say that the last batch which was copied is another than the source holds now."""
    admin, group = AdminClient(replica.target_client), names.progress_group(replica.name)
    source, target = open_clusters(replica.flow.watch.flow)
    with source, target:
        committed = target.committed(group, None)[ours.TopicPartition(topic, 0)]
    beside = json.loads(committed.metadata or "")
    *place, crc = beside["batch"]
    beside["batch"] = [*place, crc ^ 1]
    written = TopicPartition(topic, 0, committed.offset, metadata=json.dumps(beside))
    changed = ConsumerGroupTopicPartitions(group, [written])
    admin.alter_consumer_group_offsets([changed])[group].result(_TIMEOUT_S)
