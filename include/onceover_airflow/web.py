"""The pages that audits leave, served by Airflow's own web server to people who are logged in.

Invariant: nothing outside of an audit's folder is ever served, nothing without Airflow's own authentication,
and no page served here can run a script: Great Expectations' pages would load theirs from the web, into the
origin that holds Airflow's session.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import requires_access_view
from fastapi import Depends, FastAPI, HTTPException
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse

from onceover.config.load import onceover_home
from onceover_airflow.pages import audit_folder

ACCESS: Final = requires_access_view(AccessView.WEBSITE)
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self' 'unsafe-inline' https:; "
    "font-src 'self' https:; img-src 'self' data:; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-store",
}
_FLOW: Final = r"^[a-z0-9][a-z0-9-]*$"
_RUN: Final = r"^[0-9A-Za-z][0-9A-Za-z-]*$"


def create_app() -> FastAPI:
    """Return the application that is mounted under ``pages.PREFIX``."""
    app = FastAPI(
        title="Onceover", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(ACCESS)]
    )

    @app.get("/audits/{flow}/{run}/{path:path}")
    def audit_page(
        flow: Annotated[str, PathParameter(pattern=_FLOW)],
        run: Annotated[str, PathParameter(pattern=_RUN)],
        path: str,
    ) -> FileResponse:
        """Return one file of an audit."""
        return FileResponse(_file(audit_folder(onceover_home(), flow, run), path), headers=_HEADERS)

    return app


def _file(folder: Path, path: str) -> Path:
    """Return the file, wherever ``..`` and links in ``path`` lead.

    Raises:
        HTTPException: it is not there, or not in the folder.
    """
    base = folder.resolve()
    found = (base / path).resolve()
    if not found.is_relative_to(base) or not found.is_file():
        raise HTTPException(404, "no such page: audits are kept for some time only")
    return found
