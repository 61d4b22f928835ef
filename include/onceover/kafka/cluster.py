"""One Kafka cluster: its metadata, leaders, coordinators, and connections that are checked.

Invariant: every connection handed out leads to the cluster it was asked for. The cluster id is
compared at each new connection, so a bootstrap address that now points elsewhere is noticed before
a byte is read or written.
"""

from __future__ import annotations

import logging
import random
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self, TypeVar

from onceover.ages import age_text
from onceover.backoff import Backoff, Deadline, Patience
from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka import calls
from onceover.kafka.answers import failure
from onceover.kafka.codes import KafkaCode
from onceover.kafka.each import Each
from onceover.kafka.link.channel import Address, Channel
from onceover.kafka.link.connection import Connection, ConnectionLost
from onceover.kafka.link.places import Place, places
from onceover.kafka.ports import DEFAULT_TIMEOUT_S, A, ClientSettings, Features, PartitionInfo, TopicInfo
from onceover.model import TopicPartition
from onceover.txn.classify import Action, Api, classify
from onceover.wire.metadata import Metadata

log = logging.getLogger(__name__)
T = TypeVar("T")

# Longer than an election; whoever waits at a terminal wonders by then.
_SILENT_S = 5.0
# A few dozen kilobytes a request.
_KEYS_AT_ONCE = 1000
# Brokers look at the timeout of an InitProducerId with a transactional.id only.
_NO_TRANSACTION_TIMEOUT_MS = 60_000
_TRANSACTION_VERSION = "transaction.version"
_UNSTABLE_OFFSET_COMMIT = 88
_REPLACE = "where it was changed, write the new one into the client_file, which is read at each connection"


@dataclass
class LiveCluster:
    """Access to one cluster. Not thread-safe, not fork-safe: each thread and process opens its own.

    Args:
        config: alias and client properties.
        expected_id: refuse any other cluster id; None accepts the first one seen and keeps to it.
        patience: how long its brokers may leave us without an answer, for those who rather have no answer
            than a late one.
        anywhere: whether any broker is asked first, and not the one that is named first. Who looks again does
            so: of a broker that knows less than the others each look would hear the same.
    """

    config: ClientSettings
    expected_id: str | None = None
    patience: Patience = field(default_factory=Patience)
    anywhere: bool = False
    _brokers: dict[int, Address] = field(default_factory=dict)
    _control: dict[int, Channel] = field(default_factory=dict)
    _coordinators: dict[tuple[str, int], int] = field(default_factory=dict)
    _features: Features | None = None
    # Where a request was left without an answer, or we were refused: whoever else there is, is asked first.
    # By what their names lead to: behind one there may be several.
    _silent: set[Address] = field(default_factory=set)

    @property
    def alias(self) -> str:
        """Name of the cluster in messages."""
        return self.config.alias

    def hasty(self, patience_s: float) -> LiveCluster:
        """Return the same cluster, for somebody who would rather have no answer than wait for it."""
        return LiveCluster(self.config, self.expected_id, Patience(patience_s), anywhere=True)

    def another(self) -> LiveCluster:
        """Return the same cluster by connections of its own, for another thread or another login."""
        return LiveCluster(self.config, self.expected_id)

    # ---- connections

    def open(self, node: int | None = None) -> Channel:
        """Open a new connection to ``node`` (None: any broker) and check the cluster id.

        Raises:
            Retriable: nobody answers there; or TLS or SASL refuses us at one broker of several, or where the
                login has worked until now.
            NeedsOperator: another cluster answers there.
            UsageError: refused by TLS or SASL, by whoever there is; PYTHON_OPTIMIZED.
        """
        if sys.flags.optimize:
            raise _optimized()
        if node is not None and node not in self._brokers:
            self._refresh_brokers()
        addresses = self._bootstrap() if node is None else [self._address(node)]
        problem: Retriable | None = None
        refusal: UsageError | None = None
        for place in places(addresses, self.patience, self._silent.__contains__):
            try:
                return self._reached(place)
            except ConnectionLost as error:
                problem = error
                if node is not None:
                    self._brokers.pop(node, None)  # it may have moved: look it up again next time
            except UsageError as error:
                # Its certificate has expired, say, or it cannot reach what checks logins.
                self._silent.add(place.at)
                refusal = refusal or error
        if refusal is not None:
            raise self._refused(refusal, node, others_away=problem is not None) from refusal
        raise Retriable(
            f"no broker of {self.alias} answers ({problem})",
            where=", ".join(map(str, addresses)),
            resolve=f"check that {self.alias} is up and that bootstrap.servers is right, then run again",
        ) from problem

    def _reached(self, place: Place) -> Connection:
        if place.problem is not None:
            raise place.problem
        told = partial(self._unanswered, place.at)
        properties = self.config.properties
        connection = Connection(place.broker, properties, self.patience, told, place.at, place.of)
        self._learn(connection, calls.metadata(connection, []))
        self._silent.discard(place.at)
        self.config.login.accepted()
        return connection

    def _unanswered(self, at: Address, address: Address) -> None:
        """Ask others first, and ask this broker by a new connection: a dead host answers on none of them.

        Each of the older ones would be waited for on its own.
        """
        self._silent.add(at)
        for connection in self._control.values():
            if connection.address == address and not connection.in_flight:
                connection.close()

    def _refused(self, refusal: UsageError, node: int | None, *, others_away: bool) -> OnceoverError:
        """Return what it means that TLS or SASL refuses us at a broker, or at those of any that answer.

        Where others have told us of it, it is that broker's trouble, as if it did not answer.
        """
        is_one_of_many = others_away and self._brokers if node is None else len(self._brokers) > 1
        if is_one_of_many:
            text, resolve = f"a broker of {self.alias} refuses us: {refusal.message}", refusal.resolve
        elif self.config.login.refused():
            text = f"{self.alias} refuses us, and did not before: {refusal.message}"
            resolve = f"{refusal.resolve}; {_REPLACE}"
        else:
            return refusal
        return Retriable(text, where=refusal.where, resolve=resolve)

    def control(self, node: int | None = None) -> Channel:
        """Return the shared connection to ``node`` for requests without payload."""
        key = -1 if node is None else node
        connection = self._control.get(key)
        if connection is None or not connection.usable:
            if connection is not None:
                connection.close()
            connection = self._control[key] = self.open(node)
        return connection

    def close(self) -> None:
        """Close every shared connection."""
        for connection in self._control.values():
            connection.close()
        self._control.clear()
        self._coordinators.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _bootstrap(self) -> list[Address]:
        configured = parse_bootstrap(self.config.properties["bootstrap.servers"])
        known = list(dict.fromkeys([*self._brokers.values(), *configured]))
        if self.anywhere:
            random.shuffle(known)
        return known

    def _address(self, node: int) -> Address:
        address = self._brokers.get(node)
        if address is None:
            raise Retriable(f"broker {node} of {self.alias} is not in the cluster's metadata")
        return address

    def _refresh_brokers(self) -> None:
        calls_metadata = calls.metadata(self.control(), [])
        self._learn(self.control(), calls_metadata)

    def _learn(self, connection: Channel, answer: Metadata) -> None:
        if self.expected_id is None:
            self.expected_id = answer.cluster_id
        if answer.cluster_id != self.expected_id:
            connection.close()
            raise NeedsOperator(
                f"{connection.address} belongs to another cluster than {self.alias}",
                code=KafkaCode.FOREIGN_CLUSTER,
                where=self.alias,
                expected=f"cluster id {self.expected_id}",
                seen=f"cluster id {answer.cluster_id}",
                resolve="correct bootstrap.servers in the flow file, or name the flow anew for a new cluster",
            )
        self._brokers = {b.node_id: Address(b.host, b.port) for b in answer.brokers}

    # ---- metadata

    def cluster_id(self) -> str:
        """Return the id of the cluster, connecting if that has not happened yet."""
        if self.expected_id is None:
            self.control()
        return str(self.expected_id)

    def keep_to(self, cluster_id: str) -> None:
        """Refuse any other cluster from now on, unless one was met already."""
        if self.expected_id is None:
            self.expected_id = cluster_id

    def features(self, *, anew: bool = False) -> Features:
        """Return what the cluster has finalised; transaction.version 0 where the feature is unknown.

        Args:
            anew: ask again: features change when a cluster is upgraded.
        """
        if self._features is None or anew:
            answer = calls.api_versions(self.control())
            self._features = Features(answer.features.get(_TRANSACTION_VERSION, 0))
        return self._features

    def topics(self, names: Sequence[str] | None = None) -> dict[str, TopicInfo]:
        """Return the topics that exist among ``names`` (None: all), freshly read.

        Raises:
            Retriable: a topic's metadata is not available at the moment.
            NeedsOperator: not authorized to describe a topic that was named.
        """
        return self.each_topic(names).whole()

    def hidden_topics(self, names: Collection[str]) -> dict[str, OnceoverError]:
        """Return which of these topics may not be described, with the answer.

        A cluster leaves them out of the list of all topics, as if they were deleted; asked by name it
        answers TOPIC_AUTHORIZATION_FAILED.

        Raises:
            Retriable: the cluster is away.
        """
        answers = self.each_topic(sorted(names)).failed if names else {}
        return {topic: error for topic, error in answers.items() if isinstance(error, UsageError)}

    def each_topic(self, names: Sequence[str] | None = None) -> Each[str, TopicInfo]:
        """Return the same, with what the cluster does not answer beside it."""
        answer = calls.metadata(self.control(), names)
        each: Each[str, TopicInfo] = Each()
        for topic in answer.topics:
            match classify(Api.METADATA, topic.error_code):
                case Action.OK:
                    each.found[topic.name] = TopicInfo(
                        topic.name,
                        topic.topic_id,
                        {
                            p.partition_index: PartitionInfo(p.leader_id, p.leader_epoch)
                            for p in topic.partitions
                        },
                        topic.is_internal,
                    )
                case Action.MISSING:
                    continue
                case action:
                    name = topic.name
                    each.failed[name] = failure(self.alias, Api.METADATA, action, topic.error_code, name)
        return each

    # ---- coordinators

    def coordinator(self, key: str, key_type: int) -> Channel:
        """Return the shared connection to the coordinator of a group or transactional.id.

        Raises:
            Retriable: the coordinator is not available at the moment.
        """
        try:
            return self.control(self.coordinator_node(key, key_type))
        except Retriable:
            self.forget_coordinator(key, key_type)
            raise

    def coordinator_node(self, key: str, key_type: int) -> int:
        """Return the broker that coordinates a group or transactional.id, asking when it is not known."""
        return self.coordinator_nodes([key], key_type).whole()[key]

    def coordinator_nodes(self, keys: Sequence[str], key_type: int) -> Each[str, int]:
        """Return the same of many, asking for all that are not known together."""
        known = {key: self._coordinators.get((key, key_type)) for key in keys}
        each: Each[str, int] = Each({key: node for key, node in known.items() if node is not None})
        unknown = [key for key, node in known.items() if node is None]
        for begin in range(0, len(unknown), _KEYS_AT_ONCE):
            some = unknown[begin : begin + _KEYS_AT_ONCE]
            for key, (code, node) in calls.find_coordinators(self.control(), some, key_type).items():
                action = classify(Api.FIND_COORDINATOR, code)
                if action is Action.OK:
                    each.found[key] = self._coordinators[key, key_type] = node
                else:
                    each.failed[key] = failure(self.alias, Api.FIND_COORDINATOR, action, code, key)
        return each

    def forget_coordinator(self, key: str, key_type: int) -> None:
        """Look the coordinator up again next time."""
        self._coordinators.pop((key, key_type), None)

    def init_producer_id(self, transactional_id: str, timeout_ms: int) -> calls.InitResult:
        """Try InitProducerId once and return its answer; the caller decides about trying again."""
        connection = self.coordinator(transactional_id, calls.TRANSACTION)
        result = calls.init_producer_id(connection, transactional_id, timeout_ms)
        if classify(Api.INIT_PRODUCER_ID, result.error_code) is Action.REFRESH_AND_RETRY:
            self.forget_coordinator(transactional_id, calls.TRANSACTION)
        return result

    def fresh_producer_id(self) -> calls.InitResult:
        """Ask any broker for a producer id of our own, without transactions; fences nobody."""
        return calls.init_producer_id(self.control(), None, _NO_TRANSACTION_TIMEOUT_MS)

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None, *, stable: bool = True
    ) -> dict[TopicPartition, calls.CommittedOffset]:
        """Return the group's committed offsets; partitions without one are left out.

        Raises:
            Retriable: a transaction of the group is pending, or the coordinator is away.
            UsageError: not authorized to describe the group, or one of the topics.
        """
        return self.each_committed(group, partitions, stable=stable).whole()

    def each_committed(
        self, group: str, partitions: Iterable[TopicPartition] | None, *, stable: bool = True
    ) -> Each[TopicPartition, calls.CommittedOffset]:
        """Return the same, with the partitions beside it that may not be asked about.

        Raises:
            As ``committed``, where the group as a whole is not answered.
        """
        connection = self.coordinator(group, calls.GROUP)
        error, offsets = calls.offset_fetch(connection, {group: partitions}, stable=stable)[group]
        each: Each[TopicPartition, calls.CommittedOffset] = Each()
        for tp, code in [(None, error), *((tp, o.error_code) for tp, o in offsets.items())]:
            action = classify(Api.OFFSET_FETCH, code)
            if action is Action.REFRESH_AND_RETRY:
                self.forget_coordinator(group, calls.GROUP)
            if action in (Action.OK, Action.MISSING):
                continue
            problem = failure(self.alias, Api.OFFSET_FETCH, action, code, str(tp or group))
            if code == _UNSTABLE_OFFSET_COMMIT:
                problem.code = KafkaCode.PENDING_OFFSETS
            if tp is None or isinstance(problem, Retriable):
                raise problem
            each.failed[tp] = problem
        each.found.update((tp, o) for tp, o in offsets.items() if o.error_code == 0 and o.offset >= 0)
        return each

    # ---- offsets

    def list_offsets(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int, isolation: int = calls.READ_COMMITTED
    ) -> dict[TopicPartition, int]:
        """Return the offset at ``timestamp_ms`` (or EARLIEST, LATEST) of every partition.

        Raises:
            Retriable: a leader is moving.
            UsageError: not authorized to describe a topic.
        """
        return self.each_offset(partitions, timestamp_ms, isolation).whole()

    def each_offset(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int, isolation: int = calls.READ_COMMITTED
    ) -> Each[TopicPartition, int]:
        """Return the same, with the partitions beside it that are not answered."""
        each = self.each_leader(
            partitions,
            Api.LIST_OFFSETS,
            lambda connection, some: calls.list_offsets(connection, some, timestamp_ms, isolation),
        )
        return Each({tp: answer[1] for tp, answer in each.found.items()}, each.failed)

    def each_epoch_end(self, epochs: Mapping[TopicPartition, int]) -> Each[TopicPartition, tuple[int, int]]:
        """Return where each leader epoch ends in the log now, as (epoch, end offset) (KIP-320)."""
        each = self.each_leader(
            epochs,
            Api.OFFSET_FOR_LEADER_EPOCH,
            lambda connection, some: calls.end_offsets_for_epochs(
                connection, {tp: epochs[tp] for tp in some}
            ),
        )
        return Each({tp: (answer[1], answer[2]) for tp, answer in each.found.items()}, each.failed)

    def each_open(
        self, producer_ids: Mapping[TopicPartition, Collection[int]]
    ) -> Each[TopicPartition, tuple[int, int]]:
        """Return the first offset and the producer id of the oldest open transaction in each log.

        Only those of the ids that are named with the partition; -1 and -1 without one.
        """

        def oldest(tp: TopicPartition, firsts: Mapping[int, int]) -> tuple[int, int]:
            return min(((f, i) for i, f in firsts.items() if i in producer_ids[tp]), default=(-1, -1))

        def ask(
            connection: Channel, some: list[TopicPartition]
        ) -> dict[TopicPartition, tuple[int, int, int]]:
            found = calls.open_transactions(connection, some)
            return {tp: (code, *oldest(tp, firsts)) for tp, (code, firsts) in found.items()}

        each = self.each_leader(producer_ids, Api.DESCRIBE_PRODUCERS, ask)
        return Each({tp: answer[1:] for tp, answer in each.found.items()}, each.failed)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the same of all partitions.

        Raises:
            As ``list_offsets``.
        """
        return self.each_epoch_end(epochs).whole()

    def each_leader(
        self,
        partitions: Iterable[TopicPartition],
        api: Api,
        ask: Callable[[Channel, list[TopicPartition]], Mapping[TopicPartition, A]],
    ) -> Each[TopicPartition, A]:
        """Ask the leaders one after the other; each answer begins with an error code."""
        led = self._by_leader(list(partitions))
        each: Each[TopicPartition, A] = Each(failed=led.failed)
        for node in sorted(set(led.found.values())):
            group = [tp for tp, leader in led.found.items() if leader == node]
            try:
                answers = ask(self.control(node), group)
            except Retriable as error:
                each.failed.update(dict.fromkeys(group, error))
                continue
            for tp, answer in answers.items():
                action = classify(api, answer[0])
                if action is Action.OK:
                    each.found[tp] = answer
                else:
                    each.failed[tp] = failure(self.alias, api, action, answer[0], str(tp))
        return each

    def _by_leader(self, wanted: Sequence[TopicPartition]) -> Each[TopicPartition, int]:
        """Return each partition's leading broker; partitions that are not known or not led have failed."""
        topics = self.each_topic(sorted({tp.topic for tp in wanted})) if wanted else Each()
        each: Each[TopicPartition, int] = Each()
        for tp in wanted:
            info = topics.found.get(tp.topic)
            leader = info.partitions.get(tp.partition) if info else None
            if tp.topic in topics.failed:
                each.failed[tp] = topics.failed[tp.topic]
            elif leader is None or leader.leader < 0:
                text = f"{tp} has no leader on {self.alias} at the moment"
                each.failed[tp] = Retriable(text, code=KafkaCode.NO_LEADER, where=str(tp))
            else:
                each.found[tp] = leader.leader
        return each

    # ---- retrying

    def retry(
        self,
        attempt: Callable[[], T],
        deadline: Deadline | None = None,
        *,
        only: type[Retriable] = Retriable,
    ) -> T:
        """Run ``attempt`` until it works or the deadline passes.

        Args:
            deadline: without one, 30 s, or until nobody has patience with the cluster any more.
            only: what is tried again.
        """
        deadline = deadline or Deadline(DEFAULT_TIMEOUT_S)
        backoff, silence = Backoff(), Deadline(_SILENT_S)
        while True:
            try:
                return attempt()
            except only as error:
                log.debug("%s: trying again: %s", self.alias, error)
                if not self.patience.left_s:
                    raise
                if silence.passed and not deadline.passed:
                    log.warning("%s; trying for %s more", error.message, age_text(deadline.left_s))
                    silence = Deadline(deadline.left_s)
                began_s = time.monotonic()
                backoff.pause(deadline, error)
                self.patience.spend(time.monotonic() - began_s)


def parse_bootstrap(servers: str) -> list[Address]:
    """Split ``bootstrap.servers``; IPv6 addresses come in brackets."""
    addresses = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        addresses.append(Address(host.strip("[]"), int(port)))
    return addresses


def _optimized() -> UsageError:
    # An assertion of kafka-python's reads a byte of an answer (tagged_fields.py, 3.0.12): left out, what
    # follows is decoded as something else.
    return UsageError(
        "Python was told to leave out assertions, without which Kafka's answers are misread",
        code=KafkaCode.PYTHON_OPTIMIZED,
        seen="-O, or PYTHONOPTIMIZE in the environment",
        resolve="start it without",
    )
