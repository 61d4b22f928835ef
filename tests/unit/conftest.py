"""Unit tests reach no network."""

from __future__ import annotations

import socket
from typing import NoReturn

import pytest
from hypothesis import settings

from tests.support.session.examples import examples

# A busy machine is no failure. Half as many examples as hypothesis has by itself: soak has 20 times these.
settings.register_profile("unhurried", deadline=None, max_examples=examples(50))
settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every connection: a unit test that needs one is an integration test."""

    def refuse(_self: socket.socket, address: object) -> NoReturn:
        raise RuntimeError(f"a unit test connects to {address!r}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
