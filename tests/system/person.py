"""Somebody with a browser: fills in forms, presses buttons, answers questions, and hears every complaint.

The browser is the machine's own Chromium. Nothing here asks Airflow's API: what is not on a page, a person
does not know.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote, urlsplit

import httpx
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    Response,
    sync_playwright,
)
from playwright.sync_api import TimeoutError as TookTooLong

from onceover_lab.embed.airflow import AirflowStandalone

_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Seconds on an idle machine for what takes a tenth of one; others start their Sparks meanwhile.
_PATIENCE_MS: Final = 60_000
# There is no graphics card: what it would draw is drawn in software, and not through an imitation of one.
# Nor do scripts have to be optimised on pages that are left after seconds: a form took a tenth more with it.
_FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-software-rasterizer",
    "--disable-extensions",
    "--js-flags=--no-turbofan --no-maglev",
)
# Of a page, for an error.
_SHOWN_CHARACTERS: Final = 2000
_HARMLESS: Final = ("verbose", "debug", "info", "log")
# The way to another page that the links of Airflow's pages take.
_FOLLOW: Final = """path => {
  history.pushState({}, "", path);
  window.dispatchEvent(new PopStateEvent("popstate", {state: {}}));
}"""
# Pages come from this machine. One that is told that the machine has lost its network asks for nothing more,
# and says nothing of it: Airflow's are, and one run failed on it.
_NETWORK_OR_NOT: Final = """
addEventListener("offline", event => event.stopImmediatePropagation(), true);
Object.defineProperty(navigator, "onLine", {get: () => true});
"""
# A page of Airflow's that asks for nothing again, and on which nothing moves.
_CALM: Final = "/variables"
_NOWHERE: Final = "about:blank"

Value = str | bool | int | Sequence[str]


class Person:
    """A logged-in person.

    Attributes:
        complaints: what the browser's console said, what the server refused, and every request to another
            host, since the login.
        unanswered: what the pages have asked the server for and wait for, with the moment that they asked.
    """

    def __init__(self, browser: BrowserContext, url: str) -> None:
        browser.set_default_timeout(_PATIENCE_MS)
        browser.add_init_script(_NETWORK_OR_NOT)
        self._browser = browser
        self._page = browser.new_page()
        self._url = url
        self.complaints: list[str] = []
        self.unanswered: dict[Request, float] = {}

    def log_in(self, username: str, password: str, path: str, shown: str) -> Page:
        """Ask for a page as a stranger, log in on the one that Airflow shows instead, and see the first."""
        page = self._page
        page.goto(f"{self._url}{path}")
        page.locator("input[name=username]").fill(username)
        page.locator("input[name=password]").fill(password)
        page.locator("button[type=submit]").click()
        # Text is looked for in any case of its letters: "PASS" stands on the page of the login, too.
        page.wait_for_url(lambda url: "/auth/login" not in url)
        page.get_by_text(shown).first.wait_for()
        self._listen()
        return page

    def come_back(self, token: str) -> None:
        """Be logged in from before, by the cookie that Airflow has set then; no page is open yet."""
        self._browser.add_cookies([{"name": "_token", "value": token, "url": self._url}])
        self._listen()

    def _listen(self) -> None:
        """Hear every tab, from here on: before the login Airflow's own page asks for what it may not have."""
        listen = self._browser.on
        listen("console", self._console)
        listen("weberror", lambda error: self.complaints.append(f"script: {error.error}"))
        listen("response", self._response)
        listen("request", self._request)
        listen("requestfinished", self._answered)
        listen("requestfailed", self._answered)

    @contextmanager
    def stranger(self) -> Iterator[Person]:
        """Yield somebody at another browser, who has not logged in yet."""
        browser = self._browser.browser
        assert browser is not None
        other = browser.new_context()
        try:
            yield Person(other, self._url)
        finally:
            other.close()

    def _console(self, message: ConsoleMessage) -> None:
        if message.type not in _HARMLESS:
            where = message.page.url if message.page else "no page"
            self.complaints.append(f"console: {message.text} at {where}")

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self.complaints.append(f"{response.status} for {response.request.method} {response.url}")

    def _answered(self, request: Request) -> None:
        self.unanswered.pop(request, None)

    def _request(self, request: Request) -> None:
        self.unanswered[request] = time.monotonic()
        url = request.url
        address = urlsplit(url)
        if address.scheme in ("http", "https") and not url.startswith(self._url):
            self.complaints.append(f"request to another host: {url}")

    @property
    def page(self) -> Page:
        """The tab that is open all the time."""
        return self._page

    @contextmanager
    def another_tab(self) -> Iterator[Page]:
        """Yield a second tab, closed in the end."""
        tab = self._browser.new_page()
        try:
            yield tab
        finally:
            tab.close()

    def open(self, path: str, tab: Page | None = None) -> Page:
        """Go to an address of this Airflow."""
        page = tab or self._page
        try:
            page.goto(f"{self._url}{path}")
        except TookTooLong as error:
            self.tell(error)
            # One that still waits for its next page answers no question about itself, however long.
            page.goto(_NOWHERE)
            raise
        return page

    def form(self, dag_id: str) -> Form:
        """Press *Trigger* on the page of a DAG.

        It offers what Airflow's pages were told when they were loaded: ``open`` one behind a changed DAG.
        """
        return Form(self, self.dialog(dag_id))

    def dialog(self, dag_id: str | None = None) -> Locator:
        """Press *Trigger* on the page of a DAG, the open one where none is named; return what opens."""
        page = self._page
        if dag_id is not None:
            self._go(f"/dags/{dag_id}")
            page.get_by_role("heading", name=dag_id, exact=True).first.wait_for()
        page.get_by_role("button", name="Trigger").first.click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_text("Run Parameters").wait_for()
        return dialog

    def tell(self, error: TookTooLong) -> None:
        """Have the error of somebody who lost patience say what the page shows, and what it was not told."""
        now, page = time.monotonic(), self._page
        asked = [f"{r.method} {r.url} for {now - since:.0f} s" for r, since in self.unanswered.items()]
        error.add_note(f"at {page.url}, unanswered: {asked}, load: {os.getloadavg()}")
        error.add_note(f"complaints: {self.complaints}")
        error.add_note(page.inner_text("body")[:_SHOWN_CHARACTERS])

    def _go(self, path: str) -> None:
        """Go to a page of Airflow's from another one, if one is open.

        That takes half of the CPU that loading all of its scripts again does: 1.7 s on a slow machine. A form
        that is open there is closed before.
        """
        if self._page.locator("#root").count() and not self._page.locator("iframe").count():
            self._page.keyboard.press("Escape")
            self._page.get_by_role("dialog").wait_for(state="hidden")
            self._page.evaluate(_FOLLOW, path)
        else:
            self.open(path)

    def rest(self) -> None:
        """Look away: a page that shows a run, and ours, ask for news all the time: a quarter of a core."""
        self._go(_CALM)

    def press(self, dag_id: str, run_id: str, task_id: str, button: str) -> Page:
        """Press one of the task's own buttons, which stand under *Details*; return the page it leads to."""
        page = self.open(f"/dags/{dag_id}/runs/{quote(run_id)}/tasks/{task_id}/details")
        page.get_by_role("link", name=button, exact=True).click()
        page.wait_for_url(lambda url: "/dags/" not in url)
        return page

    def question(self, dag_id: str, run_id: str, task_id: str) -> str:
        """Open what a task asks; return it as it is shown."""
        page = self.open(f"/dags/{dag_id}/runs/{quote(run_id)}/tasks/{task_id}/required_actions")
        panel = page.locator("#details-panel")
        panel.locator("form, table, p").first.wait_for()
        return panel.inner_text()

    def answer(self, *options: str) -> None:
        """Choose, on the page of a question: a button for each option, or a list and a button."""
        panel = self._page.locator("#details-panel")
        button = panel.get_by_role("button", name=options[0], exact=True)
        chooser = panel.get_by_role("combobox")
        button.or_(chooser).first.wait_for()
        if chooser.count():
            for option in options:
                chooser.fill(option)
                self._page.get_by_role("option", name=option, exact=True).click()
            button = panel.get_by_role("button", name="Respond")
        with self._page.expect_response(lambda response: response.request.method == "PATCH") as answered:
            button.click()
        assert answered.value.ok, answered.value.text()
        self.rest()


class Form:
    """The form that starts a run, opened."""

    def __init__(self, person: Person, dialog: Locator) -> None:
        self._person = person
        self._page = person.page
        self._dialog = dialog

    @property
    def fields(self) -> dict[str, str]:
        """What can be filled in: name and title, in the order of the page."""
        found = self._dialog.locator("[name^=element_]")
        names = [str(each.get_attribute("name")).removeprefix("element_") for each in found.all()]
        return {name: self._title(name) for name in names}

    def _title(self, name: str) -> str:
        group = self._dialog.get_by_role("group").filter(has=self._page.locator(f"[name=element_{name}]"))
        return group.locator("label").first.inner_text().removesuffix("*").strip()

    @property
    def is_valid(self) -> bool:
        """Whether it can be sent as it is."""
        return self._trigger.is_enabled()

    @property
    def _trigger(self) -> Locator:
        return self._dialog.get_by_role("button", name="Trigger")

    def fill(self, **values: Value) -> Form:
        """Fill in fields by their names, each the way that its kind asks for."""
        for name, value in values.items():
            if isinstance(value, bool):
                self._switch(name, value)
            elif isinstance(value, str):
                self._type(name, value)
            elif isinstance(value, int):
                self._dialog.locator(f"[name=element_{name}]").fill(str(value))
            else:
                self._dialog.locator(f"[name=element_{name}]").fill("\n".join(value))
        return self

    def _switch(self, name: str, wanted: bool) -> None:
        switch = self._dialog.locator(f"[id='switch:element_{name}']")
        if (switch.get_attribute("data-state") == "checked") != wanted:
            switch.click()

    def _type(self, name: str, value: str) -> None:
        field = self._dialog.locator(f"#element_{name}")
        chooser = field.get_by_role("combobox")
        if chooser.count():
            chooser.fill(value)
            self._page.get_by_role("option", name=value, exact=True).click()
        else:
            field.fill(value)

    def send(self) -> str:
        """Press *Trigger*; return the run's name, as the page learns it."""
        with self._page.expect_response(_is_start) as answered:
            self._trigger.click()
        assert answered.value.ok, answered.value.text()
        run_id = str(answered.value.json()["dag_run_id"])
        # Airflow shows the run, whatever page is there by then.
        self._page.wait_for_url(lambda url: "/runs/" in url)
        self._person.rest()
        return run_id


def _is_start(response: Response) -> bool:
    path = urlsplit(response.url).path
    return response.request.method == "POST" and re.search(r"/dags/[^/]+/dagRuns$", path) is not None


def at_a_browser(browser: Browser, airflow: AirflowStandalone) -> Person:
    """Return a logged-in person; how strangers log in is shown by tests of theirs.

    Airflow's login and Home, which it leads to, take the browser seconds of CPU.
    """
    # What moves is drawn by the processor here, picture by picture.
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, reduced_motion="reduce")
    person = Person(context, airflow.url)
    body = {"username": airflow.username, "password": airflow.password}
    # Who asks a server first that has just started waits for what it loads then.
    login = httpx.post(f"{airflow.url}/auth/token", json=body, timeout=_PATIENCE_MS / 1000)
    person.come_back(login.json()["access_token"])
    return person


@contextmanager
def a_browser() -> Iterator[Browser]:
    """Yield a browser that nobody has opened a page in; a process can have one at a time."""
    with sync_playwright() as playwright:
        # The sandbox needs rights that a container does not have; pages come from this machine only.
        browser = playwright.chromium.launch(executable_path=_chromium(), args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def _chromium() -> str:
    found = (path for name in _BROWSERS if (path := shutil.which(name)))
    path = next(found, None)
    assert path is not None, "no Chromium on PATH; on Debian: apt-get install chromium"
    return path
