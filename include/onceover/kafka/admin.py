"""Creating topics and reading their configuration, through confluent-kafka's admin client.

Used on the driver and the command line only: its threads do not survive a fork.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from onceover.errors import NeedsOperator, Retriable, UsageError
from onceover.kafka.cluster import ClientSettings

_TIMEOUT_S = 30.0
# ConfigSource.DYNAMIC_TOPIC_CONFIG: set on the topic itself, not inherited from the broker.
_SET_ON_TOPIC = 1
_UNAUTHORIZED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)


@dataclass(frozen=True)
class TopicSpec:
    """A topic to create. ``replication_factor`` -1 takes the broker's default."""

    name: str
    partitions: int
    replication_factor: int = -1
    config: Mapping[str, str] = field(default_factory=dict)


class Admin:
    """Administration of one cluster. Every call raises ``Retriable``, ``UsageError`` or
    ``NeedsOperator`` and nothing of the library."""

    def __init__(self, settings: ClientSettings) -> None:
        self._alias = settings.alias
        self._client = AdminClient({**settings.properties, "socket.timeout.ms": int(_TIMEOUT_S * 1000)})

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        """Create the topics that do not exist yet; an existing one is left as it is."""
        wanted = {
            s.name: NewTopic(s.name, s.partitions, s.replication_factor, config=dict(s.config)) for s in specs
        }
        if not wanted:
            return
        for name, future in self._client.create_topics(
            list(wanted.values()), operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S
        ).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise self._translated(error, f"create topic {name}") from error

    def grow_topic(self, name: str, count: int) -> None:
        """Add partitions so that the topic has ``count``; a topic that has them already is left alone."""
        wanted = [NewPartitions(name, count)]
        for future in self._client.create_partitions(wanted, request_timeout=_TIMEOUT_S).values():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.INVALID_PARTITIONS:
                    raise self._translated(error, f"add partitions to topic {name}") from error

    def topic_overrides(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return each topic's own configuration, without what it inherits from the broker."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        found: dict[str, dict[str, str]] = {}
        if not resources:
            return found
        for resource, future in self._client.describe_configs(resources, request_timeout=_TIMEOUT_S).items():
            try:
                entries = future.result()
            except KafkaException as error:
                raise self._translated(
                    error, f"describe the configuration of topic {resource.name}"
                ) from error
            found[resource.name] = {
                name: entry.value
                for name, entry in entries.items()
                if entry.source == _SET_ON_TOPIC and entry.value is not None
            }
        return found

    def _translated(self, error: KafkaException, what: str) -> Exception:
        cause: Any = error.args[0]
        text = f"{self._alias} did not {what}: {cause.str()}"
        if cause.code() in _UNAUTHORIZED:
            return UsageError(
                text,
                code="NOT_AUTHORIZED",
                resolve="grant the principal the rights listed in docs/operations.md",
            )
        if cause.retriable() or cause.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
            return Retriable(text, resolve=f"check that {self._alias} is up, then run again")
        return NeedsOperator(text, code="ADMIN_REFUSED")
