"""Whoever may write one flow's state, or part of a flow's own: what they can end by that, and what not."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any, Final
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from onceover.acls.kept import acl_key, acl_record
from onceover.config.clients.resolve import ClientConfig
from onceover.kafka.admin.acls import Acl, AclAdmin
from onceover.kafka.cluster import LiveCluster
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from tests.support.brokers.guarded import Pair, guarded_replica
from tests.support.flows.grants import GROUP, TOPIC, grant
from tests.support.flows.groups import commit
from tests.support.flows.replica import Replica, alter_config, delete_topics, topic_config

Capture = pytest.CaptureFixture[str]
_LARGE_BYTES: Final = 20_000_000
_FLUSH_S: Final = 20.0


@pytest.fixture
def replica(guarded: Pair, tmp_path: Path, unique_name: str) -> Iterator[Replica]:
    """A flow with exactly the rights of docs/operations.md, where other flows write to its source."""
    with guarded_replica(guarded, tmp_path, unique_name) as replica:
        grant(guarded[0], [(TOPIC, names.PREFIX, True, "READ DESCRIBE")])
        yield replica


def put(client: Mapping[str, str], topic: str, values: Mapping[str, Any], partition: int = 0) -> None:
    """Write values into a topic: bytes as they are, None removes, all else as JSON."""
    limits: Any = {"compression.type": "zstd", "message.max.bytes": _LARGE_BYTES}
    producer = Producer({**client, **limits})
    for key, value in values.items():
        content = value if value is None or isinstance(value, bytes) else json.dumps(value)
        producer.produce(topic, key=key, value=content, partition=partition)
    assert producer.flush(_FLUSH_S) == 0


@pytest.fixture
def other(guarded: Pair, replica: Replica, unique_name: str) -> Iterator[str]:
    """The state topic of another flow whose target is this one's source, and which anybody may fill."""
    state = names.state_topic(f"other-{unique_name}".lower())
    replica.source.create_topic(state, 2, {"max.message.bytes": str(_LARGE_BYTES)})
    yield state
    delete_topics(guarded[0].admin_client, [state])


def enrolled(topic: str) -> dict[str, Any]:
    return {f"topic/{topic}": Enrolment(topic, topic, uuid4(), uuid4(), {0: 0}, 1).to_json()}


@pytest.mark.parametrize(
    "written",
    [
        {"layout": {"source_cluster_id": [], "target_cluster_id": None}},
        pytest.param({"layout": b"\xff{"}, marks=pytest.mark.soak),
        pytest.param({"layout": b"[" + b"[]," * 4_000_000 + b"[]]"}, marks=pytest.mark.soak),
        pytest.param(
            {
                "layout": {"source_cluster_id": "elsewhere"},
                "upstream/t": {
                    "v": 1,
                    "hops": [{"flow": token_hex(700_000), "cluster": "c", "topic": "t", "at_ms": 1}],
                },
            },
            marks=pytest.mark.soak,
        ),
    ],
    ids=["a list for an id", "no JSON", "a few bytes that expand", "an overlong name"],
)
def test_another_flows_state_keeps_new_topics_out_and_ends_nothing(
    guarded: Pair, replica: Replica, other: str, capsys: Capture, written: dict[str, Any]
) -> None:
    """What is copied goes on; what is new waits and says for which flow, until the latest value is one."""
    first = replica.topic("a")
    replica.source.plain(first, 0, replica.source.records(3))
    assert replica.copy().records == 3
    second = replica.topic("b")
    put(guarded[0].admin_client, other, {**enrolled(second), **written})
    replica.source.plain(first, 0, replica.source.records(4))
    replica.source.plain(second, 0, replica.source.records(5))
    assert replica.copy().records == 4
    code, document = replica.command(capsys, "topics", "plan", replica.name)
    (refused,) = [each for each in document["refused"] if each["object"] == second]
    assert (code, refused["code"]) == (3, "OTHER_FLOW_UNREADABLE")
    assert str(names.state_owner(other)) in refused["message"]
    code, document = replica.command(capsys, "seed", "plan", replica.name, "--from", "lag-group")
    assert document.get("error", {}).get("code") != "UNEXPECTED"
    put(guarded[0].admin_client, other, {**dict.fromkeys([*enrolled(second), *written]), "junk/x": b"\xff"})
    assert replica.copy().records == 5
    replica.assert_same(first, second)


# Of another shape, and no JSON; in soak a number and a record without its fields as well.
ODD: Final = pytest.mark.parametrize(
    "odds",
    [([], b"\xff{"), pytest.param((5, {"v": 1}), marks=pytest.mark.soak)],
    ids=["a list, no JSON", "a number, no fields"],
)


@ODD
def test_what_a_flow_cannot_read_of_its_own_is_named_and_the_copy_goes_on(
    guarded: Pair, replica: Replica, capsys: Capture, odds: tuple[Any, ...]
) -> None:
    """Its state, what it looks after, what it remembers of groups: the keys are told, with exit code 3."""
    topic = replica.topic(partitions=2)
    replica.configure(topics={"sync_acls": True})
    replica.source.plain(topic, 0, replica.source.records(3))
    assert replica.copy().records == 3
    state, owned = names.state_topic(replica.name), names.owned_topic(replica.name)
    client = guarded[1].admin_client
    others = {names.HEARTBEAT, names.stop_key(topic, 0), names.verified_key(topic, 0)}
    kept = {names.managed_key(topic), "acl/0123456789abcdef"}
    for number, odd in enumerate(odds):
        put(client, state, dict.fromkeys(others, odd), names.STATE_OTHERS)
        put(client, owned, dict.fromkeys(kept, odd))
        code, document = replica.command(capsys, "status", replica.name)
        needs = [
            need["message"] for need in document["flows"][0]["needs"] if need["code"] == "STATE_UNREADABLE"
        ]
        assert code == 3
        assert {key for key in others | kept if any(repr(key) in text for text in needs)} == others | kept
        code, document = replica.command(capsys, "topics", "plan", replica.name)
        refused = {each["object"] for each in document["refused"] if each["code"] == "STATE_UNREADABLE"}
        assert (code, refused) == (3, kept)
        code, document = replica.command(capsys, "partition", "resume", replica.name)
        refused = [(each["object"], each["code"]) for each in document["refused"]]
        assert (code, refused) == (3, [(f"{topic}:0", "STATE_UNREADABLE")])
        replica.source.plain(topic, 0, replica.source.records(number + 1))
        assert replica.copy().records == number + 1
        needs = replica.command(capsys, "status", replica.name)[1]["flows"][0]["needs"]
        left = {key for key in others for need in needs if repr(key) in need["message"]}
        assert left == {names.verified_key(topic, 0)}, "what the run writes again is in order"
    put(client, state, dict.fromkeys(others), names.STATE_OTHERS)
    put(client, owned, dict.fromkeys(kept))
    assert replica.command(capsys, "status", replica.name)[0] == 0


@ODD
def test_groups_whose_memory_cannot_be_read_are_left_alone_and_the_others_are_moved(
    guarded: Pair, replica: Replica, capsys: Capture, odds: tuple[Any, ...]
) -> None:
    """Each is told with what it is about."""
    topic, odd, fine = replica.topic(), f"{replica.name}-odd", f"{replica.name}-fine"
    replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    grant(guarded[0], [(GROUP, replica.name, True, "DESCRIBE")])
    grant(guarded[1], [(GROUP, replica.name, True, "READ DESCRIBE")])
    for group in (odd, fine):
        commit(guarded[0].admin_client, group, topic, {0: 3})
    assert replica.command(capsys, "groups", "apply", replica.name)[0] == 0
    for number, value in enumerate(odds):
        put(guarded[1].admin_client, names.groups_topic(replica.name), {f"failover/{odd}": value})
        for group in (odd, fine):
            commit(guarded[0].admin_client, group, topic, {0: min(5, 4 + number)})
        for command in ("plan", "apply"):
            code, document = replica.command(capsys, "groups", command, replica.name)
            assert (code, {each["object"] for each in document["refused"]}) == (3, {odd}), document
            refused = document["refused"][0]
            assert refused["code"] in ("STATE_UNREADABLE", "STATE_VERSION")
            assert {change["object"].split(" ")[0] for change in document["changes"]} <= {fine}


def test_who_may_write_the_state_makes_nothing_the_flows(
    guarded: Pair, replica: Replica, capsys: Capture
) -> None:
    """Whoever stops or audits it: neither somebody's DENY nor an operator's setting goes with its rights."""
    topic = replica.topic()
    replica.configure(topics={"sync_acls": True, "sync_configs": True})
    replica.source.plain(topic, 0, replica.source.records(3))
    client = guarded[1].admin_client
    deny = Acl("LITERAL", topic, "User:intern", "*", "READ", "DENY")
    with LiveCluster(ClientConfig("west", client)) as cluster:
        admin = AclAdmin(cluster)
        with replica.flow.running() as (lead, _):
            lead.tick()
            admin.create((deny,))
            alter_config(client, topic, {"retention.bytes": "123456789"})
            managed = {"v": 1, "keys": ["retention.bytes", "retention.ms"], "refused": {}}
            forged = {acl_key(deny): acl_record(deny, 7), names.managed_key(topic): managed}
            for partition in (names.STATE_LEADER, names.STATE_OTHERS):
                put(client, names.state_topic(replica.name), forged, partition)
            lead._discovered = None
            lead._acls._last_s = -math.inf
            lead._reader.changed()
            lead.tick()
            lead.end()
        assert replica.command(capsys, "topics", "apply", replica.name)[0] in (0, 3)
        assert deny in admin.topic_acls()
    assert topic_config(client, topic)["retention.bytes"] == "123456789"
