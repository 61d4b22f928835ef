"""Airflow's public REST API, as far as the demo, the command line and the tests use it.

Guarantee: every call ends within its deadline; a refused call raises with Airflow's own words.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from onceover.errors import OnceoverError, Retriable, UsageError
from onceover_lab.embed.ports import LOOPBACK

T = TypeVar("T")

CALL_TIMEOUT_S: Final = 30.0
# An answer takes Airflow's server 20 ms of CPU and more, beside the very tasks that are waited for.
POLL_INTERVAL_S: Final = 1.0
FINAL_STATES: Final = ("success", "failed")
_MAX_QUOTED: Final = 500


class AirflowRest:
    """A logged-in client of one Airflow API server on loopback."""

    def __init__(self, port: int, *, username: str, password: str) -> None:
        self._port = port
        self._username = username
        self._password = password
        self._token: str | None = None

    def __repr__(self) -> str:
        return f"AirflowRest(port={self._port}, username={self._username!r})"

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Call ``path`` (below the server's root) with a login and return the decoded answer.

        Raises:
            Retriable: the server does not answer.
            UsageError: the server refuses the call (status 4xx).
        """
        if self._token is None:
            login = {"username": self._username, "password": self._password}
            self._token = str(self._send("POST", "/auth/token", login)["access_token"])
        return self._send(method, path, body)

    def health(self) -> dict[str, Any] | None:
        """Return the health document, or ``None`` while the server is not up. Needs no login."""
        try:
            health = self._send("GET", "/api/v2/monitor/health", None, timeout_s=2.0)
        except OnceoverError:
            return None
        return health if isinstance(health, dict) else None

    def has_dag(self, dag_id: str) -> bool:
        """Tell whether the DAG has been read from its file."""
        return dag_id in self.dag_ids()

    def dag_ids(self) -> list[str]:
        """Return the DAGs that Airflow knows."""
        return [dag["dag_id"] for dag in self.call("GET", "/api/v2/dags?limit=100")["dags"]]

    def trigger(self, dag_id: str, conf: Mapping[str, Any], *, timeout_s: float = 60.0) -> str:
        """Start a run with ``conf`` as its Params, once the DAG is known; return the run's id.

        Raises:
            UsageError: Airflow refuses the Params.
            Retriable: the DAG did not appear within ``timeout_s`` seconds.
        """
        self._await(lambda: self.has_dag(dag_id), timeout_s, f"DAG {dag_id} to be read")
        body = {"logical_date": None, "conf": dict(conf)}
        return str(self.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", body)["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return the run's state: queued, running, success or failed."""
        return str(self.call("GET", _run(dag_id, run_id))["state"])

    def wait_run(self, dag_id: str, run_id: str, *, timeout_s: float) -> str:
        """Wait until the run has ended and return its state, ``success`` or ``failed``.

        Raises:
            Retriable: it still runs after ``timeout_s`` seconds.
        """

        def ended() -> str | None:
            state = self.run_state(dag_id, run_id)
            return state if state in FINAL_STATES else None

        return self._await(ended, timeout_s, f"run {run_id} of {dag_id} to end")

    def tasks(self, dag_id: str, run_id: str) -> dict[str, dict[str, Any]]:
        """Return the run's task instances by task id: state, try_number, start_date, rendered_fields, ..."""
        instances = self.call("GET", f"{_run(dag_id, run_id)}/taskInstances")["task_instances"]
        return {instance["task_id"]: instance for instance in instances}

    def task_tries(self, dag_id: str, run_id: str, task_id: str) -> list[dict[str, Any]]:
        """Return every try of the task, oldest first: state, start_date, end_date, try_number."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{quote(task_id)}/tries"
        tries: list[dict[str, Any]] = self.call("GET", path)["task_instances"]
        return sorted(tries, key=lambda each: int(each["try_number"]))

    def task_logs(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> str:
        """Return the log of one try as text, one event a line, as Airflow shows it."""
        query = urlencode({"full_content": "true"})
        path = f"{_run(dag_id, run_id)}/taskInstances/{quote(task_id)}/logs/{try_number}?{query}"
        content = self.call("GET", path)["content"]
        return "\n".join(line if isinstance(line, str) else json.dumps(line) for line in content)

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """Return one XCom of the task."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{quote(task_id)}/xcomEntries/{quote(key)}"
        return self.call("GET", f"{path}?{urlencode({'deserialize': 'false'})}")["value"]

    def xcom_keys(self, dag_id: str, run_id: str, task_id: str) -> list[str]:
        """Return the keys of the task's XComs."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{quote(task_id)}/xcomEntries"
        return [entry["key"] for entry in self.call("GET", path)["xcom_entries"]]

    def put_pool(self, name: str, slots: int, description: str) -> None:
        """Make the pool, or change it to this.

        Raises:
            Retriable: Airflow does not do it.
        """
        pool = {"name": name, "slots": slots, "description": description}
        action = {"action": "create", "entities": [pool], "action_on_existence": "overwrite"}
        done = self.call("PATCH", "/api/v2/pools", {"actions": [action]})
        if name not in done["create"]["success"]:
            raise Retriable("Airflow does not take the pool", where=name, seen=str(done)[:_MAX_QUOTED])

    def asset_events(self) -> list[dict[str, Any]]:
        """Return the asset events, newest first: uri, extra, source_dag_id, source_run_id."""
        events: list[dict[str, Any]] = self.call("GET", "/api/v2/assets/events?order_by=-timestamp")[
            "asset_events"
        ]
        return events

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> Any:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=timeout_s)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return self._read(response.status, response.read(), method, path)
        except (OSError, http.client.HTTPException) as error:
            raise Retriable(
                "Airflow does not answer",
                where=f"{method} http://{LOOPBACK}:{self._port}{path}",
                seen=str(error) or type(error).__name__,
                resolve="look at the log of its API server",
            ) from error
        finally:
            connection.close()

    def _read(self, status: int, content: bytes, method: str, path: str) -> Any:
        if http.client.OK <= status < http.client.MULTIPLE_CHOICES:
            return json.loads(content) if content else None
        text = content.decode(errors="replace")[:_MAX_QUOTED]
        where = f"{method} {path}"
        if status >= http.client.INTERNAL_SERVER_ERROR:
            raise Retriable("Airflow failed to answer", where=where, seen=f"status {status}: {text}")
        raise UsageError("Airflow refused the call", where=where, seen=f"status {status}: {text}")

    def _await(self, condition: Callable[[], T | None], timeout_s: float, what: str) -> T:
        deadline = time.monotonic() + timeout_s
        while not (answer := condition()):
            if time.monotonic() >= deadline:
                raise Retriable(f"waited {timeout_s:g} s for {what}", where=f"Airflow on port {self._port}")
            time.sleep(POLL_INTERVAL_S)
        return answer


def _run(dag_id: str, run_id: str) -> str:
    return f"/api/v2/dags/{quote(dag_id)}/dagRuns/{quote(run_id, safe='')}"
