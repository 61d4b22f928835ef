"""What a DAG file may know about the flows: their names and schedules, read without a connection.

Invariant: a broken flow file never breaks the import of a DAG file; its name stays in the list, and the
run's first task tells what is wrong with it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from airflow.sdk import Param

from onceover.config import values
from onceover.config.faults import Invalid
from onceover.config.flowfile import SchedulesSpec
from onceover.config.load import find_flow_files, read_keys
from onceover.errors import OnceoverError

log = logging.getLogger(__name__)

CONTINUOUS: Final = "@continuous"
CAUGHT_UP: Final = "caught-up"
FOREVER: Final = "forever"
RUN_LENGTH_PATTERN: Final = r"^(caught-up|forever|[1-9][0-9]*(ms|s|m|h|d))$"
GROUPS_UNTIL_PATTERN: Final = r"^(once|[1-9][0-9]*(ms|s|m|h|d))$"
# No more than what keeps an option from looking like another one; the job checks the rest.
MASTER_PATTERN: Final = r"^([a-z][^\s]*)?$"


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


def scheduled_flows(key: str) -> list[ScheduledFlow]:
    """Return the flows with a schedule under ``schedules.<key>``, their own or by default.

    Whatever is wrong with one file is said in the log, and costs that flow its scheduled DAG alone.
    """
    return list(_scheduled(find_flow_files(), key, getattr(SchedulesSpec(), key)))


def _scheduled(files: Sequence[Path], key: str, default: str | None) -> Iterator[ScheduledFlow]:
    stems = Counter(path.stem for path in files)
    for path in files:
        try:
            schedule = _schedule_in(path, key, default)
            if schedule is None:
                continue
            flow = ScheduledFlow(values.flow_name(path.stem), values.schedule(schedule))
        except (OnceoverError, Invalid) as error:
            # Not the message nor the value: both may quote the file, which may hold a secret.
            _say_broken(path, type(error).__name__)
            continue
        if stems[path.stem] == 1:
            yield flow
        else:
            _say_broken(path, "another file has the same name")


def _schedule_in(path: Path, key: str, default: str | None) -> object:
    """Return what the file says under ``schedules.<key>``; its other keys are not looked at.

    Raises:
        OnceoverError: it cannot be read, or is no YAML for configuration (too deep, anchors).
    """
    schedules = read_keys(path).get("schedules") or {}
    return schedules.get(key, default) if isinstance(schedules, dict) else None


def _say_broken(path: Path, why: str) -> None:
    log.warning("flow file %s gives no schedule (%s): onceover flow check %s", path.name, why, path.stem)


def flow_param(names: Sequence[str]) -> Param:
    """Return the form's field for the flow: a list, or a text while there is no flow file yet.

    Only a single flow is chosen beforehand: among several a person picks.
    """
    text = "A file in the flows directory, without `.yaml`."
    if not names:
        return Param(type="string", minLength=1, title="Flow", description_md=f"{text} There is none yet.")
    if len(names) == 1:
        return Param(names[0], type="string", enum=list(names), title="Flow", description_md=text)
    return Param(type="string", enum=list(names), title="Flow", description_md=text)


def run_length_param(default: str = CAUGHT_UP) -> Param:
    """Return the form's field for the run length."""
    return Param(
        default=default,
        type="string",
        pattern=RUN_LENGTH_PATTERN,
        examples=[CAUGHT_UP, FOREVER, "10m", "1h"],
        title="Run length",
        description_md=(
            "`caught-up`: everything the source holds when the run starts. "
            "`forever`: until somebody stops it. Or a duration such as `10m`."
        ),
    )


def master_param() -> Param:
    """Return the form's field for the Spark master; empty means the flow file's."""
    return Param(
        default="",
        type="string",
        pattern=MASTER_PATTERN,
        examples=["", "local", "spark://127.0.0.1:7077"],
        title="Spark master",
        description_md="Empty: as the flow file says.",
    )


def group_params(*, until: str, approve: bool) -> dict[str, Param]:
    """Return the form's fields for moving consumer groups.

    Args:
        until: how long by default; ``once`` or a duration.
        approve: whether a person is asked about moves that skip or repeat records.
    """
    return {
        "direction": Param(
            "failover",
            type="string",
            enum=["failover", "failback"],
            title="Direction",
            description_md="`failover`: source to target. `failback`: target to source.",
        ),
        "group": Param(
            "",
            type="string",
            title="Groups",
            description_md="Regular expression for whole names, among those of the flow file. Empty: all.",
        ),
        "allow_rewind": Param(
            False,
            type="boolean",
            title="Allow rewinds",
            description_md="Also move groups backwards: they read records again.",
        ),
        "until": Param(
            until,
            type="string",
            pattern=GROUPS_UNTIL_PATTERN,
            examples=["once", "10m", "1h"],
            title="Until",
            description_md="`once`, or for how long to keep them in place.",
        ),
        "apply": Param(
            True,
            type="boolean",
            title="Apply",
            description_md="Off: show the plan and change nothing.",
        ),
        "approve": Param(
            approve,
            type="boolean",
            title="Ask",
            description_md="Ask about moves that skip or repeat records. Off: such groups are left alone.",
        ),
    }
