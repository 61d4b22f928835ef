"""Where Airflow keeps its state in SQLite, its web server does one writing request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from onceover_airflow.starting import onewriter
from onceover_airflow.starting.onewriter import OneWriter


class Served:
    """An application that is asked several things at once, and keeps what it had open at the same time."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.most: set[str] = set()
        self.bodies: dict[str, bytes] = {}
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        name = scope["path"]
        self.open.add(name)
        self.most = max(self.most, set(self.open), key=len)
        self.bodies[name] = (await receive())["body"]
        await self.go_on.wait()
        self.open.discard(name)
        if name == "/fails":
            raise RuntimeError(name)


def asked(method: str, path: str) -> tuple[dict[str, Any], Callable[[], Awaitable[dict[str, Any]]]]:
    """Return a request with its body."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": path.encode(), "more_body": False}

    return {"type": "http", "method": method, "path": path}, receive


def open_at_once(*requests: tuple[str, str]) -> Served:
    """Send requests, let them go on once as many as can be are open, and wait for their end."""

    async def course() -> Served:
        served = Served()
        app = OneWriter(served)
        tasks = [asyncio.ensure_future(app(*asked(*each), None)) for each in requests]  # pyrefly: ignore[bad-argument-type]
        while not served.open:
            await asyncio.sleep(0)
        # Every task has had its turns by then: none waits for anything but the others.
        for _ in range(10 * len(requests)):
            await asyncio.sleep(0)
        served.go_on.set()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        return served

    return asyncio.run(course())


def test_two_that_write_are_done_one_behind_the_other() -> None:
    """Each gets its own body."""
    served = open_at_once(("POST", "/a"), ("PATCH", "/b"), ("PUT", "/c"), ("DELETE", "/d"))
    assert len(served.most) == 1
    assert served.bodies == {path: path.encode() for path in ("/a", "/b", "/c", "/d")}


def test_those_that_read_wait_for_nobody() -> None:
    """Pages are shown while something is written."""
    served = open_at_once(("POST", "/a"), ("GET", "/b"), ("HEAD", "/c"), ("POST", "/d"))
    assert served.most == {"/a", "/b", "/c"}


def test_one_that_fails_lets_the_next_begin() -> None:
    """As one that is refused does."""
    assert set(open_at_once(("POST", "/fails"), ("POST", "/b")).bodies) == {"/fails", "/b"}


def test_a_sender_that_never_ends_stops_nobody() -> None:
    """A turn begins once the body is here."""

    async def course() -> bytes:
        served = Served()
        served.go_on.set()
        app = OneWriter(served)

        async def never() -> dict[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError

        stuck = asyncio.ensure_future(app(asked("POST", "/stuck")[0], never, None))  # pyrefly: ignore[bad-argument-type]
        await asyncio.sleep(0)
        await asyncio.wait_for(app(*asked("POST", "/b"), None), 10)  # pyrefly: ignore[bad-argument-type]
        stuck.cancel()
        return served.bodies["/b"]

    assert asyncio.run(course()) == b"/b"


@pytest.mark.parametrize(
    ("connection", "registered"),
    [("sqlite:////x/airflow.db", 1), ("postgresql+psycopg2://u@localhost/airflow", 0)],
)
def test_other_databases_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, connection: str, registered: int
) -> None:
    """They lock rows."""
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", connection)
    assert len(onewriter.registrations()) == registered


def test_a_long_question_and_an_answer_that_nobody_reads_stop_nobody() -> None:
    """The rest of a body never comes; the other client has stopped reading."""

    async def course() -> list[str]:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            while (await receive()).get("more_body"):
                pass
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def unread(message: Any) -> None:
            await asyncio.Event().wait()

        sent = iter([{"type": "http.request", "body": b" " * 100_000, "more_body": True}])

        async def stalls() -> dict[str, Any]:
            message = next(sent, None)
            if message is None:
                await asyncio.Event().wait()
                raise AssertionError
            return message

        answered: list[str] = []

        async def told(message: Any) -> None:
            answered.append(message["type"])

        one = OneWriter(app)
        stuck = [
            asyncio.ensure_future(one(asked("POST", "/long")[0], stalls, told)),
            asyncio.ensure_future(one(*asked("POST", "/unread"), unread)),
        ]
        for _ in range(20):
            await asyncio.sleep(0)
        await asyncio.wait_for(one(*asked("POST", "/b"), told), 10)
        for task in stuck:
            task.cancel()
        return answered

    assert asyncio.run(course()) == ["http.response.start"]
