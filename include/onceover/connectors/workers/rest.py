"""The workers' REST API: every answer is checked, and every error says what to do next.

Questions go to a worker that is named, or to any that answers. Commands go to one worker, which passes them
to the leader; a rebalance (409) is waited for. Nothing here touches ``/offsets`` but GET: PATCH writes keys
that no task finds, and DELETE deletes the wrong half (measured on 3.9 to 4.3).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote

import httpx

from onceover.backoff import Backoff, Deadline
from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import UNASSIGNED, UNKNOWN_TYPE, ConnectorState, TaskState
from onceover.connectors.settings import RestSettings
from onceover.connectors.workers.answers import (
    LONGEST_TEXT,
    check_answer,
    check_login,
    check_started,
    document_of,
    is_to_wait,
    is_untaken,
    listed_in,
    no_answer,
    not_now,
    quoted,
    understood,
    unknown_command,
    whole,
    wrong_name,
)
from onceover.connectors.workers.masking import masked
from onceover.errors import NeedsOperator, Retriable, UsageError

_CONNECT_TIMEOUT_S: Final = 5.0
# A question that only needs the worker's memory; one that is frozen accepts connections and never answers.
PROBE_TIMEOUT_S: Final = 10.0
# A rebalance: a worker that died is noticed after session.timeout.ms (10 s), then tasks move.
_REBALANCE_S: Final = 90.0
_AS_IT_IS: Final = {"Accept-Encoding": "identity"}


class WorkerAnswer(NamedTuple):
    """What a worker says of itself."""

    url: str
    version: str
    kafka_cluster_id: str


class ConnectRest:
    """The REST API of one Connect cluster. A context manager; not thread-safe.

    Args:
        settings: where the workers are.
        transport: replaces the network in tests.
    """

    def __init__(self, settings: RestSettings, transport: httpx.BaseTransport | None = None) -> None:
        self.urls = tuple(url.rstrip("/") for url in settings.urls)
        self._timeout_s = settings.timeout_s
        self._sent = 0
        auth = None
        if settings.username is not None:
            auth = httpx.BasicAuth(settings.username, settings.password or "")
        self._client = httpx.Client(
            auth=auth,
            verify=_trust(settings),
            timeout=httpx.Timeout(settings.timeout_s, connect=_CONNECT_TIMEOUT_S),
            # Workers are addressed directly, as they address each other.
            trust_env=False,
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @property
    def sent(self) -> int:
        """How many commands of this client the workers may have taken, with every repetition."""
        return self._sent

    # ---- one worker

    def worker(self, url: str, *, login: bool = True) -> WorkerAnswer:
        """Ask one worker for its version and cluster.

        Args:
            url: where.
            login: False for an address that nobody has named here: who only says that they are a worker is
                told no password.

        Raises:
            Retriable: WORKER_UNREACHABLE, it does not answer; WORKER_STARTING, it is not ready.
            UsageError: NO_WORKER, something else listens there, or the path is wrong; REST_LOGIN, it refuses
                our login.
        """
        answer = self._ask("GET", url, "/", timeout_s=PROBE_TIMEOUT_S, login=login)
        check_started(answer, url)
        check_login(answer, "/")
        document = document_of(answer, url)
        return WorkerAnswer(url, str(document.get("version")), str(document.get("kafka_cluster_id")))

    def state(self, name: str, url: str | None = None) -> ConnectorState:
        """Return a connector as ``url`` (None: any worker) sees it.

        Raises:
            UsageError: NO_CONNECTOR, there is none of that name.
            Retriable: no worker answers.
        """
        path = f"/connectors/{quoted(name)}"
        info = self._get(path, url)
        try:
            status = self._get(f"{path}/status", url)
        except UsageError as error:
            if error.code != ConnectorCode.NO_CONNECTOR:
                raise
            # It has just been created: no worker has reported about it yet.
            status = {"connector": {"state": "UNASSIGNED"}, "tasks": []}
        with understood(url or self.urls[0]):
            found = _connector_state(name, info, status)
        return found if url else self._typed(found)

    def config(self, name: str, url: str | None = None) -> dict[str, str]:
        """Return a connector's configuration; it may hold secrets."""
        found = self._get(f"/connectors/{quoted(name)}/config", url)
        return {key: str(value) for key, value in found.items() if value is not None}

    # ---- any worker

    def connectors(self) -> tuple[ConnectorState, ...]:
        """Return every connector of the cluster, by name.

        Workers leave out of the long answer those that no worker has reported about yet.
        """
        found = self._get("/connectors?expand=info&expand=status")
        names = {*found, *listed_in(self._settled("/connectors", None, None), self.urls[0])}
        stated = (self._stated(name, found.get(name)) for name in sorted(names))
        return tuple(state for state in stated if state is not None)

    def _stated(self, name: str, told: Mapping[str, Any] | None) -> ConnectorState | None:
        """Return what is told of a connector; None where it was deleted since it was listed."""
        if told is None:
            try:
                return self.state(name)
            except (NeedsOperator, UsageError) as error:
                if error.code == ConnectorCode.NO_CONNECTOR:
                    return None
                if error.code != ConnectorCode.NAME_UNSERVED:
                    raise
                # Nobody can be asked about it, and the others are there all the same.
                return ConnectorState(name, UNKNOWN_TYPE, UNASSIGNED)
        with understood(self.urls[0]):
            found = _connector_state(name, told.get("info", {}), told.get("status", {}))
        return self._typed(found)

    def _typed(self, state: ConnectorState) -> ConnectorState:
        """Ask every worker for a type that one does not know: a plugin comes to one after the other."""
        if state.type != UNKNOWN_TYPE:
            return state
        for url in self.urls:
            try:
                found = self._get(f"/connectors/{quoted(state.name)}", url)
            except (Retriable, UsageError, NeedsOperator):
                continue
            kind = str(found.get("type") or UNKNOWN_TYPE).lower()
            if kind != UNKNOWN_TYPE:
                return replace(state, type=kind)
        return state

    def offsets(self, name: str) -> list[tuple[Any, Any]]:
        """Return what GET offsets shows, as pairs of partition and offset; neither source nor proof.

        A worker reads the topic to its end for it, and gives up after 90 s behind an open transaction
        (measured): that is not waited for.
        """
        found = self._get(f"/connectors/{quoted(name)}/offsets", timeout_s=PROBE_TIMEOUT_S)
        with understood(self.urls[0]):
            return [(each.get("partition"), each.get("offset")) for each in found.get("offsets", [])]

    def objections(self, config: Mapping[str, str]) -> list[str]:
        """Return what the workers would refuse of a configuration, in their own words. Changes nothing.

        No value of the configuration is in them.

        Raises:
            Retriable: no answer in time: a plugin may wait for the system that it reads from.
            UsageError: NO_CONNECTOR, no worker has its plugin.
        """
        plugin = quote(config.get("connector.class", ""), safe="")
        path = f"/connector-plugins/{plugin}/config/validate"
        answer = self._settled(path, None, None, "PUT", dict(config))
        told = document_of(answer, self.urls[0])
        with understood(self.urls[0]):
            return self._objected(config, told)

    @staticmethod
    def _objected(config: Mapping[str, str], told: Mapping[str, Any]) -> list[str]:
        fields = [each.get("value", {}) for each in told.get("configs", [])]
        # The workers answer with what a `${file:...}` stands for, which nobody here knows otherwise.
        resolved = [
            str(each["value"])
            for each in fields
            if each.get("value") is not None and "${" in config.get(str(each.get("name")), "")
        ]
        return [
            f"{each.get('name')}: {masked(str(text), config, resolved)}"[:LONGEST_TEXT]
            for each in fields
            for text in each.get("errors", ())
        ]

    def put_config(self, name: str, config: Mapping[str, str]) -> None:
        """Put a connector's configuration.

        Raises:
            Retriable: no answer: the workers may have it or not.
            NeedsOperator: CONFIG_REFUSED, the workers refuse it; nothing was changed.
        """
        self._command("PUT", f"/connectors/{quoted(name)}/config", dict(config))

    def stop(self, name: str) -> None:
        """Ask for the connector to be stopped (KIP-875); returns before it is."""
        self._command("PUT", f"/connectors/{quoted(name)}/stop")

    def restart_failed(self, name: str) -> None:
        """Ask for the connector to begin anew, with those tasks that have failed (KIP-745)."""
        self._command("POST", f"/connectors/{quoted(name)}/restart?includeTasks=true&onlyFailed=true")

    def resume(self, name: str) -> None:
        """Ask for the connector to run; returns before it does."""
        self._command("PUT", f"/connectors/{quoted(name)}/resume")

    def pause(self, name: str) -> None:
        """Ask for the connector to be paused: its tasks exist and do nothing."""
        self._command("PUT", f"/connectors/{quoted(name)}/pause")

    # ---- plumbing

    def _get(self, path: str, url: str | None = None, timeout_s: float | None = None) -> dict[str, Any]:
        answer = self._settled(path, url, timeout_s)
        return document_of(answer, url or self.urls[0])

    def _command(self, method: str, path: str, body: Mapping[str, str] | None = None) -> None:
        """Send a command that may be sent twice, until the workers take it; each may write its record.

        A frozen leader is replaced after its session timeout; until then the others cannot pass it on.
        """
        backoff, deadline = Backoff(0.2, 2.0), Deadline(_REBALANCE_S)
        while True:
            url = self.any_worker().url
            self._sent += 1
            answer = self._ask(method, url, path, body)
            if is_untaken(answer):
                self._sent -= 1
            if answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR and not is_to_wait(answer):
                if answer.status_code == httpx.codes.NOT_FOUND and self._knows_connector_of(path):
                    raise unknown_command(answer, path)
                check_answer(answer, path)
                return
            backoff.pause(deadline, not_now(answer, path))

    def _knows_connector_of(self, path: str) -> bool:
        try:
            self._get("/".join(path.split("/")[:3]))
        except UsageError as error:
            if error.code != ConnectorCode.NO_CONNECTOR:
                raise
            return False
        return True

    def _settled(
        self,
        path: str,
        url: str | None,
        timeout_s: float | None,
        method: str = "GET",
        body: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Ask until neither a rebalance nor a busy proxy is in the way."""
        backoff, deadline = Backoff(0.2, 2.0), Deadline(_REBALANCE_S)
        while True:
            if url is None:
                answer = self._ask(method, self.any_worker().url, path, body, timeout_s)
            else:
                answer = self._ask(method, url, path, body, PROBE_TIMEOUT_S)
            if not is_to_wait(answer):
                check_answer(answer, path)
                return answer
            backoff.pause(deadline, not_now(answer, path))

    def any_worker(self) -> WorkerAnswer:
        """Return what the first worker says that answers: a frozen one takes requests and leaves them lying.

        Raises:
            Retriable: none answers.
            UsageError: NAME_UNKNOWN, none has a name that this machine knows.
        """
        problems: list[Retriable] = []
        for url in self.urls:
            try:
                return self.worker(url)
            except Retriable as error:
                problems.append(error)
        if not problems:
            raise UsageError("no worker is named", resolve="name the workers' addresses under `rest`")
        if all(problem.code == ConnectorCode.NAME_UNKNOWN for problem in problems):
            raise wrong_name(problems[0]) from problems[0]
        raise problems[-1]

    def _ask(
        self,
        method: str,
        url: str,
        path: str,
        body: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        *,
        login: bool = True,
    ) -> httpx.Response:
        limit_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        timeout = httpx.Timeout(limit_s, connect=min(_CONNECT_TIMEOUT_S, limit_s))
        try:
            auth = httpx.USE_CLIENT_DEFAULT if login else None
            asked = self._client.stream(
                method, url + path, json=body, timeout=timeout, auth=auth, headers=_AS_IT_IS
            )
            with asked as answer:
                return whole(answer, Deadline(limit_s))
        except httpx.HTTPError as error:
            raise no_answer(url, error) from error


def _trust(settings: RestSettings) -> ssl.SSLContext | bool:
    if settings.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(settings.ca_file))
    except OSError as error:
        raise UsageError(
            f"the certificate authority of the workers cannot be read: {error}", where=str(settings.ca_file)
        ) from error


def _connector_state(name: str, info: Mapping[str, Any], status: Mapping[str, Any]) -> ConnectorState:
    connector = status.get("connector", {})
    tasks = tuple(
        TaskState(int(t["id"]), str(t["state"]), str(t.get("worker_id", "")), t.get("trace"))
        for t in status.get("tasks", [])
    )
    return ConnectorState(
        name=name,
        type=str(info.get("type") or status.get("type") or UNKNOWN_TYPE).lower(),
        state=str(connector.get("state", "UNASSIGNED")),
        tasks=tasks,
        config={str(k): str(v) for k, v in info.get("config", {}).items() if v is not None},
        trace=connector.get("trace"),
    )
