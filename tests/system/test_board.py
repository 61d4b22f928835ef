"""The Onceover page in a real Airflow, in a real browser: found in the navigation, true, harmless."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Page, Request

from onceover_lab.embed.airflow import AirflowStandalone
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.flows import InlineFlow, write_flow
from tests.support.flows.replica import delete_topics
from tests.support.session.wait import wait_until
from tests.system.conftest import BROKEN_FLOW, PLANTED, Side
from tests.system.person import Person

FLOW = "sys-board"
TOPIC = f"{FLOW}.orders"
RECORDS = 90
LOOK_TIMEOUT_S = 60.0

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def copied(
    tmp_path_factory: pytest.TempPathFactory,
    connection: None,
    flows: Path,
    secured_cluster: KafkaCluster,
    target_cluster: SharedCluster,
) -> Iterator[None]:
    """A flow that was copied, and that has something left to copy."""
    source, target = secured_cluster.client, target_cluster.client
    side = Side(source)
    side.create(TOPIC)
    side.feed(TOPIC, RECORDS)
    folder = tmp_path_factory.mktemp("board")
    InlineFlow(write_flow(folder, FLOW, source, target, [f"{FLOW}[.].*"])).copy()
    side.feed(TOPIC, RECORDS)
    yield
    delete_topics(source, [TOPIC])
    delete_topics(target, [TOPIC])


class Looks:
    """Counts how often a page of ours is asked for."""

    def __init__(self) -> None:
        self.count = 0

    def heard(self, request: Request) -> None:
        path = urlsplit(request.url).path
        self.count += path.startswith("/onceover/") and not path.endswith(".js")

    def again(self, page: Page) -> bool:
        """Let the browser work; tell whether the page was asked for again."""
        page.wait_for_timeout(200)
        return self.count >= 2


def test_a_person_finds_every_flow_and_what_is_the_matter_with_it(
    airflow: AirflowStandalone, person: Person, copied: None
) -> None:
    """From Airflow's navigation to one flow; a broken file hides none of the others."""
    page = person.open("/")
    page.get_by_text("Onceover", exact=True).click()
    inside = page.frame_locator("iframe[title=Onceover]")
    inside.get_by_role("link", name=FLOW).first.wait_for()
    shown = inside.locator("body").inner_text()
    assert BROKEN_FLOW in shown
    assert "tarket" in shown, "the file's fault, with its line"
    inside.get_by_role("link", name=FLOW).first.click()
    inside.get_by_role("heading", name=FLOW).wait_for()
    told = inside.locator("body").inner_text()
    assert f"{RECORDS}" in told
    assert f"{TOPIC}:0" in told
    assert PLANTED not in told
    inside.get_by_role("link", name=f"{TOPIC}:0").click()
    inside.get_by_role("heading", name=TOPIC).wait_for()
    assert "offsets behind" in inside.locator("body").inner_text(), "why that topic is as it is"
    inside.get_by_role("link", name=FLOW, exact=True).first.click()
    inside.get_by_role("heading", name=FLOW).wait_for()
    inside.get_by_role("link", name="Audit", exact=True).click()
    page.wait_for_url(lambda url: url.endswith(f"/dags/audit?onceover_flow={FLOW}"))
    dialog = person.dialog()
    assert FLOW in dialog.inner_text(), "the form has the flow that one comes from"
    person.open("/dags/audit")
    assert FLOW not in person.dialog().inner_text(), "the same one, opened by hand, has not"
    person.rest()


def test_a_run_has_a_tab_with_the_page_of_its_flow(broken_run: str, person: Person) -> None:
    page = person.open(f"/dags/replicate/runs/{quote(broken_run)}")
    # Airflow's navigation has one of that name, too, which may be there before the run's tabs are.
    tab = page.locator("[href*='onceover-flow']")
    page.get_by_role("link", name="Onceover", exact=True).and_(tab).click()
    inside = page.frame_locator("iframe[title=Onceover]")
    inside.get_by_role("heading", name=BROKEN_FLOW).wait_for()
    assert "tarket" in inside.locator("body").inner_text(), "the file's fault, with its line"
    person.rest()


@pytest.mark.soak
def test_the_page_looks_again_by_itself(airflow: AirflowStandalone, person: Person, copied: None) -> None:
    """Without a script, in its frame and by itself."""
    seen = []
    # Beside each other: a look comes four times a minute.
    with person.another_tab() as tab:
        for page, path in ((tab, "/plugin/onceover"), (person.page, f"/onceover/flows/{FLOW}")):
            looks = Looks()
            page.on("request", looks.heard)
            person.open(path, page)
            seen.append((page, path, looks))
        for page, path, looks in seen:
            wait_until(partial(looks.again, page), LOOK_TIMEOUT_S, f"{path} looks again")
            page.remove_listener("request", looks.heard)
            assert page.frames[-1].locator("script").count() == 0
    person.rest()


@pytest.mark.soak
def test_a_frame_that_lost_its_page_gets_it_back(person: Person, copied: None) -> None:
    """As when the server was away just as the page looked again."""
    page = person.open("/plugin/onceover")
    inside = page.frame_locator("iframe[title=Onceover]")
    inside.get_by_role("link", name=FLOW).first.wait_for()
    page.locator("iframe[title=Onceover]").evaluate("frame => { frame.src = 'about:blank' }")
    inside.get_by_role("link", name=FLOW).first.wait_for(state="detached")
    inside.get_by_role("link", name=FLOW).first.wait_for()
    person.rest()


@pytest.mark.soak
def test_a_stranger_is_asked_for_a_login(airflow: AirflowStandalone, person: Person) -> None:
    """And sees the page that was asked for behind it."""
    with person.stranger() as stranger:
        page = stranger.log_in(airflow.username, airflow.password, "/onceover/", "Onceover")
        assert page.url.endswith("/onceover/")
