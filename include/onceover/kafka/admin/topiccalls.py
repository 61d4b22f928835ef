"""The requests that create, configure and delete topics; the rules of ``kafka.calls``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from onceover.kafka import calls
from onceover.kafka.admin.changes import AdminAnswer
from onceover.kafka.link.channel import Channel

# For how long the controller may try; below the time that an answer may take.
_TIMEOUT_MS: Final = 30_000
_TOPIC: Final = 2
_SET, _DELETE = 0, 1


class NewTopic(NamedTuple):
    """A topic to create, in the order of the protocol's schema."""

    name: str
    partitions: int
    replication_factor: int
    assignments: Sequence[object]
    configs: Sequence[tuple[str, str]]


class ConfigValue(NamedTuple):
    """One key of a topic's configuration; ``source`` is the protocol's ConfigSource."""

    value: str | None
    source: int


def create_topics(
    connection: Channel, topics: Sequence[NewTopic], *, validate_only: bool
) -> dict[str, AdminAnswer]:
    """CreateTopics v5: an answer for each, by name."""
    request = CreateTopicsRequest(
        version=5, topics=list(topics), timeout_ms=_TIMEOUT_MS, validate_only=validate_only
    )
    names = [topic.name for topic in topics]
    return connection.call(
        request, CreateTopicsResponse, lambda answer: _of(names, ((t.name, t) for t in answer.topics))
    )


def delete_topics(connection: Channel, topics: Sequence[str]) -> dict[str, AdminAnswer]:
    """DeleteTopics v5: an answer for each, by name."""
    request = DeleteTopicsRequest(version=5, topic_names=list(topics), timeout_ms=_TIMEOUT_MS)
    return connection.call(
        request,
        DeleteTopicsResponse,
        lambda answer: _of(topics, ((t.name, t) for t in answer.responses)),
    )


def delete_topic(connection: Channel, topic_id: UUID) -> AdminAnswer:
    """DeleteTopics v6 (brokers since 2.8): the topic of that id, and no namesake."""
    request = DeleteTopicsRequest(version=6, topics=[(None, topic_id)], timeout_ms=_TIMEOUT_MS)

    def read(answer: Any) -> AdminAnswer:
        [one] = answer.responses
        return _answer(one)

    return connection.call(request, DeleteTopicsResponse, read)


def create_partitions(connection: Channel, topic: str, count: int) -> AdminAnswer:
    """CreatePartitions v2: let the topic have so many in all."""
    request = CreatePartitionsRequest(
        version=2, topics=[(topic, count, None)], timeout_ms=_TIMEOUT_MS, validate_only=False
    )
    return connection.call(
        request,
        CreatePartitionsResponse,
        lambda answer: _of([topic], ((t.name, t) for t in answer.results))[topic],
    )


def describe_topic_configs(
    connection: Channel, topics: Sequence[str]
) -> dict[str, tuple[AdminAnswer, dict[str, ConfigValue]]]:
    """DescribeConfigs v4: an answer for each topic, and what its configuration is with all defaults."""

    def read(answer: Any) -> dict[str, tuple[AdminAnswer, dict[str, ConfigValue]]]:
        results = {calls.text(result.resource_name): result for result in answer.results}
        return {name: (_answer(results[name]), _values(results[name])) for name in topics}

    request = DescribeConfigsRequest(
        version=4,
        resources=[(_TOPIC, name, None) for name in topics],
        include_synonyms=False,
        include_documentation=False,
    )
    return connection.call(request, DescribeConfigsResponse, read)


def alter_topic_configs(
    connection: Channel, changes: Mapping[str, Mapping[str, str | None]]
) -> dict[str, AdminAnswer]:
    """IncrementalAlterConfigs v1: set keys, or remove those that are None; an answer for each topic."""
    resources = [
        (_TOPIC, topic, [(key, _DELETE if value is None else _SET, value) for key, value in keys.items()])
        for topic, keys in changes.items()
    ]
    request = IncrementalAlterConfigsRequest(version=1, resources=resources, validate_only=False)
    return connection.call(
        request,
        IncrementalAlterConfigsResponse,
        lambda answer: _of(list(changes), ((r.resource_name, r) for r in answer.responses)),
    )


def _of(names: Sequence[str], found: Iterable[tuple[Any, Any]]) -> dict[str, AdminAnswer]:
    """Return the answers for all names: one that lacks any is damaged."""
    answers = {calls.text(name): _answer(result) for name, result in found}
    return {name: answers[name] for name in names}


def _answer(result: Any) -> AdminAnswer:
    return AdminAnswer(int(result.error_code), str(result.error_message or ""))


def _values(result: Any) -> dict[str, ConfigValue]:
    return {
        calls.text(entry.name): ConfigValue(
            None if entry.value is None else calls.text(entry.value), int(entry.config_source)
        )
        for entry in result.configs
    }
