"""A TCP proxy on loopback between a client and a broker, which can do what networks and dying hosts do.

Every connection has a temper of its own: what happens to it from now on may differ from what happens to the
ones that come later, as it does when a host dies and another one takes over its address.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from types import TracebackType
from typing import Self

from onceover_lab.embed.ports import LOOPBACK

_CHUNK_BYTES = 1 << 16
_POLL_S = 0.05


class Temper(Enum):
    """What becomes of the bytes of a connection."""

    FORWARD = auto()
    HOLD = auto()
    """Kept until it is told to forward, as by a process under SIGSTOP."""
    SWALLOW = auto()
    """Gone, in both directions, without a FIN: the host is dead."""
    SWALLOW_ANSWERS = auto()
    """Requests arrive, answers are gone."""


class Proxy:
    """Forwards to ``upstream`` (a port on loopback, to be set before anybody connects). A context manager.

    ``delay_s`` is added on each way, to every piece that arrives. ``port``: its own, 0 for any.
    """

    def __init__(self, upstream: int = 0, port: int = 0) -> None:
        self.upstream = upstream
        self.delay_s = 0.0
        self.refusing = False
        self._temper = Temper.FORWARD
        self._tearing: Callable[[], int] | None = None
        self._links: list[_Link] = []
        self._lock = threading.Lock()
        self._closed = False
        self._listener = socket.create_server((LOOPBACK, port))
        self._listener.settimeout(_POLL_S)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def hung_up(self) -> int:
        """Number of connections that the client has closed, or lost."""
        with self._lock:
            return sum(link.hung_up for link in self._links)

    @property
    def alive(self) -> int:
        """Number of connections that neither side has closed."""
        with self._lock:
            return sum(not link.over for link in self._links)

    def treat(self, temper: Temper, *, later: Temper = Temper.FORWARD) -> None:
        """Treat the connections of now as ``temper`` says, and those to come as ``later`` says."""
        with self._lock:
            for link in self._links:
                link.temper = temper
            self._temper = later

    def tear(self, after_bytes: Callable[[], int] | None) -> None:
        """Break each connection, of now and of later, after so many bytes more: anywhere in a frame.

        ``None`` ends that, for those too that would still have been broken.
        """
        with self._lock:
            self._tearing = after_bytes
            for link in self._links:
                link.left_bytes = None if after_bytes is None else after_bytes()

    def cut(self) -> None:
        """End every connection of now at once, on both sides."""
        with self._lock:
            for link in self._links:
                link.end()

    def close(self) -> None:
        """End everything and wait for the threads."""
        self._closed = True
        self._thread.join()
        self._listener.close()
        self.cut()
        for link in self._links:
            link.join()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            if self.refusing:
                client.close()
                continue
            try:
                broker = socket.create_connection((LOOPBACK, self.upstream), timeout=_POLL_S * 20)
            except OSError:
                client.close()
                continue
            with self._lock:
                left_bytes = None if self._tearing is None else self._tearing()
                self._links.append(_Link(self, client, broker, self._temper, left_bytes))


class _Link:
    """One connection of a client, and its counterpart to the broker."""

    def __init__(
        self,
        proxy: Proxy,
        client: socket.socket,
        broker: socket.socket,
        temper: Temper,
        left_bytes: int | None,
    ) -> None:
        self.temper = temper
        # Until it breaks, both ways together.
        self.left_bytes = left_bytes
        self._lock = threading.Lock()
        self.hung_up = self.over = False
        self._proxy = proxy
        self._sockets = (client, broker)
        for one in self._sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.settimeout(_POLL_S)
        self._threads = [
            threading.Thread(target=self._pump, args=(client, broker, False), daemon=True),
            threading.Thread(target=self._pump, args=(broker, client, True), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Close both sides; the threads end by themselves."""
        self.over = True

    def join(self) -> None:
        """Wait for the threads."""
        for thread in self._threads:
            thread.join()

    def _pump(self, from_: socket.socket, to: socket.socket, answers: bool) -> None:
        try:
            while not self.over:
                try:
                    piece = from_.recv(_CHUNK_BYTES)
                except TimeoutError:
                    continue
                if not piece:
                    self.hung_up |= not answers
                    # A host that is dead tells nobody that its other side has gone.
                    if not answers or self.temper is Temper.FORWARD:
                        self.over = True
                    return
                self._pass(piece, to, answers)
        except OSError:
            self.over = True
        finally:
            if self.over:
                for one in self._sockets:
                    with suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)
                    one.close()

    def _pass(self, piece: bytes, to: socket.socket, answers: bool) -> None:
        if self._proxy.delay_s:
            time.sleep(self._proxy.delay_s)
        while self.temper is Temper.HOLD and not self.over:
            time.sleep(_POLL_S)
        if self.temper is Temper.SWALLOW or (self.temper is Temper.SWALLOW_ANSWERS and answers):
            return
        view = memoryview(piece)[: self._allowed(len(piece))]
        breaks = len(view) < len(piece)
        while view and not self.over:
            with suppress(TimeoutError):
                view = view[to.send(view) :]
        self.over |= breaks

    def _allowed(self, wanted: int) -> int:
        """Take so many bytes from what is left before it breaks; return how many there were."""
        with self._lock:
            if self.left_bytes is None:
                return wanted
            allowed = min(wanted, self.left_bytes)
            self.left_bytes -= allowed
            return allowed
