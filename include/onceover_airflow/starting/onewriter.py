"""On SQLite, Airflow's web server does one writing request at a time.

Airflow (3.3.2) books who starts, answers or changes something in its event loop, and waits there for
SQLite's one writer (``airflow.api_fastapi.logging.decorators``). Where that is another request of the same
server, it can only commit once the loop goes on: both wait for each other until SQLite's patience ends, and
one of them is answered with an error of the server. Two starts at once were enough (eight of nine failed,
measured); a click while a task reports was, too, now and then. Other databases are left alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from airflow.configuration import conf

from onceover_airflow.starting.bodies import read_body, replayed

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class OneWriter:
    """ASGI middleware around Airflow's web server: of requests that may write, one at a time is passed on.

    Its turn begins once all of its body is here, and ends when it is answered, before the answer is sent: a
    client that never ends its question, or never reads the answer, stops nobody else.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, in its turn."""
        if scope["type"] != "http" or scope["method"] in _READING:
            await self._app(scope, receive, send)
            return
        messages = await read_body(receive)
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        try:
            async with self._turn:
                await self._app(scope, replayed(messages, receive), keep)
        finally:
            for message in answer:
                await send(message)


def registrations() -> list[dict[str, Any]]:
    """Return what Airflow's plugin manager wants to know: nothing where Airflow's database is not SQLite."""
    if not conf.get("database", "sql_alchemy_conn").startswith("sqlite"):
        return []
    return [{"middleware": OneWriter, "name": "Onceover: one writer of SQLite"}]
