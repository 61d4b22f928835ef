"""Connect workers in memory, behind httpx's transport: states, configurations, and faults on demand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from onceover.connectors.settings import RestSettings
from onceover.connectors.workers.rest import ConnectRest

URLS = ("http://w1:8083", "http://w2:8083")
Answer = Callable[[httpx.Request], httpx.Response | None]


@dataclass
class FakeWorkers:
    """Two workers with one connector ``c``; commands change its state at once.

    Args:
        state: of the connector; ``tasks`` of its tasks; ``config`` its configuration.
        silent: hosts that do not answer.
        faults: asked first about every request; None lets it through.
        requests: method, host and path of what came.
    """

    state: str = "RUNNING"
    tasks: list[str] = field(default_factory=lambda: ["RUNNING"])
    config: dict[str, str] = field(default_factory=lambda: {"name": "c"})
    silent: set[str] = field(default_factory=set)
    faults: list[Answer] = field(default_factory=list)
    requests: list[tuple[str, str, str]] = field(default_factory=list)

    def rest(self, **settings: Any) -> ConnectRest:
        """Return a client of these workers."""
        return ConnectRest(RestSettings(URLS, **settings), httpx.MockTransport(self._answer))

    def sent(self, method: str) -> list[tuple[str, str]]:
        """Return host and path of the requests of one method."""
        return [(host, path) for each, host, path in self.requests if each == method]

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append((request.method, request.url.host, request.url.path))
        if request.url.host in self.silent:
            raise httpx.ReadTimeout("silent", request=request)
        for fault in self.faults:
            answer = fault(request)
            if answer is not None:
                return answer
        return self._serve(request)

    def _serve(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/":
            return httpx.Response(200, json={"version": "4.3.0", "kafka_cluster_id": "id"})
        if path == "/connectors" and not request.url.query:
            return httpx.Response(200, json=["c"])
        if path == "/connectors":
            both = {"info": self._info(), "status": self._status()}
            return httpx.Response(200, json={"c": both})
        if not path.startswith("/connectors/c"):
            return httpx.Response(404, json={"message": "Connector x not found"})
        if request.method == "PUT":
            self._command(path.rpartition("/")[2], request.content)
            return httpx.Response(202)
        kinds = {"status": self._status(), "config": self.config, "offsets": {"offsets": []}}
        return httpx.Response(200, json=kinds.get(path.rpartition("/")[2], self._info()))

    def _command(self, word: str, body: bytes) -> None:
        if word == "config":
            self.config = json.loads(body)
        else:
            self.state = {"stop": "STOPPED", "resume": "RUNNING", "pause": "PAUSED"}[word]
            self.tasks = [] if word == "stop" else [self.state]

    def _info(self) -> dict[str, Any]:
        return {"name": "c", "config": self.config, "type": "source"}

    def _status(self) -> dict[str, Any]:
        tasks = [
            {"id": n, "state": state, "worker_id": "w1:8083", "trace": "Trace\n\tat x\nCaused by: Denied"}
            for n, state in enumerate(self.tasks)
        ]
        return {"name": "c", "connector": {"state": self.state}, "tasks": tasks, "type": "source"}


def times(count: int, status: int, method: str = "PUT", words: str = "") -> Answer:
    """Return a fault that answers the first requests of a method with a status."""
    left = [count]

    def answer(request: httpx.Request) -> httpx.Response | None:
        if request.method != method or request.url.path == "/" or not left[0]:
            return None
        left[0] -= 1
        return httpx.Response(status, json={"message": words or f"status {status}"})

    return answer
