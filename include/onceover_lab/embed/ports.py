"""Loopback ports that stay ours between choosing them and listening on them."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Final

from onceover.errors import UsageError

LOOPBACK: Final = "127.0.0.1"


def configured_port(name: str, environment: Mapping[str, str]) -> int | None:
    """Return the port that the environment asks for, such as ONCEOVER_EAST_PORT for ``east``.

    Raises:
        UsageError: it is not a port number.
    """
    variable = f"ONCEOVER_{name.upper()}_PORT"
    text = environment.get(variable)
    if not text:
        return None
    if not (re.fullmatch(r"[0-9]{1,5}", text) and 1 <= int(text) <= 65535):
        raise UsageError(
            "not a port",
            where=variable,
            expected="a number from 1 to 65535",
            seen=text,
            resolve=f"set {variable}",
        )
    return int(text)


def choose_port(
    name: str, previous: int | None, environment: Mapping[str, str], note: Callable[[str], object]
) -> int | None:
    """Return the port that is asked for, else the last one while it is free, else None: any free one.

    ``note`` is told when the last one is taken.

    Raises:
        UsageError: what is asked for is not a port number.
    """
    configured = configured_port(name, environment)
    if configured is not None or previous is None:
        return configured
    try:
        PortReservation(previous).release()
    except UsageError:
        note(f"port {previous} of {name} is taken by another program: {name} has a new one")
        return None
    return previous


class PortReservation:
    """A port nobody else is given while the reservation is held, although nobody listens on it.

    On Linux the reservation is kept while a broker listens, and while it is down: otherwise the
    kernel may hand the port of a stopped broker to an outgoing connection (even to a client that
    tries to reach that very port, which then talks to itself) and the restart cannot bind. Elsewhere
    two sockets cannot share an address, so the port is free again at once and a start may have to
    be tried again with another one.
    """

    def __init__(self, port: int = 0) -> None:
        """Reserve ``port``, or a free one chosen by the kernel when 0.

        Raises:
            UsageError: ``port`` is in use.
        """
        self._socket: socket.socket | None = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            if port:
                # A stopped broker's connections linger in TIME_WAIT; they are no obstacle.
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((LOOPBACK, port))
        except OSError as error:
            self.release()
            raise UsageError(
                f"port {port} is not free",
                where=f"{LOOPBACK}:{port}",
                expected="a free port",
                seen=error.strerror or str(error),
                resolve="stop the program that uses the port, or configure another port",
            ) from error
        self.port: int = self._socket.getsockname()[1]
        # Set only after the kernel chose: asked with SO_REUSEADDR it may choose a port that another
        # process holds in the same way. Set now, it lets the broker bind beside us.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform != "linux":
            self.release()

    def release(self) -> None:
        """Give the port back. Safe to call again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
