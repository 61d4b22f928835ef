"""The proxy does to a connection what networks do, and nothing else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from tests.support.brokers.proxy import Proxy

from onceover_lab.embed.ports import LOOPBACK

_TIMEOUT_S = 10.0
_FRAME = bytes(range(250)) * 40


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A proxy before a server that answers with what it hears, until both have ended."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        listener.settimeout(_TIMEOUT_S)
        with Proxy(listener.getsockname()[1]) as proxy:
            thread = threading.Thread(target=echo, args=(listener,), daemon=True)
            thread.start()
            yield proxy
        thread.join()


def echo(listener: socket.socket) -> None:
    """Serve one connection."""
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(_TIMEOUT_S)
        try:
            while piece := connection.recv(1 << 16):
                connection.sendall(piece)
        except ConnectionError:
            return


def exchange(connection: socket.socket, most: int) -> bytes:
    """Send a frame; return what comes back, up to so many bytes, until the connection ends."""
    heard = b""
    try:
        connection.sendall(_FRAME)
        while len(heard) < most and (piece := connection.recv(1 << 16)):
            heard += piece
    except ConnectionError:
        pass
    return heard


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection((LOOPBACK, proxy.port), timeout=_TIMEOUT_S)


@pytest.mark.parametrize("later", [False, True])
def test_a_torn_connection_breaks_inside_a_frame(proxy: Proxy, later: bool) -> None:
    """After the bytes it was allowed, both ways together; whether it was there before or comes later."""
    whole = 2 * len(_FRAME)
    if later:
        proxy.tear(lambda: whole + 700)
    with connect(proxy) as connection:
        if not later:
            assert exchange(connection, len(_FRAME)) == _FRAME
            proxy.tear(lambda: whole + 700)
        assert exchange(connection, len(_FRAME)) == _FRAME
        # Of this frame no byte comes back: it breaks on its way there.
        assert exchange(connection, len(_FRAME)) == b""
    assert proxy.alive == 0


def test_what_was_to_be_torn_lives_when_it_is_taken_back(proxy: Proxy) -> None:
    """Nothing of it is left."""
    with connect(proxy) as connection:
        proxy.tear(lambda: len(_FRAME) + 700)
        proxy.tear(None)
        for _ in range(3):
            assert exchange(connection, len(_FRAME)) == _FRAME
