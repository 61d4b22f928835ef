"""A form opened from a flow's page has that flow; nothing else is touched."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from onceover_airflow.starting.filledin import FilledIn, filled_in
from onceover_airflow.telling.pages import FLOW_QUERY

DETAILS = "/api/v2/dags/audit/details"
PARAM: dict[str, Any] = {
    "value": "a",
    "schema": {"type": "string", "enum": ["a", "flights-dr"]},
    "description": None,
}
DAG: dict[str, Any] = {"dag_id": "audit", "params": {"flow": PARAM, "full": {"value": False, "schema": {}}}}
PAGE = f"http://host/dags/audit?x=y&{FLOW_QUERY}=flights-dr"


def test_the_flow_is_the_forms_default_and_all_else_stays() -> None:
    filled = json.loads(filled_in(json.dumps(DAG).encode(), "flights-dr"))
    assert filled == {**DAG, "params": {**DAG["params"], "flow": {**PARAM, "value": "flights-dr"}}}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[" * 100_000,
        b"[]",
        b'{"params": null}',
        b'{"params": {"flow": {"value": "a", "schema": {}}}}',
        b'{"params": {"flow": {"value": "a", "schema": {"enum": null}}}}',
    ],
)
def test_a_form_that_does_not_offer_the_flow_stays_as_it_is(body: bytes) -> None:
    assert filled_in(body, "flights-dr") == body


def test_a_flow_that_the_form_does_not_know_leaves_it_empty() -> None:
    """Its file is newer than the DAG: the form would show the first of all flows."""
    _, _, body = asked(DETAILS, page=f"http://host/dags/audit?{FLOW_QUERY}=somebody")
    assert json.loads(body)["params"]["flow"] == {**PARAM, "value": None}


def asked(
    path: str, *, page: str = PAGE, method: str = "GET", status: int = 200
) -> tuple[list[tuple[bytes, bytes]], dict[bytes, bytes], bytes]:
    """Return the headers that reach Airflow, and headers and body of the answer that comes in two parts."""
    whole = json.dumps(DAG).encode()
    seen: list[tuple[bytes, bytes]] = []
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend(scope["headers"])
        length = (b"Content-Length", str(len(whole)).encode())
        await send({"type": "http.response.start", "status": status, "headers": [length, (b"etag", b"e")]})
        await send({"type": "http.response.body", "body": whole[:20], "more_body": True})
        await send({"type": "http.response.body", "body": whole[20:]})

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"referer", page.encode("latin-1")), (b"accept-encoding", b"gzip")]
    scope: Any = {"type": "http", "method": method, "path": path, "headers": headers}
    asyncio.run(FilledIn(app)(scope, receive, send))
    found = {key.lower(): value for key, value in sent[0]["headers"]}
    return seen, found, b"".join(message.get("body", b"") for message in sent[1:])


@pytest.mark.parametrize("page", [PAGE, PAGE.replace("/dags", "/airflow/dags"), PAGE.replace("?", "/?")])
@pytest.mark.parametrize("path", [DETAILS, f"/airflow{DETAILS}", f"{DETAILS}/"])
def test_what_airflow_says_of_a_dag_comes_with_the_flow(path: str, page: str) -> None:
    """Unpacked, and with its new length."""
    seen, headers, body = asked(path, page=page)
    assert [key for key, _ in seen] == [b"referer"]
    assert headers == {b"content-length": str(len(body)).encode(), b"etag": b"e"}
    assert json.loads(body)["params"]["flow"]["value"] == "flights-dr"


@pytest.mark.parametrize(
    "case",
    [
        {"path": "/api/v2/dags/audit"},
        {"path": "/api/v2/dags/somebody_elses/details"},
        {"path": "/api/v2/dags/migrate_connector_offsets/details"},
        {"path": DETAILS, "method": "PATCH"},
        # The same form, opened from elsewhere.
        {"path": DETAILS, "page": "http://host/dags/audit"},
        {"path": DETAILS, "page": "http://host/dags?x=y"},
        {"path": DETAILS, "page": PAGE.replace("audit", "replicate")},
        {"path": DETAILS, "page": f"http://host/dags/audit?{FLOW_QUERY}="},
        {"path": DETAILS, "page": "http://[\xff?\x00;;=;"},
        {"path": DETAILS, "status": 403},
    ],
)
def test_every_other_answer_is_airflows_own(case: dict[str, Any]) -> None:
    _, headers, body = asked(**case)
    assert json.loads(body) == DAG
    assert headers[b"content-length"] == str(len(body)).encode()
