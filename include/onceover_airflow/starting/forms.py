"""The fields that the trigger forms share, and what all DAGs of ours have in common.

Invariant: every form opens valid and can be submitted untouched. Airflow's form counts an empty text as
missing and keeps *Trigger* disabled (3.3.2, seen in a browser only: REST accepts it), so a field that may be
empty is nullable and has no other default, and where a person picks from a list the first entry is picked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Param, get_parsing_context

from onceover.advice import nearest_fix
from onceover.config.units import RUN_LENGTH
from onceover.errors import UsageError
from onceover_airflow.access.flowcontext import errors_of_ours
from onceover_airflow.codes import AirflowCode
from onceover_airflow.flows import CAUGHT_UP, CONTINUOUS, FOREVER
from onceover_airflow.jobs.masters import MASTERS_VARIABLE, allowed_masters
from onceover_airflow.jobs.retrying import failure_limits, told
from onceover_airflow.starting.pools import most_runs
from onceover_airflow.starting.runnames import SUBJECTS

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.definitions.param import ParamsDict

RUN_LENGTH_PATTERN: Final = rf"^(caught-up|forever|{RUN_LENGTH})$"
GROUPS_UNTIL_PATTERN: Final = rf"^(once|{RUN_LENGTH})$"
# What Spark itself takes for a master; whether somebody answers there, the job finds out.
MASTER_PATTERN: Final = (
    r"^(|local(\[([1-9][0-9]{0,3}|\*)(,[1-9][0-9]{0,3})?\])?|yarn"
    r"|spark://[^\s/:]+:[0-9]+(,[^\s/:]+:[0-9]+)*|k8s://(https://)?[^\s/:@]+(:[0-9]+)?(/[^\s@]*)?)$"
)
# Longer than any name, path or pattern that somebody would type.
MAX_TEXT: Final = 1000
MAX_PARTITION: Final = 2**31 - 1
# Airflow's messages hold numbers of 64 bits, and its DAG processor ends over a greater one (3.3.2, seen).
MAX_OFFSET: Final = 2**63 - 1
TAG: Final = "onceover"
OWNER: Final = "onceover"
# What a DAG that starts ours by Airflow's own operator adds, where lineage is on.
_OF_AIRFLOW: Final = "openlineage"
# A continuous DAG needs one: without, Airflow 3.3.2 gives its second run the first one's logical date,
# finds that run, and never starts another. All others have none: a cron with a start date in the past runs
# at once for the time before it was seen.
_BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)


def by_hand() -> dict[str, Any]:
    """Return the settings of a DAG that people start, for any flow."""
    return {"schedule": None, "max_active_runs": most_runs(), "tags": [TAG], **_common()}


def on_schedule(flow: str, schedule: str) -> dict[str, Any]:
    """Return the settings of a flow's own DAG, which never overlaps its own last run."""
    return {
        "schedule": schedule,
        "max_active_runs": 1,
        "tags": [TAG, flow],
        "start_date": _BEGINNING if schedule == CONTINUOUS else None,
        **failure_limits(schedule),
        **_common(),
    }


def _common() -> dict[str, Any]:
    each_task = {"owner": OWNER, "pre_execute": check_conf, **told()}
    return {"catchup": False, "is_paused_upon_creation": False, "default_args": each_task}


def check_conf(context: Context) -> None:
    """Refuse a run that would not do what it was started with, before any of its tasks does a thing.

    A form sends what it has. Over REST and at a shell Airflow takes whatever it is given, and a field whose
    name is misspelt leaves the real one at its default: *Apply* on. Where there are several flows and a run
    names none, each task would take the first one, which is another one once a file comes that sorts before.

    Raises:
        TaskFailed: NOT_A_FIELD, NOT_NAMED, or CONF_IGNORED.
    """
    dag, conf = context["dag"], context["dag_run"].conf or {}
    fields, subject = dag.params, SUBJECTS.get(dag.dag_id)
    with errors_of_ours():
        if unknown := [name for name in conf if name not in fields and name != _OF_AIRFLOW]:
            raise UsageError(
                "the run was started with something that the form does not have",
                code=AirflowCode.NOT_A_FIELD,
                seen=", ".join(unknown),
                resolve=f"{nearest_fix(unknown[0], fields)} Then start the DAG again",
            )
        if subject is not None and subject not in conf and len(_offered(fields, subject)) > 1:
            raise UsageError(
                "the run was started without saying what for",
                code=AirflowCode.NOT_NAMED,
                expected=f'"{subject}" in its conf, as the form has it',
                resolve="start the DAG again with it",
            )
        ignored = [
            name for name, wanted in conf.items() if name in fields and context["params"][name] != wanted
        ]
        if ignored:
            raise UsageError(
                "Airflow does not tell its tasks what the run was started with",
                code=AirflowCode.CONF_IGNORED,
                expected="[core] dag_run_conf_overrides_params = True, as by default",
                seen=f"other values of {', '.join(ignored)}",
                resolve="correct it in Airflow's configuration, then start the DAG again",
            )


def _offered(fields: ParamsDict, subject: str) -> Sequence[str]:
    schema = fields.get_param(subject).schema
    names: Sequence[str] = schema.get("enum") or schema.get("examples") or ()
    return names


def value(field: str) -> str:
    """Return the template of a form's field: an empty one is an empty text, and not ``None``."""
    return f"{{{{ params.{field} or '' }}}}"


def optional(title: str, text: str, **schema: Any) -> Param:
    """Return a text field that may be left empty."""
    return Param(
        None, type=["null", "string"], maxLength=MAX_TEXT, title=title, description_md=text, **schema
    )


def optional_number(title: str, text: str, *, maximum: int) -> Param:
    """Return a field for a whole number from 0 to ``maximum`` that may be left empty."""
    return Param(None, type=["null", "integer"], minimum=0, maximum=maximum, title=title, description_md=text)


def switch(title: str, text: str, *, on: bool) -> Param:
    """Return a field that is on or off."""
    return Param(on, type="boolean", title=title, description_md=text)


def pick(title: str, names: Sequence[str], text: str) -> Param:
    """Return a list to pick from, its first entry picked.

    Without an entry it is empty and may stay so: the run's first task says what is missing, where a form
    could only refuse. So does a task, whose file may be gone since its run was started: Airflow would refuse
    it before any code of ours runs, with a dump of the form, and try it again as often as the task is.
    """
    if not names:
        return optional(title, f"{text} **There is none yet.**")
    bound: dict[str, Any] = {"enum": [*names]}
    if get_parsing_context().task_id is not None:
        bound = {"maxLength": MAX_TEXT, "examples": [*names]}
    return Param(names[0], type="string", title=title, description_md=text, **bound)


def flow_param(names: Sequence[str]) -> Param:
    """Return the form's field for the flow."""
    return pick("Flow", names, "A file in the flows directory, without `.yaml`.")


def apply_param() -> Param:
    """Return the form's switch between doing and showing."""
    return switch("Apply", "Off: show the plan and change nothing.", on=True)


def topic_param() -> Param:
    """Return the form's field for the topics."""
    return optional("Topics", "Regular expression for whole source topics. Empty: all of the flow.")


def run_length_param(default: str = CAUGHT_UP) -> Param:
    """Return the form's field for the run length."""
    return Param(
        default=default,
        type="string",
        pattern=RUN_LENGTH_PATTERN,
        maxLength=MAX_TEXT,
        examples=[CAUGHT_UP, FOREVER, "10m", "1h"],
        title="Run length",
        description_md=(
            "`caught-up`: everything the source holds when the run starts. "
            "`forever`: until somebody stops it. Or a duration such as `10m`."
        ),
    )


def master_param() -> Param:
    """Return the form's field for the Spark master; empty means the flow file's."""
    return optional(
        "Spark master",
        f"Empty: as the flow file says. Others than `local` and that one an administrator allows: "
        f"`{MASTERS_VARIABLE}`.",
        pattern=MASTER_PATTERN,
        examples=["local", *allowed_masters()],
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
        "group": optional(
            "Groups", "Regular expression for whole names, among those of the flow file. Empty: all."
        ),
        "allow_rewind": switch(
            "Allow rewinds", "Also move groups backwards: they read records again.", on=False
        ),
        "until": Param(
            until,
            type="string",
            pattern=GROUPS_UNTIL_PATTERN,
            maxLength=MAX_TEXT,
            examples=["once", "10m", "1h"],
            title="Until",
            description_md="`once`, or for how long to keep them in place.",
        ),
        "apply": apply_param(),
        "approve": switch(
            "Ask",
            "Ask about moves that skip or repeat records. Off: such groups are left alone.",
            on=approve,
        ),
    }
