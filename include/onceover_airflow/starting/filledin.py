"""Opens a DAG's form with the flow that a person comes from.

Airflow's form takes no values from an address (3.3.2). So a button of the page leads to the DAG's with the
flow in it, where Airflow ignores it; and when that page asks what its form is made of, the browser says which
page asks (``Referer``): it is told with that flow as the default. Who loads the same form from anywhere else
gets Airflow's own answer, and so does who sits behind something that keeps that header back. Airflow's pages
keep what they were told until they are loaded anew.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from onceover_airflow.starting.runnames import SUBJECTS
from onceover_airflow.telling.pages import FLOW_QUERY

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_FLOW: Final = "flow"
# A reverse proxy may have put something in front.
_DETAILS: Final = re.compile(r"/api/v2/dags/([^/]+)/details/?$")
_REFERER: Final = b"referer"


class FilledIn:
    """ASGI middleware around Airflow's API."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; a DAG of ours is told with the flow that the asking page's address names."""
        flow = _flow(scope)
        if flow is None:
            await self._app(scope, receive, send)
            return
        # Whatever else the browser would take: what was packed could not be read here.
        headers = [(key, value) for key, value in scope["headers"] if key != b"accept-encoding"]
        answer = _Answer(flow, send)
        await self._app({**scope, "headers": headers}, receive, answer.take)


class _Answer:
    """Holds an answer back until it is whole."""

    def __init__(self, flow: str, send: Send) -> None:
        self._flow = flow
        self._send = send
        self._start: Message = {}
        self._body = bytearray()

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        body = filled_in(bytes(self._body), self._flow) if self._start["status"] == 200 else bytes(self._body)
        headers = [(key, value) for key, value in self._start["headers"] if key.lower() != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await self._send({**self._start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


def filled_in(body: bytes, flow: str) -> bytes:
    """Return a DAG's description with the flow as the form's default.

    One that the form does not offer (its file is newer than the DAG, or gone) leaves the field empty: whoever
    comes from one flow's page is not to start another one's.

    Args:
        body: JSON as Airflow answers it.
        flow: that is wanted.
    """
    try:
        document = json.loads(body)
        param = document["params"][_FLOW]
        offered = param["schema"]["enum"]
        param["value"] = flow if flow in offered else None
    except (ValueError, RecursionError, KeyError, TypeError):
        return body
    return json.dumps(document).encode()


def _flow(scope: Scope) -> str | None:
    if scope["type"] != "http" or scope["method"] != "GET":
        return None
    found = _DETAILS.search(scope["path"])
    if found is None or SUBJECTS.get(found[1]) != _FLOW:
        return None
    return next((flow_of(value, found[1]) for key, value in scope["headers"] if key == _REFERER), None)


def flow_of(referer: bytes, dag_id: str) -> str | None:
    """Return the flow that the address of a DAG's page names, None of another page, or without one."""
    try:
        address = urlsplit(referer.decode("latin-1"))
        named = parse_qs(address.query).get(FLOW_QUERY)
    except ValueError:
        return None
    return named[0] if named and address.path.rstrip("/").endswith(f"/dags/{dag_id}") else None


def registration() -> dict[str, Any]:
    """Return what Airflow's plugin manager wants to know."""
    return {"middleware": FilledIn, "name": "Onceover: forms for a flow"}
