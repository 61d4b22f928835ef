"""Distance between a system under test and a cluster: a TCP proxy that holds every byte back for a while.

Invariant: bytes keep their order and none is lost; a connection holds a bounded number of bytes in flight,
as a TCP window does, and takes no more until some have arrived.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from onceover_lab.embed.ports import LOOPBACK

# What one connection has on its way in one direction. It limits as a window of twice as many does over the
# whole round trip: 32 MiB, what a host has to be given that is to fill 2.5 Gbit/s over 100 ms. (Linux's own
# limit is 6 MiB for reading, which would hold every system back alike.)
WINDOW_BYTES: Final = 16 << 20
_TIMEOUT_S: Final = 10.0

T = TypeVar("T")


@dataclass
class Distance:
    """How far away a cluster is: ``round_trip_ms`` are added to each question and its answer together."""

    round_trip_ms: int = 0

    @property
    def one_way_s(self) -> float:
        """What is added to each byte, in seconds."""
        return self.round_trip_ms / 2000


class _End(asyncio.Protocol):
    """One end of a connection: what arrives here leaves at the other one, later."""

    def __init__(self, distance: Distance, opened: Callable[[_End], None]) -> None:
        self._distance = distance
        self._opened = opened
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._in_flight_bytes = 0
        self._due_s = 0.0
        self._full = False
        self.other: _End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
            self._opened(self)

    def data_received(self, data: bytes) -> None:
        self._in_flight_bytes += len(data)
        self._later(self._arrive, data)
        self.adjust()

    def eof_received(self) -> bool:
        self._later(self._end_other, False)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._later(self._end_other, True)

    def pause_writing(self) -> None:
        self._full = True
        if self.other is not None:
            self.other.adjust()

    def resume_writing(self) -> None:
        self._full = False
        if self.other is not None:
            self.other.adjust()

    def hold(self) -> None:
        """Take nothing: there is no other end yet."""
        if self._transport is not None:
            self._transport.pause_reading()

    def adjust(self) -> None:
        """Take more as long as there is room on the way, and behind it."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._in_flight_bytes > WINDOW_BYTES or (self.other is not None and self.other._full):
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def close(self) -> None:
        """Cut the connection off."""
        if self._transport is not None:
            self._transport.abort()

    def _later(self, act: Callable[[T], None], what: T) -> None:
        # Never before what went first, also when the distance has become shorter meanwhile.
        self._due_s = max(self._due_s, self._loop.time() + self._distance.one_way_s)
        self._loop.call_at(self._due_s, act, what)

    def _arrive(self, data: bytes) -> None:
        self._in_flight_bytes -= len(data)
        if self.other is not None and self.other._transport is not None:
            self.other._transport.write(data)
        self.adjust()

    def _end_other(self, whole: bool) -> None:
        other = None if self.other is None else self.other._transport
        if other is None or other.is_closing():
            return
        if whole:
            other.close()
        elif other.can_write_eof():
            with suppress(OSError):  # it has gone meanwhile
                other.write_eof()


class _Proxy:
    """Listens on one port and dials another one for each connection."""

    def __init__(self, upstream: int, distance: Distance) -> None:
        self._upstream = upstream
        self._distance = distance
        self._ends: list[_End] = []
        self._dials: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, port: int) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _End(self._distance, self._accepted), LOOPBACK, port
        )

    async def close(self) -> None:
        """Listen no more, and cut off whoever is connected."""
        if self._server is not None:
            self._server.close()
        for dial in self._dials:
            dial.cancel()
        for end in self._ends:
            end.close()
        # What was cut off is closed in the loop's next round.
        await asyncio.sleep(0)

    def _accepted(self, near: _End) -> None:
        near.hold()
        self._ends.append(near)
        dial = asyncio.get_running_loop().create_task(self._connect(near))
        self._dials.add(dial)
        dial.add_done_callback(self._dials.discard)

    async def _connect(self, near: _End) -> None:
        def joined(far: _End) -> None:
            self._ends.append(far)
            near.other, far.other = far, near

        try:
            await asyncio.get_running_loop().create_connection(
                lambda: _End(self._distance, joined), LOOPBACK, self._upstream
            )
        except OSError:
            near.close()
        else:
            near.adjust()


@contextmanager
def proxies(ways: list[tuple[int, int, Distance]]) -> Iterator[None]:
    """Run proxies in a thread, each from a port to another one; cut off and gone at the end.

    Args:
        ways: listening port, the port behind it, and how far away that is, which may change meanwhile.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="distance", daemon=True)
    thread.start()
    made = []
    try:
        for listening, upstream, distance in ways:
            proxy = _Proxy(upstream, distance)
            made.append(proxy)
            _within(loop, proxy.listen(listening))
        yield
    finally:
        for proxy in made:
            _within(loop, proxy.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_TIMEOUT_S)
        loop.close()


def _within(loop: asyncio.AbstractEventLoop, work: Coroutine[None, None, None]) -> None:
    asyncio.run_coroutine_threadsafe(work, loop).result(_TIMEOUT_S)
