"""A TCP switch on loopback: an address that leads to one cluster, and to another once it is told to."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from onceover_lab.embed.ports import LOOPBACK, PortReservation
from tests.support.brokers.proxy import Proxy, Temper
from tests.support.session.background import Background

_LOOK_S = 0.05
_ANSWER_S = 30.0


class TcpSwitch:
    """One address. Nobody listens there until it is told where it leads; a context manager.

    Whoever is connected when it is told anew is cut off, on both sides.
    """

    def __init__(self) -> None:
        # Held also while nobody listens: clients that look for it would else be given the port themselves.
        self._reserved = PortReservation()
        self._proxy: Proxy | None = None
        self.port = self._reserved.port

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shut()
        self._reserved.release()

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{LOOPBACK}:{self.port}"

    def lead_to(self, port: int) -> None:
        """Lead to that port of loopback from now on."""
        if self._proxy is None:
            self._proxy = Proxy(port, self.port)
        else:
            self._proxy.upstream = port
            self._proxy.cut()

    def shut(self) -> None:
        """Lead nowhere: who is connected is cut off, and who comes is refused."""
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None

    def swallow(self) -> None:
        """Be as a dead host from now on: nothing arrives, and nobody is told."""
        if self._proxy is not None:
            self._proxy.treat(Temper.SWALLOW, later=Temper.SWALLOW)


class Lever(Background):
    """What a switchover's ``command`` pulls: another process, which is answered when it is done.

    Args:
        pulled: called for each pull, with the last argument of the command.
    """

    def __init__(self, pulled: Callable[[str], None]) -> None:
        super().__init__("lever")
        self._pulled = pulled
        self._listener = socket.create_server((LOOPBACK, 0))
        self._listener.settimeout(_LOOK_S)

    def write_program(self, path: Path) -> None:
        """Write the program that pulls it."""
        port = self._listener.getsockname()[1]
        path.write_text(
            f"#!{sys.executable} -IS\nimport socket, sys\n"
            f"with socket.create_connection(({LOOPBACK!r}, {port}), {_ANSWER_S}) as lever:\n"
            "    lever.sendall(sys.argv[-1].encode())\n"
            "    sys.exit(0 if lever.recv(1) else 'not done')\n"
        )
        path.chmod(0o700)

    def step(self) -> None:
        """Serve one pull, if there is one."""
        try:
            caller, _ = self._listener.accept()
        except TimeoutError:
            return
        with caller:
            self._pulled(caller.recv(64).decode())
            caller.sendall(b".")

    def end(self) -> None:
        """Serve nobody any more."""
        super().end()
        self._listener.close()
