"""One blocking connection to one broker: TLS, SASL, pipelined requests, answers in order.

Requests and answers go through the library's codec (``kafka.protocol``), Fetch and Produce through
``wire.hotpath``. Blocking sockets with ``recv_into`` and ``sendmsg`` move 2 to 3 times as many bytes
per CPU second as the library's own event loop (docs/facts.md).

A connection that failed, or on which somebody was interrupted, is closed and never used again: what was in
flight has an unknown outcome, and its answer would be read as the next one's.

Invariant: every answer begins, or its connection is given up, by a time that is fixed when its request is
sent, or the answer before it is there, and ends by one that its length fixes: what trickles does not go on
for ever, and neither does what is sent. A host that died without a FIN, or a broker that is frozen, is silent
for ever. Only how long a name is looked up is the resolver's business.

Nothing that comes is believed before it is there. An answer's length is bounded by what was
asked for, memory grows with the bytes that arrive, and whatever cannot be understood ends the connection
with ``ConnectionLost``: no other exception leaves because of what a peer sends.
"""

from __future__ import annotations

import collections
import mmap
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from onceover.backoff import Patience
from onceover.errors import OnceoverError, Retriable, UsageError
from onceover.kafka.codes import KafkaCode
from onceover.kafka.link.channel import MAX_ANSWER_BYTES, Address, Channel, Decoder, Read, as_it_is
from onceover.kafka.link.listener import no_kafka, refused_by_tls, wrong_protocol
from onceover.kafka.link.security import sasl_client, sasl_mechanism, tls_context
from onceover.wire.batches.batch import Buffer

T = TypeVar("T")

DEFAULT_CLIENT_ID = "onceover"
CONNECT_TIMEOUT_S = 10.0
# Longer than any wait that a request asks of the broker (Fetch 0.5 s, Produce 30 s).
REQUEST_TIMEOUT_MS = 40_000
# A broker that is alive answers the first request of a connection at once, whatever it is doing otherwise.
_FIRST_ANSWER_S = 10.0
# Of an attempt at one of many addresses: a packet that was lost is sent again after a second.
_SHORTEST_PART_S = 2.0
# No line that is worth a copy is slower, whatever else it carries.
_SLOWEST_BYTES_PER_S = 16 << 10
# When a request is overdue, what has arrived meanwhile is still read.
_LAST_LOOK_S = 0.05
# To change how long the socket waits is a call into the kernel: not worth it for less.
_SLACK_S = 0.5
# Where nothing is in flight nobody waits for an answer: a peer that is gone is found by asking after it, and
# firewalls that forget silent connections (usually after minutes) are kept awake.
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
# Linux takes at most 1024 buffers a call (IOV_MAX).
_MAX_BUFFERS = 1000
_TLS_CHUNK_BYTES = 1 << 16
# A session is renewed by a new connection when this part of its life is over (KIP-368).
_SESSION_USE = 0.8
_PORTS = 1 << 16
_CORRELATION = struct.Struct(">i")
# What is asked first (metadata without topics, a SASL handshake) is answered in a few kilobytes; the
# first bytes of TLS or HTTP would read as hundreds of megabytes.
_MAX_FIRST_ANSWER_BYTES = 16 << 20
_FIRST_BUFFER_BYTES = 1 << 16


class ConnectionLost(Retriable):
    """The connection is gone; the outcome of requests in flight is unknown."""


class _UnintelligibleError(OSError):
    """What came is no answer to what was asked."""


class _OtherProtocolError(OSError):
    """What came cannot be the beginning of a first answer of Kafka's."""

    def __init__(self, seen: bytes) -> None:
        super().__init__("not Kafka's protocol")
        self.seen = seen


class _Pending(NamedTuple):
    """A request that is not answered yet: how long its answer may be, and until when it has to come, on the
    monotonic clock: within so many seconds from when it was sent, or the answer before it was there."""

    correlation_id: int
    decoder: Decoder
    max_answer_bytes: int
    due_s: float
    within_s: float


def no_address(address: Address) -> UsageError:
    """Return the error for what can be the address of nobody."""
    return UsageError(
        f"{address} can be no address of a broker",
        code=KafkaCode.BAD_ADDRESS,
        where=str(address),
        expected="a host name with labels of 1 to 63 characters, and a port up to 65535",
        resolve="correct bootstrap.servers, or advertised.listeners of the broker that calls itself so",
    )


def _check(by_s: float) -> None:
    if time.monotonic() > by_s:
        raise TimeoutError("too slow")


def _keep_alive(opened: socket.socket) -> None:
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if hasattr(socket, option):  # not everywhere under these names
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class _SaslAnswer(NamedTuple):
    error_code: int
    error_message: str
    auth_bytes: bytes
    session_lifetime_ms: int


def _sasl_answer(answer: Any) -> _SaslAnswer:
    return _SaslAnswer(
        answer.error_code,
        answer.error_message or "",
        bytes(answer.auth_bytes or b""),
        answer.session_lifetime_ms,
    )


def wait_readable(channels: Sequence[Channel], timeout_s: float) -> list[Channel]:
    """Return those with something to read, waiting at most ``timeout_s`` for the first."""
    ready = [c for c in channels if c.holds_bytes]
    poller = select.poll()  # select() fails with descriptors from 1024 on
    by_descriptor = {c.fileno(): c for c in channels if c not in ready}
    for descriptor in by_descriptor:
        poller.register(descriptor, select.POLLIN)
    wait_ms = 0 if ready else max(0, int(timeout_s * 1000))
    return [by_descriptor[descriptor] for descriptor, _ in poller.poll(wait_ms)] + ready


class Connection:
    """Open, authenticated connection. Not thread-safe.

    Args:
        address: the broker, as it is called.
        properties: librdkafka keys of the cluster's client.
        patience: with the cluster; none given up on unless it is limited.
        silent: told the address when it leaves a request without an answer.
        at: one of the addresses that the name has; None for whichever accepts first.
        of: how many it has; up to five together are waited for as long as a single one.

    Raises:
        ConnectionLost: the broker is not reachable or hangs up.
        UsageError: TLS or SASL refused us, something else than the client's protocol is spoken there, or
            the address can be nobody's.
            ``send`` and ``receive`` raise it, too, until the first answer has come.
    """

    def __init__(
        self,
        address: Address,
        properties: Mapping[str, str],
        patience: Patience | None = None,
        silent: Callable[[Address], None] = lambda _: None,
        at: Address | None = None,
        of: int = 1,
    ) -> None:
        self.address = address
        self._at = at or address
        self._of = of
        self._silent = silent
        self._patience = patience or Patience()
        self._properties = properties
        self.client_id = properties.get("client.id", DEFAULT_CLIENT_ID)
        self._correlation_id = 0
        self._pending: collections.deque[_Pending] = collections.deque()
        self._buffer: bytearray | mmap.mmap = bytearray(_FIRST_BUFFER_BYTES)
        self._session_ends_s = float("inf")
        self.closed = False
        self._answered = False
        context = tls_context(properties)
        if not 0 < address.port < _PORTS:
            raise no_address(address)
        began_s = time.monotonic()
        try:
            within_s = self._patience.share_s(self._part_s(CONNECT_TIMEOUT_S))
            self._socket: socket.socket = socket.create_connection(self._at, timeout=within_s)
            _keep_alive(self._socket)
            if context is not None:
                self._socket = context.wrap_socket(self._socket, server_hostname=address.host)
        except ssl.SSLCertVerificationError as error:
            raise UsageError(
                f"the certificate of {self._met} is not trusted: {error.verify_message}",
                resolve="set ssl.ca.location to the authority that signed the brokers' certificates",
            ) from error
        except (ConnectionRefusedError, TimeoutError, socket.gaierror) as error:
            self._patience.spend(time.monotonic() - began_s)
            if isinstance(error, TimeoutError):
                silent(address)
            raise ConnectionLost(f"no connection to {self._met}: {error}") from error
        except OSError as error:
            self._patience.spend(time.monotonic() - began_s)
            raise self._never_answered(error) from error
        except ValueError as error:
            # Python's resolver, asked for what can be no host: nothing has left this machine.
            raise no_address(address) from error
        self._timeout_s = int(properties.get("socket.timeout.ms", REQUEST_TIMEOUT_MS)) / 1000
        self._waits_s = self._timeout_s
        self._socket.settimeout(self._timeout_s)
        self._is_tls = context is not None
        if sasl_mechanism(properties) is not None:
            try:
                self._authenticate()
            except OnceoverError:  # no token, no ticket
                self.close()
                raise

    @property
    def _met(self) -> str:
        """Who it is, for messages: behind one name there may be others."""
        return str(self.address) if self._of == 1 else f"{self.address} ({self._at.host})"

    def _part_s(self, seconds: float) -> float:
        """Return how much of a time this one may take of the addresses that its name has."""
        return max(min(seconds, _SHORTEST_PART_S), seconds / self._of)

    # ---- requests

    @property
    def in_flight(self) -> int:
        """Number of requests that are not answered yet."""
        return len(self._pending)

    @property
    def session_over(self) -> bool:
        """True when the broker will soon end the SASL session: open a new connection instead."""
        return time.monotonic() > self._session_ends_s

    def next_correlation_id(self) -> int:
        """Return the id that the next frame must carry."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def send(self, request: Any, response_type: Any, read: Read[Any] = as_it_is) -> None:
        """Send a library request without waiting for its answer, of which ``read`` makes what is received."""
        version = request.API_VERSION
        # ApiVersions answers never have the flexible header (KIP-511).
        flexible = response_type.flexible_version_q(version) and response_type.API_KEY != 18
        skip = 1 if flexible else 0
        self._send_request(request, lambda frame: read(response_type.decode(frame[skip:], version=version)))

    def _send_request(self, request: Any, decoder: Decoder) -> None:
        correlation_id = self.next_correlation_id()
        request.with_header(correlation_id=correlation_id, client_id=self.client_id)
        self.send_frame([request.encode(framed=True, header=True)], correlation_id, decoder)

    def send_frame(
        self,
        buffers: Sequence[Buffer],
        correlation_id: int,
        decoder: Decoder,
        *,
        held_s: float = 0.0,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        """Send an encoded frame.

        Args:
            decoder: gets the answer behind its correlation id. Whatever it raises ends the connection.
            held_s: how long the request asks the broker to hold its answer back.
            max_answer_bytes: a longer answer is none.
        """
        began_s = self._wait_at_most(self._timeout_s)
        try:
            by_s = self._by(sum(map(len, buffers)))
            if self._is_tls:
                self._send_tls(buffers, by_s)
            else:
                self._send_plain(buffers, by_s)
        except OSError as error:
            raise self._lost(error, began_s) from error
        except BaseException:
            # Of what was sent a part is there, or none.
            self.close()
            raise
        patience_s = (
            self._timeout_s if self._answered else min(self._part_s(_FIRST_ANSWER_S), self._timeout_s)
        )
        within_s = held_s + self._patience.share_s(patience_s)
        due_s = time.monotonic() + within_s
        self._pending.append(_Pending(correlation_id, decoder, max_answer_bytes, due_s, within_s))

    def receive(self) -> Any:
        """Return the next answer. Views it holds are valid until the next ``receive``.

        Raises:
            ConnectionLost: hung up, did not answer in time, answered out of order, or something that is no
                answer.
        """
        try:
            return self._received()
        except OnceoverError:
            raise
        except BaseException:
            # Of the answer a part was read, or none.
            self.close()
            raise

    def _received(self) -> Any:
        asked = self._pending[0]
        frame = self._read_frame(asked)
        seen = _CORRELATION.unpack_from(frame)[0]
        if seen != asked.correlation_id:
            raise self._unintelligible(f"answer {seen} came for request {asked.correlation_id}")
        try:
            answer = asked.decoder(frame[4:])
        except Exception as error:  # whatever bytes came, and whatever somebody else's codec makes of them
            text = f"an answer of {len(frame)} bytes is damaged ({type(error).__name__})"
            raise self._unintelligible(text) from error
        self._pending.popleft()
        self._answered = True
        if self._pending:
            # A broker answers in order: this one could not come while that took the line, or waited for us.
            following = self._pending[0]
            due_s = max(following.due_s, time.monotonic() + following.within_s)
            self._pending[0] = following._replace(due_s=due_s)
        return answer

    @property
    def owed_s(self) -> float:
        """Seconds that the oldest request may still be waited for; without limit when there is none."""
        return max(0.0, self._pending[0].due_s - time.monotonic()) if self._pending else float("inf")

    def expire(self) -> None:
        """Give the connection up when its oldest request should have been answered by now.

        For those who wait for several connections, and have seen that there is nothing to read on this one.

        Raises:
            ConnectionLost: it is.
        """
        if not self.owed_s:
            raise self._lost(TimeoutError("no answer in time"), time.monotonic())

    def allow(self, seconds: float) -> None:
        """Wait for so much longer for what is in flight: the broker does not listen meanwhile (KIP-219)."""
        for at, asked in enumerate(self._pending):
            due_s, within_s = asked.due_s + seconds, asked.within_s + seconds
            self._pending[at] = asked._replace(due_s=due_s, within_s=within_s)

    def trim(self, most_bytes: int) -> None:
        """Let go of a receive buffer that is larger, and with it of what the last answer left there."""
        if len(self._buffer) > most_bytes:
            self._buffer = bytearray(_FIRST_BUFFER_BYTES)

    def call(self, request: Any, response_type: Any, read: Read[T]) -> T:
        """Send one request and return what ``read`` makes of its answer; nothing else may be in flight.

        Raises:
            ConnectionLost: as ``receive``; also for an answer that ``read`` does not understand.
        """
        answer: T = self._answer_to(lambda: self.send(request, response_type, read))
        return answer

    def ask(self, request: Any, decoder: Callable[[memoryview], T]) -> T:
        """Send one library request and return what ``decoder`` makes of the bytes behind the correlation id.

        Raises:
            ConnectionLost: as ``call``.
        """
        answer: T = self._answer_to(lambda: self._send_request(request, decoder))
        return answer

    def _answer_to(self, send: Callable[[], None]) -> Any:
        if self._pending:
            # Whoever has asked was kept from reading it.
            raise self._unintelligible("an answer is owed that nobody waits for any more")
        try:
            send()
            return self.receive()
        except OnceoverError:
            raise
        except BaseException:
            # Between both: the answer would be read as the next one's.
            self.close()
            raise

    def readable(self, timeout_s: float) -> bool:
        """Wait until an answer begins to arrive, at most ``timeout_s``."""
        return bool(wait_readable([self], timeout_s))

    @property
    def usable(self) -> bool:
        """True when a new request may be sent: open, its session valid, not hung up while it was idle.

        Brokers close idle connections after ten minutes. Asked only when nothing is in flight: then
        whatever can be read is the end of the connection.
        """
        if self.closed or self.session_over:
            return False
        return bool(self._pending) or not self.readable(0.0)

    @property
    def holds_bytes(self) -> bool:
        """True when TLS has decrypted bytes already, which the kernel knows nothing of."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def fileno(self) -> int:
        """Return the socket's descriptor, for ``select``."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket; harmless when it is closed already."""
        self.closed = True
        self._pending.clear()
        self._socket.close()

    # ---- bytes

    def _by(self, size_bytes: int) -> float:
        """Return by when so much has gone over the line, or never will have."""
        return time.monotonic() + self._timeout_s + size_bytes / _SLOWEST_BYTES_PER_S

    def _send_plain(self, buffers: Sequence[Buffer], by_s: float) -> None:
        views = [memoryview(b).cast("B") for b in buffers]
        while views:
            _check(by_s)
            sent = self._socket.sendmsg(views[:_MAX_BUFFERS])
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if sent:
                views[0] = views[0][sent:]

    def _send_tls(self, buffers: Sequence[Buffer], by_s: float) -> None:
        small = bytearray()
        for buffer in buffers:
            _check(by_s)
            if len(small) + len(buffer) <= _TLS_CHUNK_BYTES:
                small += buffer  # few records of TLS instead of one for every piece
                continue
            if small:
                self._socket.sendall(small)
                small = bytearray()
            self._socket.sendall(buffer)
        if small:
            self._socket.sendall(small)

    def _wait_at_most(self, seconds: float) -> float:
        """Let the socket wait so long from now on, or as long as patience allows; return the time."""
        seconds = self._patience.share_s(seconds)
        if abs(seconds - self._waits_s) > _SLACK_S or seconds < _SLACK_S:
            self._waits_s = seconds
            self._socket.settimeout(seconds)
        return time.monotonic()

    def _read_frame(self, asked: _Pending) -> memoryview:
        began_s = self._wait_at_most(max(_LAST_LOOK_S, asked.due_s - time.monotonic()))
        try:
            head = self._read(memoryview(bytearray(4)), self._by(0))
            size = _CORRELATION.unpack(head)[0]
            if not self._answered and not _CORRELATION.size <= size <= _MAX_FIRST_ANSWER_BYTES:
                raise _OtherProtocolError(bytes(head))
            if not _CORRELATION.size <= size <= asked.max_answer_bytes:
                raise _UnintelligibleError(f"the length of an answer cannot be {size}")
            # What has begun to arrive may take its time on a slow line, as long as it goes on.
            self._wait_at_most(self._timeout_s)
            return self._read_body(size)
        except OSError as error:
            raise self._lost(error, began_s) from error

    def _read_body(self, size: int) -> memoryview:
        """Read into the buffer, which is kept: fresh pages cost more than the copy that they receive.

        A larger one is mapped, not allocated: a page of it takes memory once bytes have arrived in it, so a
        length that lies takes none, and nothing is copied while a large answer arrives.
        """
        if size > len(self._buffer):
            larger = max(size, 2 * len(self._buffer))
            # First the old one goes: the two would be there at once.
            self._buffer = bytearray()
            self._buffer = mmap.mmap(-1, larger)
        return self._read(memoryview(self._buffer)[:size], self._by(size))

    def _read(self, into: memoryview, by_s: float) -> memoryview:
        done, size = 0, len(into)
        while done < size:
            _check(by_s)
            count = self._socket.recv_into(into[done:])
            if count == 0:
                raise ConnectionResetError("the broker closed the connection")
            done += count
        return into

    def _unintelligible(self, text: str) -> OnceoverError:
        return self._lost(_UnintelligibleError(text), time.monotonic())

    def _lost(self, error: OSError, began_s: float) -> OnceoverError:
        self._patience.spend(time.monotonic() - began_s)
        self.close()
        if isinstance(error, TimeoutError):
            self._silent(self.address)
        if not self._answered:
            return self._never_answered(error)
        return ConnectionLost(f"the connection to {self._met} failed: {error or type(error).__name__}")

    def _never_answered(self, error: OSError) -> OnceoverError:
        """Tell a listener that will never talk to this client from a broker that is away for the moment."""
        if not isinstance(error, TimeoutError):
            wrong = wrong_protocol(self.address, self._properties, self._at)
            if wrong is not None:
                return wrong
        if isinstance(error, _OtherProtocolError):
            return no_kafka(self.address, error.seen)
        hung_up = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
        if isinstance(error, ssl.SSLError) and not isinstance(error, hung_up):
            return refused_by_tls(self.address, error)
        return ConnectionLost(f"no connection to {self._met}: {error or type(error).__name__}")

    # ---- SASL

    def _authenticate(self) -> None:
        mechanism = sasl_mechanism(self._properties)
        error_code, offered = self.call(
            SaslHandshakeRequest(version=1, mechanism=mechanism),
            SaslHandshakeResponse,
            lambda answer: (int(answer.error_code), ", ".join(answer.mechanisms)),
        )
        if error_code:
            self._refused(
                f"the broker does not offer SASL mechanism {mechanism}, only {offered}"
                if offered
                else "the listener does without SASL: set security.protocol to PLAINTEXT or SSL"
            )
        client = sasl_client(self._properties, self.address.host)
        lasts_ms = 0
        while not client.is_done():
            request = SaslAuthenticateRequest(version=2, auth_bytes=client.auth_bytes())
            answer = self.call(request, SaslAuthenticateResponse, _sasl_answer)
            if answer.error_code:
                said = answer.error_message or str(answer.error_code)
                # A login of somebody's own on the brokers may say what it was sent.
                if password := self._properties.get("sasl.password"):
                    said = said.replace(password, "***")
                self._refused(f"SASL {mechanism} refused: {said}")
            self._receive_sasl(client, answer.auth_bytes)
            lasts_ms = answer.session_lifetime_ms
        if lasts_ms > 0:
            self._session_ends_s = time.monotonic() + lasts_ms / 1000 * _SESSION_USE

    def _receive_sasl(self, client: Any, auth_bytes: bytes) -> None:
        try:
            client.receive(auth_bytes)
        except Exception as error:  # noqa: BLE001 - whatever bytes came, and somebody else's code about them
            self._refused(f"SASL: the broker's answer is not valid ({error})")

    def _refused(self, message: str) -> None:
        self.close()
        raise UsageError(
            message,
            where=str(self.address),
            resolve="check sasl.mechanism and what it logs in with: sasl.username and the password, say",
        )
