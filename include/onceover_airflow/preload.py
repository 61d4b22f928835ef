"""Loads what DAG files and tasks need once, in the processes of Airflow's that fork all others.

Airflow parses every DAG file, and runs every task, in a process that is forked for it alone. What such a
process imports is gone with it: some tenths of a second of CPU for each DAG file every few seconds, and a
second for each task. What its parent has loaded it has for nothing.

Airflow tells listeners when a job begins: before the scheduler's executor forks its workers, and before the
DAG processor forks at all. An executor that starts its tasks elsewhere is not touched by it.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import sys
from typing import Any, Final

from airflow.listeners import hookimpl

# What the DAG files of this project begin with.
_PARSED: Final = tuple(f"onceover_airflow.{room}" for room in ("tasks", "jobs", "starting", "telling"))
# What tasks come to, in their functions: the DAG processor has no use for it.
_RUN: Final = ("onceover.wiring", "onceover.spark.launch.submit")
# Handlers, pages and metrics have processes of their own, and libraries that no task needs. What is loaded
# starts no thread of Python's; those of numpy and pyarrow know of forks (Spark forks its workers so, too).
_NOT_RUN: Final = tuple(f"onceover.wiring.{each}" for each in ("apart", "board", "monitoring", "runs"))
# By Airflow's own command: a job does not know of which type it is when listeners are told of it (3.3.2).
_ROOMS: Final = {"dag-processor": _PARSED, "scheduler": (*_PARSED, *_RUN)}

_log = logging.getLogger(__name__)


@hookimpl
def on_starting(component: Any) -> None:
    """Load the modules of what this process will fork.

    A module that does not load is left to whoever needs it, who says there what is wrong: a scheduler that
    does not start because of it would take all other people's DAGs down with it.
    """
    for room in _ROOMS.get(next(iter(sys.argv[1:]), ""), ()):
        _load(room)


def _load(name: str) -> None:
    if name in _NOT_RUN:
        return
    try:
        path = getattr(importlib.import_module(name), "__path__", ())
    except Exception:  # noqa: BLE001 - whatever a module may raise; it is logged with its trace
        _log.exception("%s is not loaded ahead", name)
        return
    for found in pkgutil.iter_modules(path, f"{name}."):
        _load(found.name)
