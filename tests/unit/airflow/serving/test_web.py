"""The pages that audits leave: served whole, to people who are logged in, and nothing beside them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs

import httpx
import pytest
from fastapi import FastAPI, HTTPException

from onceover.board.page import Look
from onceover_airflow.serving.lazy import registration
from onceover_airflow.serving.web import _links
from onceover_airflow.telling.pages import FLOW_QUERY, PREFIX, page_link
from tests.support.session.wait import wait_until

# Airflow's server imports a test client that is deprecated: only when the pages are asked for.
pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx` with")
RUN = "20261121T070000Z-a1b2c3"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """ONCEOVER_HOME with one audit, and files that are nobody's business."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    audit = tmp_path / "var" / "flights" / "audit" / RUN
    (audit / "data_docs").mkdir(parents=True)
    payload = tmp_path / "var" / "flights" / "audit-payload" / RUN
    payload.mkdir(parents=True)
    (payload / "report.html").write_text("secret")
    (audit / "report.html").write_text("<p>the report</p>")
    (audit / "data_docs" / "index.html").write_text("<p>the docs</p>")
    (tmp_path / "var" / "flights" / "driver.json").write_text("{}")
    (tmp_path / "secret").write_text("secret")
    (audit / "link.html").symlink_to(tmp_path / "secret")
    return tmp_path


@pytest.fixture
def app(folder: Path) -> FastAPI:
    """The application as somebody sees it who is logged in."""
    from onceover_airflow.serving.web import ACCESS, create_app

    app = create_app()
    app.dependency_overrides[ACCESS] = lambda: None
    return app


def get(app: FastAPI, path: str, *, accept: str = "*/*", dest: str = "document") -> httpx.Response:
    """Ask for a page, without a socket."""

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://page") as client:
            return await client.get(path, headers={"Accept": accept, "Sec-Fetch-Dest": dest})

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("page", "text"), [("report.html", "the report"), ("data_docs/index.html", "the docs")]
)
def test_pages_of_an_audit_are_served_without_scripts(app: FastAPI, page: str, text: str) -> None:
    """A page cannot run a script in the origin that holds the session."""
    answer = get(app, f"/audits/flights/{RUN}/{page}")
    assert (answer.status_code, text in answer.text) == (200, True)
    policy = {
        directive: value
        for directive, _, value in (
            part.strip().partition(" ") for part in answer.headers["Content-Security-Policy"].split(";")
        )
    }
    assert policy == {
        "default-src": "'none'",
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'self'",
        "sandbox": "",
    }


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
        f"flights/{RUN}/..%2f..%2faudit-payload/{RUN}/report.html",
        f"flights/..%2faudit-payload/{RUN}/report.html",
        "other/20261121T070000Z-a1b2c3/report.html",
        f"..%2fflights/{RUN}/report.html",
        "flights/a.b/report.html",
    ],
)
def test_nothing_else_is_served(app: FastAPI, path: str) -> None:
    """Neither by going up, nor through a link, nor by an absolute path."""
    answer = get(app, f"/audits/{path}")
    assert answer.status_code == 404
    assert "secret" not in answer.text


def test_page_that_is_gone_says_so_to_a_person(app: FastAPI) -> None:
    """Audits are removed after a while, and their links stay in old runs."""
    for path in (f"flights/{RUN}/absent.html", "flights/%3Cb%3E/report.html"):
        answer = get(app, f"/audits/{path}", accept=BROWSER)
        assert answer.status_code == 404
        assert answer.headers["Content-Type"].startswith("text/html")
        assert "newest ten audits are kept" in answer.text
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")


def refusing(status: int, detail: str) -> FastAPI:
    """Return the application as somebody sees it whom Airflow refuses."""
    from onceover_airflow.serving.web import ACCESS, create_app

    def refuse() -> None:
        raise HTTPException(status, detail)

    app = create_app()
    app.dependency_overrides[ACCESS] = refuse
    return app


def test_nobody_in_particular_is_refused(folder: Path) -> None:
    """Every page asks Airflow who it is; an anonymous program gets none, and no page about it."""
    answer = get(refusing(401, "not logged in"), f"/audits/flights/{RUN}/report.html")
    assert (answer.status_code, answer.json()) == (401, {"detail": "not logged in"})


@pytest.mark.parametrize(
    ("base_url", "prefix"),
    [("", ""), ("http://page/", ""), ("https://host/airflow", "/airflow"), ("https://host/a/b/", "/a/b")],
)
@pytest.mark.parametrize(
    ("status", "detail"), [(401, "Not authenticated"), (401, "Token Expired"), (403, "Invalid JWT token")]
)
def test_browser_without_login_is_led_to_it_and_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch, base_url: str, prefix: str, status: int, detail: str
) -> None:
    """The same door as Airflow's own pages use, behind a prefix of Airflow's address too."""
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    path = f"/audits/flights/{RUN}/data_docs/index.html"
    answer = get(refusing(status, detail), path, accept=BROWSER)
    assert answer.status_code == 307
    door, _, query = answer.headers["Location"].partition("?")
    assert (door, parse_qs(query)) == (
        f"{prefix}/api/v2/auth/login",
        {"next": [f"{prefix}/onceover{path}"]},
    )


def test_user_without_the_right_is_not_sent_to_log_in_again(folder: Path) -> None:
    """Logging in once more would change nothing."""
    answer = get(refusing(403, "Forbidden"), f"/audits/flights/{RUN}/report.html", accept=BROWSER)
    assert answer.status_code == 403
    assert "Not for this user" in answer.text


def test_the_page_of_all_flows_is_shown_and_leads_to_each(
    app: FastAPI, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a script, and looking again by itself; a flow that nobody knows is said to be none."""
    flows = folder / "flows"
    flows.mkdir()
    (flows / "bad.yaml").write_text("flow: bad\n")
    monkeypatch.setenv("ONCEOVER_FLOWS", str(flows))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[4] / "include"))
    wait_until(lambda: 'href="flows/bad"' in get(app, "/").text, 30.0, "the flow is shown")
    answer = get(app, "/flows/bad")
    assert (answer.status_code, answer.headers["Refresh"]) == (200, "10")
    assert "allow-scripts" not in answer.headers["Content-Security-Policy"]
    assert "bad.yaml" in answer.text
    gone = get(app, "/flows/other")
    assert (gone.status_code, gone.headers["Refresh"], 'href="../"' in gone.text) == (404, "10", True)
    for never in ("NOPE", "a%20b", "%3Cb%3E"):
        answer = get(app, f"/flows/{never}", accept=BROWSER)
        assert answer.status_code == 404
        assert ("There is no flow" in answer.text, "<b>" in answer.text) == (True, False)
    assert get(app, "/flows/NOPE/topics/orders", accept=BROWSER).status_code == 404
    assert "Refresh" not in get(app, "/?still").headers
    assert "can be no topic" in get(app, "/flows/bad/topics/a%20b", accept=BROWSER).text


def test_a_page_of_flows_is_for_who_is_logged_in(folder: Path) -> None:
    """A browser is led to the login, a program told."""
    from onceover_airflow.serving.web import ACCESS, create_app

    def nobody() -> None:
        raise HTTPException(401, "Not authenticated")

    app = create_app()
    app.dependency_overrides[ACCESS] = nobody
    for path in ("/", "/flows/bad", "/frame.js"):
        assert get(app, path).status_code == 401
        door = get(app, path, accept=BROWSER)
        assert parse_qs(door.headers["Location"].partition("?")[2]) == {"next": [f"{PREFIX}{path}"]}
    # The login runs scripts, which Airflow's frame of ours forbids.
    framed = get(app, "/", accept=BROWSER, dest="iframe")
    assert (framed.status_code, 'target="_top">Log in again' in framed.text) == (401, True)


def test_plugin_loads_without_the_web_server() -> None:
    """Airflow loads plugins in its scheduler and in every task, too."""
    code = (
        "import sys, onceover_plugin; print([n for n in ('fastapi', 'onceover.kafka') if n in sys.modules])"
    )
    plugins = Path(__file__).parents[4] / "plugins"
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


def test_link_stays_below_the_prefix_of_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that begins at the host's root would leave it."""
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://host/airflow/")
    assert (
        page_link(Path("/var"), "/var/f/audit/1-a/report.html")
        == "/airflow/onceover/audits/f/1-a/report.html"
    )


def test_a_button_leads_to_the_form_with_the_flow_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the address of the DAG's page; from the page of all flows it leads to the form as it is."""
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://host/airflow/")
    look = Look([], 1.0)
    assert _links(look, "flights-dr").forms["Audit"] == f"/airflow/dags/audit?{FLOW_QUERY}=flights-dr"
    assert _links(look).forms["Audit"] == "/airflow/dags/audit"
