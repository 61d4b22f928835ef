"""Every form, as a person meets it in a browser: opens valid, is sent untouched, takes every field (soak)."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urljoin

import pytest

from onceover_airflow.starting.runnames import SUBJECTS
from onceover_lab.embed.airflow import AirflowStandalone
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.flows.groups import commit_all
from tests.support.session.wait import wait_until
from tests.system.conftest import failed_logs, valid_form
from tests.system.killing import FLOW, TOPIC, KilledRun
from tests.system.person import Form, Person, Value
from tests.system.wishing import DAG as WISHED

GROUP = "some-billing"
RUN_TIMEOUT_S = 300.0
LISTED_S = 120.0
# A word to a drill is given where one waits: test_failover_drill.py, which asks for no page.
WORD: Final = "confirm_drill"
# Connect's form is sent where a Connect cluster runs (test_migrate_connector_offsets.py), that of a way back
# where something was promoted (test_failback.py).
ELSEWHERE: Final = frozenset({"migrate_connector_offsets", "failback"})
# Opened and filled in by tests of their own (test_failover_drill.py, test_repair_partition.py); here in soak.
FILLED_IN: Final = frozenset({"failover_drill", "repair_partition"})
SPARK: Final = ("replicate", "audit")
# Every field of every form with something else than its default, which still works;
CHANGED: Final[Mapping[str, Mapping[str, Value]]] = {
    "replicate": {"flow": FLOW, "run_length": "5s", "master": "local[2]"},
    "audit": {
        "flow": FLOW,
        "topics": f"{FLOW}[.].*",
        "since": "start",
        "full": True,
        "master": "local[2]",
    },
    "sync_topics": {"flow": FLOW, "apply": False},
    "failover_drill": {
        "flow": FLOW,
        "mode": "unplanned",
        "topics": f"{FLOW}[.].*",
        "take_over": True,
        "whatever_is_lost": True,
        "apply": False,
    },
    "export_orphans": {
        "flow": FLOW,
        "topics": f"{FLOW}[.].*",
        "rebuild": True,
        "forget_groups": "some-.*",
        "apply": False,
    },
    "rehearse": {
        "flow": FLOW,
        "topics": f"{FLOW}[.].*",
        "group": "some-.*",
        "sample": 5000,
        "canaries": 20,
    },
    "seed_progress": {
        "flow": FLOW,
        "kind": "seed",
        "origin": "earliest",
        "topic": f"{FLOW}[.].*",
        "replace": True,
        "missing": "earliest",
        "mm2_source": "a",
        "mm2_target": "b",
        "decided": "none",
        "apply": False,
    },
    "repair_partition": {
        "flow": FLOW,
        "action": "skip-to",
        "topic": TOPIC,
        "partition": 1,
        "offset": 7,
        "apply": False,
    },
    "sync_group_offsets": {
        "flow": FLOW,
        "direction": "failback",
        "group": "some-.*",
        "allow_rewind": True,
        "until": "1s",
        "apply": False,
        "approve": False,
    },
}
# but for fields of which the one makes no sense beside the other: their run says so at once.
REFUSED: Final = frozenset({"seed_progress"})

# Of a failed task's log: its error and what led to it.
_TOLD_CHARACTERS: Final = 4000

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def copied(killed: KilledRun, secured_cluster: KafkaCluster) -> str:
    """The run of the copy that somebody started without touching its form, ended."""
    assert killed.state == "success"
    commit_all(secured_cluster.client, TOPIC, {GROUP: {0: 5}})
    return killed.run_id


@dataclass(frozen=True)
class Untouched:
    """Runs of other DAGs that were started without touching their forms, ended."""

    runs: Mapping[str, str]
    states: Mapping[str, str]


@pytest.fixture(scope="module")
def untouched(copied: str, airflow: AirflowStandalone, person: Person) -> Untouched:
    """All but those that tests of their own start."""
    elsewhere = {"replicate", WORD, *ELSEWHERE, *FILLED_IN}
    return sent_untouched(airflow, person, *(dag_id for dag_id in SUBJECTS if dag_id not in elsewhere))


def sent_untouched(airflow: AirflowStandalone, person: Person, *dag_ids: str) -> Untouched:
    """Send forms as they open, all at once, and wait for the ends of their runs."""
    runs = {dag_id: untouched_form(person, dag_id).send() for dag_id in dag_ids}
    return Untouched(runs, ended(airflow, runs))


def untouched_form(person: Person, dag_id: str) -> Form:
    """Open a form, valid as it is, with the fields that are changed below."""
    form = valid_form(person, dag_id)
    if dag_id in CHANGED:
        assert list(form.fields) == list(CHANGED[dag_id])
    return form


def test_people_who_start_at_the_same_moment_are_all_answered(airflow: AirflowStandalone) -> None:
    """Airflow's server waited for itself there, for as long as SQLite's patience is."""
    path = "/api/v2/dags/rehearse_flights"
    # These runs are not to begin.
    airflow.call("PATCH", path, {"is_paused": True})
    names = [f"at-once-{number}" for number in range(12)]

    def start(name: str) -> Any:
        body: dict[str, Any] = {"dag_run_id": name, "logical_date": None, "conf": {}}
        return airflow.call("POST", f"{path}/dagRuns", body)["dag_run_id"]

    with ThreadPoolExecutor(4) as people:
        assert list(people.map(start, names)) == names
    for name in names:
        airflow.call("DELETE", f"{path}/dagRuns/{name}")
    airflow.call("PATCH", path, {"is_paused": False})


def test_every_form_that_is_sent_nowhere_else_opens_valid(airflow: AirflowStandalone, person: Person) -> None:
    """And one of a DAG that runs on a schedule; all others are sent, below or by other tests.

    Also on a machine that loses its network meanwhile.
    """

    def listed() -> list[str]:
        dags = [dag["dag_id"] for dag in airflow.call("GET", "/api/v2/dags?limit=500")["dags"]]
        return dags if set(SUBJECTS) <= set(dags) else []

    # A file that is looked at later than others counts as stale for a moment, and its DAG is not listed.
    dags = wait_until(listed, LISTED_S, f"Airflow lists {', '.join(SUBJECTS)}")
    scheduled = min(dag for dag in dags if dag not in {*SUBJECTS, WISHED})
    untouched_form(person, WORD)
    person.page.evaluate("dispatchEvent(new Event('offline'))")
    untouched_form(person, scheduled)


def test_an_untouched_copy_is_called_after_its_flow(copied: str, person: Person) -> None:
    """The list of runs says whose run it was. That everything is on the other side: test_replicate.py."""
    assert copied.startswith(f"{FLOW}__")
    page = person.open("/dags/replicate/runs")
    page.get_by_role("link", name=copied[:20]).first.wait_for()


def test_forms_that_nobody_touched_succeed(untouched: Untouched, airflow: AirflowStandalone) -> None:
    """All of them at once, on a flow in good order: nobody is asked, nothing is lost."""
    check_success(airflow, untouched)


@pytest.mark.soak
def test_forms_that_tests_of_their_own_fill_in_succeed_untouched(
    copied: str, airflow: AirflowStandalone, person: Person
) -> None:
    """Likewise: a look at what a failover would cost, and at a flow in which nothing is stopped."""
    check_success(airflow, sent_untouched(airflow, person, *sorted(FILLED_IN)))


def check_success(airflow: AirflowStandalone, sent: Untouched) -> None:
    """Fail with the logs of what did not end well."""
    assert sent.states == dict.fromkeys(sent.runs, "success"), why(airflow, sent.runs, sent.states)


@pytest.mark.parametrize(
    ("task_id", "button", "shown"),
    [
        ("report_audit", "Data Docs", "Data Docs"),
        # A stranger is led to the report, below: the other links are made alike.
        pytest.param("audit", "Report", "PASS", marks=pytest.mark.soak),
        pytest.param("report_audit", "Report", "PASS", marks=pytest.mark.soak),
        pytest.param("audit", "Data Docs", "Data Docs", marks=pytest.mark.soak),
    ],
)
def test_buttons_of_an_audit_lead_to_its_pages(
    untouched: Untouched, person: Person, task_id: str, button: str, shown: str
) -> None:
    """On both tasks; every link of the page leads somewhere, too."""
    page = person.press("audit", untouched.runs["audit"], task_id, button)
    page.get_by_text(shown).first.wait_for()
    links = {str(each.get_attribute("href")) for each in page.locator("a[href]").all()}
    # With the page's login, and not drawn.
    for link in links - {"#"}:
        assert page.request.get(urljoin(page.url, link)).ok, link
    person.rest()


def test_a_stranger_logs_in_and_sees_the_page_that_was_asked_for(
    untouched: Untouched, airflow: AirflowStandalone, person: Person
) -> None:
    """A link to a report, sent to a colleague, works."""
    path = f"/api/v2/dags/audit/dagRuns/{quote(untouched.runs['audit'])}/taskInstances/audit/links"
    link = airflow.call("GET", path)["extra_links"]["Report"]
    with person.stranger() as stranger:
        page = stranger.log_in(airflow.username, airflow.password, link, shown="PASS")
        assert page.url.endswith(link)


@pytest.mark.soak
def test_runs_work_with_every_field_changed(copied: str, airflow: AirflowStandalone, person: Person) -> None:
    """All that start no Spark at once."""
    change(airflow, person, *(dag_id for dag_id in CHANGED if dag_id not in SPARK))


@pytest.mark.soak
@pytest.mark.parametrize("dag_id", SPARK)
def test_every_field_of_a_spark_job_can_be_changed(
    copied: str, airflow: AirflowStandalone, person: Person, dag_id: str
) -> None:
    """Likewise; a minute each."""
    change(airflow, person, dag_id)


def changed_forms(person: Person, *dag_ids: str) -> dict[str, str]:
    """Fill in every field of some forms, and send them; return their runs."""
    runs = {}
    for dag_id in dag_ids:
        form = untouched_form(person, dag_id).fill(**CHANGED[dag_id])
        assert form.is_valid
        runs[dag_id] = form.send()
    return runs


def conf_of(airflow: AirflowStandalone, dag_id: str, run_id: str) -> dict[str, Any]:
    """Return what a run was started with."""
    run: dict[str, Any] = airflow.call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}")
    conf: dict[str, Any] = run["conf"]
    return conf


def change(airflow: AirflowStandalone, person: Person, *dag_ids: str) -> None:
    """Fill in every field, send, and see the runs end as they should with what was filled in."""
    runs = changed_forms(person, *dag_ids)
    expected = {each: "failed" if each in REFUSED else "success" for each in runs}
    assert (states := ended(airflow, runs)) == expected, why(airflow, runs, states)
    for dag_id, run_id in runs.items():
        assert conf_of(airflow, dag_id, run_id) == CHANGED[dag_id]


def ended(airflow: AirflowStandalone, runs: Mapping[str, str]) -> dict[str, str]:
    """Return how the runs ended."""
    return {
        dag_id: airflow.wait_run(dag_id, run_id, timeout_s=RUN_TIMEOUT_S) for dag_id, run_id in runs.items()
    }


def why(airflow: AirflowStandalone, runs: Mapping[str, str], states: Mapping[str, str]) -> str:
    """Return what the failed tasks of failed runs wrote last."""
    failed = [dag_id for dag_id in runs if states[dag_id] == "failed"]
    return "\n".join(failed_logs(airflow, dag_id, runs[dag_id])[-_TOLD_CHARACTERS:] for dag_id in failed)
