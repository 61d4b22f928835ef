"""What a DAG file may know about the flows: their names and schedules, read without a connection.

Invariant: a broken flow file never breaks the import of a DAG file; its name stays in the list, and the
run's first task tells what is wrong with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onceover.config import values
from onceover.config.flow.flowfile import SchedulesSpec
from onceover.config.flow.load import find_flow_files, read_keys
from onceover.config.flow.namesakes import clash_of
from onceover.errors import UsageError
from onceover_airflow.codes import AirflowCode

log = logging.getLogger(__name__)

CONTINUOUS: Final = values.CONTINUOUS
CAUGHT_UP: Final = "caught-up"
FOREVER: Final = "forever"


@dataclass(frozen=True, slots=True)
class ScheduledFlow:
    """A flow whose file asks for a scheduled DAG."""

    name: str
    schedule: str

    @property
    def run_length(self) -> str:
        """Without an end under ``@continuous``: runs that end would pay Spark's start all the time."""
        return FOREVER if self.schedule == CONTINUOUS else CAUGHT_UP


def flow_names() -> list[str]:
    """Return the names a person can pick from."""
    return sorted({path.stem for path in find_flow_files()})


def by_name(ref: str) -> str:
    """Return the name of a flow or a Connect file that a form gives.

    On a command line it may be a path. Whoever fills in a form may only pick among the files that are in the
    directory: another file would have the worker connect where it says, with what the worker's environment
    holds, and messages about it would quote it.

    Raises:
        UsageError: NOT_A_NAME.
    """
    # Empty where there is nothing to pick from; what is missing is said where it is looked for.
    if ref and not values.NAME.fullmatch(ref):
        raise UsageError(
            "a form takes names only, no paths",
            code=AirflowCode.NOT_A_NAME,
            expected=values.NAME_RULE,
            resolve="put the file into its directory and name it without its suffix",
        )
    return ref


def scheduled_flows(key: str, files: Sequence[Path] | None = None) -> list[ScheduledFlow]:
    """Return the flows with a schedule under ``schedules.<key>``, their own or by default.

    Whatever is wrong with one file is said in the log, and costs that flow its scheduled DAG alone.

    Args:
        files: that are looked at; None for all.
    """
    looked_at = find_flow_files() if files is None else files
    return list(_scheduled(looked_at, key, getattr(SchedulesSpec(), key)))


def build_scheduled(key: str, build: Callable[[ScheduledFlow], None]) -> None:
    """Have the DAG ``<key>_<flow>`` built of each flow with a schedule under ``schedules.<key>``.

    What Airflow objects to in one flow's DAG is said in the log, and costs that flow its DAG alone.

    Airflow reads a DAG file before each task, too, and says then which DAG it wants: no other flow's file is
    read, which took 8 ms a flow.
    """
    from airflow.sdk import get_parsing_context

    for flow in scheduled_flows(key, _wanted(key, get_parsing_context().dag_id)):
        try:
            build(flow)
        except Exception:
            # Whatever it is: the DAGs of the other flows are not to miss it.
            log.exception("flow %s gets no DAG by schedules.%s: Airflow refuses it", flow.name, key)


def _wanted(key: str, dag_id: str | None) -> list[Path] | None:
    """Return the file of the flow whose DAG a task is of; None where all DAGs are wanted."""
    if dag_id is None:
        return None
    name = dag_id.removeprefix(f"{key}_")
    # Whether another file says the same name is looked at when the flow is loaded.
    return [path for path in find_flow_files() if path.stem == name != dag_id]


def _scheduled(files: Sequence[Path], key: str, default: str | None) -> Iterator[ScheduledFlow]:
    for path in files:
        try:
            schedule = _schedule_in(path, key, default)
            if schedule is None:
                continue
            flow = ScheduledFlow(path.stem, values.spread(values.schedule(schedule), path.stem))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other flows keep their DAGs
            # Not the message nor the value: both may quote the file, which may hold a secret.
            _say_broken(path, type(error).__name__)
            continue
        clash = clash_of(path, files)
        if clash is None or not clash.is_refused:
            yield flow
        else:
            _say_broken(path, "another file has the same flow")


def _schedule_in(path: Path, key: str, default: str | None) -> object:
    """Return what the file says under ``schedules.<key>``; its other keys are not looked at.

    Raises:
        OnceoverError: it cannot be read, or is no YAML for configuration (too deep, anchors).
    """
    schedules = read_keys(path).get("schedules") or {}
    return schedules.get(key, default) if isinstance(schedules, dict) else None


def _say_broken(path: Path, why: str) -> None:
    log.warning("flow file %s gives no schedule (%s): onceover flow check %s", path.name, why, path.stem)
