"""One Airflow for all system tests, with the project's own DAGs and flows between real clusters."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser
from playwright.sync_api import TimeoutError as TookTooLong

from onceover_lab.embed.airflow import AirflowStandalone
from onceover_lab.embed.airflow_config import PASSWORDS_FILE, USERNAME
from onceover_lab.embed.kafka import KafkaCluster
from onceover_lab.embed.security import Security, write_private
from tests.support.brokers.clusters import SharedCluster
from tests.support.session.wait import wait_until
from tests.system import killing, wishing
from tests.system.killing import PARTITIONS, KilledRun, killed_midway
from tests.system.person import Form, Person, Value, a_browser, at_a_browser

PROJECT = Path(__file__).parents[2]
# The password of a real cluster: the run cannot succeed without it, so it is really handed over.
PLANTED = "planted-4d1f0c9ab2e75836"
CONNECTION_ID = "kafka_secured"
LOST_CLIENT = "lost-client.yaml"
BROKEN_FLOW = "sys-broken"
# A program that a test puts there.
SWITCHING = "switching"
_ADMIN_TIMEOUT_S = 30.0
# Seconds on an idle machine; more where others start their Sparks.
_STEP_TIMEOUT_S = 200.0
_ENDED = ("success", "failed", "upstream_failed", "skipped", "removed")


@dataclass(frozen=True)
class Side:
    """One cluster of a test flow, as a client sees it."""

    client: Mapping[str, str]

    def create(self, topic: str) -> None:
        """Create a topic."""
        admin = AdminClient(dict(self.client))
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(_ADMIN_TIMEOUT_S)
        wait_until(lambda: topic in admin.list_topics(timeout=10).topics, 20, f"topic {topic}")

    def feed(self, topic: str, records: int, *, size_bytes: int = 100) -> None:
        """Write ``records`` records, spread over the partitions."""
        producer = Producer({**self.client, "compression.type": "lz4", "linger.ms": 20})
        # Not compressible, so that a bandwidth limit means what it says.
        values = [os.urandom(size_bytes) for _ in range(100)]
        for number in range(records):
            key = f"key-{number}".encode()
            producer.produce(topic, values[number % len(values)], key, partition=number % PARTITIONS)
            producer.poll(0)
        assert producer.flush(_ADMIN_TIMEOUT_S) == 0


def valid_form(person: Person, dag_id: str) -> Form:
    """Open a form, valid as it is: nothing is red, *Trigger* can be pressed, every field has a title."""
    form = person.form(dag_id)
    assert form.is_valid, dag_id
    assert all(form.fields.values()), (dag_id, form.fields)
    return form


@dataclass(frozen=True)
class AskingRun:
    """One run of a DAG that asks a person in its task ``approval``; and that person, at a browser."""

    airflow: AirflowStandalone
    person: Person
    dag_id: str
    approval: str
    run_id: str

    @classmethod
    def start(
        cls,
        airflow: AirflowStandalone,
        person: Person,
        dag_id: str,
        approval: str,
        params: Mapping[str, Value],
    ) -> Self:
        """Fill in the DAG's form, which opens valid, and send it."""
        return cls(airflow, person, dag_id, approval, valid_form(person, dag_id).fill(**params).send())

    @property
    def state(self) -> str:
        """The run's state."""
        return self.airflow.run_state(self.dag_id, self.run_id)

    @property
    def states(self) -> dict[str, str]:
        """The tasks' states."""
        tasks = self.airflow.tasks(self.dag_id, self.run_id)
        return {task_id: str(task["state"]) for task_id, task in tasks.items()}

    def log(self, *task_ids: str) -> str:
        """Return what the first tries of the tasks wrote."""
        return "\n".join(self.airflow.task_logs(self.dag_id, self.run_id, each) for each in task_ids)

    def ended(self) -> str:
        """Wait for the end of a run that asks nobody; return its state."""
        return self.airflow.wait_run(self.dag_id, self.run_id, timeout_s=_STEP_TIMEOUT_S)

    def question(self, *, after_try: int = 0) -> dict[str, Any] | None:
        """Return the question once a person is asked, None when the run has ended well without."""

        def waiting() -> str:
            tasks = self.airflow.tasks(self.dag_id, self.run_id)
            task = tasks[self.approval]
            if task["state"] == "awaiting_input" and task["try_number"] > after_try:
                return "asked"
            # Of the run itself only then: an answer of Airflow's server takes CPU from what is waited for.
            if any(each["state"] not in _ENDED for each in tasks.values()):
                return ""
            assert self.state != "failed", failed_logs(self.airflow, self.dag_id, self.run_id)
            return "ended" if self.state == "success" else ""

        if wait_until(waiting, _STEP_TIMEOUT_S, "a person is asked, or the run ends", poll_s=0.5) == "ended":
            return None
        question: dict[str, Any] = self.airflow.call("GET", self._details)
        return question

    def pretend(self) -> None:
        """Type in the result that an approval has, and mark the asking task as a success."""
        wait_until(self._seen_by_scheduler, _STEP_TIMEOUT_S, "the asking process has ended")
        task = self._details.removesuffix("/-1/hitlDetails")
        answer = {"chosen_options": ["Approve"], "params_input": {}}
        self.airflow.call("POST", f"{task}/xcomEntries", {"key": "return_value", "value": answer})
        self.airflow.call("PATCH", task, {"new_state": "success"})

    def choose(self, *options: str) -> None:
        """Answer on the page of the question, no faster than a person could.

        An answer that comes before the scheduler has seen that the asking process ended makes Airflow 3.3.2
        take the resumed task for a killed one: it asks again, or fails.
        """
        wait_until(self._seen_by_scheduler, _STEP_TIMEOUT_S, "the asking process has ended")
        self.person.question(self.dag_id, self.run_id, self.approval)
        self.person.answer(*options)

    def respond(self, *options: str) -> None:
        """Answer without a page, which costs the browser seconds of CPU; no faster either."""
        wait_until(self._seen_by_scheduler, _STEP_TIMEOUT_S, "the asking process has ended")
        self.airflow.call("PATCH", self._details, {"chosen_options": options, "params_input": {}})

    def answer(self, option: str) -> dict[str, str]:
        """Answer as a person; return the tasks' states at the end, which is good."""
        self.choose(option)
        return self.answered()

    def answered(self) -> dict[str, str]:
        """Wait for the good end of a run that was answered, asking nobody again; return its tasks' states."""
        assert self.question(after_try=self._asking["try_number"]) is None
        return self.states

    @property
    def _asking(self) -> dict[str, Any]:
        return self.airflow.tasks(self.dag_id, self.run_id)[self.approval]

    @property
    def _details(self) -> str:
        """Where the question is, and where it is answered."""
        run = f"/api/v2/dags/{self.dag_id}/dagRuns/{self.run_id}"
        return f"{run}/taskInstances/{self.approval}/-1/hitlDetails"

    def _seen_by_scheduler(self) -> bool:
        return any(
            "Received executor event with state" in line and self.run_id in line and self.approval in line
            for line in (self.airflow.home / "scheduler.log").read_text().splitlines()
        )


def failed_logs(airflow: AirflowStandalone, dag_id: str, run_id: str) -> str:
    """Return what the last tries of a run's failed tasks wrote."""
    tasks = airflow.tasks(dag_id, run_id)
    failed = {
        task_id: int(task["try_number"]) for task_id, task in tasks.items() if task["state"] == "failed"
    }
    return "\n".join(
        f"{dag_id} {task_id}:\n{airflow.task_logs(dag_id, run_id, task_id, tries)}"
        for task_id, tries in failed.items()
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Have whoever waited at a browser in vain say what was to be seen there."""
    try:
        return (yield)
    except TookTooLong as error:
        person = item.funcargs.get("person") if isinstance(item, pytest.Function) else None
        if isinstance(person, Person) and not getattr(error, "__notes__", ()):
            person.tell(error)
        raise


@pytest.fixture(scope="package")
def secured_cluster(session_home: Path) -> Iterator[KafkaCluster]:
    """A cluster that wants a password (SASL_SSL, SCRAM)."""
    security = Security("SCRAM-SHA-512", password=PLANTED)
    cluster = KafkaCluster.start(session_home, "secured", security=security)
    try:
        yield cluster
    finally:
        cluster.close(remove=True)


@pytest.fixture(scope="package")
def flows(session_home: Path, target_cluster: SharedCluster) -> Path:
    """The flow files of the system tests. Airflow offers them because they are there."""
    folder = session_home / "flows"
    folder.mkdir()
    source = {"alias": "secured", "connection": CONNECTION_ID}
    target = {"alias": "target", "client": {"bootstrap.servers": target_cluster.bootstrap}}
    # Slow and in small transactions, so that a test can look at the running driver and kill it midway.
    slow = {"limits": {"bytes_per_second": "150KiB"}, "transaction": {"max_bytes": "64KiB"}}
    # Nobody is kept off, and nobody has to be moved: a program says that it has done so.
    moved = {"fence": "command", "redirect": "command", "command": ["/bin/true"], "quiet": "500ms"}
    documents: dict[str, dict[str, object]] = {
        killing.FLOW: {"source": source, "target": target, "switchover": {"fence": "person"}, **slow},
        "sys-topics": {"source": source, "target": target},
        "sys-groups": {"source": source, "target": target},
        "sys-rehearse": {"source": source, "target": target},
        "sys-switch": {
            "source": source,
            "target": target,
            "switchover": {"fence": "person", "quiet": "500ms"},
        },
        "sys-ended": {
            "source": source,
            "target": target,
            "switchover": {"fence": "command", "command": [str(session_home / SWITCHING)]},
        },
        "sys-over": {"source": source, "target": target, "switchover": {"reverse": "sys-over-back"}},
        "sys-over-back": {
            "source": target,
            "target": source,
            "topics": {"include": ["sys-over[.].*"], "discovery_interval": "1s"},
            "switchover": moved,
        },
        "sys-board": {"source": source, "target": target},
        "sys-progress": {"source": source, "target": target},
        "sys-adopted": {"source": source, "target": target},
        "sys-repair": {"source": source, "target": target},
        "sys-audit": {"source": source, "target": target},
        BROKEN_FLOW: {"source": source, "tarket": target},
        # In both directions at once, and one whose password is wrong: its client file comes with the test.
        "sys-one": {"source": source, "target": target},
        "sys-two": {"source": source, "target": target, "delivery": "at_least_once"},
        "sys-back": {"source": target, "target": source},
        "sys-lost": {"source": {"alias": "secured", "client_file": LOST_CLIENT}, "target": target},
    }
    for name, document in documents.items():
        topics = {"include": [f"{name}[.].*"], "discovery_interval": "1s"}
        quick = {"flow": name, "topics": topics, "lanes": 1, "spark": {"task_length": "5s"}}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({**quick, **document}))
    return folder


@pytest.fixture(scope="package")
def connect_files(session_home: Path) -> Path:
    """The directory of Connect files; tests that have a Connect cluster put one there."""
    folder = session_home / "connect-files"
    folder.mkdir()
    return folder


@pytest.fixture(scope="package")
def airflow_environ(
    session_home: Path, flows: Path, connect_files: Path, lineage_file: Path
) -> dict[str, str]:
    """What every part of that Airflow finds in its environment."""
    wishes = session_home / "wishes"
    wishes.mkdir()
    (wishes / "wished.py").write_text(wishing.DAG_FILE)
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = [
        {"name": "dags-folder", "classpath": local, "kwargs": {}},
        {"name": "wishes", "classpath": local, "kwargs": {"path": str(wishes)}},
    ]
    return {
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(
            [f"{USERNAME}:admin", *(f"{name}:user" for name in wishing.PEOPLE)]
        ),
        wishing.DONE_VARIABLE: str(session_home / "wished"),
        "ONCEOVER_FLOWS": str(flows),
        "ONCEOVER_CONNECT": str(connect_files),
        "ONCEOVER_HOME": str(session_home / "var"),
        # Airflow reads all DAG files every 15 seconds as `make up` starts it, which took a quarter of a core.
        # A test that changes what they read says so: read_again().
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
            {"type": "file", "log_file_path": str(lineage_file), "append": True}
        ),
    }


@pytest.fixture(scope="package")
def lineage_file(session_home: Path) -> Path:
    """Where that Airflow's catalogue of lineage would be: in its home, in which secrets are looked for."""
    return session_home / "airflow" / "lineage.jsonl"


def read_again(airflow: AirflowStandalone, dag_id: str) -> None:
    """Have Airflow read the file of a DAG now, and wait until it was."""
    path = f"/api/v2/dags/{dag_id}"
    dag = airflow.call("GET", path)
    airflow.call("PUT", f"/api/v2/parseDagFile/{dag['file_token']}")

    def was_read() -> bool:
        return bool(airflow.call("GET", path)["last_parsed_time"] != dag["last_parsed_time"])

    wait_until(was_read, _STEP_TIMEOUT_S, f"the file of {dag_id} is read again")


@pytest.fixture(scope="package")
def airflow(session_home: Path, airflow_environ: dict[str, str]) -> Iterator[AirflowStandalone]:
    """Airflow on SQLite, as `make up` starts it."""
    home, plugins = session_home / "airflow", PROJECT / "plugins"
    home.mkdir(mode=0o700, exist_ok=True)
    people = {USERNAME: secrets.token_urlsafe(16)} | {n: wishing.password_of(n) for n in wishing.PEOPLE}
    write_private(home / PASSWORDS_FILE, json.dumps(people).encode())
    with AirflowStandalone.start(
        home, dags=PROJECT / "dags", plugins=plugins, environ=airflow_environ
    ) as airflow:
        yield airflow


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The machine's own, of all tests here."""
    with a_browser() as browser:
        yield browser


@pytest.fixture(scope="package")
def person(browser: Browser, airflow: AirflowStandalone) -> Iterator[Person]:
    """Somebody at a browser, whom nothing that happens there may disturb."""
    person = at_a_browser(browser, airflow)
    yield person
    assert person.complaints == []


@pytest.fixture(scope="package")
def var(session_home: Path) -> Path:
    """ONCEOVER_HOME of the runs."""
    return session_home / "var"


@pytest.fixture(scope="package")
def connection(airflow: AirflowStandalone, secured_cluster: KafkaCluster) -> Iterator[None]:
    """The secured cluster as a Connection, stored in Airflow as an administrator would."""
    extra = json.dumps(secured_cluster.client)
    body = {"connection_id": CONNECTION_ID, "conn_type": "kafka", "extra": extra}
    airflow.call("POST", "/api/v2/connections", body)
    yield
    airflow.call("DELETE", f"/api/v2/connections/{CONNECTION_ID}")


@pytest.fixture(scope="package")
def killed(
    airflow: AirflowStandalone,
    person: Person,
    connection: None,
    secured_cluster: KafkaCluster,
    target_cluster: SharedCluster,
    var: Path,
    lineage_file: Path,
) -> KilledRun:
    """The run of the copy that somebody started without touching its form; its driver was killed midway."""
    source = Side(secured_cluster.client)
    source.create(killing.TOPIC)
    return killed_midway(
        airflow,
        valid_form(person, killing.DAG),
        feed=lambda records: source.feed(killing.TOPIC, records, size_bytes=killing.SIZE_BYTES),
        target=target_cluster.client,
        var=var,
        lineage_file=lineage_file,
    )


@pytest.fixture(scope="package")
def broken_run(airflow: AirflowStandalone) -> str:
    """The run of a flow whose file has a fault, ended."""
    run_id = airflow.trigger(killing.DAG, {"flow": BROKEN_FLOW})
    airflow.wait_run(killing.DAG, run_id, timeout_s=_STEP_TIMEOUT_S)
    return run_id
