"""What Airflow's plugin manager is told: the pages, and where people find them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from onceover_airflow.telling.pages import FRAME, PREFIX

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

# Airflow cuts longer names in its navigation.
_NAME: Final = "Onceover"


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
            from onceover_airflow.serving.web import create_app

            self._app = create_app()
        await self._app(scope, receive, send)


def registration() -> dict[str, Any]:
    """Return what Airflow's plugin manager wants to know."""
    return {"app": LazyPages(), "url_prefix": PREFIX, "name": _NAME}


def react_apps() -> list[dict[str, str]]:
    """Return the entry of Airflow's navigation, and the tab that it gives to runs.

    An external view would do, but Airflow (3.3.2) frames it so that no link leads out to a form, and its
    button for one without a frame does nothing. So a component of ours makes the frame.
    """
    # Without a slash at its front: below whatever prefix Airflow itself has.
    bundle = f"{PREFIX.lstrip('/')}/{FRAME}"
    return [
        {"name": _NAME, "bundle_url": bundle, "url_route": route, "destination": destination}
        for route, destination in (("onceover", "nav"), ("onceover-flow", "dag_run"))
    ]
