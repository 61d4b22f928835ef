"""The pages that audits and drills leave, served by Airflow's own web server to people who are logged in.

Invariant: nothing outside of the folder of one of them is ever served, nothing without Airflow's own
authentication, and no page served here can run a script, send a form or load anything: it stands in the
origin that holds Airflow's session, and shows names that strangers gave to topics.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final
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
from onceover.config.home import onceover_home
from onceover_airflow.telling.pages import FOLDERS, PREFIX, base_path, pages_folder

ACCESS: Final = requires_access_view(AccessView.WEBSITE)
_HEADERS: Final = {
    # In a sandbox a page has no origin at all: whatever is in it, it is none of Airflow's.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-store",
}
_FLOW: Final = r"^[a-z0-9][a-z0-9-]*$"
_KIND: Final = f"^({'|'.join(FOLDERS)})$"
_RUN: Final = r"^[0-9A-Za-z][0-9A-Za-z-]*$"
# Airflow's door for every auth manager: it leads to the manager's own page, and checks `next`.
_LOGIN: Final = "/api/v2/auth/login"
# What Airflow says, with 403, of a token of another installation or of before its secret changed.
_STALE_TOKEN: Final = "Invalid JWT token"  # noqa: S105 - a message
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

    @app.get("/{kind}/{flow}/{run}/{path:path}")
    def flow_page(
        kind: Annotated[str, PathParameter(pattern=_KIND)],
        flow: Annotated[str, PathParameter(pattern=_FLOW)],
        run: Annotated[str, PathParameter(pattern=_RUN)],
        path: str,
    ) -> FileResponse:
        """Return one file of an audit or a drill."""
        return FileResponse(_file(pages_folder(onceover_home(), kind, flow, run), path), headers=_HEADERS)

    @app.exception_handler(RequestValidationError)
    async def no_such_name(request: Request, _: RequestValidationError) -> Response:
        """Answer for an address that no page can have."""
        return await _refused(app, request, HTTPException(status.HTTP_404_NOT_FOUND, _GONE))

    @app.exception_handler(StarletteHTTPException)
    async def refused(request: Request, error: StarletteHTTPException) -> Response:
        """Answer for every other page that is not shown."""
        return await _refused(app, request, error)

    return app


async def _refused(app: FastAPI, request: Request, error: StarletteHTTPException) -> Response:
    """Answer a browser with what its reader can do next, and a program with the bare status."""
    if "text/html" not in request.headers.get("accept", ""):
        return await http_exception_handler(request, error)
    known = {"kind", "flow", "run", "path"} <= request.path_params.keys()
    if known and (error.status_code == status.HTTP_401_UNAUTHORIZED or error.detail == _STALE_TOKEN):
        # From the parts of the route: behind a proxy, the address that was asked for may lack the prefix.
        page = app.url_path_for("flow_page", **request.path_params)
        door = f"{base_path()}{_LOGIN}?{urlencode({'next': f'{base_path()}{PREFIX}{page}'})}"
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
