"""What a run found and did, kept on the workers' Kafka cluster: whoever goes on may sit at another machine.

Invariant: of all runs for one connector only the newest writes. It takes the transactional id over from the
others, and a transaction carries the whole manifest, so a reader finds one that was written, never half of
one. No configuration gets there, nor a hash that a weak secret could be guessed from.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import quote
from uuid import UUID

from onceover.backoff import Backoff, Deadline
from onceover.connectors.codes import ConnectorCode
from onceover.connectors.offsets.write import HeldProducer
from onceover.connectors.record.manifest import Manifest
from onceover.connectors.rights import check_new_topic, check_topic, check_transactional_ids, needing
from onceover.errors import Fenced, NeedsOperator, Retriable
from onceover.kafka.admin.topicfacts import topic_facts
from onceover.kafka.admin.topics import ANY_TIME, Admin, TopicSpec
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.state.log import StateLog
from onceover.state.names import PREFIX

log = logging.getLogger(__name__)

Again: TypeAlias = Callable[[Sequence[Mapping[str, Any]]], tuple[HeldProducer, dict[str, Any]]]

_RIGHTS: Final = ("DESCRIBE", "READ", "WRITE")
_COMPACTED: Final = {"cleanup.policy": "compact", **ANY_TIME}
_NOT_IN_TOPICS: Final = re.compile(r"[^A-Za-z0-9._-]")
# Of the 249 that a topic's name may have.
_NAME_CHARACTERS: Final = 200
# For as long an election, or a broker that is started again, may take.
_WRITTEN_S: Final = 20.0
# Of offsets in one record: brokers take 1 MiB by default.
_PART_BYTES: Final = 500_000


def runs_topic(group_id: str) -> str:
    """Return the topic with the runs for the connectors of a Connect cluster; not named as a flow's state."""
    # A group may be named with anything, a topic may not.
    plain = _NOT_IN_TOPICS.sub("_", group_id)[:_NAME_CHARACTERS]
    if plain != group_id:
        plain += f".{hashlib.sha256(group_id.encode()).hexdigest()[:8]}"
    return f"{PREFIX}connect.{plain}.runs"


def run_ids(group_id: str) -> str:
    """Return what the transactional ids of runs begin with: the rest is the connector's name.

    No group's beginning is one of another group's, so that a right on it is one on that group's runs: what is
    neither a letter, a digit, nor one of ``-_~`` is written as in an address (a dot as ``%2E``).
    """
    return f"onceover.connect-run.{_apart(group_id)}."


def copy_ids(group_id: str) -> str:
    """Return what the transactional ids begin with under which offsets are written: as ``run_ids``."""
    return f"onceover.connect.{_apart(group_id)}."


def _apart(group_id: str) -> str:
    return quote(group_id, safe="").replace(".", "%2E")


class RunRecords:
    """The newest run of each kind for each connector of one Connect cluster. Not thread-safe.

    Args:
        cluster: of the workers' internal topics; stays the caller's.
        group_id: of the workers.
        like: the topic whose replication factor the topic gets.
    """

    def __init__(self, cluster: Cluster, group_id: str, like: str) -> None:
        self.topic = runs_topic(group_id)
        self._cluster = cluster
        self._group_id = group_id
        self._ids = run_ids(group_id)
        self._like = like
        self._log: StateLog | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._log is not None:
            self._log.close()

    def place(self) -> str:
        """Return which Connect cluster this is: the workers' Kafka cluster, and their group.

        Raises:
            Retriable: a broker is away, and none was met before.
        """
        return f"{self._cluster.cluster_id()}/{self._group_id}"

    def check(self, connector: str) -> None:
        """See to it that we may write a run down. Changes nothing.

        Raises:
            UsageError: NOT_AUTHORIZED.
            Retriable: a broker is away.
        """
        check_transactional_ids(self._cluster, [self._id(connector)])
        if self._exists():
            check_topic(self._cluster, self.topic, _RIGHTS)
        else:
            check_new_topic(self._cluster, self._spec())

    def load(self, connector: str, operation: str) -> Manifest | None:
        """Return the newest run of this kind, None without one.

        Raises:
            NeedsOperator: MANIFEST_DAMAGED.
            UsageError: NOT_AUTHORIZED.
            Retriable: a broker is away, or a transaction stays open.
        """
        values = self._values()
        head = values.get(_key(connector, operation))
        if not isinstance(head, dict):
            return None
        try:
            return _joined(head, [values[key] for key in _part_keys(connector, operation, head["parts"])])
        except (ValueError, KeyError, TypeError) as error:
            raise NeedsOperator(
                f"what an earlier run for {connector} wrote down cannot be read: {error}",
                code=ConnectorCode.MANIFEST_DAMAGED,
                where=f"{self.topic} on {self._cluster.alias}",
                resolve=f"write a record without a value for the key {_key(connector, operation)}: the next "
                "run begins anew from the connector as it is then",
            ) from error

    def claim(self, connector: str) -> RunClaim:
        """Take the connector over: every other run for it ends at its next step.

        Raises:
            Fenced: another run has written since this one looked.
            UsageError: a right is missing.
            Retriable: a broker is away.
        """
        before = self._of(connector)
        self._create()
        held, _ = self._held(connector, [before])

        def again(expected: Sequence[Mapping[str, Any]]) -> tuple[HeldProducer, dict[str, Any]]:
            # In a topic that was made anew nobody else has written.
            possible = [*expected, {}]
            # First of all: to fence a newer run would leave nobody who goes on.
            self._check_same(connector, possible)
            return self._held(connector, possible)

        return RunClaim(held, self._identity, before, again)

    def _held(
        self, connector: str, expected: Sequence[Mapping[str, Any]]
    ) -> tuple[HeldProducer, dict[str, Any]]:
        """Return a producer that fences all others, and what stands in the topic then.

        Raises:
            Fenced: that is not as expected.
            OnceoverError: as ``claim``.
        """
        held = HeldProducer(self._cluster, TopicPartition(self.topic, 0), self._id(connector))
        try:
            self._check_same(connector, expected)
        except BaseException:
            held.close()
            raise
        return held, self._of(connector)

    def _check_same(self, connector: str, expected: Sequence[Mapping[str, Any]]) -> None:
        self._values()
        if self._of(connector) not in expected:
            raise Fenced(
                f"another run for {connector} went on while this one began",
                code=ConnectorCode.FENCED,
                where=f"{self.topic} on {self._cluster.alias}",
                resolve="see where the other run has left it, then run again",
            )

    def _of(self, connector: str) -> dict[str, Any]:
        values = {} if self._log is None else self._log.values
        begin = f"{json.dumps([connector])[:-1]}, "
        return {key: value for key, value in values.items() if key.startswith(begin)}

    def _values(self) -> Mapping[str, Any]:
        if self._log is None:
            if not self._exists():
                return {}
            self._log = StateLog(self._cluster, self.topic, 0)
        with needing(self._cluster.config, "READ", f"topic {self.topic}"):
            return self._cluster.retry(self._log.catch_up)

    def _identity(self) -> UUID | None:
        """Return which topic bears the name now; None where none does."""
        found = self._cluster.retry(lambda: self._cluster.topics([self.topic])).get(self.topic)
        return None if found is None else found.topic_id

    def _exists(self) -> bool:
        with needing(self._cluster.config, "DESCRIBE", f"topic {self.topic}"):
            return self.topic in self._cluster.retry(lambda: self._cluster.topics([self.topic]))

    def _create(self) -> None:
        if self._exists():
            return
        with needing(self._cluster.config, "CREATE", f"topic {self.topic}"):
            Admin(self._cluster).make_topics([self._spec()])

    def _spec(self) -> TopicSpec:
        factor = self._cluster.retry(lambda: topic_facts(self._cluster, self._like)).replication_factor
        return TopicSpec(self.topic, 1, factor, _COMPACTED)

    def _id(self, connector: str) -> str:
        return f"{self._ids}{connector}"


class RunClaim:
    """A run that is the newest for its connector, until another one begins.

    A producer that a broker was away from is of no use any more: another one takes its place, unless somebody
    else has written meanwhile.

    Args:
        producer: is closed with it.
        identity: returns which topic it is that is written to now.
        before: what the topic has of the connector.
        again: returns another producer, and what the topic has then; raises ``Fenced`` where that is none of
            what it is given.
    """

    def __init__(
        self,
        producer: HeldProducer,
        identity: Callable[[], UUID | None],
        before: Mapping[str, Any],
        again: Again,
    ) -> None:
        self._producer: HeldProducer | None = producer
        self._identity = identity
        self._again = again
        # What the topic has; more than one where nobody has heard whether the last write came about.
        self._possible: list[dict[str, Any]] = [dict(before)]
        self._written: tuple[str, UUID | None] | None = None

    def close(self) -> None:
        """End it; nobody is fenced by that."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def write(self, manifest: Manifest) -> None:
        """Write the run down; again with another producer where a broker was away, or a leader has moved.

        Raises:
            Fenced: another run has begun.
            Retriable: a broker is away for longer; the next call begins with another producer.
            UsageError: a right is missing.
        """
        parts = list(_parts(manifest))
        key = manifest.connector, manifest.operation
        # One that was deleted and made anew, by another connector's run, say, has none of them.
        written = f"{manifest.begun_ms} {manifest.digest}", self._identity()
        records = {_key(*key): _head(manifest, len(parts))}
        # They are many, and the same from the snapshot on.
        if written != self._written:
            records |= dict(zip(_part_keys(*key, len(parts)), parts, strict=True))
        backoff, deadline = Backoff(), Deadline(_WRITTEN_S)
        while True:
            try:
                self._write(records)
                break
            except Retriable as error:
                log.info("%s: taking it over again: %s", manifest.connector, error)
                backoff.pause(deadline, error)
        self._written = written

    def _write(self, records: Mapping[str, Any]) -> None:
        content = {key: _encoded(value) for key, value in records.items()}
        if self._producer is None:
            self._producer, found = self._again(self._possible)
            self._possible = [found]
        after = self._possible[-1] | {key: json.loads(value) for key, value in content.items()}
        try:
            self._producer.write((key.encode(), value) for key, value in content.items())
        except Retriable:
            self._possible.append(after)
            self.close()
            raise
        self._possible = [after]


def _head(manifest: Manifest, parts: int) -> dict[str, Any]:
    return {**manifest.public_document(), "parts": parts}


def _parts(manifest: Manifest) -> Iterator[dict[str, Any]]:
    """Yield the offsets in portions that fit into a record."""
    pairs: list[list[str | None]] = []
    size = 0
    for pair in manifest.pairs():
        length = sum(len(text or "") for text in pair)
        if pairs and size + length > _PART_BYTES:
            yield {"begun_ms": manifest.begun_ms, "pairs": pairs}
            pairs, size = [], 0
        pairs.append(pair)
        size += length
    if pairs:
        yield {"begun_ms": manifest.begun_ms, "pairs": pairs}


def _joined(head: Mapping[str, Any], parts: list[Any]) -> Manifest:
    if any(part["begun_ms"] != head["begun_ms"] for part in parts):
        raise ValueError("its offsets are another run's")
    pairs = [pair for part in parts for pair in part["pairs"]]
    document = {key: value for key, value in head.items() if key != "parts"}
    return Manifest.of_document(document, pairs if document.pop("read") else None)


def _key(connector: str, operation: str) -> str:
    return json.dumps([connector, operation])


def _part_keys(connector: str, operation: str, parts: int) -> Iterator[str]:
    """Yield the keys, one at a time: how many there are is said by a record, whoever wrote it."""
    return (json.dumps([connector, operation, number]) for number in range(parts))


def _encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
