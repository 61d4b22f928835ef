"""What Airflow's skin refuses. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class AirflowCode(Code):
    """Refusals of names, fields, masters, answers and approvals; docs/airflow.md."""

    NOT_A_NAME = auto()
    NOT_A_FIELD = auto()
    NOT_NAMED = auto()
    CONF_IGNORED = auto()
    MASTER_NOT_ALLOWED = auto()
    APPROVAL_KEY = auto()
    APPROVAL_TOO_OLD = auto()
    NOT_SEALED = auto()
    QUESTION_PUT = auto()
    ANSWER_USED = auto()
    ANOTHER_ANSWER = auto()
    NO_APPROVER = auto()
    BAD_APPROVER = auto()
    SAME_PERSON = auto()
