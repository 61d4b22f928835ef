"""Runs by hand are called after their flow; nothing else is touched."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.configuration import conf
from airflow.dag_processing.dagbag import DagBag
from airflow.utils.types import DagRunType

from onceover_airflow.starting.runnames import SUBJECTS, RunNames, named_run
from tests.system.test_dags import DAGS

NOW = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
NAME = "flights-dr__2026-01-31T12:00:00.123456+00:00"
START = "/api/v2/dags/replicate/dagRuns"


def test_a_run_is_called_after_its_flow() -> None:
    """Everything else of the request stays."""
    sent = {"conf": {"flow": "flights-dr", "master": None}, "logical_date": None, "note": "x"}
    named = json.loads(named_run(json.dumps(sent).encode(), "flow", NOW))
    assert named == {**sent, "dag_run_id": NAME}


@pytest.mark.parametrize("about", [kind.value for kind in DagRunType])
def test_a_flow_called_like_a_kind_of_run_gets_a_name_that_airflow_takes(about: str) -> None:
    """Airflow refuses a run by hand whose name begins like those of its schedules and backfills."""
    body = json.dumps({"conf": {"flow": about}}).encode()
    name = json.loads(named_run(body, "flow", NOW))["dag_run_id"]
    assert name == f"flow:{about}__{NOW.isoformat()}"
    assert DagRunType.from_run_id(name) is DagRunType.MANUAL
    assert re.match(conf.get("scheduler", "allowed_run_id_pattern").strip(), name)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[" * 100_000,
        b"[]",
        b"null",
        b'{"conf": null}',
        b'{"conf": {"flow": 1}}',
        b'{"conf": {"flow": "../../etc"}}',
        b'{"conf": {"flow": "a b"}}',
        b'{"conf": {"connect": "a"}}',
        b'{"dag_run_id": "mine", "conf": {"flow": "a"}}',
        json.dumps({"conf": {"flow": "a" * 101}}).encode(),
    ],
)
def test_a_request_that_cannot_be_named_stays_as_it_is(body: bytes) -> None:
    """A chosen name stays; what is wrong, Airflow itself says."""
    assert named_run(body, "flow", NOW) == body


def sent_on(path: str, chunks: list[bytes], *, method: str = "POST") -> tuple[dict[bytes, bytes], bytes]:
    """Return headers and body as they reach Airflow."""
    seen: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        seen.update(headers=dict(scope["headers"]), body=body)

    messages: Iterator[dict[str, Any]] = iter(
        [
            {"type": "http.request", "body": chunk, "more_body": number < len(chunks)}
            for number, chunk in enumerate(chunks, 1)
        ]
    )

    async def receive() -> dict[str, Any]:
        return next(messages)

    length = str(sum(map(len, chunks))).encode()
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(b"content-length", length), (b"cookie", b"c")],
    }
    asyncio.run(RunNames(app)(scope, receive, None))  # pyrefly: ignore[bad-argument-type]
    return seen["headers"], seen["body"]


BODY = json.dumps({"conf": {"flow": "east"}}).encode()


@pytest.mark.parametrize("path", [START, f"{START}/", f"/behind/a/proxy{START}"])
@pytest.mark.parametrize("cut", [0, 1, len(BODY)])
def test_a_start_is_named_however_it_arrives(path: str, cut: int) -> None:
    """In one piece or several, also below a prefix; the length is that of what is passed on."""
    headers, body = sent_on(path, [BODY[:cut], BODY[cut:]])
    assert json.loads(body)["dag_run_id"].startswith("east__20")
    assert headers == {b"content-length": str(len(body)).encode(), b"cookie": b"c"}


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/api/v2/dags/somebody_elses/dagRuns", "POST"),
        ("/api/v2/dags/replicate_east/dagRuns", "POST"),
        (START, "GET"),
        (f"{START}/list", "POST"),
        ("/api/v2/variables", "POST"),
    ],
)
def test_other_requests_pass_untouched(path: str, method: str) -> None:
    """Other DAGs, other methods, other routes."""
    headers, body = sent_on(path, [BODY], method=method)
    assert (body, headers[b"content-length"]) == (BODY, str(len(BODY)).encode())


def test_what_is_too_long_for_a_form_passes_untouched() -> None:
    """Nothing is held back, and nothing lost."""
    chunks = [BODY[:-1], b" " * 70_000, b" " * 70_000, b"}"]
    headers, body = sent_on(START, chunks)
    assert body == b"".join(chunks)
    assert headers[b"content-length"] == str(len(body)).encode()


def test_every_dag_that_people_start_has_a_subject(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new DAG is not forgotten."""
    monkeypatch.setenv("ONCEOVER_FLOWS", str(tmp_path))
    bag = DagBag(DAGS, collect_dags=True)
    assert bag.import_errors == {}
    by_hand = {name: dag for name, dag in bag.dags.items() if dag.schedule is None}
    assert set(by_hand) == set(SUBJECTS)
    assert all(SUBJECTS[name] in dag.params for name, dag in by_hand.items())
