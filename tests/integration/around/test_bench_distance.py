"""What stands between a benchmark's contender and a cluster that is far away."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from onceover_lab.bench.distance import WINDOW_BYTES, Distance, proxies
from onceover_lab.embed.ports import LOOPBACK, PortReservation

TIMEOUT_S = 60.0
CHUNK_BYTES = 1 << 20


@pytest.fixture
def upstream() -> Iterator[int]:
    """A server that answers every byte with itself."""
    with socket.create_server((LOOPBACK, 0)) as server:

        def echo() -> None:
            peer, _ = server.accept()
            with peer:
                while data := peer.recv(CHUNK_BYTES):
                    peer.sendall(data)
                peer.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=echo)
        thread.start()
        yield server.getsockname()[1]
        thread.join(TIMEOUT_S)


@contextmanager
def connected(upstream: int, distance: Distance) -> Iterator[socket.socket]:
    reserved = PortReservation()
    reserved.release()
    with (
        proxies([(reserved.port, upstream, distance)]),
        socket.create_connection((LOOPBACK, reserved.port), TIMEOUT_S) as peer,
    ):
        yield peer


def test_an_answer_takes_a_round_trip_and_less_when_it_comes_nearer(upstream: int) -> None:
    """Never less than the distance; order and end of both ways are kept."""
    distance = Distance(200)
    with connected(upstream, distance) as peer:
        begun = time.monotonic()
        peer.sendall(b"far")
        assert peer.recv(3) == b"far"
        assert time.monotonic() - begun >= 0.2
        distance.round_trip_ms = 0
        peer.sendall(b"near")
        peer.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda: peer.recv(CHUNK_BYTES), b"")) == b"near"


def test_more_than_is_on_its_way_at_once_arrives_whole(upstream: int) -> None:
    """What does not fit waits at its sender, and nothing is lost."""
    sent, received = hashlib.sha256(), hashlib.sha256()
    with connected(upstream, Distance(20)) as peer:

        def read() -> None:
            while data := peer.recv(CHUNK_BYTES):
                received.update(data)

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(3 * WINDOW_BYTES // CHUNK_BYTES):
            chunk = number.to_bytes(4, "big") * (CHUNK_BYTES // 4)
            sent.update(chunk)
            peer.sendall(chunk)
        peer.shutdown(socket.SHUT_WR)
        reader.join(TIMEOUT_S)
    assert received.digest() == sent.digest()
