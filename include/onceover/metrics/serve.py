"""The endpoint that Prometheus scrapes.

Invariants: an answer is what was seen last, so a scrape takes no longer than sending it does; who connects
and says nothing is let go after a few seconds. It knows no passwords: it listens to this machine alone,
unless it is told another address.
"""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from onceover.errors import UsageError
from onceover.metrics.codes import MetricsCode
from onceover.metrics.figures import CONTENT_TYPE
from onceover.planning.background import begin

# Prometheus gives up after ten.
_SILENT_S: Final = 10.0
_PATH: Final = "/metrics"


@contextmanager
def serving(host: str, port: int, scrape: Callable[[], bytes]) -> Iterator[int]:
    """Answer scrapes until the context ends; yield the port, which the system chooses for 0.

    Raises:
        UsageError: the address is not to be had.
        Retriable: NO_THREAD, nobody would be answered.
    """

    class Handler(_Handler):
        answer = staticmethod(scrape)

    with _listening(host, port, Handler) as server:
        begin(threading.Thread(target=server.serve_forever, name="onceover-metrics", daemon=True))
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def _listening(host: str, port: int, handler: type[_Handler]) -> _Server:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return _Server(family, address, handler)
    except (OSError, UnicodeError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        raise UsageError(
            "something else listens there already" if taken else f"nobody can listen there: {error}",
            code=MetricsCode.PORT_TAKEN if taken else None,
            where=f"{host}:{port}",
            resolve="end it, or choose another one with --port" if taken else "correct --host and --port",
        ) from error


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Whoever is still being answered at the end is cut off.
    block_on_close = False

    def __init__(self, family: socket.AddressFamily, address: Any, handler: type[_Handler]) -> None:
        self.address_family = family
        super().__init__(address, handler)

    def server_bind(self) -> None:
        # The base class asks a name server for the machine's name, which may take long.
        socket.socket.setsockopt(self.socket, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: who has scraped has gone away, or was silent."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _SILENT_S
    server_version = "onceover"
    sys_version = ""
    answer: staticmethod[[], bytes]

    def do_GET(self) -> None:
        """Answer a scrape."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer a scrape without its text."""
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        if self.path.partition("?")[0] != _PATH:
            self.send_error(404, explain=f"the metrics are at {_PATH}")
            return
        text = self.answer()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if with_body:
            self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a scrape every few seconds is no news."""
