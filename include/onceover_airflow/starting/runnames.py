"""A run by hand is called after what it is about: ``flights-dr__2026-01-31T12:00:00.123456+00:00``.

All flows share one DAG of a kind, and Airflow calls every run by hand ``manual__<time>``: in its lists and
grids nobody could tell whose it is. A note would show on the run's own page only, a timetable never gets to
see the form. So the request that starts a run is given the name that its sender left out (docs/adr/0006).

Invariant: a name that somebody chose stays, and so does every request that is not a start of a DAG of ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from airflow.utils.types import DagRunType

from onceover_airflow.starting.bodies import read_body, replayed

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Under which key of a run's conf stands what the run is about, by DAG that is started by hand.
SUBJECTS: Final = {
    "replicate": "flow",
    "sync_topics": "flow",
    "seed_progress": "flow",
    "repair_partition": "flow",
    "sync_group_offsets": "flow",
    "audit": "flow",
    "rehearse": "flow",
    "failover_drill": "flow",
    "confirm_drill": "flow",
    "export_orphans": "flow",
    "failback": "flow",
    "migrate_connector_offsets": "connect",
}
# A reverse proxy may have put something in front.
_START: Final = re.compile(r"/api/v2/dags/([^/]+)/dagRuns/?$")
# No more than Airflow allows in a run's name by default, and no sign that leads out of a folder of logs.
_SUBJECT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
# A form has a few hundred bytes. What is longer is passed on as it comes.
_MAX_BYTES: Final = 1 << 16
_KINDS: Final = frozenset(kind.value for kind in DagRunType)


class RunNames:
    """ASGI middleware around Airflow's API."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, a start of a run of ours with a name."""
        subject = _subject(scope)
        if subject is None:
            await self._app(scope, receive, send)
            return
        messages = await read_body(receive, _MAX_BYTES)
        body = b"".join(message.get("body", b"") for message in messages)
        if messages[-1].get("more_body") or messages[-1]["type"] != "http.request":
            # Longer than a form, or its sender has gone: on it goes as it came.
            await self._app(scope, replayed(messages, receive), send)
            return
        named = named_run(body, subject, datetime.now(UTC))
        headers = [(key, value) for key, value in scope["headers"] if key != b"content-length"]
        headers.append((b"content-length", str(len(named)).encode()))
        whole: Message = {"type": "http.request", "body": named, "more_body": False}
        await self._app({**scope, "headers": headers}, replayed([whole], receive), send)


def named_run(body: bytes, subject: str, now: datetime) -> bytes:
    """Return the request to start a run with a name, where it has none and says what it is about.

    Args:
        body: JSON as it was sent.
        subject: key of the run's conf.
        now: part of the name, so that no two are alike.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return body
    if not isinstance(document, dict) or document.get("dag_run_id"):
        return body
    conf = document.get("conf")
    about = conf.get(subject) if isinstance(conf, Mapping) else None
    if not isinstance(about, str) or not _SUBJECT.fullmatch(about):
        return body
    return json.dumps({**document, "dag_run_id": new_run_id(about, subject, now)}).encode()


def new_run_id(about: str, subject: str, now: datetime) -> str:
    """Return how a run is called; as for ``named_run``."""
    # Airflow keeps the kinds of its own runs to itself: a flow may be called backfill, or scheduled.
    name = f"{subject}:{about}" if about in _KINDS else about
    return f"{name}__{now.isoformat()}"


def _subject(scope: Scope) -> str | None:
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    found = _START.search(scope["path"])
    return SUBJECTS.get(found[1]) if found else None


def registration() -> dict[str, Any]:
    """Return what Airflow's plugin manager wants to know."""
    return {"middleware": RunNames, "name": "Onceover: names of runs"}
