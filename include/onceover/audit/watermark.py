"""The verified watermark: up to where a partition's copy has been proven right (DESIGN 11).

Invariant: of one pair of topics it is never written lower, not even by two audits at the same time: a
writer fences the one before it, reads what is there, and writes in a transaction that only the last one
can commit. Another topic of the same name (topic id) begins anew.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final
from uuid import UUID

from confluent_kafka import KafkaException, Producer

from onceover.engine import names
from onceover.engine.statelog import StateLog
from onceover.engine.verdicts import Verdicts, read_verdicts
from onceover.errors import Retriable
from onceover.kafka.cluster import Cluster
from onceover.kafka.deliveries import let_go
from onceover.kafka.librdkafka import library_properties
from onceover.model import TopicPartition

log = logging.getLogger(__name__)

VERSION: Final = 1
_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """What is proven of one partition.

    Args:
        offset: source offset up to which everything is on the target as it should be; exclusive.
        target_offset: the target offset that belongs to it: everything before it was looked at.
        source_id: topic id of the source; ``target_id`` of the target.
        timestamp_ms: largest record timestamp before ``offset``, -1 when unknown.
        at_ms: when the bounds of the audit were fixed, in ms since 1970.
    """

    offset: int
    target_offset: int
    source_id: UUID
    target_id: UUID
    timestamp_ms: int
    at_ms: int

    def to_json(self) -> dict[str, Any]:
        """Return the value written under ``verified/<target topic>/<partition>``."""
        return {
            "v": VERSION,
            **asdict(self),
            "source_id": str(self.source_id),
            "target_id": str(self.target_id),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Watermark | None:
        """Read what ``to_json`` wrote; None for another version's: the audit begins anew then."""
        if value.get("v") != VERSION:
            return None
        fields = {name: value[name] for name in cls.__dataclass_fields__}
        return cls(**{**fields, "source_id": UUID(value["source_id"]), "target_id": UUID(value["target_id"])})

    def of(self, source_id: UUID, target_id: UUID) -> bool:
        """Tell whether it is about these topics and not about earlier ones of the same name."""
        return (self.source_id, self.target_id) == (source_id, target_id)

    def advances(self, known: Watermark | None) -> bool:
        """Tell whether it may be written over ``known``: further on, or about other topics."""
        if known is None or not self.of(known.source_id, known.target_id):
            return True
        # Proven again without getting further: the same offset, seen later.
        return self.offset > known.offset or (self.offset == known.offset and self.at_ms > known.at_ms)


def read_watermarks(others: Mapping[str, Any]) -> dict[TopicPartition, Watermark]:
    """Return the watermarks among the values of the state's second partition, by target partition."""
    found = {}
    for key, value in others.items():
        if key.startswith(names.VERIFIED_PREFIX):
            watermark = Watermark.from_json(value)
            if watermark is not None:
                found[TopicPartition(*names.split_partition_key(key))] = watermark
    return found


def write_outcome(
    target: Cluster,
    flow: str,
    wanted: Mapping[TopicPartition, Watermark],
    verdicts: Callable[[Verdicts | None], Verdicts] | None = None,
) -> None:
    """Write what an audit leaves in the state: watermarks that get further than those there, its verdict.

    Args:
        wanted: watermarks by target partition.
        verdicts: makes of what the audits before have left what is left now; None where nothing was judged.

    Raises:
        Retriable: the target is away, or another audit of this flow is writing now.
        NeedsOperator: another cluster answers where the target should (FOREIGN_CLUSTER).
    """
    if not wanted and verdicts is None:
        return
    producer = Producer(
        {
            **library_properties(target.config.properties),
            "transactional.id": names.audit_id(flow),
            "transaction.timeout.ms": int(_TIMEOUT_S * 1000),
        }
    )
    try:
        producer.init_transactions(_TIMEOUT_S)
        # Only now: what the audit before us had under way is decided.
        state = _state(target, flow)
        known = read_watermarks(state)
        news: dict[str, Any] = {
            names.verified_key(*tp): mark.to_json()
            for tp, mark in wanted.items()
            if mark.advances(known.get(tp))
        }
        if verdicts is not None:
            news[names.VERDICTS] = verdicts(read_verdicts(state.get(names.VERDICTS))).to_json()
        if news:
            # The library takes whatever answers at an address for its cluster.
            seen = producer.list_topics(names.state_topic(flow), _TIMEOUT_S)
            target.recognise(seen.cluster_id, target.config.properties["bootstrap.servers"])
            _commit(producer, flow, news)
    except KafkaException as error:
        raise Retriable(
            f"the outcome of the audit of {flow} was not written: {error.args[0].str()}",
            where=names.state_topic(flow),
            resolve="run the audit again; what was compared is in its report",
        ) from error
    finally:
        let_go(producer)


def _state(target: Cluster, flow: str) -> Mapping[str, Any]:
    state = StateLog(target, names.state_topic(flow), names.STATE_OTHERS)
    try:
        return target.retry(state.catch_up)
    finally:
        state.close()


def _commit(producer: Producer, flow: str, news: Mapping[str, Any]) -> None:
    producer.begin_transaction()
    for key, value in news.items():
        producer.produce(
            names.state_topic(flow),
            key=key.encode(),
            value=json.dumps(value, separators=(",", ":")).encode(),
            partition=names.STATE_OTHERS,
        )
    producer.commit_transaction(_TIMEOUT_S)
