"""Many groups: a look takes as many requests as there are logs and coordinators, not as there are groups."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from onceover.config.clients.resolve import ClientConfig
from onceover.errors import Retriable
from onceover.groups.settle import offsets_partition
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.groups.admin import GroupAdmin
from onceover.kafka.link.connection import Connection
from onceover.model import TopicPartition as Place
from onceover_lab.embed.kafka import start_all
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.brokers.proxy import Proxy
from tests.support.flows.groups import commit_all
from tests.support.flows.replica import Replica
from tests.support.session.wait import wait_until

DONE = 0
_TIMEOUT_S = 120.0
Capture = pytest.CaptureFixture[str]
# Metadata, the state, the map, the memory: what a look takes however many groups there are.
_ANY = 120


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many requests of each kind have left this process."""
    counted: Counter[str] = Counter()
    send = Connection.send

    def counting(connection: Connection, request: Any, *rest: Any, **named: Any) -> None:
        counted[type(request).__name__.removesuffix("Request")] += 1
        send(connection, request, *rest, **named)

    monkeypatch.setattr(Connection, "send", counting)
    return counted


def seed(client: Mapping[str, str], groups: Mapping[str, Sequence[Place]]) -> None:
    """Commit offset 1 for many groups."""
    with LiveCluster(ClientConfig("seed", dict(client))) as cluster:
        writes = {group: {tp: OffsetToCommit(1, -1, "") for tp in tps} for group, tps in groups.items()}
        assert GroupAdmin(cluster, retry_s=_TIMEOUT_S).each_commit(writes) == {}


def run(replica: Replica, capsys: Capture, action: str, *options: str) -> dict[str, Any]:
    mine = ["--group", f"{replica.name}-.*", *options]
    code, document = replica.command(capsys, "groups", action, str(replica.flow.path), *mine)
    assert code == DONE, document["refused"][:3]
    return document


def test_hundreds_of_groups_take_dozens_of_requests_and_one_commit_each(
    replica: Replica, capsys: Capture, requests: Counter[str]
) -> None:
    partitions, count = 5, 300
    topic = replica.topic(partitions=partitions)
    for partition in range(partitions):
        replica.source.plain(topic, partition, replica.source.records(3))
    replica.copy()
    places = [Place(topic, p) for p in range(partitions)]
    seed(replica.source_client, {f"{replica.name}-{number}": places for number in range(count)})
    requests.clear()
    assert len(run(replica, capsys, "plan")["changes"]) == count * partitions
    assert requests["OffsetFetch"] < 20
    assert requests.total() < _ANY + 20
    requests.clear()
    assert run(replica, capsys, "apply")["changes_made"] == count * partitions
    assert requests["OffsetCommit"] == count
    assert requests.total() - count < 2 * _ANY
    requests.clear()
    assert run(replica, capsys, "apply")["changes"] == []
    assert requests["OffsetCommit"] == 0


def test_groups_behind_the_last_marker_go_back_without_a_request_for_each_partition(
    replica: Replica, capsys: Capture, requests: Counter[str]
) -> None:
    """Where readers of committed records stand that have read all: what lies there is asked for together."""
    partitions = 40
    topic = replica.topic(partitions=partitions)
    for partition in range(partitions):
        replica.source.plain(topic, partition, replica.source.records(3))
    replica.copy()
    name = f"{replica.name}-reader"
    ends = {p: 1 + max(replica.target_records(topic, p)) for p in range(partitions)}
    commit_all(replica.target_client, topic, {name: {p: end + 1 for p, end in ends.items()}})
    requests.clear()
    changes = run(replica, capsys, "plan", "--direction", "failback")["changes"]
    assert [change["to"] for change in changes] == [3] * partitions
    assert requests.total() < _ANY


def test_groups_are_kept_where_we_believe_them_to_be(replica: Replica, target_cluster: SharedCluster) -> None:
    """By what the broker's own topic of offsets holds in which partition."""
    topic = replica.topic()
    replica.target_topic(topic)
    names = [f"{replica.name}-{number}\u00e4\U0001f600" for number in range(20)]
    commit_all(target_cluster.client, topic, {name: {0: 0} for name in names})
    found = dict[str, int]()
    settings = {"group.id": f"{replica.name}-looks", "auto.offset.reset": "earliest"}
    consumer = Consumer({**target_cluster.client, **settings, "enable.auto.commit": False})
    try:
        known = consumer.list_topics("__consumer_offsets", _TIMEOUT_S).topics["__consumer_offsets"]
        count = len(known.partitions)
        consumer.assign([TopicPartition("__consumer_offsets", p, 0) for p in range(count)])

        def all_found() -> bool:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None and message.key() is not None:
                found.update({n: message.partition() for n in names if n.encode() in message.key()})
            return len(found) == len(names)

        wait_until(all_found, _TIMEOUT_S, "each group is met", poll_s=0.0)
    finally:
        consumer.close()
    assert found == {name: offsets_partition(name, count) for name in names}


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("delay_ms", [0, 50])
def test_thousands_of_groups_over_a_thousand_partitions(
    session_home: Path,
    tmp_path: Path,
    unique_name: str,
    capsys: Capture,
    requests: Counter[str],
    delay_ms: int,
) -> None:
    """Both clusters behind proxies, which delay each round trip; counts are asserted, times are printed."""
    topics, partitions, count, each = 10, 100, 5000, 4
    factory = ClusterFactory(session_home)
    with ExitStack() as stack:
        stack.callback(factory.close)
        near, far = stack.enter_context(Proxy()), stack.enter_context(Proxy())
        starters = [
            _starter(factory, f"many-{side}-{delay_ms}", proxy) for side, proxy in (("s", near), ("t", far))
        ]
        source, target = start_all(starters)
        for cluster, proxy in ((source, near), (target, far)):
            proxy.upstream = cluster.nodes[0].ports.client
        inside = (source.internal_bootstrap, target.internal_bootstrap)
        replica = stack.enter_context(
            Replica(tmp_path, unique_name, source.client, target.client, unsecured=inside)
        )
        names = [f"{unique_name}.{number}" for number in range(topics)]
        client = AdminClient(source.client)
        new = [NewTopic(name, partitions, 1, config={"retention.ms": "-1"}) for name in names]
        for made in client.create_topics(new).values():
            made.result(_TIMEOUT_S)
        producer = Producer(source.client)
        places = [Place(name, p) for name in names for p in range(partitions)]
        for place in places:
            producer.produce(place.topic, b"x", partition=place.partition)
            producer.poll(0)
        assert producer.flush(_TIMEOUT_S) == 0
        wait_until(lambda: copied(replica), _TIMEOUT_S, "all is copied")
        groups = {
            f"{unique_name}-{n}": [places[(n * each + k) % len(places)] for k in range(each)]
            for n in range(count)
        }
        seed(source.client, groups)
        near.delay_s = far.delay_s = delay_ms / 2000
        took: dict[str, float] = {}
        for action, wanted in (("plan", 60), ("apply", 120), ("again", 60)):
            requests.clear()
            begun_s = time.monotonic()
            document = run(replica, capsys, "plan" if action == "plan" else "apply")
            took[action] = round(time.monotonic() - begun_s, 1)
            assert len(document["changes"]) == (0 if action == "again" else count * each)
            assert requests["OffsetCommit"] == (count if action == "apply" else 0)
            assert requests.total() - requests["OffsetCommit"] < 8 * wanted, requests
        with capsys.disabled():
            sys.stdout.write(
                f"{count} groups, {len(places)} partitions, {delay_ms} ms: {json.dumps(took)} s\n"
            )


def copied(replica: Replica) -> bool:
    """Copy; False while some of a thousand new partitions have no leader yet."""
    try:
        replica.copy()
    except Retriable:
        return False
    return True


def _starter(factory: ClusterFactory, name: str, proxy: Proxy) -> Callable[[], Any]:
    return lambda: factory(name, advertised=[proxy.port])
