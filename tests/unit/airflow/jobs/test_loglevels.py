"""The job's lines in the task's log: each at its own level, and no secret in any."""

from __future__ import annotations

import logging

from airflow.sdk.log import mask_secret

from onceover_airflow.jobs.hooks import SparkJobHook
from onceover_airflow.jobs.loglevels import levelled
from tests.unit.airflow.conftest import FakeSpark

LINES = {
    "WARNING: Using incubator modules: jdk.incubator.vector": (logging.INFO, None),
    "2026-11-22 05:15:46,299 INFO    onceover.spark: fine": (
        logging.INFO,
        "onceover.spark: fine",
    ),
    "2026-11-22 05:15:46,300 WARNING onceover.copy.lane: so so": (
        logging.WARNING,
        "onceover.copy.lane: so so",
    ),
    "2026-11-22 05:15:46,301 ERROR   onceover.spark: bad": (
        logging.ERROR,
        "onceover.spark: bad",
    ),
    "  with more": (logging.ERROR, None),
    "2026-11-22 05:15:46,302 WARNING spark.TaskSetManager: Lost task 0.0": (
        logging.WARNING,
        "spark.TaskSetManager: Lost task 0.0",
    ),
    "26/11/22 05:04:24 WARN NativeCodeLoader: of Spark's own": (
        logging.WARNING,
        "NativeCodeLoader: of Spark's own",
    ),
    "26/11/22 05:04:24 INFO SparkContext: Running": (logging.INFO, "SparkContext: Running"),
    "Traceback (most recent call last):": (logging.ERROR, None),
    '  File "x.py", line 1': (logging.ERROR, None),
    "KeyError: 'x'": (logging.ERROR, None),
    "2026-11-22 05:15:46,303 DEBUG   onceover.copy.lane: little": (
        logging.DEBUG,
        "onceover.copy.lane: little",
    ),
}


def test_every_line_has_the_level_it_says() -> None:
    """Ours and Spark's; what has no stamp belongs to the line before it, a traceback is an error."""
    expected = [(level, text or line) for line, (level, text) in LINES.items()]
    assert list(levelled(iter(LINES))) == expected


class Recorder:
    """A logger that keeps what it is given."""

    def __init__(self) -> None:
        self.said: list[tuple[int, str]] = []

    def log(self, level: int, text: str, *args: object) -> None:
        self.said.append((level, text % args))


def test_hook_logs_at_these_levels_and_masks(spark: FakeSpark) -> None:
    """The last lines are kept for a job that says nothing else."""
    hook = SparkJobHook(spark.job, name="test", environment={})
    recorder = Recorder()
    hook._log = recorder  # pyrefly: ignore[bad-assignment]
    mask_secret("levels-5b1d90e7")
    hook._process_spark_submit_log(
        iter(["2026-11-22 05:15:46,301 ERROR   onceover: no levels-5b1d90e7 here\n"])
    )
    assert recorder.said == [(logging.ERROR, "onceover: no *** here")]
    assert hook.tail == "onceover: no *** here"
