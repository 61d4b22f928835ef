"""Creating topics, and reading and setting their configuration, through confluent-kafka's admin client.

One topic's failure is that topic's: calls over many topics return what failed by name and raise only
what concerns them all. Used on the driver and the command line only: its threads do not survive a fork.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.cluster import ClientSettings, Cluster
from onceover.kafka.librdkafka import library_properties

_TIMEOUT_S = 30.0
# ConfigSource.DYNAMIC_TOPIC_CONFIG: set on the topic itself, not inherited from the broker.
_SET_ON_TOPIC = 1
UNAUTHORIZED: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)
# Codes of the errors that callers tell apart.
TOPIC_EXISTS: Final = "TOPIC_EXISTS"
TOPIC_MISSING: Final = "TOPIC_MISSING"
INVALID_CONFIG: Final = "INVALID_CONFIG"
NOT_AUTHORIZED: Final = "NOT_AUTHORIZED"
_CODES = {
    KafkaError.TOPIC_ALREADY_EXISTS: TOPIC_EXISTS,
    KafkaError.UNKNOWN_TOPIC_OR_PART: TOPIC_MISSING,
    KafkaError.INVALID_CONFIG: INVALID_CONFIG,
}

# What passes by itself. Codes that the library calls retriable are not enough: it says so of errors of
# transactions alone. UNKNOWN_TOPIC_OR_PART is not among them: the callers ask metadata whether it is gone.
_TEMPORARY: Final = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._QUEUE_FULL,
        KafkaError._WAIT_COORD,
        KafkaError._WAIT_CACHE,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_CONTROLLER,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)

Failures = dict[str, OnceoverError]


def is_temporary(error: KafkaError) -> bool:
    """Tell whether an error of the library is known to pass by itself."""
    return error.code() in _TEMPORARY


@dataclass(frozen=True)
class TopicSpec:
    """A topic to create. ``replication_factor`` -1 takes the broker's default."""

    name: str
    partitions: int
    replication_factor: int = -1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicConfigs:
    """What a cluster says about topics' configuration.

    Args:
        overrides: each topic's own configuration, without what it inherits from the broker; topics that
            do not exist are left out.
        keys: every key that the cluster knows; empty when no topic was described.
        failures: topics that could not be described.
        append_time: topics whose records get the broker's clock, by their own configuration or its default.
        standing: of the keys that were asked for what holds for each topic, its own or the broker's default.
        defaults: of the same keys what a topic inherits that does not set them.
    """

    overrides: Mapping[str, Mapping[str, str]]
    keys: frozenset[str]
    failures: Mapping[str, OnceoverError]
    append_time: frozenset[str] = frozenset()
    standing: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)


def open_admin(settings: ClientSettings) -> AdminClient:
    """Return the library's client."""
    own = {"socket.timeout.ms": int(_TIMEOUT_S * 1000), "socket.keepalive.enable": True}
    return AdminClient({**library_properties(settings.properties), **own})


class Admin:
    """Administration of one cluster. Every call raises ``Retriable``, ``UsageError`` or
    ``NeedsOperator`` and nothing of the library.

    The library takes whatever answers at an address for its cluster: each call asks it first whom it has
    reached. Where that is not the cluster that is meant, nothing is asked or changed (FOREIGN_CLUSTER).
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._alias = cluster.alias
        self._client = open_admin(cluster.config)

    def _recognise(self) -> None:
        try:
            seen = self._client.describe_cluster(request_timeout=_TIMEOUT_S).result()
        except KafkaException as error:
            raise self._translated(error, "say which cluster it is") from error
        self._cluster.recognise(seen.cluster_id, self._cluster.config.properties["bootstrap.servers"])

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        """Create the topics that do not exist yet; an existing one is left as it is."""
        for error in self.try_create(specs).values():
            if error.code != TOPIC_EXISTS:
                raise error

    def try_create(self, specs: Iterable[TopicSpec], *, validate_only: bool = False) -> Failures:
        """Create topics; return what failed, by name.

        Args:
            specs: one request carries them all.
            validate_only: ask whether it would work, and create nothing.
        """
        wanted = [NewTopic(s.name, s.partitions, s.replication_factor, config=dict(s.config)) for s in specs]
        if not wanted:
            return {}
        self._recognise()
        futures = self._client.create_topics(
            wanted, operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S, validate_only=validate_only
        )
        return self._failures(futures, "create topic {}")

    def grow_topic(self, name: str, count: int) -> None:
        """Add partitions so that the topic has ``count``; a topic that has them already is left alone."""
        self._recognise()
        futures = self._client.create_partitions([NewPartitions(name, count)], request_timeout=_TIMEOUT_S)
        for future in futures.values():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.INVALID_PARTITIONS:
                    raise self._translated(error, f"add partitions to topic {name}") from error

    def topic_configs(self, names: Iterable[str], *, standing: Collection[str] = ()) -> TopicConfigs:
        """Return the topics' configuration, in one request.

        Args:
            names: of the topics.
            standing: keys whose value is wanted also where a topic inherits it.
        """
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        found: dict[str, dict[str, str]] = {}
        keys: set[str] = set()
        append_time: set[str] = set()
        held: dict[str, dict[str, str]] = {}
        defaults: dict[str, str] = {}
        if resources:
            self._recognise()
        futures = self._client.describe_configs(resources, request_timeout=_TIMEOUT_S) if resources else {}
        by_name = {resource.name: future for resource, future in futures.items()}
        failures = self._failures(by_name, "describe the configuration of topic {}")
        for name in by_name.keys() - failures.keys():
            entries = by_name[name].result()
            keys.update(entries)
            timestamps = entries.get("message.timestamp.type")
            if timestamps is not None and timestamps.value == "LogAppendTime":
                append_time.add(name)
            found[name] = {
                key: entry.value
                for key, entry in entries.items()
                if entry.source == _SET_ON_TOPIC and entry.value is not None
            }
            held[name] = {key: entries[key].value for key in standing if key in entries}
            defaults |= {key: value for key, value in held[name].items() if key not in found[name]}
        gone = {name for name, error in failures.items() if error.code == TOPIC_MISSING}
        kept = {name: error for name, error in failures.items() if name not in gone}
        return TopicConfigs(found, frozenset(keys), kept, frozenset(append_time), held, defaults)

    def alter_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> Failures:
        """Set topics' own configuration, None removes a key; return what failed, by topic.

        A topic's changes are made together or not at all; its other keys stay (KIP-339).
        """
        resources = [
            ConfigResource(
                ResourceType.TOPIC, topic, incremental_configs=[_entry(k, v) for k, v in keys.items()]
            )
            for topic, keys in changes.items()
            if keys
        ]
        if not resources:
            return {}
        self._recognise()
        futures = self._client.incremental_alter_configs(resources, request_timeout=_TIMEOUT_S)
        by_name = {resource.name: future for resource, future in futures.items()}
        return self._failures(by_name, "set the configuration of topic {}")

    def _failures(self, futures: Mapping[str, Future[Any]], what: str) -> Failures:
        """Wait for every answer; raise what is worth trying again, return the rest."""
        found: Failures = {}
        for name, future in futures.items():
            try:
                future.result()
            except KafkaException as error:
                found[name] = self._translated(error, what.format(name))
        for problem in found.values():
            if isinstance(problem, Retriable):
                raise problem
        return found

    def _translated(self, error: KafkaException, what: str) -> OnceoverError:
        cause: Any = error.args[0]
        text = f"{self._alias} did not {what}: {cause.str()}"
        if cause.code() in UNAUTHORIZED:
            return UsageError(
                text,
                code=NOT_AUTHORIZED,
                resolve="grant the principal the rights listed in docs/operations.md",
            )
        if is_temporary(cause):
            return Retriable(text, resolve=f"check that {self._alias} is up, then run again")
        return NeedsOperator(text, code=_CODES.get(cause.code(), "ADMIN_REFUSED"))


def _entry(key: str, value: str | None) -> ConfigEntry:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    return ConfigEntry(key, value, incremental_operation=operation)
