"""What the Spark planner asks of the target: is there something left to do? Reads only, decides nothing
about positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onceover.engine import names
from onceover.engine.enrolment import Enrolment, read_enrolments
from onceover.engine.statelog import StateLog
from onceover.errors import NeedsOperator
from onceover.kafka import calls
from onceover.kafka.backoff import Deadline
from onceover.kafka.cluster import Cluster
from onceover.model import TopicPartition

_TIMEOUT_S = 60.0


class Planner:
    """Looks at one run of a flow from the driver's planning process. Not thread-safe.

    Args:
        flow: name of the flow.
        run: the run that plans; a stop request names it.
        task_length_s: how long a task copies, from the flow file as it is now.
    """

    def __init__(self, flow: str, run: str, task_length_s: Callable[[], float]) -> None:
        self._flow = flow
        self._run = run
        self.task_length_s = task_length_s
        self._clusters: tuple[Cluster, Cluster] | None = None
        self._requests: StateLog | None = None

    def open(self, source: Cluster, target: Cluster) -> None:
        """Take over both clusters; ``close`` closes them."""
        self._clusters = (source, target)
        topic = names.state_topic(self._flow)
        self._requests = StateLog(target, topic, names.STATE_OTHERS, calls.READ_UNCOMMITTED)

    def close(self) -> None:
        """Close everything."""
        if self._requests is not None:
            self._requests.close()
        for cluster in self._clusters or ():
            cluster.close()

    def stop_requested(self) -> bool:
        """Tell whether this run was asked to stop."""
        target, requests = self._both()[1], self._requests
        if requests is None:
            return False
        target.retry(requests.catch_up, Deadline(_TIMEOUT_S))
        request = requests.values.get(names.REQUEST_STOP)
        return request is not None and request["run"] == self._run

    def ends(self) -> dict[TopicPartition, int]:
        """Return the source's LSO of every enrolled partition that exists."""
        source, _ = self._both()
        return source.retry(lambda: source.list_offsets(self._enrolled(), calls.LATEST), Deadline(_TIMEOUT_S))

    def reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Tell whether everything up to ``ends`` is committed, stopped partitions aside."""
        _, target = self._both()
        return target.retry(lambda: self._reached(ends), Deadline(_TIMEOUT_S))

    def _reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        _, target = self._both()
        targets = {e.target_of(tp): tp for e in self._read().values() for tp in e.sources()}
        committed = target.committed(names.progress_group(self._flow), targets) if targets else {}
        stopped = self._stopped()
        return all(
            tp in stopped or tp not in committed or committed[tp].offset >= ends.get(source, 0)
            for tp, source in targets.items()
        )

    def _stopped(self) -> set[TopicPartition]:
        state = StateLog(self._both()[1], names.state_topic(self._flow), names.STATE_OTHERS)
        try:
            values = state.catch_up(wait=False)
        finally:
            state.close()
        return {
            TopicPartition(*names.split_partition_key(key))
            for key in values
            if key.startswith(names.STOP_PREFIX)
        }

    def _read(self) -> dict[str, Enrolment]:
        """Return the topics that are copied; those that have left the filter hold up nobody."""
        state = StateLog(self._both()[1], names.state_topic(self._flow), names.STATE_LEADER)
        try:
            found = read_enrolments(state.catch_up(wait=False))
        finally:
            state.close()
        return {target: enrolment for target, enrolment in found.items() if enrolment.active}

    def _enrolled(self) -> list[TopicPartition]:
        source, _ = self._both()
        wanted = [tp for e in self._read().values() for tp in e.sources()]
        topics = source.topics(sorted({tp.topic for tp in wanted}))
        return [tp for tp in wanted if tp.topic in topics and tp.partition in topics[tp.topic].partitions]

    def _both(self) -> tuple[Cluster, Cluster]:
        if self._clusters is None:
            raise NeedsOperator("the planner is not open", code="NOT_OPEN")
        return self._clusters
