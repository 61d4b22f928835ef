"""A DAG of the tests' own, about a wish instead of clusters, which wants the yes of another person.

It lies in a bundle of its own beside the project's DAGs: a second Airflow for it took half a minute.
"""

from __future__ import annotations

from typing import Final

DAG, PLAN, ASK, APPLY = "wished", "plan", "ask", "apply"
DONE_VARIABLE: Final = "TEST_DONE"
# Logins beside the administrator's, with Airflow's weakest role that may start a run.
PEOPLE: Final = ("ann", "bob")
# As the DAGs of the project are wired. A task is a process that reads this file, and alone goes by that rule.
DAG_FILE: Final = f'''
import json, os
os.environ["ONCEOVER_APPROVER"] = "another"
from contextlib import nullcontext
from airflow.sdk import DAG, Param
from onceover.planning.approval import Item
from onceover_airflow.starting import forms
from onceover_airflow.tasks.operation import OperationTasks, gated
from onceover_airflow.jobs.retrying import retry_interrupted

class Wished:
    exit_code, waiting, counts, changes, refused, title = 0, (), {{}}, (), (), "a wish"
    def __init__(self, wish):
        self.items = [Item(wish)]
    def describe(self):
        return self.items[0].what

class Wish:
    def __init__(self, wish):
        self.wish = wish
    def plan(self):
        return Wished(self.wish)
    def apply(self, caller, approval):
        caller.announce(self.plan())
        if approval.items:
            with open(os.environ["{DONE_VARIABLE}"], "a") as file:
                print(json.dumps([sorted(approval.items), approval.consent.document()]), file=file)
        return self.plan()

class Tasks(OperationTasks):
    plan_task, approve_task, apply_task, subject = "{PLAN}", "{ASK}", "{APPLY}", "a wish"
    def opened(self, name, context):
        return nullcontext(Wish(context["params"]["wish"]))
    def wants_asking(self, context):
        return True
    def question(self, planned):
        return planned.describe()

params = {{"flow": Param("flights", type="string"), "wish": Param("", type="string")}}
params["apply"] = forms.apply_param()
with DAG("{DAG}", **forms.by_hand(), params=params):
    gated(Tasks(), forms.value("flow"), retry_interrupted())
'''


def password_of(name: str) -> str:
    """Return what somebody logs in with."""
    return f"{name}-has-this-password-in-tests"
