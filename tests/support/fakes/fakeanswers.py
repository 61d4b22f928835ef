"""What the brokers of a fake cluster answer: frames in, frames out.

A request is taken apart and answered in Kafka's own bytes, so that everything above the channel is the code
that runs against brokers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from kafka.protocol import admin, consumer, metadata, producer
from kafka.protocol.consumer.group import OffsetDeleteRequest, OffsetDeleteResponse

from onceover.kafka.calls import NO_EPOCH, CommittedOffset
from onceover.kafka.link.connection import ConnectionLost
from onceover.model import TopicPartition
from onceover.wire.batches.batch import iter_batches
from tests.support.fakes.fakebroker import FakeBroker, Taken
from tests.support.fakes.fakelogs import FakeLog

_OUT_OF_RANGE: Final = 1
_UNKNOWN_TOPIC: Final = 3
_TOPIC_EXISTS: Final = 36
_INVALID_PARTITIONS: Final = 37
_INVALID_REPLICATION: Final = 38
_OLD_EPOCH: Final = 47
_NOT_IN_TRANSACTION: Final = 48
_NOT_ATTEMPTED: Final = 55
_GROUP_NOT_FOUND: Final = 69
_PENDING_OFFSETS: Final = 88
_UNKNOWN_TOPIC_ID: Final = 100
# From here on partitions become part of a transaction by being produced to (KIP-890).
_ADDS_BY_ITSELF: Final = 12
_BY_TOPIC_ID: Final = 13
_PRODUCE: Final = 0
_LIST_GROUPS: Final = 16
_API_VERSIONS: Final = 18
_PORT: Final = 9092
# AclOperation's codes, of a topic.
_READ: Final = 3
_OPERATIONS: Final = frozenset({_READ, 4, 5, 6, 7, 8, 10, 11})
# Of a group.
_GROUP_OPERATIONS: Final = frozenset({_READ, 6, 8, 10, 11})
# Where a configuration's value comes from, and how one is set.
_OF_TOPIC, _BY_DEFAULT = 1, 5
_SET: Final = 0
_DEFAULTS: Final = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "retention.ms": "604800000",
}


class Answers:
    """One method for each kind of request."""

    def __init__(self, of: FakeBroker) -> None:
        self._of = of

    def answer(self, node: int, frame: bytes) -> bytes:
        """Return what a broker answers to a request, behind the correlation id."""
        key, version = struct.unpack_from(">hh", frame)
        if version > self._speaks(node).get(key, version):
            raise ConnectionLost(f"broker {node} of {self._of.alias} has closed the connection")
        name, request_type, response_type = _KINDS[key]
        request = request_type.decode(frame, version=version, header=True)
        answered: Callable[[int, int, Any], dict[str, Any]] = getattr(self, f"_{name}")
        response = response_type(version=version, **answered(node, version, request))
        # Answers to ApiVersions never have the flexible header (KIP-511).
        flexible = response_type.flexible_version_q(version) and key != _API_VERSIONS
        return (b"\0" if flexible else b"") + bytes(response.encode())

    def _fetch(self, node: int, version: int, request: Any) -> dict[str, Any]:
        names = {topic.id: name for name, topic in self._of.all_topics.items()}
        answers = [
            (
                topic.topic_id,
                [
                    self._fetched(
                        node, version, TopicPartition(names.get(topic.topic_id, ""), p.partition), p, request
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        kind = consumer.FetchResponse.FetchableTopicResponse
        responses = [kind(version=version, topic_id=i, partitions=ps) for i, ps in answers]
        return {"throttle_time_ms": 0, "error_code": 0, "session_id": 0, "responses": responses}

    def _fetched(self, node: int, version: int, tp: TopicPartition, asked: Any, request: Any) -> Any:
        log = self._of.log_of(tp)
        error, records = self._of.code_of(tp, node), b""
        aborted: list[tuple[int, int]] = []
        if log is None:
            error, log = _UNKNOWN_TOPIC_ID, FakeLog()
        elif not error and not log.start <= asked.fetch_offset <= log.end:
            error = _OUT_OF_RANGE
        elif not error:
            error, records, aborted = log.fetch(asked.fetch_offset, request.isolation_level)
        kind = consumer.FetchResponse.FetchableTopicResponse.PartitionData
        return kind(
            version=version,
            partition_index=asked.partition,
            error_code=error,
            preferred_read_replica=-1,
            high_watermark=log.end,
            last_stable_offset=log.stable,
            log_start_offset=log.start,
            aborted_transactions=[
                kind.AbortedTransaction(version=version, producer_id=p, first_offset=f) for p, f in aborted
            ],
            records=records,
        )

    def _produce(self, node: int, version: int, request: Any) -> dict[str, Any]:
        kind = producer.ProduceResponse.TopicProduceResponse
        self._of.produced_by.append(version)
        by_id = version >= _BY_TOPIC_ID
        names = {topic.id: name for name, topic in self._of.all_topics.items()}
        topics = []
        for topic in request.topic_data:
            name = names.get(topic.topic_id) if by_id else topic.name
            answers = [self._appended(node, name, p, version, request) for p in topic.partition_data]
            named = {"topic_id": topic.topic_id} if by_id else {"name": topic.name}
            topics.append(kind(version=version, partition_responses=answers, **named))
        return {
            "responses": topics,
            "throttle_time_ms": self._of.throttle_ms.popleft() if self._of.throttle_ms else 0,
        }

    def _appended(self, node: int, name: str | None, entry: Any, version: int, request: Any) -> Any:
        tp = TopicPartition(name or "", entry.index)
        batch = bytes(entry.records)
        self._of.sizes.append(len(batch))
        log = self._of.log_of(tp)
        code = (
            self._of.next("answer")
            or self._of.code_of(tp, node)
            or self._not_taken(tp, batch, version, request.transactional_id)
        )
        base = -1
        if log is not None and code == 0:
            [(header, _)] = iter_batches(memoryview(batch))
            base = log.take(batch, header.count, header.producer_id if header.is_transactional else -1)
            owner = (header.producer_id, header.producer_epoch)
            self._of.batches.append(Taken(entry.index, *owner, header.base_sequence))
        return producer.ProduceResponse.TopicProduceResponse.PartitionProduceResponse(
            version=version,
            index=entry.index,
            error_code=code,
            base_offset=base,
            log_append_time_ms=-1,
            log_start_offset=0 if log is None else log.start,
            record_errors=[],
            error_message="no" if code else None,
        )

    def _not_taken(self, tp: TopicPartition, batch: bytes, version: int, transactional_id: str | None) -> int:
        [(header, _)] = iter_batches(memoryview(batch))
        assert header.is_transactional is (transactional_id is not None), "refused, the one for the other"
        if self._of.log_of(tp) is None:
            return _UNKNOWN_TOPIC_ID if version >= _BY_TOPIC_ID else _UNKNOWN_TOPIC
        if transactional_id is None:
            return 0
        owner = (header.producer_id, header.producer_epoch)
        code = self._of.refused(transactional_id, owner, fenced=_OLD_EPOCH)
        if code:
            return code
        if version >= _ADDS_BY_ITSELF:
            self._of.open_now[transactional_id].partitions.add(tp)
        elif tp not in self._of.open_now[transactional_id].partitions:
            return _NOT_IN_TRANSACTION
        return 0

    def _list_offsets(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del version
        self._of.log.append("ListOffsets")
        return _by_topic(
            (
                TopicPartition(topic.name, p.partition_index),
                self._listed(node, TopicPartition(topic.name, p.partition_index), p.timestamp, request),
            )
            for topic in request.topics
            for p in topic.partitions
        )

    def _listed(
        self, node: int, tp: TopicPartition, timestamp_ms: int, request: Any
    ) -> tuple[int, int, int, int, int]:
        log, code = self._of.log_of(tp), self._of.code_of(tp, node)
        if log is None or code:
            return tp.partition, code or _UNKNOWN_TOPIC, -1, -1, NO_EPOCH
        offset = log.at(timestamp_ms, request.isolation_level)
        return tp.partition, 0, -1, offset, log.epochs[-1][0] if offset >= 0 else NO_EPOCH

    def _epoch_ends(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del version
        topics: list[tuple[str, list[Any]]] = []
        for topic in request.topics:
            found = []
            for p in topic.partitions:
                tp = TopicPartition(topic.topic, p.partition)
                log, code = self._of.log_of(tp), self._of.code_of(tp, node)
                ends = (-1, -1) if log is None or code else log.epoch_end(p.leader_epoch)
                found.append((code if log is not None else _UNKNOWN_TOPIC, p.partition, *ends))
            topics.append((topic.topic, found))
        return {"throttle_time_ms": 0, "topics": topics}

    def _producers(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del node, version
        topics: list[tuple[str, list[Any]]] = []
        for topic in request.topics:
            found = []
            for number in topic.partition_indexes:
                log = self._of.log_of(TopicPartition(topic.name, number))
                active = [] if log is None else [(i, 0, 0, -1, 0, at) for i, at in log.pending.items()]
                found.append((number, 0 if log is not None else _UNKNOWN_TOPIC, None, active))
            topics.append((topic.name, found))
        return {"throttle_time_ms": 0, "topics": topics}

    # ---- transactions

    def _init(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del node, version
        result = self._of.init(request.transactional_id)
        return {
            "throttle_time_ms": 0,
            "error_code": result.error_code,
            "producer_id": result.producer_id,
            "producer_epoch": result.producer_epoch,
        }

    def _add_partitions(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del node
        transactional_id = request.v3_and_below_transactional_id
        owner = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        code = self._of.next(f"AddPartitionsToTxn v{version}") or self._of.refused(transactional_id, owner)
        tps = [TopicPartition(t.name, p) for t in request.v3_and_below_topics for p in t.partitions]
        if not code:
            self._of.open_now[transactional_id].partitions.update(tps)
        # Refused whole: one has the code, the others were not attempted.
        codes = {tp: code if tp == min(tps) else _NOT_ATTEMPTED * bool(code) for tp in reversed(sorted(tps))}
        found = _by_topic((tp, (tp.partition, each)) for tp, each in codes.items())
        return {"throttle_time_ms": 0, "results_by_topic_v3_and_below": found["topics"]}

    def _add_offsets(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del node
        owner = request.producer_id, request.producer_epoch
        code = self._of.next(f"AddOffsetsToTxn v{version}") or self._of.refused(
            request.transactional_id, owner
        )
        if not code:
            self._of.open_now[request.transactional_id].offsets.setdefault(request.group_id, {})
        return {"throttle_time_ms": 0, "error_code": code}

    def _txn_offsets(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del node
        owner = request.producer_id, request.producer_epoch
        code = self._of.next(f"TxnOffsetCommit v{version}") or self._of.refused(
            request.transactional_id, owner, fenced=_OLD_EPOCH
        )
        named, codes = _offsets_in(request), {}
        for tp in named:
            codes[tp] = code or (_UNKNOWN_TOPIC if self._of.log_of(tp) is None else 0)
        taken = {tp: named[tp] for tp, each in codes.items() if not each}
        if taken:
            self._of.open_now[request.transactional_id].offsets.setdefault(request.group_id, {}).update(taken)
        return _by_topic((tp, (tp.partition, each)) for tp, each in codes.items())

    def _end(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del node
        transactional_id, owner = request.transactional_id, (request.producer_id, request.producer_epoch)
        code = self._of.next(f"EndTxn v{version}") or self._of.refused(transactional_id, owner)
        if not code and transactional_id not in self._of.open_now:
            code = _NOT_IN_TRANSACTION
        if not code:
            self._of.decide(transactional_id, commit=request.committed)
        told = {"throttle_time_ms": 0, "error_code": code}
        if version >= 5:
            if not code:
                owner = self._of.owners[transactional_id] = (owner[0], owner[1] + 1)
            told |= {"producer_id": owner[0], "producer_epoch": owner[1]}
        return told

    # ---- groups

    def _commit(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del node, version
        code, named = self._of.next(f"OffsetCommit {request.group_id}"), _offsets_in(request)
        codes = {tp: code or (_UNKNOWN_TOPIC if self._of.log_of(tp) is None else 0) for tp in named}
        taken = {tp: named[tp] for tp, each in codes.items() if not each}
        if taken:
            self._of.groups.setdefault(request.group_id, {}).update(taken)
        return _by_topic((tp, (tp.partition, each)) for tp, each in codes.items())

    def _offsets(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del node, version
        self._of.log.append("OffsetFetch")
        return {"throttle_time_ms": 0, "groups": [self._of_group(request, each) for each in request.groups]}

    def _of_group(self, request: Any, asked: Any) -> tuple[str, list[Any], int]:
        group, known = asked.group_id, self._of.groups.get(asked.group_id, {})
        wanted: Iterable[TopicPartition] = known
        if asked.topics is not None:
            wanted = [TopicPartition(t.name, p) for t in asked.topics for p in t.partition_indexes]
        pending = self._of.pending(group) if request.require_stable else set()
        if self._of.undecided.get(group, 0) > 0:
            self._of.undecided[group] -= 1
            pending |= set(wanted)
        found = []
        for tp in sorted(wanted):
            at = known.get(tp, CommittedOffset(0, -1, NO_EPOCH, ""))
            if tp in pending:
                at = CommittedOffset(_PENDING_OFFSETS, -1, NO_EPOCH, "")
            found.append((tp, (tp.partition, at.offset, at.leader_epoch, at.metadata, at.error_code)))
        return group, _by_topic(iter(found))["topics"], self._of.put_there(f"OffsetFetch {group}")

    def _groups(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del request
        kind = admin.ListGroupsResponse.ListedGroup
        code = self._of.next(f"ListGroups/{node}")
        typed = {"group_type": "classic"} if version >= 5 else {}
        mine = [
            group for group in sorted(self._of.groups) if self._of.coordinator_of(group) == node and not code
        ]
        groups = [
            kind(version=version, group_id=each, protocol_type="", group_state="Empty", **typed)
            for each in mine
        ]
        return {"throttle_time_ms": 0, "error_code": code, "groups": groups}

    def _described(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del node
        kind = admin.DescribeGroupsResponse.DescribedGroup
        groups = []
        for each in request.groups:
            code = self._of.put_there(f"DescribeGroups {each}")
            allowed = _GROUP_OPERATIONS - ({_READ} if each in self._of.unread else set())
            told = {"authorized_operations": set(allowed)} if request.include_authorized_operations else {}
            state = {"group_state": "Empty" if each in self._of.groups else "Dead", "members": []}
            names = {"group_id": each, "protocol_type": "", "protocol_data": ""}
            groups.append(kind(version=version, error_code=code, **names, **state, **told))
        return {"throttle_time_ms": 0, "groups": groups}

    def _delete_offsets(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del node, version
        code = self._of.next("OffsetDelete")
        known = self._of.groups.get(request.group_id)
        tps = [TopicPartition(t.name, p.partition_index) for t in request.topics for p in t.partitions]
        if known is None:
            return {"error_code": _GROUP_NOT_FOUND, "throttle_time_ms": 0, "topics": []}
        for tp in tps if not code else ():
            known.pop(tp, None)
        return {"error_code": 0, **_by_topic((tp, (tp.partition, code)) for tp in tps)}

    # ---- the cluster

    def _metadata(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del node, version
        wanted = self._of.all_topics if request.topics is None else [each.name for each in request.topics]
        topics: list[tuple[Any, ...]] = []
        for name in wanted:
            topic = self._of.all_topics.get(name)
            if topic is None:
                topics.append((_UNKNOWN_TOPIC, name, UUID(int=0), False, [], ()))
                continue
            info = topic.info(name)
            led: list[tuple[Any, ...]] = [
                (0, n, p.leader, p.leader_epoch, [], [], []) for n, p in info.partitions.items()
            ]
            allowed = _OPERATIONS - ({_READ} if name in self._of.unread else set())
            topics.append((0, name, topic.id, info.is_internal, led, allowed))
        brokers = [(each, f"{self._of.alias}-{each}", _PORT, None) for each in self._of.brokers()]
        return {
            "throttle_time_ms": 0,
            "brokers": brokers,
            "cluster_id": self._of.id,
            "controller_id": self._of.brokers()[0],
            "topics": topics,
        }

    def _create_topics(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del node, version
        answers: list[tuple[Any, ...]] = []
        for topic in request.topics:
            code = self._of.next(f"CreateTopics {topic.name}")
            if not code and topic.name in self._of.all_topics:
                code = _TOPIC_EXISTS
            if not code and topic.replication_factor > len(self._of.brokers()):
                code = _INVALID_REPLICATION
            if not code and not request.validate_only:
                made = self._of.make_topic(topic.name, topic.num_partitions)
                made.config.update({each.name: each.value for each in topic.configs})
            answers.append((topic.name, code, None, -1, -1, []))
        return {"throttle_time_ms": 0, "topics": answers}

    def _create_partitions(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del node, version
        answers = []
        for asked in request.topics:
            code = self._of.next(f"CreatePartitions {asked.name}")
            topic = self._of.all_topics.get(asked.name)
            if topic is None:
                code = code or _UNKNOWN_TOPIC
            elif not code and asked.count <= len(topic.logs):
                code = _INVALID_PARTITIONS
            elif not code:
                topic.logs += [FakeLog() for _ in range(asked.count - len(topic.logs))]
            answers.append((asked.name, code, None))
        return {"throttle_time_ms": 0, "results": answers}

    def _describe_configs(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del node
        kind = admin.DescribeConfigsResponse.DescribeConfigsResult
        one = kind.DescribeConfigsResourceResult
        results = []
        for asked in request.resources:
            topic = self._of.all_topics.get(asked.resource_name)
            own = topic.config if topic is not None else {}
            values = {key: (value, _BY_DEFAULT) for key, value in {**_DEFAULTS, **self._of.defaults}.items()}
            values |= {key: (value, _OF_TOPIC) for key, value in own.items()}
            results.append(
                kind(
                    version=version,
                    error_code=self._of.put_there(f"DescribeConfigs {asked.resource_name}")
                    or (0 if topic is not None else _UNKNOWN_TOPIC),
                    error_message=None,
                    resource_type=asked.resource_type,
                    resource_name=asked.resource_name,
                    configs=[
                        one(
                            version=version,
                            **{"name": key, "value": value, "read_only": False, "config_source": source},
                            **{"is_sensitive": False, "synonyms": [], "config_type": 0},
                            documentation=None,
                        )
                        for key, (value, source) in (values.items() if topic is not None else ())
                    ],
                )
            )
        return {"throttle_time_ms": 0, "results": results}

    def _alter_configs(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del node, version
        answers = []
        for asked in request.resources:
            code = self._of.next(f"AlterConfigs {asked.resource_name}")
            topic = self._of.all_topics.get(asked.resource_name)
            if topic is None:
                code = code or _UNKNOWN_TOPIC
            elif not code:
                removed = {key.name for key in asked.configs if key.config_operation != _SET}
                topic.config.update({key.name: key.value for key in asked.configs if key.name not in removed})
                for name in removed:
                    topic.config.pop(name, None)
            answers.append((code, None, asked.resource_type, asked.resource_name))
        return {"throttle_time_ms": 0, "responses": answers}

    def _coordinators_of(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del node, version
        self._of.log.append("FindCoordinator")
        found = [
            (
                key,
                self._of.coordinator_of(key),
                self._of.alias,
                _PORT,
                self._of.put_there(f"FindCoordinator {key}"),
                None,
            )
            for key in request.coordinator_keys
        ]
        return {"throttle_time_ms": 0, "coordinators": found}

    def _versions(self, node: int, version: int, request: Any) -> dict[str, Any]:
        del version, request
        return {
            "error_code": 0,
            "throttle_time_ms": 0,
            "api_keys": [(key, 0, newest) for key, newest in self._speaks(node).items()],
            "finalized_features": [("transaction.version", self._of.feature.transaction_version, 0)],
            "supported_features": [],
        }

    def _speaks(self, node: int) -> dict[int, int]:
        """Return the newest version of requests that brokers of several releases differ in."""
        usual = {_PRODUCE: self._of.produce_version, _LIST_GROUPS: 5}
        return {**usual, **self._of.newest[node]}


def _by_topic(answers: Iterator[tuple[TopicPartition, Any]]) -> dict[str, Any]:
    topics: dict[str, list[Any]] = {}
    for tp, answer in answers:
        topics.setdefault(tp.topic, []).append(answer)
    return {"throttle_time_ms": 0, "topics": list(topics.items())}


def _offsets_in(request: Any) -> dict[TopicPartition, CommittedOffset]:
    return {
        TopicPartition(topic.name, p.partition_index): CommittedOffset(
            0, p.committed_offset, p.committed_leader_epoch, p.committed_metadata or ""
        )
        for topic in request.topics
        for p in topic.partitions
    }


_KINDS: Final[Mapping[int, tuple[str, Any, Any]]] = {
    request.API_KEY: (name, request, response)
    for name, request, response in (
        ("fetch", consumer.FetchRequest, consumer.FetchResponse),
        ("produce", producer.ProduceRequest, producer.ProduceResponse),
        ("list_offsets", consumer.ListOffsetsRequest, consumer.ListOffsetsResponse),
        ("epoch_ends", consumer.OffsetForLeaderEpochRequest, consumer.OffsetForLeaderEpochResponse),
        ("producers", admin.DescribeProducersRequest, admin.DescribeProducersResponse),
        ("init", producer.InitProducerIdRequest, producer.InitProducerIdResponse),
        ("add_partitions", producer.AddPartitionsToTxnRequest, producer.AddPartitionsToTxnResponse),
        ("add_offsets", producer.AddOffsetsToTxnRequest, producer.AddOffsetsToTxnResponse),
        ("txn_offsets", producer.TxnOffsetCommitRequest, producer.TxnOffsetCommitResponse),
        ("end", producer.EndTxnRequest, producer.EndTxnResponse),
        ("commit", consumer.OffsetCommitRequest, consumer.OffsetCommitResponse),
        ("offsets", consumer.OffsetFetchRequest, consumer.OffsetFetchResponse),
        ("groups", admin.ListGroupsRequest, admin.ListGroupsResponse),
        ("described", admin.DescribeGroupsRequest, admin.DescribeGroupsResponse),
        ("delete_offsets", OffsetDeleteRequest, OffsetDeleteResponse),
        ("create_topics", admin.CreateTopicsRequest, admin.CreateTopicsResponse),
        ("create_partitions", admin.CreatePartitionsRequest, admin.CreatePartitionsResponse),
        ("describe_configs", admin.DescribeConfigsRequest, admin.DescribeConfigsResponse),
        (
            "alter_configs",
            admin.IncrementalAlterConfigsRequest,
            admin.IncrementalAlterConfigsResponse,
        ),
        ("metadata", metadata.MetadataRequest, metadata.MetadataResponse),
        ("coordinators_of", metadata.FindCoordinatorRequest, metadata.FindCoordinatorResponse),
        ("versions", metadata.ApiVersionsRequest, metadata.ApiVersionsResponse),
    )
}
