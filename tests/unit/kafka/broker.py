"""A scripted broker under the real producer: real Produce bytes, plain answers, error codes on demand."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kafka.protocol.producer import ProduceRequest, ProduceResponse

from onceover.backoff import Patience
from onceover.kafka.calls import InitResult
from onceover.kafka.each import Each
from onceover.kafka.link.connection import ConnectionLost
from onceover.kafka.ports import Features, PartitionInfo, TopicInfo
from onceover.model import TopicPartition
from onceover.wire.batches.batch import iter_batches

LOST = "the connection is lost"
TOPIC_ID = UUID(int=7)


class FakeCluster:
    """A target with topic ``t``: partition 0 led by node 1, partition 1 by node 2.

    ``codes`` holds, by request, the error codes of the next answers (0 when it is empty; ``LOST`` drops the
    connection instead). ``log`` is what was asked, in order.
    """

    alias = "west"

    def hasty(self, patience_s: float) -> FakeCluster:
        self.patience = Patience(patience_s)
        return self

    def cluster_id(self) -> str:
        return "id of west"

    def keep_to(self, cluster_id: str) -> None:
        assert cluster_id == self.cluster_id()

    def __init__(self, transaction_version: int = 2, max_produce_version: int = 13) -> None:
        self.feature = Features(transaction_version, max_produce_version)
        self.codes: dict[str, deque[int | str]] = defaultdict(deque)
        self.log: list[str] = []
        self.batches: list[tuple[int, int, int, int]] = []
        self.sizes: list[int] = []
        self.left_open: set[TopicPartition] = set()
        self.fresh_ids = 900
        self.producer = (40, 0)
        self.ends: dict[int, int] = {0: 100, 1: 200}
        self.topic_id = TOPIC_ID
        self.forgotten: list[str] = []
        self.connections: list[FakeConnection] = []
        self.throttle_ms: deque[int] = deque()

    # ---- what the producer asks of a Cluster

    def features(self, *, anew: bool = False) -> Features:
        assert anew, "chosen anew at every InitProducerId"
        return self.feature

    def topics(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        self.log.append("Metadata")
        leaders = {0: PartitionInfo(1, 0), 1: PartitionInfo(2, 0)}
        return {"t": TopicInfo("t", self.topic_id, leaders, False)} if "t" in names else {}

    def each_topic(self, names: Sequence[str]) -> Each[str, TopicInfo]:
        return Each(self.topics(names))

    def init_producer_id(self, transactional_id: str, timeout_ms: int) -> InitResult:
        code = self.next("InitProducerId")
        self.producer = (self.producer[0], self.producer[1] + (code == 0))
        return InitResult(code, *self.producer)

    def fresh_producer_id(self) -> InitResult:
        code = self.next("InitProducerId without an id")
        self.fresh_ids += 1
        return InitResult(code, self.fresh_ids, 0)

    def coordinator(self, key: str, kind: int) -> FakeConnection:
        return FakeConnection(self, 9)

    def forget_coordinator(self, key: str, kind: int) -> None:
        self.forgotten.append(key)

    def retry(self, attempt: Callable[[], Any], _deadline: object = None) -> Any:
        return attempt()

    def each_open(
        self, producer_ids: Mapping[TopicPartition, Collection[int]]
    ) -> Each[TopicPartition, tuple[int, int]]:
        """Nothing is left open, unless ``left_open`` says so of the next look."""
        left, self.left_open = self.left_open, set()
        return Each({tp: (5, 40) if tp in left else (-1, -1) for tp in producer_ids})

    def open(self, node: int) -> FakeConnection:
        connection = FakeConnection(self, node)
        self.connections.append(connection)
        return connection

    def close(self) -> None:
        self.log.append("closed")

    # ---- the broker

    def next(self, request: str) -> int:
        """Take down a request; return its scripted code, or lose the connection."""
        self.log.append(request)
        code = self.codes[request].popleft() if self.codes[request] else 0
        if isinstance(code, str):
            raise ConnectionLost(code)
        return code

    def asked(self) -> list[str]:
        """Return the requests that belong to transactions, metadata left out."""
        return [request for request in self.log if request != "Metadata"]


class FakeConnection:
    """One connection; Produce answers are given in order when they are asked for."""

    client_id = "onceover"

    def __init__(self, cluster: FakeCluster, node: int) -> None:
        self.cluster, self.node = cluster, node
        self.closed = False
        self._correlation_id = 0
        self._pending: deque[tuple[bytes, Callable[[memoryview], Any]]] = deque()

    @property
    def usable(self) -> bool:
        return not self.closed

    def next_correlation_id(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    def send_frame(
        self, buffers: Sequence[Any], correlation_id: int, decoder: Callable[[memoryview], Any]
    ) -> None:
        self.cluster.log.append(f"Produce/{self.node}")
        frame = b"".join(bytes(b) for b in buffers)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        self._pending.append((frame[4:], decoder))

    def receive(self) -> Any:
        frame, decoder = self._pending.popleft()
        version = int.from_bytes(frame[2:4], "big")
        request = ProduceRequest.decode(frame, version=version, header=True)
        in_transaction = request.transactional_id is not None
        topics = [self._appended(topic, version, in_transaction) for topic in request.topic_data]
        throttle_ms = self.cluster.throttle_ms.popleft() if self.cluster.throttle_ms else 0
        answer = ProduceResponse(version=version, responses=topics, throttle_time_ms=throttle_ms)
        return decoder(memoryview(b"\0" + bytes(answer.encode())))

    def _appended(self, topic: Any, version: int, in_transaction: bool) -> Any:
        kind = ProduceResponse.TopicProduceResponse
        named = {"topic_id": topic.topic_id} if version >= 13 else {"name": topic.name}
        answers = [self._append(entry, version, in_transaction) for entry in topic.partition_data]
        return kind(version=version, partition_responses=answers, **named)

    def _append(self, entry: Any, version: int, in_transaction: bool) -> Any:
        code = self.cluster.next("answer")
        self.cluster.sizes.append(len(bytes(entry.records)))
        [(header, _)] = iter_batches(memoryview(bytes(entry.records)))
        assert header.is_transactional is in_transaction, "a broker refuses the one for the other"
        base = self.cluster.ends[entry.index]
        if code == 0:
            self.cluster.ends[entry.index] += header.count
            self.cluster.batches.append(
                (entry.index, header.producer_id, header.producer_epoch, header.base_sequence)
            )
        return ProduceResponse.TopicProduceResponse.PartitionProduceResponse(
            version=version,
            index=entry.index,
            error_code=code,
            base_offset=base if code == 0 else -1,
            log_append_time_ms=-1,
            log_start_offset=0,
            record_errors=[],
            error_message="no" if code else None,
        )

    def call(self, request: Any, _response_type: Any, read: Callable[[Any], Any]) -> Any:
        return read(self._answer(request))

    def _answer(self, request: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        # Through the bytes, so that what the library would not send is not accepted here.
        request = type(request).decode(bytes(request.encode()), version=request.API_VERSION)
        code = self.cluster.next(f"{name} v{request.version}")
        if name == "AddPartitionsToTxn":
            return SimpleNamespace(
                results_by_topic_v3_and_below=[
                    SimpleNamespace(
                        name=topic.name,
                        # Refused whole: one has the code, the others were not attempted.
                        results_by_partition=[
                            SimpleNamespace(
                                partition_index=p, partition_error_code=code if p == 0 else 55 * bool(code)
                            )
                            for p in reversed(sorted(topic.partitions))
                        ],
                    )
                    for topic in request.v3_and_below_topics
                ]
            )
        if name == "TxnOffsetCommit":
            return SimpleNamespace(
                topics=[
                    SimpleNamespace(
                        name=topic.name,
                        partitions=[
                            SimpleNamespace(partition_index=p.partition_index, error_code=code)
                            for p in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        if name == "EndTxn" and request.version >= 5 and code == 0:
            self.cluster.producer = (self.cluster.producer[0], self.cluster.producer[1] + 1)
        return SimpleNamespace(
            error_code=code, producer_id=self.cluster.producer[0], producer_epoch=self.cluster.producer[1]
        )

    def close(self) -> None:
        self.closed = True
