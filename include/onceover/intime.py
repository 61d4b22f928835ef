"""HTTP with somebody who may trickle: what has not been said in time is given up.

Invariant: an answer is there, or its connection is given up, by a time that is fixed when it begins to be
waited for: its status, its headers, answers before it (100 Continue, a proxy's) and its body. The library's
own time is between two bytes, of which a server that means harm sends one now and then, for ever.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class _InTime(io.RawIOBase):
    """The bytes of a socket, until its time is over: what it waits at most when it is handed over."""

    def __init__(self, peer: socket.socket) -> None:
        super().__init__()
        self._peer = peer
        self._bytes = peer.makefile("rb", buffering=0)
        self._by_s = time.monotonic() + (peer.gettimeout() or 0.0)

    def readable(self) -> bool:
        return True

    def readinto(self, into: WriteableBuffer) -> int | None:
        left_s = self._by_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("too slow")
        self._peer.settimeout(left_s)
        return self._bytes.readinto(into)

    def close(self) -> None:
        self._bytes.close()
        super().close()


class AnswerInTime(http.client.HTTPResponse):
    """An answer that is there, with its body, within the time that its connection waits for one at most."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        self.fp = io.BufferedReader(_InTime(sock))


class _PlainConnection(http.client.HTTPConnection):
    response_class = AnswerInTime


class _TlsConnection(http.client.HTTPSConnection):
    response_class = AnswerInTime


class Plain(urllib.request.HTTPHandler):
    """``http``, within the timeout that the opener is told."""

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_PlainConnection, req)


class Tls(urllib.request.HTTPSHandler):
    """``https``, likewise."""

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_TlsConnection, req, context=self._context)  # pyrefly: ignore[missing-attribute]
