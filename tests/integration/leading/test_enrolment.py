"""How topics become part of a flow: where they start, what they are created with, how they grow."""

from __future__ import annotations

from functools import partial
from threading import Timer
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from onceover.kafka.calls import CommittedOffset
from onceover.lead.ends import EndCheck
from onceover.lead.enroller import Enroller
from onceover.model import TopicPartition
from onceover.state import names
from onceover.wiring.flows import open_clusters
from tests.support.flows.replica import Replica, delete_topics, topic_config
from tests.support.flows.waysout import APPLY, commands
from tests.support.raw.adversary import EPOCH_MS, Traffic
from tests.support.raw.rawkafka import Codec
from tests.support.session.wait import wait_until

_TIMEOUT_S = 30.0
# `status` opens both clusters anew each time.
_POLL_S = 0.2


def committed(replica: Replica) -> dict[TopicPartition, CommittedOffset]:
    """Return the flow's progress."""
    source, target = open_clusters(replica.flow.watch.flow)
    with source, target:
        return target.committed(names.progress_group(replica.name), None)


def on_target(replica: Replica) -> set[str]:
    """Return the target's topics that carry the flow's name."""
    topics = AdminClient(replica.target_client).list_topics(timeout=_TIMEOUT_S).topics
    return {topic for topic in topics if replica.name in topic and not topic.startswith("__")}


def caught_up(replica: Replica) -> bool:
    """Tell whether nothing is left to copy."""
    return bool(replica.flow.status()["lag_offsets"] == 0)


@pytest.mark.parametrize(
    ("start", "kept"),
    [
        pytest.param("earliest", range(10), marks=pytest.mark.soak),
        pytest.param("latest", (), marks=pytest.mark.soak),
        ("timestamp:2024-01-01T00:00:07Z", (7, 8, 9)),
    ],
)
def test_the_start_is_decided_once(replica: Replica, start: str, kept: range | tuple[int, ...]) -> None:
    """Earliest, latest or a time: for the first topics only; what comes later is copied from its start."""
    topic = replica.topic()
    first = [replica.source.record(timestamp_ms=EPOCH_MS + 1000 * n) for n in range(10)]
    replica.source.plain(topic, 0, first, Codec.GZIP)
    replica.configure(topics={"start": start})
    assert replica.copy().records == len(kept)
    later = replica.topic("later")
    replica.source.add_partitions(topic, 2)
    second = replica.source.records(2)
    for name, partition in ((topic, 0), (topic, 1), (later, 0)):
        replica.source.plain(name, partition, second)
    assert replica.copy().records == 6
    source = replica.source_records(topic)
    expected = [source[offset] for offset in (*kept, 10, 11)]
    assert list(replica.target_records(topic).values()) == expected
    assert len(replica.target_records(topic, 1)) == 2
    replica.assert_same(later)


def test_a_topic_born_during_a_run_is_copied_from_its_first_record(replica: Replica) -> None:
    """Created with the source's configuration before the first record: old ones would expire otherwise."""
    own = {
        "retention.ms": "-1",
        "max.message.bytes": "2000000",
        "cleanup.policy": "compact",
        "min.insync.replicas": "1",
        "message.timestamp.type": "LogAppendTime",
    }
    replica.topic("old")
    with replica.running() as live:
        topic = replica.topic("born", partitions=3, config=own)
        for partition in range(3):
            replica.source.plain(topic, partition, replica.source.records(5, key=b"k"))
        wait_until(lambda: topic in on_target(replica), _TIMEOUT_S, "the topic is created")
        wait_until(
            lambda: live_position(replica, topic) == 15, _TIMEOUT_S, "its records are copied", poll_s=_POLL_S
        )
    assert live.records == 15
    replica.assert_same(topic)
    seen = topic_config(replica.target_client, topic)
    for key in ("retention.ms", "max.message.bytes", "cleanup.policy"):
        assert seen[key] == own[key]
    # With the source's, the target would overwrite every timestamp.
    assert seen["message.timestamp.type"] == "CreateTime"


def live_position(replica: Replica, topic: str) -> int:
    """Return the sum of a topic's positions, -1 while it is not enrolled."""
    entries = [p for p in replica.flow.status()["partitions"] if p["topic"] == topic]
    return sum(p["position"] or 0 for p in entries) if entries else -1


def test_a_topic_that_was_taken_in_a_moment_ago_is_one_that_a_run_up_to_caught_up_copies(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its enrolment is committed and cannot be read yet: the run's end was what could be, and left it out."""
    somebody = Producer({**replica.target_client, "transactional.id": f"{replica.name}-somebody"})
    somebody.init_transactions(_TIMEOUT_S)
    real = Enroller.enrol

    def enrol(enroller: Enroller, *arguments: Any) -> Any:
        somebody.begin_transaction()
        somebody.produce(names.state_topic(replica.name), b"v", b"k", partition=names.STATE_LEADER)
        somebody.flush(_TIMEOUT_S)
        return real(enroller, *arguments)

    with replica.flow.running() as (lead, layout):
        later = replica.topic("later")
        replica.source.plain(later, 0, replica.source.records(5))
        monkeypatch.setattr(Enroller, "enrol", enrol)
        assert lead.discover().enrol
        check = EndCheck(replica.name, layout.run)
        check.open(*open_clusters(replica.flow.watch.flow))
        over = Timer(1.0, somebody.abort_transaction)
        over.start()
        try:
            assert check.ends() == {TopicPartition(later, 0): 5}
        finally:
            over.join()
            check.close()


@pytest.mark.soak
def test_partitions_that_are_added_under_load(replica: Replica) -> None:
    """Growth is followed within a run; nothing is lost, also what was written before we noticed."""
    topic = replica.topic("growing", partitions=2)
    with (
        replica.running() as live,
        Traffic(replica.source.bootstrap, {topic: 2}, seed=3, pause_s=0.02) as traffic,
    ):
        wait_until(lambda: traffic.total > 50, _TIMEOUT_S, "traffic flows")
        replica.source.add_partitions(topic, 5)
        for partition in range(2, 5):
            replica.source.every_null_and_empty(topic, partition)
        wait_until(
            lambda: copied(replica, topic, range(2, 5)),
            _TIMEOUT_S,
            "the new partitions are copied",
            poll_s=_POLL_S,
        )
    rest = replica.copy().records
    replica.assert_same()
    assert live.records + rest == sum(len(replica.target_records(topic, p)) for p in range(5))


def copied(replica: Replica, topic: str, partitions: range) -> bool:
    """Tell whether these partitions are enrolled and caught up."""
    entries = {(p["topic"], p["partition"]): p for p in replica.flow.status()["partitions"]}
    return all(
        (entry := entries.get((topic, number))) is not None and entry["lag_offsets"] == 0
        for number in partitions
    )


def test_growth_leaves_the_other_partitions_progress_alone(replica: Replica) -> None:
    """Offsets written again at enrolment would take a lane's progress back."""
    topic = replica.topic(partitions=2)
    for partition in (0, 1):
        replica.source.plain(topic, partition, replica.source.records(5))
    replica.copy()
    before = committed(replica)
    replica.source.add_partitions(topic, 3)
    source, target = open_clusters(replica.flow.watch.flow)
    with source, target, replica.flow.running() as (lead, _):
        after = committed(replica)
        lead.end()
    new = TopicPartition(topic, 2)
    assert after.pop(new).offset == 0
    assert after == before


def test_partitions_that_are_added_are_not_mixed_with_what_others_wrote(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """The target was grown before, and written to: as refused as a new topic, and as easily settled."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(5))
    assert replica.copy().records == 5
    replica.target.add_partitions(topic, 3)
    replica.target.plain(topic, 1, replica.target.records(7))
    replica.source.add_partitions(topic, 3)
    for partition in range(3):
        replica.source.plain(topic, partition, replica.source.records(4))
    assert replica.copy().records == 4

    code, document = replica.command(capsys, "status", str(replica.flow.path))
    refused = [p for p in document["flows"][0]["partitions"] if p["state"] == "not_enrolled"]
    assert code == 3
    assert {(p["topic"], p["stop"]["code"]) for p in refused if p["stop"]} == {(topic, "TARGET_NOT_EMPTY")}, (
        refused
    )
    assert [len(replica.target_records(topic, p)) for p in range(3)] == [9, 7, 0]
    delete_topics(replica.target_client, [topic])
    replica.copy()
    (way,) = commands(replica.stop_of(topic)["resolve"])
    way.run(capsys, APPLY)
    assert replica.copy().records == 17
    replica.assert_same()
    assert replica.command(capsys, "status", str(replica.flow.path))[0] == 0


def test_internal_topics_are_never_copied(replica: Replica) -> None:
    """Whatever the filter says: Kafka's, Connect's, MirrorMaker's and our own stay where they are."""
    topic = replica.topic()
    internal = [f"__{replica.name}", f"mm2-{replica.name}.internal", f"{replica.name}.checkpoints.internal"]
    for name in internal:
        replica.source.create_topic(name)
        replica.source.plain(name, 0, replica.source.records(2))
    replica.source.plain(topic, 0, replica.source.records(2))
    replica.configure(
        topics={"include": [f".*{replica.name}.*", "__consumer_offsets", "__transaction_state"]}
    )
    assert replica.copy().records == 2
    assert on_target(replica) == {topic}
    assert {p["topic"] for p in replica.flow.status()["partitions"]} == {topic}


def test_an_empty_target_topic_with_another_partition_count_is_refused(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records would change their partition; an empty one with the same count is taken as it is."""
    wrong, right = replica.topic("wrong", partitions=2), replica.topic("right", partitions=2)
    replica.target_topic(wrong, partitions=3)
    replica.target_topic(right, partitions=2, config={"compression.type": "zstd"})
    for topic in (wrong, right):
        replica.source.plain(topic, 1, replica.source.records(4))
    assert replica.copy().records == 4
    code, document = replica.command(capsys, "status", str(replica.flow.path))
    refused = [p for p in document["flows"][0]["partitions"] if p["state"] == "not_enrolled"]
    assert code == 3
    assert [(p["topic"], p["stop"]["code"]) for p in refused] == [(wrong, "PARTITION_COUNT")]
    assert not replica.target_records(wrong)
    replica.assert_same(right)
    assert topic_config(replica.target_client, right)["compression.type"] == "zstd"


@pytest.mark.soak
def test_two_flows_side_by_side_do_not_meet(replica: Replica) -> None:
    """One source, one target, two flows at once, each with its own topics, progress and generations."""
    name = f"{replica.name[:-1]}x"
    folder = replica.flow.path.parent
    mine = replica.topic("mine", partitions=2)
    with Replica(folder, name, replica.source_client, replica.target_client) as second:
        yours = second.topic("yours", partitions=2)
        with replica.running() as one, second.running() as two:
            for number in range(6):
                for side, topic in ((replica, mine), (second, yours)):
                    side.source.plain(topic, number % 2, side.source.records(3))
            for side in (replica, second):
                wait_until(partial(caught_up, side), _TIMEOUT_S, "all is copied", poll_s=_POLL_S)
        assert (one.records, two.records) == (18, 18)
        assert set(committed(replica)) == {(mine, 0), (mine, 1)}
        assert set(committed(second)) == {(yours, 0), (yours, 1)}
        second.assert_same()
    replica.assert_same()
