"""Groups far behind: what they read again after moving, with Onceover and with the real MirrorMaker 2.

Every record's value is its number, so what a group reads first on the other side says how many records it
reads again. The table in docs/groups.md is what the last test prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from onceover.wiring.groups import GroupRequest
from onceover_lab.embed.mirrormaker import MirrorMaker
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.groups import commit_all, committed_all
from tests.support.flows.operations import apply_groups
from tests.support.flows.replica import Replica
from tests.support.session.wait import wait_until

pytestmark = pytest.mark.timeout(900)

MILLION: Final = 1_000_000
MIRRORED: Final = 600_000
LAGS: Final = (0, 100, 10_000, 100_000, 500_000)
_TIMEOUT_S = 300.0
# MirrorMaker keeps one sample in so many offsets at best; all that matters is that it is done with them.
_QUIET_LOOKS: Final = 5
_LOOK_S: Final = 2.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals and indexes of the test's own."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))


def produce(client: Mapping[str, str], topic: str, start: int, end: int) -> None:
    """Write records ``start`` to ``end`` (exclusive), numbered, into the only partition."""
    settings = {"linger.ms": 20, "compression.type": "lz4", "queue.buffering.max.messages": 500_000}
    producer = Producer({**client, **settings, "enable.idempotence": True})
    for number in range(start, end):
        while True:
            try:
                producer.produce(topic, b"%d" % number, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(_TIMEOUT_S) == 0


def number_at(client: Mapping[str, str], topic: str, offset: int, end: int) -> int:
    """Return the number of the first record at or after an offset; ``end`` where there is none."""
    consumer = Consumer(
        {
            **client,
            "group.id": "never-joined",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        message = consumer.poll(_TIMEOUT_S)
        assert message is not None
        if message.error() is not None:
            assert message.error().code() == -191, message.error()
            return end
        return int(message.value())
    finally:
        consumer.close()


def read_again(client: Mapping[str, str], topic: str, groups: Mapping[str, int], end: int) -> dict[str, int]:
    """Return for each group, last processed record before ``groups[name]``, how many records it repeats.

    Negative: skipped.
    """
    found = committed_all(client, topic, groups)
    return {
        name: wanted - number_at(client, topic, found[name][0][0], end) for name, wanted in groups.items()
    }


def test_a_million_records_behind_nothing_is_read_again_or_skipped(replica: Replica) -> None:
    """Copied in many transactions, at arbitrary places, the very first and the end included."""
    topic = replica.topic()
    produce(replica.source_client, topic, 0, MILLION)
    replica.copy()
    places = (0, 1, 2, 4_711, 137_000, 499_999, 500_000, 999_998, 999_999, MILLION)
    groups = {f"{replica.name}-{place}": place for place in places}
    commit_all(replica.source_client, topic, {name: {0: place} for name, place in groups.items()})
    request = GroupRequest(patterns=[f"{replica.name}-.*"])
    assert apply_groups(replica.flow.watch.flow, request).exit_code == 0
    again = read_again(replica.target_client, topic, groups, MILLION)
    assert again == dict.fromkeys(groups, 0)


@pytest.mark.soak
def test_records_read_again_beside_mirrormaker(
    replica: Replica, tmp_path: Path, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> None:
    """Both copy the same topic; both move the same groups; MirrorMaker as it is configured by default."""
    topic = replica.topic()
    groups = {f"{replica.name}-lag-{lag}": MIRRORED - lag for lag in LAGS}
    flow = "source->target"
    properties = {
        f"{flow}.sync.group.offsets.enabled": "true",
        f"{flow}.sync.group.offsets.interval.seconds": "1",
        f"{flow}.emit.checkpoints.interval.seconds": "1",
        f"{flow}.refresh.groups.interval.seconds": "1",
        f"{flow}.groups": f"{replica.name}-.*",
        "emit.heartbeats.enabled": "false",
        "sync.topic.acls.enabled": "false",
    }
    bootstraps = source_cluster.bootstrap, target_cluster.bootstrap
    mirrored = f"source.{topic}"
    with MirrorMaker.start(tmp_path / "mm2", *bootstraps, [topic], properties=properties):
        produce(replica.source_client, topic, 0, 1)
        wait_until(lambda: mirrored_up_to(replica, mirrored, 1), _TIMEOUT_S, "MirrorMaker copies")
        for start in range(1, MIRRORED, 50_000):
            produce(replica.source_client, topic, start, min(start + 50_000, MIRRORED))
        wait_until(lambda: mirrored_up_to(replica, mirrored, MIRRORED), _TIMEOUT_S, "MirrorMaker is done")
        commit_all(replica.source_client, topic, {name: {0: place} for name, place in groups.items()})
        await_quiet(replica, mirrored, groups)
    theirs = read_again(replica.target_client, mirrored, groups, MIRRORED)
    replica.copy()
    request = GroupRequest(patterns=[f"{replica.name}-.*"])
    apply_groups(replica.flow.watch.flow, request)
    ours = read_again(replica.target_client, topic, groups, MIRRORED)
    print("| lag | Onceover | MirrorMaker 2 |")  # noqa: T201 - what the test is run for
    for lag, name in zip(LAGS, groups, strict=True):
        print(f"| {lag} | {ours[name]} | {theirs[name]} |")  # noqa: T201
    assert set(ours.values()) == {0}
    assert max(theirs.values()) > 0, "MirrorMaker has learned to translate exactly: say so in the docs"


def mirrored_up_to(replica: Replica, topic: str, count: int) -> bool:
    """Tell whether MirrorMaker has written so many records."""
    consumer = Consumer({**replica.target_client, "group.id": "never-joined"})
    try:
        if topic not in consumer.list_topics(timeout=_TIMEOUT_S).topics:
            return False
        return bool(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_TIMEOUT_S)[1] >= count)
    finally:
        consumer.close()


def await_quiet(replica: Replica, topic: str, groups: Mapping[str, int]) -> None:
    """Wait until MirrorMaker has moved every group and moves none any more."""
    looks: list[object] = []

    def quiet() -> bool:
        found = committed_all(replica.target_client, topic, groups)
        looks.append(found)
        recent = looks[-_QUIET_LOOKS:]
        return all(found.values()) and len(recent) == _QUIET_LOOKS and all(look == found for look in recent)

    wait_until(quiet, _TIMEOUT_S, "MirrorMaker has moved the groups", poll_s=_LOOK_S)
