"""Where an audit's pages are: on disk, and under Airflow's web server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX: Final = "/onceover"
_FOLDER: Final = "audit"


def audit_folder(home: Path, flow: str, run: str) -> Path:
    """Return where an audit left its files.

    Args:
        home: ``ONCEOVER_HOME``.
        flow: name of the flow.
        run: name of the audit's own folder.
    """
    return home / flow / _FOLDER / run


def page_link(home: Path, page: str | None) -> str:
    """Return the address of a page on Airflow's host, empty where it is none that an audit left.

    Args:
        home: ``ONCEOVER_HOME``.
        page: path of the file; None for none.
    """
    path = None if page is None else Path(page)
    if path is None or not path.is_relative_to(home):
        return ""
    flow, folder, *rest = path.relative_to(home).parts
    if folder != _FOLDER or len(rest) < 2:
        return ""
    return "/".join((base_path() + PREFIX, "audits", flow, *rest))


def base_path() -> str:
    """Return the path of Airflow's own address, without a slash at its end: empty unless it has a prefix."""
    from airflow.configuration import conf

    return urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")


class LazyPages:
    """The pages' application, made at the first request.

    Airflow loads plugins in every process of its own, tasks included; only its web server is ever asked for a
    page, and has what the application needs loaded already.
    """

    def __init__(self) -> None:
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self._app is None:
            from onceover_airflow.web import create_app

            self._app = create_app()
        await self._app(scope, receive, send)


def registration() -> dict[str, Any]:
    """Return what Airflow's plugin manager wants to know."""
    return {"app": LazyPages(), "url_prefix": PREFIX, "name": "Onceover"}
