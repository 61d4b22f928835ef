"""The pages that audits and drills leave, served by Airflow's own web server to people who are logged in.

Invariant: nothing outside of the folder of one of them is ever served, nothing without Airflow's own
authentication, and no page served here can run a script, send a form or load anything: it stands in the
origin that holds Airflow's session, and shows names that strangers gave to topics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import requires_access_view
from fastapi import Depends, FastAPI, HTTPException, Request, status
from fastapi import Path as PathParameter
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException as StarletteHTTPException

from onceover.audit.report.htmlpage import render
from onceover.board.page import TOPIC, Links, Look, no_such_flow
from onceover.board.page import all_flows as page_of_all
from onceover.board.page import one_flow as page_of_one
from onceover.board.topicpage import one_topic as page_of_topic
from onceover.config.home import onceover_home
from onceover_airflow.access.connections import connections_given
from onceover_airflow.serving.board import FRESH_S, Asking, Board
from onceover_airflow.telling.pages import (
    FLOW_QUERY,
    FOLDERS,
    FRAME,
    PREFIX,
    base_path,
    page_link,
    pages_folder,
)

ACCESS: Final = requires_access_view(AccessView.WEBSITE)
_HEADERS: Final = {
    # In a sandbox a page has no origin at all: whatever is in it, it is none of Airflow's.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-store",
}
# What people start most, by what it does.
_FORMS: Final = {
    "Copy": "replicate",
    "Audit": "audit",
    "Topics": "sync_topics",
    "Groups": "sync_group_offsets",
    "Repair a partition": "repair_partition",
    "Rehearse a failover": "rehearse",
    "Fail over": "failover_drill",
}
_SOON_S: Final = 2
_FLOW: Final = r"^[a-z0-9][a-z0-9-]*$"
_KIND: Final = f"^({'|'.join(FOLDERS)})$"
_RUN: Final = r"^[0-9A-Za-z][0-9A-Za-z-]*$"
# Airflow's door for every auth manager: it leads to the manager's own page, and checks `next`.
_LOGIN: Final = "/api/v2/auth/login"
# What Airflow says, with 403, of a token of another installation or of before its secret changed.
_STALE_TOKEN: Final = "Invalid JWT token"  # noqa: S105 - a message
_HERE: Final = Path(__file__).parent
_NOT_KEPT: Final = {"Cache-Control": "private, no-cache", "X-Content-Type-Options": "nosniff"}
# No script, so `allow-scripts` is not there; its own origin, or what it loads anew would not be for somebody
# who is logged in; out of its frame where a person clicks.
_BOARD_HEADERS: Final = {
    **_HEADERS,
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'; "
    "sandbox allow-same-origin allow-top-navigation-by-user-activation",
}
_GONE: Final = (
    "There is no such page. Of every flow the newest ten audits are kept, and older ones are removed. If "
    "this one is newer, Airflow's web server may see another ONCEOVER_HOME than its tasks. The verdict is "
    "still in the log and the XCom of the run's last task."
)
_TITLES: Final = {
    status.HTTP_403_FORBIDDEN: "Not for this user",
    status.HTTP_404_NOT_FOUND: "This page is gone",
}


def create_app() -> FastAPI:
    """Return the application that is mounted under ``pages.PREFIX``."""
    app = FastAPI(
        title="Onceover", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(ACCESS)]
    )
    app.state.board = board = Board(Asking(connections_given))

    @app.get("/")
    def all_flows(still: str | None = None) -> HTMLResponse:
        """Return the page of all flows."""
        look = board.look()
        samples = {entry["flow"]: board.samples(entry["flow"]) for entry in look.entries}
        page = page_of_all(look, samples, _links(look), still=still is not None)
        return _shown(look, page, still=still is not None)

    @app.get(f"/{FRAME}")
    def frame() -> FileResponse:
        """Return what shows the page within Airflow's own."""
        return FileResponse(_HERE / FRAME, media_type="text/javascript", headers=_NOT_KEPT)

    @app.get("/flows/{flow}")
    def one_flow(flow: str, still: str | None = None) -> HTMLResponse:
        """Return the page of one flow."""

        def page(look: Look, entry: Mapping[str, Any]) -> str:
            samples = board.samples(flow)
            return page_of_one(look, entry, samples, _links(look, flow), still=still is not None)

        return _of_flow(board, flow, page, still=still is not None)

    @app.get("/flows/{flow}/topics/{topic}")
    def one_topic(
        flow: str,
        topic: Annotated[str, PathParameter(pattern=TOPIC)],
        still: str | None = None,
    ) -> HTMLResponse:
        """Return why a topic of a flow is copied, or is not."""

        def page(look: Look, entry: Mapping[str, Any]) -> str:
            return page_of_topic(look, entry, topic, _links(look, flow), still=still is not None)

        return _of_flow(board, flow, page, still=still is not None, up="../../../")

    @app.get("/{kind}/{flow}/{run}/{path:path}")
    def flow_page(
        kind: Annotated[str, PathParameter(pattern=_KIND)],
        flow: Annotated[str, PathParameter(pattern=_FLOW)],
        run: Annotated[str, PathParameter(pattern=_RUN)],
        path: str,
    ) -> FileResponse:
        """Return one file of an audit or a drill."""
        return FileResponse(_file(pages_folder(onceover_home(), kind, flow, run), path), headers=_HEADERS)

    _answer_refusals(app)
    return app


def _answer_refusals(app: FastAPI) -> None:
    """Have an application answer where it shows no page."""

    @app.exception_handler(RequestValidationError)
    async def no_such_name(request: Request, _: RequestValidationError) -> Response:
        """Answer for an address that no page can have."""
        return await _refused(app, request, HTTPException(status.HTTP_404_NOT_FOUND, _GONE))

    @app.exception_handler(StarletteHTTPException)
    async def refused(request: Request, error: StarletteHTTPException) -> Response:
        """Answer for every other page that is not shown."""
        return await _refused(app, request, error)


def _of_flow(
    board: Board, flow: str, page: Callable[[Look, Mapping[str, Any]], str], *, still: bool, up: str = "../"
) -> HTMLResponse:
    """Return a page about a flow; another one where nobody has heard of it, or nobody knows yet."""
    look = board.look()
    entry = next((entry for entry in look.entries if entry["flow"] == flow), None)
    if entry is not None:
        return _shown(look, page(look, entry), still=still)
    if look.age_s is None:
        return _shown(look, page_of_all(look, {}, _links(look)))
    return _shown(look, no_such_flow(flow, _links(look), up), code=status.HTTP_404_NOT_FOUND)


def _shown(look: Look, page: str, *, still: bool = False, code: int = status.HTTP_200_OK) -> HTMLResponse:
    """Return a page that looks again by itself, soon where what it shows is old, or holds still."""
    again = {} if still else {"Refresh": str(_SOON_S if look.is_old else FRESH_S)}
    return HTMLResponse(page, code, headers={**_BOARD_HEADERS, **again})


def _links(look: Look, flow: str | None = None) -> Links:
    """Return where a page's links lead, the forms' with a flow filled in where it is about one."""
    home = onceover_home()
    reports = {}
    for entry in look.entries:
        if entry["audit"] is not None:
            reports[entry["flow"], "audit"] = _at_hand(home, entry["audit"]["report"])
        for drill, page in ((entry.get("drills") or {}).get("reports") or {}).items():
            reports[entry["flow"], drill] = _at_hand(home, page)
    filled_in = "" if flow is None else f"?{urlencode({FLOW_QUERY: flow})}"
    forms = {name: f"{base_path()}/dags/{dag_id}{filled_in}" for name, dag_id in _FORMS.items()}
    return Links(f"{base_path()}/", forms, reports)


def _at_hand(home: Path, page: Any) -> str:
    """Return the address of a report that is here, empty where it is on another machine, gone, or no path."""
    with suppress(OSError, TypeError, ValueError):
        if Path(page).is_file():
            return page_link(home, page)
    return ""


async def _refused(app: FastAPI, request: Request, error: StarletteHTTPException) -> Response:
    """Answer a browser with what its reader can do next, and a program with the bare status."""
    if "text/html" not in request.headers.get("accept", ""):
        return await http_exception_handler(request, error)
    route = request.scope.get("route")
    unknown = error.status_code == status.HTTP_401_UNAUTHORIZED or error.detail == _STALE_TOKEN
    if route is not None and unknown:
        # From the parts of the route: behind a proxy, the address that was asked for may lack the prefix.
        page = app.url_path_for(route.name, **request.path_params)
        door = f"{base_path()}{_LOGIN}?{urlencode({'next': f'{base_path()}{PREFIX}{page}'})}"
        if request.headers.get("sec-fetch-dest") == "iframe":
            # The login runs scripts, which a frame of ours does not let it.
            body = render("door", beside=_HERE, door=door)
            again = {**_BOARD_HEADERS, "Refresh": str(FRESH_S)}
            return HTMLResponse(body, status.HTTP_401_UNAUTHORIZED, headers=again)
        return RedirectResponse(door, headers={"Cache-Control": "no-store"})
    title = _TITLES.get(error.status_code, "This page cannot be shown")
    body = render("message", title=title, text=error.detail)
    return HTMLResponse(body, error.status_code, headers=_HEADERS)


def _file(folder: Path, path: str) -> Path:
    """Return the file, wherever ``..`` and links in ``path`` lead.

    Raises:
        HTTPException: it is not there, or not in the folder.
    """
    base = folder.resolve()
    found = (base / path).resolve()
    if not found.is_relative_to(base) or not found.is_file():
        raise HTTPException(status.HTTP_404_NOT_FOUND, _GONE)
    return found
