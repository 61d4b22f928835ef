"""A whole benchmark: two clusters, all rounds, three files; and nothing left behind."""

from __future__ import annotations

import functools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from onceover.config.home import onceover_home
from onceover_lab.bench.copiers import Arena, Far
from onceover_lab.bench.distance import Distance, proxies
from onceover_lab.bench.findings.plot import check_can_draw
from onceover_lab.bench.findings.publish import publish
from onceover_lab.bench.findings.results import WorkloadResult
from onceover_lab.bench.runner import run_benchmark
from onceover_lab.bench.watching.machine import machine_facts
from onceover_lab.bench.workloads import Workload
from onceover_lab.embed.kafka import KafkaCluster, start_all
from onceover_lab.embed.ports import LOOPBACK, PortReservation

# Enough for the index and request buffers of 1 MiB batches; the data itself lives in the page cache.
_HEAP_MB: Final = 1024
_NAMES: Final = ("source", "target")


def play_and_publish(
    workloads: Sequence[Workload], *, rounds: int, scale: float, out_dir: Path, say: Callable[[str], None]
) -> tuple[list[WorkloadResult], dict[str, Any]]:
    """Run the benchmark, write its files into ``out_dir``, return the results and their JSON document.

    ``scale`` is only written down: the workloads are scaled already.

    Raises:
        UsageError: the plot could not be drawn; nothing was started.
        Retriable: the clusters could not be started or fed.
    """
    check_can_draw()
    started = datetime.now(UTC)
    started_s = time.monotonic()
    results, machine = _play(workloads, rounds, say)
    settings = {
        "rounds": rounds,
        "scale": scale,
        "started_at": started.strftime("%Y-%m-%d %H:%M UTC"),
        "minutes": round((time.monotonic() - started_s) / 60, 1),
    }
    return results, publish(out_dir, results, machine, settings)


def _play(
    workloads: Sequence[Workload], rounds: int, say: Callable[[str], None]
) -> tuple[list[WorkloadResult], dict[str, Any]]:
    home = onceover_home()
    home.mkdir(parents=True, exist_ok=True)
    work_dir = Path(tempfile.mkdtemp(prefix="bench-", dir=home))
    failed = False
    try:
        with _arena(work_dir, any(w.is_far for w in workloads), say) as (arena, version):
            machine = machine_facts(version)
            results = run_benchmark(arena, workloads, rounds, say)
        failed = any(result.failed for result in results)
    finally:
        if failed:
            say(f"the logs of the runs are kept in {work_dir}")
        else:
            shutil.rmtree(work_dir)
    return results, machine


@contextmanager
def _arena(work_dir: Path, far: bool, say: Callable[[str], None]) -> Iterator[tuple[Arena, str]]:
    """Yield the arena, with its clusters also seen from afar where that is wanted, and Kafka's version."""
    say("starting two clusters ...")
    reserved = [PortReservation() for _ in _NAMES] if far else []
    advertised: list[list[int] | None] = [[each.port] for each in reserved] or [None, None]
    clusters = start_all(
        [
            # The optimising compiler is on: a broker that is slow would be the bottleneck of everybody.
            functools.partial(
                KafkaCluster.start,
                work_dir,
                name,
                heap_mb=_HEAP_MB,
                quick_start=False,
                advertised=port,
            )
            for name, port in zip(_NAMES, advertised, strict=True)
        ]
    )
    try:
        with _seen_from_afar(clusters, reserved) as ends:
            near = [f"{LOOPBACK}:{cluster.nodes[0].ports.internal}" for cluster in clusters]
            yield Arena(near[0], near[1], work_dir, *ends), clusters[0].version
    finally:
        for cluster in clusters:
            cluster.close(remove=True)


@contextmanager
def _seen_from_afar(clusters: list[KafkaCluster], reserved: list[PortReservation]) -> Iterator[list[Far]]:
    ends = [Far(f"{LOOPBACK}:{each.port}", Distance()) for each in reserved]
    ways = [
        (each.port, cluster.nodes[0].ports.client, end.distance)
        for each, cluster, end in zip(reserved, clusters, ends, strict=False)
    ]
    for each in reserved:
        each.release()
    with proxies(ways):
        yield ends
