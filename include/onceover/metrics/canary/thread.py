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
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from onceover.errors import NotNow, OnceoverError
from onceover.kafka.logs.reading import OffsetGone, TopicGone
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.metrics.canary.ends import POLL_MS, CanarySender, CopyReader, last_values, prepare
from onceover.metrics.canary.track import CanaryCounts, CanaryTrack, next_number
from onceover.metrics.figures import Figures
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.planning.background import begin
from onceover.state.records.runstate import RunState

log = logging.getLogger(__name__)

# They are read once, at once; but what expires before it is copied stops its partition until a person has
# decided: as long as brokers keep other topics by default. Its copy gets this configuration with the topic.
_RETENTION_S: Final = 7 * 86_400.0
_CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": f"{_RETENTION_S * 1000:.0f}",
    "message.timestamp.type": "CreateTime",
}
# Of a target that is away, whose run may go on; of a run that did not come to its end, and was to copy on.
_NO_END: Final = (RunState.UNKNOWN, RunState.GONE, RunState.FAILED)
_PAUSE_S: Final = 10.0
_SEND_S: Final = 10.0
_TAKEN_IN_S: Final = 60.0


@dataclass(frozen=True)
class CanaryOrder:
    """What a flow file asks for.

    Args:
        flow: its name.
        topic: on the source; ``copy`` is what it is called on the target.
        interval_ms: between two records of a partition.
        discovery_ms: between two looks of the flow at the source's topics.
    """

    flow: str
    topic: str
    copy: str
    interval_ms: int
    discovery_ms: int

    @property
    def taken_in_s(self) -> float:
        """How long a flow that runs may take until the topic is copied."""
        return max(_TAKEN_IN_S, 2 * self.discovery_ms / 1000)


class CanaryThread:
    """Writes and reads until it is stopped; whatever goes wrong is counted, and tried again.

    Args:
        order: what is asked for.
        counts: of the flow's canary, whichever run counted; used with ``lock`` held.
        clusters: opens source and target anew.
        clock: seconds, of no particular beginning.
    """

    def __init__(
        self,
        order: CanaryOrder,
        counts: CanaryCounts,
        lock: threading.Lock,
        clusters: Callable[[], tuple[Cluster, Cluster]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._order, self._counts, self._lock = order, counts, lock
        self._clusters, self._clock = clusters, clock
        self._over = threading.Event()
        self._track = CanaryTrack(secrets.token_hex(4), 0, counts)
        self._said = ""
        # Nobody has seen it run yet.
        self._run_state, self._was_copied = RunState.UNKNOWN, False
        # Since when the flow runs and there is no copy.
        self._no_copy_s: float | None = None
        # Up to where the copy was read, over lost connections.
        self._places: dict[TopicPartition, tuple[UUID, int]] = {}

    def start(self) -> None:
        """Begin.

        Raises:
            Retriable: NO_THREAD; nothing would be written.
        """
        # Daemon: a resolver that hangs must not keep the command from ending.
        begin(threading.Thread(target=self._run, name=f"onceover-canary-{self._order.flow}", daemon=True))

    def stop(self) -> None:
        """End, without waiting for it."""
        self._over.set()

    def add_to(self, figures: Figures) -> None:
        """Add what is known to the flow's samples."""
        with self._lock:
            self._track.add_to(figures, self._order.flow, self._clock())

    def saw_run(self, state: RunState) -> None:
        """Take down how the flow's newest run was when it was looked at last."""
        self._run_state = state
        if state in _NO_END:
            return
        if self.may_write and not self._was_copied:
            with self._lock:
                self._track.copied_from(self._clock())
        self._was_copied = self.may_write

    @property
    def may_write(self) -> bool:
        """Tell whether somebody copies what is written: otherwise it would expire, and stop the next run."""
        return self._run_state in (RunState.STARTING, RunState.RUNNING)

    def _run(self) -> None:
        numbers_known = False
        while not self._over.is_set():
            try:
                source, target = self._clusters()
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
        log.log(level, "the canary of flow %s: %s", self._order.flow, error)
        self._said = str(error)
        with self._lock:
            self._counts.failures += 1

    def _forget(self) -> None:
        with self._lock:
            self._track.forget()

    def _begin(self, source: Cluster) -> None:
        """Make the topic where there is none, and find out where the last run's numbers end."""
        values = last_values(source, self._prepare(source))
        with self._lock:
            self._track = CanaryTrack(secrets.token_hex(4), next_number(values), self._counts)

    def _prepare(self, source: Cluster) -> TopicInfo:
        # What was on its way in one that is gone arrives nowhere.
        return prepare(source, self._order.topic, _CONFIG, made=self._forget)

    def _go_on(self, source: Cluster, target: Cluster) -> None:
        reader = CopyReader(target, self._order.copy, self._places, self._forget)
        producer = CanarySender(source.hasty(_SEND_S), self._order.topic, self._prepare)
        interval_s = self._order.interval_ms / 1000
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

    def _send(self, producer: CanarySender) -> None:
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
                with self._lock:
                    self._track.gave_up(canary)
                return
            with self._lock:
                self._track.sent(canary, begun_s)

    def _read(self, reader: CopyReader) -> None:
        try:
            values = reader.poll()
        except (OffsetGone, TopicGone):
            # The copy is another log by now, or was cut: what was in it nobody knows.
            self._places.clear()
            self._forget()
            raise
        if reader.opened():
            self._no_copy_s = None
        else:
            self._check_taken_in(reader)
            self._over.wait(POLL_MS / 1000)
        with self._lock:
            self._track.met(values, self._clock())

    def _check_taken_in(self, reader: CopyReader) -> None:
        """Find fault with a flow that runs and does not copy the topic: nothing is written, all looks well.

        From when it runs: to start takes its time, too.

        Raises:
            NotNow: it had long enough.
        """
        if self._run_state is not RunState.RUNNING:
            self._no_copy_s = None
            return
        if self._no_copy_s is None:
            self._no_copy_s = self._clock()
        if self._clock() - self._no_copy_s > self._order.taken_in_s:
            why = commands.command("status", self._order.flow, "--topic", self._order.topic)
            raise NotNow(
                f"the flow runs, and {self._order.topic} has no copy: {reader.topic}, with its partitions",
                where=reader.target.alias,
                expected=f"one within {self._order.taken_in_s:g} s",
                resolve=f"{why} says why",
            )
