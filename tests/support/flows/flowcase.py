"""One flow with one small topic, and ways to run it: to its end, until killed, lane by lane."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from onceover.copy.loop import Until
from onceover.kafka import calls
from onceover.kafka.calls import InitResult
from onceover.kafka.cluster import LiveCluster
from onceover.model import TopicPartition, lane_of
from onceover.state import names, steps
from onceover.state.log import StateLog
from onceover.state.read import read_layout
from onceover.state.records.layout import Layout
from onceover.state.steps import Step
from onceover.wire.offsetmap import MapRecord, decode_map_key, decode_map_value
from onceover.wire.progress import ProgressMeta
from onceover.wiring.flows import open_clusters
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.feeds import PARTITIONS, SMALL, assert_agreement, feed, held, progress
from tests.support.flows.flows import FlowProcess, InlineFlow, assert_same, write_flow
from tests.support.raw.adversary import Adversary

KILLED = -9
FENCED = 4
TIMEOUT_S = 90.0


class FlowCase:
    """A flow whose topic holds plain, transactional and aborted batches already."""

    def __init__(
        self, folder: Path, name: str, source: SharedCluster, target: SharedCluster, **changes: Any
    ) -> None:
        self.name = self.topic = name
        self.source, self.target = source.client, target.client
        self.log = folder / "flow.log"
        topics = [f"{name}.*"]
        # A process that a test pauses stands still for longer than an answer may take by default.
        patient = {**target.client, "socket.timeout.ms": "300000"}
        self.path = write_flow(folder, name, source.client, patient, topics, **{**SMALL, **changes})
        self.adversary = Adversary(source.bootstrap, seed=int(name[1:], 16))
        self.adversary.create_topic(name, PARTITIONS)
        self.feed()

    def feed(self) -> None:
        """Write another round of everything."""
        feed(self.adversary, self.topic, seed=time.monotonic_ns())

    def flow(self, **changes: Any) -> InlineFlow:
        """Return the flow, its file changed before where ``changes`` says so."""
        if changes:
            self.path.write_text(yaml.safe_dump({**yaml.safe_load(self.path.read_text()), **changes}))
        return InlineFlow(self.path)

    def layout(self) -> Layout | None:
        """Return the flow's layout as it is now."""
        source, target = open_clusters(InlineFlow(self.path).watch.flow)
        with source, target:
            return read_layout(target, self.name)

    def process(self, **options: Any) -> FlowProcess:
        """Return the flow in a process of its own."""
        return FlowProcess(self.path, self.log, **options)

    def kill(self, step: Step, count: int) -> None:
        """Run the flow in a process until it kills itself at ``step``."""
        with self.process(kill_at=step.name, kill_count=count) as process:
            assert process.wait(TIMEOUT_S) == KILLED, process.child.tail()

    def agreed(self) -> dict[int, int]:
        """Check that progress and data agree; return the progress."""
        return assert_agreement(InlineFlow(self.path), self.topic, self.source, self.target)

    def owners(self) -> set[int]:
        """Return the generations that have written the topic's progress."""
        _, target = open_clusters(InlineFlow(self.path).watch.flow)
        with target:
            committed = target.retry(lambda: target.committed(names.progress_group(self.name), None))
        metas = [ProgressMeta.decode(o.metadata) for tp, o in committed.items() if tp.topic == self.topic]
        return {meta.generation for meta in metas if meta is not None}

    def agreed_positions(self) -> dict[int, int]:
        """Return the stable progress, also while lanes run."""
        return progress(InlineFlow(self.path), self.topic)

    def converge(self) -> Layout:
        """Start anew and copy everything; check before the first lane moves, and at the end."""
        flow = InlineFlow(self.path)
        before = self.layout()
        with flow.running() as (lead, layout):
            # Every lane is fenced, so whatever an older run left open is decided now.
            assert len(self.agreed()) == PARTITIONS
            if before is not None:
                assert layout.generation == before.generation + 1
            flow.finish(lead, layout)
        self.assert_complete()
        return layout

    def assert_complete(self) -> None:
        """Fail unless both sides are equal, and progress agrees."""
        self.agreed()
        assert_same(self.source, self.target, [self.topic])

    def close(self) -> None:
        """Drop the connections."""
        self.adversary.close()


class LaneThread(threading.Thread):
    """One task of one lane, which stands still at a step until it is let go: a frozen worker.

    Args:
        flow: the flow; ``layout`` the generation it believes in.
        lane: which lane; ``token`` the Spark batch that the task belongs to.
        freeze_at: step before which it stands still, None to run on.
        count: at which occurrence of the step.
        seconds: how long it copies at most.
    """

    def __init__(
        self,
        flow: InlineFlow,
        layout: Layout,
        lane: int,
        *,
        token: int = 1,
        freeze_at: Step | None = None,
        count: int = 1,
        seconds: float = 60.0,
    ) -> None:
        super().__init__(name=f"lane-{layout.generation}-{lane}-{token}", daemon=True)
        self._flow, self._layout, self._lane, self._token = flow, layout, lane, token
        self._freeze_at, self._left = freeze_at, count
        self._until = Until(time.monotonic() + seconds)
        self._frozen, self._let_go = threading.Event(), threading.Event()
        self.reached: Counter[Step] = Counter()
        self.receipts: list[MapRecord] = []
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            self.receipts = self._flow.lane(self._layout, self._lane, self._until, token=self._token)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.problem = error

    def at(self, step: Step) -> None:
        """Hear of a step that this thread has reached."""
        self.reached[step] += 1
        if step is self._freeze_at:
            self._left -= 1
            if self._left == 0:
                self._frozen.set()
                self._let_go.wait(TIMEOUT_S)

    def wait_frozen(self) -> None:
        """Wait until it stands still."""
        assert self._frozen.wait(TIMEOUT_S), f"{self.name} never came to {self._freeze_at}: {self.problem!r}"

    def let_go(self) -> None:
        """Let it run on."""
        self._let_go.set()

    def stop(self) -> None:
        """Let it finish its transaction and end."""
        self._until.stopped = True

    def finish(self) -> BaseException | None:
        """Let it run on, wait for its end; return what it raised."""
        self.let_go()
        self.join(TIMEOUT_S)
        assert not self.is_alive(), f"{self.name} does not end"
        return self.problem


@contextmanager
def lane_threads() -> Iterator[None]:
    """Tell every LaneThread of its own steps."""

    def hear(step: Step) -> None:
        thread = threading.current_thread()
        if isinstance(thread, LaneThread):
            thread.at(step)

    steps.listen(hear)
    try:
        yield
    finally:
        steps.listen(lambda _: None)
        for thread in threading.enumerate():
            if isinstance(thread, LaneThread):
                thread.stop()
                thread.finish()


class Inits:
    """Every InitProducerId of this process: by which thread, for which id, with which answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, str, int]] = []
        original = LiveCluster.init_producer_id

        def spy(cluster: LiveCluster, transactional_id: str, timeout_ms: int) -> InitResult:
            result = original(cluster, transactional_id, timeout_ms)
            self.seen.append((threading.current_thread().name, transactional_id, result.error_code))
            return result

        monkeypatch.setattr(LiveCluster, "init_producer_id", spy)

    def by(self, thread: str, code: int | None = None) -> int:
        """Return how many ``thread`` has sent, those answered with ``code`` only if it is given."""
        return sum(name == thread and code in (None, seen) for name, _, seen in self.seen)

    def codes(self, transactional_id: str) -> list[int]:
        """Return the answers for one id, in order."""
        return [code for _, one, code in self.seen if one == transactional_id]


def busy_lane(case: FlowCase) -> int:
    """Return the lane with more partitions, of two."""
    owners = [lane_of(TopicPartition(case.topic, number), 2) for number in range(PARTITIONS)]
    return max(owners, key=owners.count)


def owned_by(case: FlowCase, lane: int, count: int) -> set[int]:
    """Return the partitions of one lane."""
    return {n for n in range(PARTITIONS) if lane_of(TopicPartition(case.topic, n), count) == lane}


def assert_one_generation_after_the_other(case: FlowCase) -> set[int]:
    """Fail unless the map of every partition is gapless and no generation comes after a newer one."""
    chains: dict[TopicPartition, list[MapRecord]] = {}
    for records in held(case.target, names.map_topic(case.name), names.MAP_PARTITIONS).values():
        for record in records:
            assert record.key is not None and record.value is not None
            decoded = decode_map_value(decode_map_key(record.key), record.value)
            chains.setdefault(decoded.source, []).append(decoded)
    for chain in chains.values():
        for before, after in pairwise(chain):
            assert before.source_end == after.source_start, (before, after)
            assert before.generation <= after.generation, (before, after)
    return {record.generation for chain in chains.values() for record in chain}


def duel(first: InlineFlow, second: InlineFlow, pause_s: float) -> list[BaseException | None]:
    """Start both, the second ``pause_s`` later; return what each raised."""
    outcomes: list[BaseException | None] = [None, None]

    def run(number: int, flow: InlineFlow) -> None:
        try:
            flow.copy()
        except BaseException as error:  # noqa: BLE001 - judged by the test
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate((first, second))]
    threads[0].start()
    threads[0].join(pause_s)
    threads[1].start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    return outcomes


def standing(case: FlowCase) -> dict[str, object] | None:
    """Return the request to stop that stands now."""
    _, target = open_clusters(case.flow().watch.flow)
    log = StateLog(target, names.state_topic(case.name), names.STATE_OTHERS, calls.READ_UNCOMMITTED)
    with target:
        try:
            found: dict[str, object] | None = log.catch_up().get(names.REQUEST_STOP)
        finally:
            log.close()
    return found
