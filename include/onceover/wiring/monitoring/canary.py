"""A flow's canary: numbered records that a producer writes on the source, and a reader meets on the target.

Invariants: a number is sent once; where nobody knows whether the source took it, it is given up and never
sent again, so that what is met twice was made twice by the copy. Only the topic that the flow file names is
written, and read. It costs the exporter's other work nothing: it is a thread of its own.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from onceover.backoff import Deadline
from onceover.clock import now_ms
from onceover.config.flow.flowfile import Flow
from onceover.drills.canary import PARTITIONS, Canary
from onceover.errors import NeedsOperator, NotNow, OnceoverError
from onceover.kafka import calls
from onceover.kafka.admin.topics import Admin, TopicSpec
from onceover.kafka.logs.fetcher import Fetcher
from onceover.kafka.logs.reading import OffsetGone, TopicGone, place, visible
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.kafka.produce.atleastonce import IdempotentProducer
from onceover.kafka.produce.rounds import own_batches
from onceover.metrics.canary import CanaryTrack, next_number
from onceover.metrics.codes import MetricsCode
from onceover.metrics.figures import Figures
from onceover.model import TopicPartition
from onceover.state.records.runstate import RunState
from onceover.topics.own import check_ready
from onceover.topics.scope import explain
from onceover.wire.batches.records import decode
from onceover.wire.batches.visibility import Visible
from onceover.wiring.flows import open_clusters, rules
from onceover.wiring.monitoring.tallies import FlowTally

log = logging.getLogger(__name__)

# They are read once, at once; but what expires before it is copied stops its partition until a person has
# decided: as long as brokers keep other topics by default. Its copy gets this configuration with the topic.
_RETENTION_S: Final = 7 * 86_400.0
_CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": f"{_RETENTION_S * 1000:.0f}",
    "message.timestamp.type": "CreateTime",
}
_FETCH_BYTES: Final = 1 << 18
# How long a reader waits for the next record: a look at the clock costs that much at most.
_POLL_MS: Final = 500
_ANSWER_S: Final = 10.0
_PAUSE_S: Final = 10.0
_SEND_S: Final = 10.0
_STARTING_S: Final = 3.0
# Before the end of a log: markers and attempts of transactions, of which there are none on the source.
_BEFORE_END: Final = 10


class CanaryThread:
    """Writes and reads until it is stopped; whatever goes wrong is counted, and tried again.

    Args:
        flow: has a canary.
        tally: what is counted of the flow.
        clock: seconds, of no particular beginning.
    """

    def __init__(self, flow: Flow, tally: FlowTally, clock: Callable[[], float] = time.monotonic) -> None:
        self._flow, self._clock, self._counts = flow, clock, tally.canary
        self._over, self._lock = threading.Event(), tally.canary_lock
        self._track = CanaryTrack(secrets.token_hex(4), 0, self._counts)
        self._said = ""
        # Nobody has seen it run yet.
        self._run_state = RunState.UNKNOWN
        # Up to where the copy was read, over lost connections.
        self._places: dict[TopicPartition, tuple[UUID, int]] = {}

    def is_of(self, flow: Flow) -> bool:
        """Tell whether it does what ``flow`` asks for: of the topics only their naming concerns it."""
        mine, other = (
            (each.flow, each.canary, each.source, each.target, each.topics.naming)
            for each in (self._flow, flow)
        )
        return mine == other

    def start(self) -> None:
        """Begin."""
        # Daemon: a resolver that hangs must not keep the command from ending.
        threading.Thread(target=self._run, name=f"onceover-canary-{self._flow.flow}", daemon=True).start()

    def stop(self) -> None:
        """End, without waiting for it."""
        self._over.set()

    def add_to(self, figures: Figures) -> None:
        """Add what is known to the flow's samples."""
        with self._lock:
            self._track.add_to(figures, self._flow.flow, self._clock())

    def saw_run(self, state: RunState) -> None:
        """Take down how the flow's newest run was when it was looked at last."""
        self._run_state = state

    @property
    def may_write(self) -> bool:
        """Tell whether somebody copies what is written: otherwise it would expire, and stop the next run."""
        return self._run_state in (RunState.STARTING, RunState.RUNNING)

    def _run(self) -> None:
        numbers_known = False
        while not self._over.is_set():
            try:
                source, target = open_clusters(self._flow)
                with source, target:
                    if not numbers_known:
                        self._begin(source)
                        numbers_known = True
                    self._go_on(source, target)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted and tried again
                self.failed(error)
                self._over.wait(_PAUSE_S)

    def failed(self, error: Exception) -> None:
        """Count that it did not work, and say why where that is another reason than the last one."""
        level = logging.DEBUG if str(error) == self._said else logging.WARNING
        log.log(level, "the canary of flow %s: %s", self._flow.flow, error)
        self._said = str(error)
        with self._lock:
            self._counts.failures += 1

    def _forget(self) -> None:
        with self._lock:
            self._track.forget()

    def _begin(self, source: Cluster) -> None:
        """Make the topic where there is none, and find out where the last run's numbers end."""
        topic = self._flow.canary_topic
        admin = Admin(source)
        if topic not in source.retry(lambda: source.topics([topic])):
            admin.create_topics([TopicSpec(topic, PARTITIONS, -1, _CONFIG)])
            source.retry(lambda: check_ready(source, [topic]))
        info = _info(source, topic)
        if len(info.partitions) < PARTITIONS:
            raise NeedsOperator(
                f"{topic} has too few partitions for a canary",
                code=MetricsCode.CANARY_TOPIC,
                where=source.alias,
                expected=f"{PARTITIONS} or more",
                seen=str(len(info.partitions)),
                resolve="give it more, or name another topic under canary.topic",
            )
        values = _last_values(source, info)
        with self._lock:
            self._track = CanaryTrack(secrets.token_hex(4), next_number(values), self._counts)

    def _go_on(self, source: Cluster, target: Cluster) -> None:
        flow = self._flow
        copy = explain(flow.canary_topic, rules(flow)).target_topic
        reader = _Reader(target, copy, self._places, self._forget)
        producer = _Sender(source.hasty(_SEND_S), flow.canary_topic)
        interval_s = (flow.canary.interval_ms or 0) / 1000
        due_s = self._clock()
        try:
            while not self._over.is_set():
                now_s = self._clock()
                with self._lock:
                    self._track.expire(now_s - _RETENTION_S)
                if now_s >= due_s and self.may_write:
                    due_s = now_s + self._track.pause_s(interval_s, now_s)
                    if reader.opened():
                        self._send(producer)
                self._read(reader)
        finally:
            producer.close()
            reader.close()

    def _send(self, producer: _Sender) -> None:
        with self._lock:
            canaries = self._track.numbered()
        for canary in canaries:
            begun_s = self._clock()
            try:
                producer.send(canary)
            except OnceoverError as error:
                # What was sent before goes on being read meanwhile.
                self.failed(error)
                producer.close()
                return
            with self._lock:
                self._track.sent(canary, begun_s)

    def _read(self, reader: _Reader) -> None:
        try:
            values = reader.poll()
        except (OffsetGone, TopicGone):
            # The copy is another log by now, or was cut: what was in it nobody knows.
            self._places.clear()
            self._forget()
            raise
        if not values and not reader.opened():
            # The flow has not taken the topic in yet.
            self._over.wait(_POLL_MS / 1000)
        with self._lock:
            self._track.met(values, self._clock())


class _Sender:
    """Sends each record once."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self._producer: IdempotentProducer | None = None

    def send(self, canary: Canary) -> None:
        """Send a record and wait until it is acknowledged; after an error nobody knows if it is there."""
        if self._producer is None:
            producer = IdempotentProducer(self._cluster)
            # Its coordinator may be starting.
            self._cluster.retry(producer.init, Deadline(_STARTING_S))
            self._producer = producer
        to = TopicPartition(self._topic, canary.partition)
        for batch in own_batches(to, [canary.encode()], now_ms()):
            self._producer.send([batch])
        self._producer.drain()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None
        self._cluster.close()


@dataclass
class _Reader:
    """Reads the copy from where it ends when it is first there, and after that from where it was.

    Args:
        places: topic id and offset of each partition; kept up to date here.
        forget: is called where the copy is another topic by now.
    """

    target: Cluster
    topic: str
    places: dict[TopicPartition, tuple[UUID, int]]
    forget: Callable[[], None]
    _fetcher: Fetcher | None = None

    def opened(self) -> bool:
        """Tell whether the copy is read; begin to where it is there."""
        if self._fetcher is not None:
            return True
        info = self.target.retry(lambda: self.target.topics([self.topic])).get(self.topic)
        if info is None or len(info.partitions) < PARTITIONS:
            return False
        if any(topic_id != info.topic_id for topic_id, _ in self.places.values()):
            self.places.clear()
            self.forget()
        partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        ends = self.target.retry(lambda: self.target.list_offsets(partitions, calls.LATEST))
        fetcher = _fetcher(self.target)
        for tp, end in ends.items():
            _, offset = self.places.setdefault(tp, (info.topic_id, end))
            position = place(info, tp.partition, offset)
            if position is None:
                raise NotNow(f"{tp} has no leader at the moment", where=self.target.alias)
            fetcher.assign(tp, position)
        self._fetcher = fetcher
        return True

    def poll(self) -> list[bytes | None]:
        """Return the values that have come, in the order of each partition."""
        fetcher = self._fetcher
        if fetcher is None:
            return []
        fetcher.request(max_wait_ms=_POLL_MS, min_bytes=1)
        found: list[bytes | None] = []
        for tp, answer in fetcher.poll(_ANSWER_S):
            position = fetcher.positions[tp]
            for each in visible(self.target.alias, tp, answer, position):
                found += _values(each)
            self.places[tp] = (position.topic_id, position.offset)
        return found

    def close(self) -> None:
        if self._fetcher is not None:
            self._fetcher.close()


def _values(seen: Visible) -> list[bytes | None]:
    batch = seen.batch
    return [] if batch is None else [r.value and bytes(r.value) for r in decode(seen.header, batch)]


def _fetcher(cluster: Cluster) -> Fetcher:
    return Fetcher(
        cluster, isolation=calls.READ_COMMITTED, max_bytes=_FETCH_BYTES, partition_max_bytes=_FETCH_BYTES
    )


def _info(cluster: Cluster, topic: str) -> TopicInfo:
    info = cluster.retry(lambda: cluster.topics([topic])).get(topic)
    if info is None:
        raise NotNow(f"{topic} is gone", where=cluster.alias)
    return info


def _last_values(source: Cluster, info: TopicInfo) -> list[bytes | None]:
    """Return the values at the ends of all partitions."""
    partitions = [TopicPartition(info.name, number) for number in info.partitions]
    ends = source.retry(lambda: source.list_offsets(partitions, calls.LATEST))
    fetcher, found = _fetcher(source), list[bytes | None]()
    try:
        for tp, end in ends.items():
            position = place(info, tp.partition, max(0, end - _BEFORE_END))
            if end and position is not None:
                fetcher.assign(tp, position)
        while fetcher.positions:
            fetcher.request(max_wait_ms=0, min_bytes=0)
            for tp, answer in fetcher.poll(_ANSWER_S):
                with suppress(OffsetGone):  # all that was there has expired: the next record has a new number
                    for each in visible(source.alias, tp, answer, fetcher.positions[tp]):
                        found += _values(each)
                    if fetcher.positions[tp].offset < ends[tp]:
                        continue
                fetcher.remove(tp)
    finally:
        fetcher.close()
    return found
