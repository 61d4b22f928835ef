"""How pages look in a real browser, whatever somebody has called things: no Airflow, no cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Route

from onceover.board.page import Look, all_flows, one_flow
from onceover.board.topicpage import one_topic
from onceover.drills.page import drill_page
from onceover_airflow.serving import web
from onceover_airflow.telling.pages import FRAME
from tests.unit.board.test_page import LINKS, entry, stopped
from tests.unit.drills.test_rehearsal import outcome

LONG = "n" * 249
_KINDS = {f"/{FRAME}": "text/javascript"}


def pages() -> dict[str, str]:
    """Return a page of each kind, with the longest names that there are."""
    need = {"code": "X", "message": LONG, "resolve": f"`onceover status {LONG}`", "exit": 3}
    told = entry(
        "f" * 100,
        exit=3,
        needs=[need],
        notes=[{"object": LONG, "code": "X", "message": LONG, "resolve": LONG}],
        partitions=[{**stopped(0, LONG), "topic": LONG, "target_topic": LONG}],
        topics=[{"topic": "o" * 249, "target_topic": LONG, "in": False, "reason": LONG, "partitions": 1}],
        drills_error=LONG,
    )
    look = Look([told, entry()], 1.0)
    drill = {
        **outcome(name=LONG, failed="verify").document(),
        "findings": [{"code": "X", "text": LONG, "fails": fails} for fails in (True, False)],
    }
    return {
        "all flows": all_flows(look, {}, LINKS),
        "a flow": one_flow(look, told, (), LINKS),
        "a topic": one_topic(look, told, LONG, LINKS),
        "a drill": drill_page(drill),
    }


@pytest.mark.parametrize("width", [1400, 390])
def test_no_page_is_wider_than_its_window(browser: Browser, width: int) -> None:
    """A title beyond the edge is white on white; what is wide scrolls by itself."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    for name, text in pages().items():
        page.set_content(text)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        cut = "[...document.querySelectorAll('h1, .need')].filter(e => e.scrollWidth > e.clientWidth).length"
        assert page.evaluate(cut) == 0, name
    page.close()


def test_one_click_selects_the_command_and_nothing_else(browser: Browser) -> None:
    """It goes into a shell as it is."""
    need = {
        "code": "X",
        "message": "over",
        "resolve": "`onceover replicate f` starts it: it goes on",
        "exit": 3,
    }
    page = browser.new_page()
    page.set_content(all_flows(Look([entry(exit=3, needs=[need])], 1.0), {}, LINKS))
    page.locator(".need .command").click()
    assert page.evaluate("getSelection().toString()") == "onceover replicate f"
    page.get_by_text("starts it").click(position={"x": 2, "y": 2})
    assert page.evaluate("getSelection().toString()") == ""
    page.close()


def test_a_page_that_holds_still_becomes_old(browser: Browser) -> None:
    """The browser's clock alone shows it."""
    page = browser.new_page()
    page.set_content(all_flows(Look([entry()], 1.0), {}, LINKS, still=True))
    held = page.locator("h1 .held")
    assert not held.is_visible()
    page.evaluate("document.getAnimations().forEach(each => each.finish())")
    assert held.is_visible()
    assert "saturate" in page.evaluate("getComputedStyle(document.querySelector('main')).filter")
    page.close()


@pytest.mark.parametrize(
    ("tags", "conf", "shown"),
    [
        (["onceover"], {"flow": "orders"}, "flows/orders"),
        (["onceover", "orders"], {}, "flows/orders"),
        # Of a Connect cluster, and of a start over REST that leaves the flow to the form's default.
        (["onceover"], {"connect": "orders"}, ""),
        (["onceover"], None, ""),
        (["onceover"], {"flow": None}, ""),
    ],
)
def test_a_runs_tab_shows_its_flow_or_all_of_them(
    browser: Browser, tags: list[str], conf: dict[str, Any] | None, shown: str
) -> None:
    """What Airflow loads for the tab, with Airflow's answers alone."""
    answers = {
        "/": f"<script src={FRAME}></script><iframe></iframe>",
        f"/{FRAME}": Path(web.__file__).with_name(FRAME).read_text(),
        "/api/v2/dags/a-dag/details": json.dumps({"tags": [{"name": tag} for tag in tags]}),
        "/api/v2/dags/a-dag/dagRuns/a-run": json.dumps({"conf": conf}),
    }

    def answer(route: Route) -> None:
        path = urlsplit(route.request.url).path
        route.fulfill(body=answers.get(path, "<main></main>"), content_type=_KINDS.get(path, "text/html"))

    page = browser.new_page()
    page.route("**/*", answer)
    page.goto("http://airflow.test/")
    # Playwright calls what it is given back, and this one ends what it belongs to.
    page.evaluate(
        "void Onceover({dagId: 'a-dag', runId: 'a-run'}).props.ref(document.querySelector('iframe'))"
    )
    page.wait_for_function("document.querySelector('iframe').src !== ''", polling=50)
    found = page.evaluate("document.querySelector('iframe').src")
    assert found == f"http://airflow.test/onceover/{shown}"
    page.close()
