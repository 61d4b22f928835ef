"""A run of the copy that somebody starts from the form as it opens, and whose driver is killed midway."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psutil
from confluent_kafka import Consumer, TopicPartition

from onceover_lab.embed.airflow import AirflowStandalone
from tests.support.session.wait import wait_until
from tests.system.person import Form

DAG: Final = "replicate"
# The first by name: what a form starts that nobody touches.
FLOW: Final = "flights"
TOPIC: Final = f"{FLOW}.departures"
PARTITIONS: Final = 3
BEFORE, AFTER = 1000, 200
SIZE_BYTES: Final = 1000
# Seconds on an idle machine. On one that is busy with other tests Spark alone may take a minute to start.
_RUN_TIMEOUT_S: Final = 300.0
_STEP_TIMEOUT_S: Final = 150.0


@dataclass(frozen=True)
class KilledRun:
    """A run whose driver was killed midway, and what could be seen while it lived, and at its end.

    Attributes:
        first: the note of the driver that was killed.
        announced: the run's asset events, newest first.
        lineage: what a catalogue was told of the flow.
    """

    run_id: str
    state: str
    first: Mapping[str, Any]
    environ: Mapping[str, str]
    shown: str
    announced: Sequence[Mapping[str, Any]]
    lineage: Sequence[Mapping[str, Any]]


def killed_midway(
    airflow: AirflowStandalone,
    form: Form,
    *,
    feed: Callable[[int], None],
    target: Mapping[str, str],
    var: Path,
    lineage_file: Path,
) -> KilledRun:
    """Send the form, kill -9 the driver in the middle of the copy, feed more, wait for the end.

    Args:
        feed: writes so many records to the source.
        var: ONCEOVER_HOME of the runs.
    """
    feed(BEFORE)
    run_id = form.send()
    first = wait_until(lambda: _read_json(var / FLOW / "driver.json"), _STEP_TIMEOUT_S, "the driver runs")
    environ = psutil.Process(first["pid"]).environ()
    shown = _spark_pages(first["ui"]) + _command_lines()
    wait_until(lambda: _stable_offsets(target), _STEP_TIMEOUT_S, "records arrive")
    for pid in (first["jvm_pid"], first["pid"]):
        os.kill(pid, signal.SIGKILL)
    feed(AFTER)
    state = airflow.wait_run(DAG, run_id, timeout_s=_RUN_TIMEOUT_S)
    announced = [event for event in airflow.asset_events() if event["source_run_id"] == run_id]
    lineage = told_of(lineage_file, f"onceover.{FLOW}")
    return KilledRun(run_id, state, first, environ, shown, announced, lineage)


def told_of(lineage_file: Path, job: str) -> list[dict[str, Any]]:
    """Return the OpenLineage events of a job, in their order."""
    events = [json.loads(line) for line in lineage_file.read_text().splitlines()]
    return [event for event in events if event["job"]["name"] == job]


def _read_json(path: Path) -> dict[str, Any] | None:
    """Return the document, None while it is not there."""
    document: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return document


def _stable_offsets(client: Mapping[str, str]) -> int:
    """Return the offsets that read_committed readers can reach, 0 while there is no topic."""
    consumer = Consumer({**client, "group.id": "unused", "isolation.level": "read_committed"})
    try:
        if TOPIC not in consumer.list_topics(timeout=10).topics:
            return 0
        ends = [
            consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=10) for p in range(PARTITIONS)
        ]
        return sum(end for _, end in ends)
    finally:
        consumer.close()


def _spark_pages(ui: str) -> str:
    """Return what the Spark UI says about the environment, as page and as JSON."""
    address = urlsplit(ui)
    assert address.hostname == "127.0.0.1"
    web = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
    try:
        text = ""
        for path in ("/environment/", "/executors/", "/jobs/"):
            web.request("GET", path)
            text += web.getresponse().read().decode()
        return text
    finally:
        web.close()


def _command_lines() -> str:
    """Return every command line of this machine."""
    commands: list[list[str]] = [
        process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])
    ]
    return "\n".join(" ".join(line) for line in commands)
