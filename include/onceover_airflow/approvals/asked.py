"""Which question an answer belongs to, and that a run puts its question once.

Invariant: a question is known by what Airflow itself gives and nobody chooses: the id of the try that put it,
and the moment its run began. Names are none: a run can be deleted and its id used again. Within a run one try
puts the question, whatever is cleared, deleted or marked; who wants to be asked again starts another run.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onceover.config.home import onceover_home
from onceover.errors import UsageError
from onceover_airflow.codes import AirflowCode

if TYPE_CHECKING:
    from airflow.sdk import Context

# With an underscore: no flow can be called so, whose folder would be at the same place.
_FOLDER: Final = "approval_questions"
# Answers are good for days; after that the tries that Airflow counts tell alone who was asked before.
_KEPT: Final = timedelta(days=30)
_AGAIN: Final = "start the DAG again: a new run asks anew"


def origin_of(context: Context, task_id: str) -> dict[str, str | None]:
    """Return what an answer to the task ``task_id`` is good for: this run, its wish and its starter."""
    task_instance, run = context["ti"], context.get("dag_run")
    began = getattr(run, "start_date", None)
    return {
        "dag": task_instance.dag_id,
        "run": task_instance.run_id,
        "task": task_id,
        # Given by the scheduler: another one for a run of the same id, and for one that was set going again.
        "began": began and began.isoformat(),
        "starter": getattr(run, "triggering_user_name", None),
        "wish": json.dumps(dict(context.get("params") or {}), sort_keys=True, default=str),
    }


def question_id(context: Context) -> str:
    """Return the id of the try at hand: Airflow makes one for each, and keeps it while a person thinks."""
    return str(context["ti"].id)


def check_origin(found: Mapping[str, Any], context: Context, task_id: str) -> None:
    """Refuse what was sealed for another question.

    Raises:
        UsageError: ANOTHER_ANSWER.
    """
    origin = origin_of(context, task_id)
    others = [key for key, value in origin.items() if found.get(key) != value]
    if others:
        raise _another(", ".join(f"{key} {origin[key]}" for key in others), _said(found, others))


def check_question(shown: Mapping[str, Any], context: Context) -> None:
    """Refuse to take the answer for one to what another try, or another run, has shown.

    Raises:
        UsageError: ANOTHER_ANSWER.
    """
    if shown.get("question") != question_id(context):
        raise _another(f"question {question_id(context)}", _said(shown, ["question"]))


def check_uncleared(context: Context) -> None:
    """Refuse to use an answer again: it counts for the tries of one task.

    Raises:
        UsageError: ANSWER_USED.
    """
    if _was_cleared(context):
        raise UsageError(
            "the answer was used before: the task that does what was approved was cleared since",
            code=AirflowCode.ANSWER_USED,
            where=_place(context),
            expected="one answer for each time",
            resolve=_AGAIN,
        )


def put_once(context: Context) -> None:
    """Note that the try at hand puts the question of its run.

    Raises:
        UsageError: QUESTION_PUT, an earlier try, or run of this name, has put it; or that cannot be kept.
    """
    if _was_cleared(context):
        raise _put_before(context, "the asking task was cleared")
    path, mine = _note_of(context), question_id(context)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _forget_old(path.parent)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(mine)
    except FileExistsError as error:
        if path.read_text() != mine:
            raise _put_before(context, "it stands in Required Actions of an earlier try") from error
    except OSError as error:
        raise UsageError(
            f"it cannot be kept which questions were put: {error.strerror}",
            code=AirflowCode.APPROVAL_KEY,
            where=str(path.parent),
            expected="a folder of this user below ONCEOVER_HOME",
            resolve="let the user of Airflow's tasks write to it",
        ) from error


def was_run_cleared(context: Context) -> bool:
    """Tell whether somebody has cleared anything of the run; Airflow tells no task who."""
    return bool(getattr(context.get("dag_run"), "clear_number", 0))


def _was_cleared(context: Context) -> bool:
    """Tell whether the task at hand was cleared after a try of it, by how many tries Airflow grants it."""
    task_instance = context["ti"]
    return task_instance.max_tries > (task_instance.task.retries or 0)


def _note_of(context: Context) -> Path:
    task_instance = context["ti"]
    names = json.dumps([task_instance.dag_id, task_instance.run_id, task_instance.task_id])
    return onceover_home() / _FOLDER / hashlib.sha256(names.encode()).hexdigest()


def _forget_old(folder: Path) -> None:
    for path in folder.iterdir():
        # Another task may be at it, too.
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _KEPT.total_seconds():
                path.unlink()


def _place(context: Context) -> str:
    task_instance = context["ti"]
    return f"{task_instance.dag_id}/{task_instance.run_id}/{task_instance.task_id}"


def _said(found: Mapping[str, Any], keys: list[str]) -> str:
    return ", ".join(f"{key} {found.get(key)}" for key in keys)


def _another(expected: str, seen: str) -> UsageError:
    return UsageError(
        "the answer is one to another question",
        code=AirflowCode.ANOTHER_ANSWER,
        expected=expected,
        seen=seen,
        resolve=_AGAIN,
    )


def _put_before(context: Context, how: str) -> UsageError:
    return UsageError(
        "this run has put its question before, and puts it once",
        code=AirflowCode.QUESTION_PUT,
        where=_place(context),
        seen=how,
        resolve=_AGAIN,
    )
