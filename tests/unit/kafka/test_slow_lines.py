"""What is too slow to end, and what a large answer leaves behind."""

from __future__ import annotations

import mmap

import pytest

from onceover.kafka.link import connection as module
from onceover.kafka.link.connection import Connection, ConnectionLost
from tests.unit.kafka.wiretap import ScriptedSocket, connect, framed

_TIMEOUT_S = 40.0


class Clock:
    """Goes on with every byte that a peer takes or gives."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class Trickle:
    """A peer's socket through which a few bytes go at a time, each time just before anybody gives up."""

    def __init__(self, peer: ScriptedSocket, clock: Clock, most: int, each_s: float) -> None:
        self._peer, self._clock, self._most, self._each_s = peer, clock, most, each_s
        self.settimeout = peer.settimeout
        self.close = peer.close

    def recv_into(self, into: memoryview) -> int:
        self._clock.now_s += self._each_s
        return self._peer.recv_into(into[: self._most])

    def sendmsg(self, buffers: list[memoryview]) -> int:
        self._clock.now_s += self._each_s
        data = b"".join(bytes(b) for b in buffers)[: self._most]
        return self._peer.sendmsg([memoryview(data)])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


def line(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, body_bytes: int, most: int, each_s: float
) -> Connection:
    """Return a connection to a peer that answers with so many bytes, over a line that is slow from now on."""
    made, peer = connect(
        monkeypatch, lambda _key, _version, correlation: framed(correlation, bytes(body_bytes))
    )
    made._socket = Trickle(peer, clock, most, each_s)  # pyrefly: ignore[bad-assignment]
    return made


def ask(made: Connection, size: int = 100) -> None:
    """Send a request of about this size, whose answer counts as its length."""
    correlation = made.next_correlation_id()
    head = b"\0\0\0\0" + correlation.to_bytes(4, "big")
    payload = head + bytes(size)
    frame = len(payload).to_bytes(4, "big") + payload
    made.send_frame([frame], correlation, len)


def asked(made: Connection, size: int = 100) -> int:
    """Send a request of about this size; return the length of its answer."""
    ask(made, size)
    return int(made.receive())


@pytest.mark.parametrize(("most", "request_bytes", "answer_bytes"), [(1, 5, 10**6), (200, 10**6, 10)])
def test_what_only_trickles_is_given_up(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, most: int, request_bytes: int, answer_bytes: int
) -> None:
    """A second before each time-out a byte: before, nobody was heard meanwhile, for a year."""
    made = line(monkeypatch, clock, answer_bytes, most, _TIMEOUT_S - 1)
    with pytest.raises(ConnectionLost):
        asked(made, request_bytes)
    assert made.closed
    assert clock.now_s - 1000 < 20 * _TIMEOUT_S + 10**6 / module._SLOWEST_BYTES_PER_S


def test_a_slow_line_has_the_time_that_its_answer_takes(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """Ten times as long as nobody may be silent."""
    made = line(monkeypatch, clock, 15 << 20, 40 << 10, 1.0)
    assert asked(made) == 15 << 20
    assert clock.now_s - 1000 > 300


def test_a_buffer_that_one_large_answer_took_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one for every broker; a smaller one is used again."""
    made, _ = connect(monkeypatch, lambda _k, _v, correlation: framed(correlation, bytes(1 << 20)))
    asked(made)
    made.trim(2 << 20)
    kept = made._buffer
    assert isinstance(kept, mmap.mmap)
    asked(made)
    assert made._buffer is kept
    made.trim(1 << 19)
    assert len(made._buffer) < 1 << 17
    assert asked(made) == 1 << 20


def test_an_answer_has_its_time_from_when_the_one_before_it_is_there(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """A broker answers in order, and the first took the line for longer than an answer may be waited for."""
    made = line(monkeypatch, clock, body_bytes=4 << 20, most=64 << 10, each_s=2.0)
    asked(made)
    began_s = clock.now_s
    for _ in range(2):
        ask(made)
    made.receive()
    assert clock.now_s > began_s + _TIMEOUT_S
    made.expire()
    assert made.owed_s == _TIMEOUT_S
    clock.now_s += _TIMEOUT_S
    with pytest.raises(ConnectionLost):
        made.expire()


def test_a_broker_that_says_that_it_does_not_listen_has_that_time_too(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """Sent before it was said (KIP-219): the answer comes as much later."""
    made = line(monkeypatch, clock, body_bytes=10, most=10, each_s=0.0)
    asked(made)
    ask(made)
    ask(made)
    made.allow(90.0)
    clock.now_s += _TIMEOUT_S + 89.0
    made.expire()
    made.receive()
    assert made.owed_s == _TIMEOUT_S + 90.0
