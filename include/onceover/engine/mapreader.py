"""Reading a flow's offset map from its topic (DESIGN 4): what the receipts and translation stand on."""

from __future__ import annotations

from collections.abc import Iterator

from onceover.engine import names
from onceover.errors import Retriable
from onceover.kafka import calls
from onceover.kafka.cluster import Cluster, failure
from onceover.kafka.fetcher import Fetcher, Position
from onceover.model import TopicPartition
from onceover.txn.classify import Action, Api, classify
from onceover.wire.hotpath import FetchedPartition
from onceover.wire.offsetmap import MapRecord, decode_map_key, decode_map_value
from onceover.wire.records import control_type, decode
from onceover.wire.visibility import visible_batches

_MAX_BYTES = 8 << 20
_WAIT_S = 10.0


def read_map(target: Cluster, flow: str) -> Iterator[list[MapRecord]]:
    """Yield every committed map record that the topic held when the call began, a fetch at a time.

    Records of one pair of partitions come in commit order; pairs are interleaved.

    Raises:
        Retriable: a broker is away; begin again.
        NeedsOperator: a record cannot be read.
    """
    topic = names.map_topic(flow)
    info = target.topics([topic]).get(topic)
    if info is None:
        return
    partitions = [TopicPartition(topic, p) for p in info.partitions]
    ends = target.list_offsets(partitions, calls.LATEST)
    starts = target.list_offsets(partitions, calls.EARLIEST)
    fetcher = Fetcher(
        target, isolation=calls.READ_COMMITTED, max_bytes=_MAX_BYTES, partition_max_bytes=_MAX_BYTES // 4
    )
    try:
        for tp in partitions:
            leader = info.partitions[tp.partition]
            position = Position(info.topic_id, starts[tp], leader.leader, leader.leader_epoch)
            if position.offset < ends[tp]:
                fetcher.assign(tp, position)
        while fetcher.positions:
            fetcher.request(max_wait_ms=100, min_bytes=1)
            for tp, answer in fetcher.poll(_WAIT_S):
                yield _read(target, fetcher.positions[tp], tp, answer)
                if fetcher.positions[tp].offset >= ends[tp]:
                    fetcher.remove(tp)
    finally:
        fetcher.close()


def _read(
    target: Cluster, position: Position, tp: TopicPartition, answer: FetchedPartition
) -> list[MapRecord]:
    action = classify(Api.FETCH, answer.error_code)
    if action in (Action.OUT_OF_RANGE, Action.RETRY, Action.REFRESH_AND_RETRY):
        raise Retriable(f"{tp} cannot be read at the moment (error {answer.error_code})")
    if action is not Action.OK:
        raise failure(target.alias, Api.FETCH, action, answer.error_code, str(tp))
    found: list[MapRecord] = []
    for visible in visible_batches(answer.records, answer.aborted, position.offset, control_type):
        if visible.batch is not None:
            for record in decode(visible.header, visible.batch):
                if record.offset >= position.offset and record.key is not None and record.value is not None:
                    found.append(decode_map_value(decode_map_key(record.key), record.value))
        position.offset = visible.header.next_offset
    return found
