"""The pages that audits leave: served whole, to people who are logged in, and nothing beside them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, HTTPException

from onceover_airflow.pages import PREFIX, page_link, registration

# Airflow's server imports a test client that is deprecated: only when the pages are asked for.
pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx` with")
RUN = "20261121T070000Z-a1b2c3"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """ONCEOVER_HOME with one audit, and files that are nobody's business."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    audit = tmp_path / "var" / "flights" / "audit" / RUN
    (audit / "data_docs").mkdir(parents=True)
    (audit / "report.html").write_text("<p>the report</p>")
    (audit / "data_docs" / "index.html").write_text("<p>the docs</p>")
    (tmp_path / "var" / "flights" / "driver.json").write_text("{}")
    (tmp_path / "secret").write_text("secret")
    (audit / "link.html").symlink_to(tmp_path / "secret")
    return tmp_path


@pytest.fixture
def app(folder: Path) -> FastAPI:
    """The application as somebody sees it who is logged in."""
    from onceover_airflow.web import ACCESS, create_app

    app = create_app()
    app.dependency_overrides[ACCESS] = lambda: None
    return app


def get(app: FastAPI, path: str) -> httpx.Response:
    """Ask for a page, without a socket."""

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://page") as client:
            return await client.get(path)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("page", "text"), [("report.html", "the report"), ("data_docs/index.html", "the docs")]
)
def test_pages_of_an_audit_are_served_without_scripts(app: FastAPI, page: str, text: str) -> None:
    """A page cannot run a script in the origin that holds the session."""
    answer = get(app, f"/audits/flights/{RUN}/{page}")
    assert (answer.status_code, text in answer.text) == (200, True)
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "script-src" not in policy


@pytest.mark.parametrize(
    "path",
    [
        f"flights/{RUN}/absent.html",
        f"flights/{RUN}/data_docs",
        f"flights/{RUN}/%2e%2e/%2e%2e/driver.json",
        f"flights/{RUN}/..%2f..%2fdriver.json",
        f"flights/{RUN}/link.html",
        f"flights/{RUN}/%2fetc%2fpasswd",
        "flights/%2e%2e/driver.json",
        "other/20261121T070000Z-a1b2c3/report.html",
        f"..%2fflights/{RUN}/report.html",
        "flights/a.b/report.html",
    ],
)
def test_nothing_else_is_served(app: FastAPI, path: str) -> None:
    """Neither by going up, nor through a link, nor by an absolute path."""
    answer = get(app, f"/audits/{path}")
    assert answer.status_code in (404, 422)
    assert "secret" not in answer.text


def test_nobody_in_particular_is_refused(folder: Path) -> None:
    """Every page asks Airflow who it is; an anonymous reader gets none."""
    from onceover_airflow.web import ACCESS, create_app

    def anonymous() -> None:
        raise HTTPException(401, "not logged in")

    app = create_app()
    app.dependency_overrides[ACCESS] = anonymous
    assert get(app, f"/audits/flights/{RUN}/report.html").status_code == 401


def test_plugin_loads_without_the_web_server() -> None:
    """Airflow loads plugins in its scheduler and in every task, too."""
    code = (
        "import sys, onceover_plugin; print([n for n in ('fastapi', 'onceover.engine') if n in sys.modules])"
    )
    plugins = Path(__file__).parents[3] / "plugins"
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=plugins, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
    assert registration()["url_prefix"] == PREFIX


@pytest.mark.parametrize(
    ("page", "link"),
    [
        (f"/var/flights/audit/{RUN}/report.html", f"/onceover/audits/flights/{RUN}/report.html"),
        (
            f"/var/flights/audit/{RUN}/data_docs/index.html",
            f"/onceover/audits/flights/{RUN}/data_docs/index.html",
        ),
        ("/elsewhere/report.html", ""),
        ("/var/flights/log/audit.json", ""),
        (None, ""),
    ],
)
def test_link_leads_to_what_is_served(page: str | None, link: str) -> None:
    """A report that was written elsewhere has no address."""
    assert page_link(Path("/var"), page) == link
