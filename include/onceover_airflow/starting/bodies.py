"""The body of a request, read before it is passed on to Airflow and given to it once more."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import Message, Receive


async def read_body(receive: Receive, max_bytes: float = math.inf) -> list[Message]:
    """Return a request's messages up to its end, or until they are longer than ``max_bytes``."""
    messages = [await receive()]
    size_bytes = len(messages[0].get("body", b""))
    while messages[-1].get("more_body") and size_bytes <= max_bytes:
        messages.append(await receive())
        size_bytes += len(messages[-1].get("body", b""))
    return messages


def replayed(messages: list[Message], receive: Receive) -> Receive:
    """Return what gives the messages once more, then whatever comes next."""
    left = iter(messages)

    async def replay() -> Message:
        message: Any = next(left, None)
        return await receive() if message is None else message

    return replay
