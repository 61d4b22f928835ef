"""Unit tests reach no network."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import NoReturn

import pytest
from hypothesis import settings

from tests.support.session.examples import examples

# A busy machine is no failure. Half as many examples as hypothesis has by itself: soak has 20 times these.
settings.register_profile("unhurried", deadline=None, max_examples=examples(50))
settings.load_profile("unhurried")

_THREADS = ("onceover-background", "onceover-metrics-")


@pytest.fixture(autouse=True)
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse every connection: a unit test that needs one is an integration test.

    And wait for threads that a test leaves: one that asks later is refused within another test, and fails it.
    """

    def refuse(_self: socket.socket, address: object) -> NoReturn:
        raise RuntimeError(f"a unit test connects to {address!r}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    yield
    left = [each for each in threading.enumerate() if each.name.startswith(_THREADS)]
    for each in left:
        each.join(20)
    assert not any(each.is_alive() for each in left), f"still at work: {[each.name for each in left]}"
