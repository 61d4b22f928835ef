"""One turn of one contender: start it on an empty target, watch it copy, stop it, check, compute."""

from __future__ import annotations

import subprocess
from contextlib import closing

import psutil
from confluent_kafka import KafkaException

from onceover.errors import OnceoverError
from onceover_lab.bench.clients.latency import LatencyReader, PacedProducer
from onceover_lab.bench.clients.topics import Topics
from onceover_lab.bench.copiers import Arena, Turn
from onceover_lab.bench.findings.figures import Observed, check_complete, latency_figures, throughput_figures
from onceover_lab.bench.findings.results import ContenderRun
from onceover_lab.bench.idle import measure_idle
from onceover_lab.bench.reading import make_copy, measure_reading
from onceover_lab.bench.recovery import measure_recovery
from onceover_lab.bench.start import measure_start
from onceover_lab.bench.trial import running
from onceover_lab.bench.watching.cpu import Part
from onceover_lab.bench.watching.watch import ProgressWatch
from onceover_lab.bench.workloads import FED, System, Workload, WorkloadKind


class Measurer:
    """Plays turns between the two clusters of an arena."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._source = Topics(arena.source_bootstrap)
        self._target = Topics(arena.target_bootstrap)

    def close(self) -> None:
        """Close the connections to both clusters."""
        self._source.close()
        self._target.close()

    def measure(self, turn: Turn) -> ContenderRun:
        """Return the turn's figures, or its error: a failed run is a result too, but never a number."""
        try:
            figures = self._figures(turn)
        except (OnceoverError, KafkaException, psutil.Error, subprocess.TimeoutExpired) as error:
            return ContenderRun(turn.contender.name, turn.round_number, error=str(error))
        return ContenderRun(turn.contender.name, turn.round_number, figures)

    def copy_once(self, workload: Workload) -> None:
        """Empty the target and copy a workload there, for contenders that read both sides.

        Raises:
            Retriable: the copy failed.
        """
        self._target.delete_all()
        make_copy(self._arena, workload)

    def _figures(self, turn: Turn) -> dict[str, float]:
        if turn.workload.kind is WorkloadKind.READING:
            return measure_reading(self._arena, turn)
        self._prepare(turn)
        match turn.workload.kind:
            case WorkloadKind.LATENCY:
                return self._measure_latency(turn)
            case WorkloadKind.START:
                return measure_start(self._arena, turn, self._target)
            case WorkloadKind.RECOVERY:
                return measure_recovery(self._arena, turn, self._target)
            case WorkloadKind.IDLE:
                return measure_idle(self._arena, turn, self._target)
            case _:
                return self._measure_throughput(turn)

    def _prepare(self, turn: Turn) -> None:
        self._target.delete_all()
        if turn.contender.system is System.LIBRDKAFKA or not turn.workload.sync_configs:
            self._target.create(turn.target_topic, {}, turn.workload.partitions)
        if turn.workload.kind not in FED:
            # Such a run makes its own records, at its own pace, so that none is waiting at the start.
            self._source.delete(turn.workload.topic)
            self._source.create(turn.workload.topic, turn.workload.topic_config, turn.workload.partitions)

    def _measure_throughput(self, turn: Turn) -> dict[str, float]:
        workload = turn.workload
        source_counts = self._source.end_offsets(workload.topic)
        with closing(ProgressWatch(self._target, turn.target_topic, workload.partitions)) as watch:
            with running(self._arena, turn) as trial:
                watch.wait_until_quiet(workload.records, trial.copier.check)
                cpu, peak_memory_bytes = trial.tree.cpu_samples(), trial.tree.peak_memory_bytes()
                parts = {part: trial.tree.cpu_samples(part) for part in Part}
            observed = Observed(trial.started_s, watch.samples(), cpu, peak_memory_bytes, parts)
        check_complete(source_counts, self._target.count(turn.target_topic))
        return throughput_figures(observed, records=workload.records, record_bytes=workload.record_bytes)

    def _measure_latency(self, turn: Turn) -> dict[str, float]:
        reader = LatencyReader(self._arena.target_bootstrap, self._target, turn.target_topic, turn.workload)
        with closing(reader), running(self._arena, turn) as trial:
            producer = PacedProducer(self._arena.source_bootstrap, turn.workload)
            try:
                arrivals = reader.measure(producer, trial.copier.check)
            finally:
                producer.stop()
            cpu, peak_memory_bytes = trial.tree.cpu_samples(), trial.tree.peak_memory_bytes()
        return latency_figures(arrivals, cpu, started_s=trial.started_s, peak_memory_bytes=peak_memory_bytes)
