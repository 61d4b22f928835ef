"""Whatever bytes a peer sends: only our own errors leave, the connection is closed, memory stays bounded."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.protocol.admin import (
    CreateAclsResponse,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteAclsResponse,
    DescribeAclsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)
from kafka.protocol.admin.groups import DescribeGroupsResponse, ListGroupsResponse
from kafka.protocol.consumer import (
    FetchResponse,
    ListOffsetsResponse,
    OffsetCommitResponse,
    OffsetFetchResponse,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.consumer.group import OffsetDeleteResponse
from kafka.protocol.metadata import ApiVersionsResponse, FindCoordinatorResponse, MetadataResponse
from kafka.protocol.producer import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    ProduceResponse,
    TxnOffsetCommitResponse,
)
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from onceover.audit.records.fetch import decode_fetch as audit_fetch
from onceover.backoff import Patience
from onceover.errors import OnceoverError, UsageError
from onceover.kafka import calls
from onceover.kafka.admin import changes, topiccalls
from onceover.kafka.admin.aclcalls import CodedAcl, create_topic_acls, delete_topic_acls
from onceover.kafka.admin.acls import AclAdmin
from onceover.kafka.admin.topiccalls import NewTopic
from onceover.kafka.admin.topicfacts import topic_facts
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.each import Each
from onceover.kafka.groups import calls as groupcalls
from onceover.kafka.groups.members import describe_group
from onceover.kafka.link.connection import Connection, ConnectionLost
from onceover.kafka.ports import Outgoing, PartitionInfo, TopicInfo
from onceover.kafka.produce.requests import ProduceLink
from onceover.model import TopicPartition
from onceover.wire.batches.batch import parse_header
from onceover.wire.hotpath import decode_fetch
from tests.support.session.examples import examples
from tests.support.session.memory import Peak
from tests.unit.copy.batches import stored
from tests.unit.kafka.wiretap import Script, body, connect, framed

TP = TopicPartition("t", 0)
ACL = CodedAcl(3, "t", "User:t", "*", 3, 3)
OFFSETS = {TP: calls.OffsetToCommit(1, -1, "")}
SASL = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "u",
    "sasl.password": "p",
}
FUZZ = settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])


class OneConnection(LiveCluster):
    """A cluster whose every connection is the same."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.patience = Patience()

    alias = "west"

    def control(self, node: int | None = None) -> Connection:
        return self.connection

    def coordinator(self, key: str, key_type: int) -> Connection:
        return self.connection

    def forget_coordinator(self, key: str, key_type: int) -> None:
        pass

    def open(self, node: int | None = None) -> Connection:
        return self.connection

    def each_topic(self, names: Any = None) -> Each[str, TopicInfo]:
        return Each({"t": TopicInfo("t", UUID(int=7), {0: PartitionInfo(1, 0)}, False)})


def produce(connection: Connection) -> None:
    """Send a batch and read its answer, as a lane's producer does."""
    link = ProduceLink(OneConnection(connection), None, lambda _batch, answer: answer.error_code == 0)
    batch = stored(0)
    link.write([Outgoing(TP, parse_header(batch), bytearray(batch), TP, ((0, 1),))])
    link.drain()


class Case(NamedTuple):
    """A request of ours, and what a broker answers to it."""

    ask: Callable[[Connection], object]
    answer: Any
    version: int


CASES = {
    "api_versions": Case(calls.api_versions, ApiVersionsResponse, 3),
    "metadata": Case(lambda c: calls.metadata(c, None), MetadataResponse, 12),
    "find_coordinators": Case(lambda c: calls.find_coordinators(c, ["t"], 1), FindCoordinatorResponse, 4),
    "list_offsets": Case(lambda c: calls.list_offsets(c, [TP], -1, 1), ListOffsetsResponse, 6),
    "epochs": Case(lambda c: calls.end_offsets_for_epochs(c, {TP: 1}), OffsetForLeaderEpochResponse, 4),
    "offset_fetch": Case(lambda c: calls.offset_fetch(c, {"t": [TP]}, stable=True), OffsetFetchResponse, 8),
    "init_producer_id": Case(lambda c: calls.init_producer_id(c, "t", 1), InitProducerIdResponse, 4),
    "add_partitions": Case(
        lambda c: calls.add_partitions_to_txn(c, "t", (1, 0), [TP]), AddPartitionsToTxnResponse, 3
    ),
    "add_offsets": Case(lambda c: calls.add_offsets_to_txn(c, "t", (1, 0), "g"), AddOffsetsToTxnResponse, 3),
    "txn_offset_commit": Case(
        lambda c: calls.txn_offset_commit(c, "t", (1, 0), "g", OFFSETS, version=5), TxnOffsetCommitResponse, 5
    ),
    "end_txn": Case(lambda c: calls.end_txn(c, "t", (1, 0), commit=True, version=5), EndTxnResponse, 5),
    "list_groups": Case(lambda c: groupcalls.list_groups(c, 5), ListGroupsResponse, 5),
    "offset_commit": Case(
        lambda c: c.call(*calls.offset_commit_request("g", OFFSETS), calls.partition_codes),
        OffsetCommitResponse,
        8,
    ),
    "offset_delete": Case(lambda c: groupcalls.offset_delete(c, "g", [TP]), OffsetDeleteResponse, 0),
    "describe_group": Case(lambda c: describe_group(OneConnection(c), "g"), DescribeGroupsResponse, 5),
    "describe_acls": Case(lambda c: AclAdmin(OneConnection(c)).topic_acls(), DescribeAclsResponse, 2),
    "create_acls": Case(lambda c: create_topic_acls(c, [ACL]), CreateAclsResponse, 2),
    "delete_acls": Case(lambda c: delete_topic_acls(c, [ACL]), DeleteAclsResponse, 2),
    "create_topics": Case(
        lambda c: topiccalls.create_topics(c, [NewTopic("t", 1, 1, (), ())], validate_only=False),
        CreateTopicsResponse,
        5,
    ),
    "create_partitions": Case(lambda c: topiccalls.create_partitions(c, "t", 2), CreatePartitionsResponse, 2),
    "describe_configs": Case(
        lambda c: topiccalls.describe_topic_configs(c, ["t"]), DescribeConfigsResponse, 4
    ),
    "alter_configs": Case(
        lambda c: topiccalls.alter_topic_configs(c, {"t": {"k": "v"}}), IncrementalAlterConfigsResponse, 1
    ),
    "controller": Case(changes.controller, MetadataResponse, 12),
    "topic_facts": Case(lambda c: topic_facts(OneConnection(c), "t"), MetadataResponse, 12),
    "produce": Case(produce, ProduceResponse, 13),
}


def answering(answer: bytes) -> Script:
    """Return a peer that answers everything with these bytes behind the right correlation id."""
    return lambda _key, _version, correlation_id: framed(correlation_id, answer)


def answering_case(case: Case, answer: bytes) -> Script:
    """Return the same for a request, and the truth for another one that asks first what the peer speaks."""
    key = case.answer.API_KEY
    keys = [(key, 0, case.version)]
    spoken = ApiVersionsResponse(version=3, error_code=0, api_keys=keys, throttle_time_ms=0).encode()
    return lambda asked, _, correlation_id: framed(correlation_id, answer if asked == key else bytes(spoken))


def mutated(data: st.DataObject, whole: bytes) -> bytes:
    """Return an answer with some bytes changed, cut out, doubled or added."""
    out = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(out) - 1)))
        match data.draw(st.integers(0, 4)):
            case 0:
                out[at : at + 1] = bytes((data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF])),))
            case 1:
                del out[at : at + data.draw(st.integers(1, 8))]
            case 2:
                out[at:at] = data.draw(st.binary(min_size=1, max_size=12))
            case 3:
                out[at : at + 4] = struct.pack(">i", data.draw(st.sampled_from([-2, 1 << 30, 0x7FFFFFFF])))
            case _:
                del out[at:]
    return bytes(out)


@pytest.mark.parametrize("name", CASES)
def test_the_fuzzed_answers_are_understood_when_they_are_whole(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Otherwise what follows would test nothing."""
    case = CASES[name]
    connection, peer = connect(monkeypatch, answering_case(case, body(case.answer, case.version)))
    case.ask(connection)
    assert not peer.closed


@pytest.mark.parametrize("name", CASES)
@FUZZ
@given(data=st.data())
def test_a_damaged_answer_ends_the_connection_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, name: str, data: st.DataObject
) -> None:
    """Every request that we know, every kind of damage: bytes, lengths, ends."""
    case = CASES[name]
    answer = mutated(data, body(case.answer, case.version))
    connection, peer = connect(monkeypatch, answering_case(case, answer))
    try:
        case.ask(connection)
    except ConnectionLost:
        assert peer.closed and connection.closed
    except OnceoverError:
        pass  # understood: it says no, for one reason or another


@pytest.mark.parametrize("decoder", [decode_fetch, audit_fetch])
@FUZZ
@given(data=st.data())
def test_damaged_fetch_answers_are_refused_by_both_decoders(
    monkeypatch: pytest.MonkeyPatch, decoder: Callable[[memoryview], Any], data: st.DataObject
) -> None:
    """The replicator's and the audit's; records never reach past the answer."""
    answer = mutated(data, body(FetchResponse, 13))
    connection, peer = connect(monkeypatch, answering(answer))
    connection.send_frame([struct.pack(">ihhi", 8, 1, 13, 1)], 1, decoder)
    try:
        fetched = connection.receive()
    except ConnectionLost:
        assert peer.closed
        return
    for one in getattr(fetched, "partitions", [fetched]):
        assert len(one.records) <= len(answer)


@FUZZ
@given(garbage=st.binary(max_size=200))
def test_garbage_is_no_answer(monkeypatch: pytest.MonkeyPatch, garbage: bytes) -> None:
    """Of any length, in place of the whole answer; the first thing that ever came on the connection."""
    connection, peer = connect(monkeypatch, lambda *_: garbage)
    with pytest.raises((ConnectionLost, UsageError)):
        calls.metadata(connection, None)
    assert peer.closed


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" + b"x" * 10_000,
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x7f\xff\xff\xff" + bytes(1000),
        b"\x80\x00\x00\x00",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x03abc",
        b"",
    ],
    ids=["HTTP", "a TLS alert", "2 GiB", "negative", "nothing", "less than an id", "the end"],
)
@pytest.mark.parametrize("max_bytes", [16 << 20, None])
def test_a_length_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, said: bytes, max_bytes: int | None
) -> None:
    """After good answers, too: what came is read, and nothing is allocated for what did not."""

    def script(key: int, version: int, correlation_id: int) -> bytes:
        return said if key == 1 else framed(correlation_id, body(ApiVersionsResponse, 3))

    connection, peer = connect(monkeypatch, script)
    calls.api_versions(connection)
    most = {} if max_bytes is None else {"max_answer_bytes": max_bytes + (1 << 30)}
    with Peak() as peak:
        connection.send_frame([struct.pack(">ihhi", 8, 1, 13, 9)], 9, decode_fetch, **most)
        with pytest.raises(ConnectionLost):
            connection.receive()
    assert peer.closed and peak.grown_mib < 2


def test_an_answer_larger_than_the_buffer_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The near miss: the buffer grows with what comes, and keeps every byte of it."""
    content = bytes(range(256)) * 40_000
    connection, _ = connect(monkeypatch, answering(content))
    for correlation_id in (5, 6):
        connection.send_frame([struct.pack(">ihhi", 8, 1, 13, correlation_id)], correlation_id, bytes)
        assert connection.receive() == content


def test_an_answer_to_another_request_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it says: requests and answers no longer fit each other."""
    connection, peer = connect(monkeypatch, lambda *_: framed(99, body(ApiVersionsResponse, 3)))
    with pytest.raises(ConnectionLost, match="answer 99 came for request 1"):
        calls.api_versions(connection)
    assert peer.closed


@FUZZ
@given(data=st.data(), which=st.sampled_from([17, 36]))
def test_damaged_sasl_answers_are_refused(
    monkeypatch: pytest.MonkeyPatch, data: st.DataObject, which: int
) -> None:
    """Of the handshake (17), of the login (36)."""
    types = {17: (SaslHandshakeResponse, 1), 36: (SaslAuthenticateResponse, 2)}
    damaged = mutated(data, body(*types[which]))

    def script(key: int, _version: int, correlation_id: int) -> bytes:
        return framed(correlation_id, damaged if key == which else body(*types[key]))

    with suppress(OnceoverError):
        connect(monkeypatch, script, SASL)


def test_a_password_that_a_broker_sends_back_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """What checks logins there may be anybody's program."""

    def script(key: int, _version: int, correlation_id: int) -> bytes:
        if key == 17:
            return framed(correlation_id, body(SaslHandshakeResponse, 1))
        said = SaslAuthenticateResponse(
            version=2,
            error_code=58,
            error_message="no hunter2-planted here",
            auth_bytes=b"",
            session_lifetime_ms=0,
        )
        # Its header has tagged fields of its own.
        return framed(correlation_id, b"\0" + said.encode(version=2))

    with pytest.raises(UsageError, match=r"refused: no \*\*\* here") as caught:
        connect(monkeypatch, script, {**SASL, "sasl.password": "hunter2-planted"})
    assert "hunter2" not in f"{caught.value} {caught.value!r}"


def test_nothing_but_a_sasl_mechanism_that_is_offered_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The near miss: whole answers let us in."""
    types = {17: (SaslHandshakeResponse, 1), 36: (SaslAuthenticateResponse, 2)}
    connection, _ = connect(monkeypatch, lambda key, _, i: framed(i, body(*types[key])), SASL)
    assert not connection.closed
