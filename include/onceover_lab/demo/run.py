"""Wires the demo: real clusters, Airflow and flow on one side, the story on the other."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from onceover_lab.demo.feed import Feeder, create_topics
from onceover_lab.demo.flights import TOPICS, read_flights
from onceover_lab.demo.judge import compare_topics
from onceover_lab.demo.play import Cast, Narrator, perform, step
from onceover_lab.demo.report import DemoReport
from onceover_lab.demo.system import DemoSystem, LiveReplication, running_system
from onceover_lab.demo.verdict import CopyVerdict

_COMPARE_TIMEOUT_S: Final = 60.0


def run_demo(home: Path, narrator: Narrator, *, records: int, seconds: float, keep: bool) -> DemoReport:
    """Start everything, play the story with ``records`` flights fed over ``seconds``, stop everything.

    Raises:
        UsageError: something that the demo needs is missing.
        OnceoverError: a step failed; the text names it and where the logs are.
    """
    begun_s = time.monotonic()
    # Before anything is started: the data may be missing.
    next(read_flights(1))
    with ExitStack() as stack:
        with step("starting clusters and Airflow", home):
            system = stack.enter_context(running_system(home, narrator, keep=keep))
        with step("creating the topics", home):
            create_topics(system.source)
        with step("reading the flow file", home):
            replication = stack.enter_context(LiveReplication(system))
        return perform(_cast(system, replication, narrator, records, seconds, begun_s), records)


def _cast(
    system: DemoSystem,
    replication: LiveReplication,
    narrator: Narrator,
    records: int,
    seconds: float,
    begun_s: float,
) -> Cast:
    def make_feeder() -> Feeder:
        return Feeder(system.source, read_flights(records), expected=records, seconds=seconds)

    def compare() -> CopyVerdict:
        names = {topic.name: topic.name for topic in TOPICS}
        return compare_topics(system.source, system.target, names, timeout_s=_COMPARE_TIMEOUT_S)

    return Cast(
        narrator=narrator,
        scheduler=system.airflow,
        replication=replication,
        make_feeder=make_feeder,
        compare=compare,
        logs=system.home,
        airflow=system.login,
        begun_s=begun_s,
    )
