"""What carries requests to one broker and their answers back, in order: the socket, and the tests' fake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from onceover.wire.batches.batch import Buffer

T = TypeVar("T")

# As librdkafka has it by default (receive.message.max.bytes): far above the metadata of any cluster.
MAX_ANSWER_BYTES = 100_000_000
# A record batch comes whole, however small the answer that was asked for; brokers take 1 MB unless they are
# told otherwise. "HTTP", read as a length, is more than this.
LARGEST_BATCH_BYTES = 1 << 30

Decoder = Callable[[memoryview], Any]
# Makes what the caller wants of a decoded answer; what is not as the protocol says may raise anything.
Read = Callable[[Any], T]


def as_it_is(answer: Any) -> Any:
    """Return an answer: what ``read`` is where nothing is to be made of it."""
    return answer


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Channel(Protocol):
    """One connection to one broker, believed to lead to the cluster it was asked for. Not thread-safe."""

    @property
    def address(self) -> Address:
        """Where the broker listens."""

    @property
    def client_id(self) -> str:
        """What the client calls itself in each request."""

    @property
    def in_flight(self) -> int:
        """Number of requests that are not answered yet."""

    @property
    def owed_s(self) -> float:
        """Seconds that the oldest request may still be waited for; without limit when there is none."""

    @property
    def usable(self) -> bool:
        """True when a new request may be sent: open, its session valid, not hung up while it was idle."""

    @property
    def holds_bytes(self) -> bool:
        """True when there is something to receive that the kernel knows nothing of."""

    def fileno(self) -> int:
        """Return the descriptor to wait for; not asked for while ``holds_bytes``."""

    def next_correlation_id(self) -> int:
        """Return the id that the next frame must carry."""

    def send(self, request: Any, response_type: Any, read: Read[Any] = as_it_is) -> None:
        """Send a library request without waiting for its answer, of which ``read`` makes what is received."""

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

    def receive(self) -> Any:
        """Return the next answer. Views it holds are valid until the next ``receive``.

        Raises:
            ConnectionLost: hung up, did not answer in time, or what came is no answer.
        """

    def call(self, request: Any, response_type: Any, read: Read[T]) -> T:
        """Send one request and return what ``read`` makes of its answer; nothing else may be in flight.

        Raises:
            ConnectionLost: as ``receive``; also for an answer that ``read`` does not understand.
        """

    def ask(self, request: Any, decoder: Callable[[memoryview], T]) -> T:
        """Send one library request and return what ``decoder`` makes of the bytes behind the correlation id.

        Raises:
            ConnectionLost: as ``call``.
        """

    def readable(self, timeout_s: float) -> bool:
        """Wait until an answer begins to arrive, at most ``timeout_s``."""

    def expire(self) -> None:
        """Give the connection up when its oldest request should have been answered by now.

        Raises:
            ConnectionLost: it is.
        """

    def allow(self, seconds: float) -> None:
        """Wait for so much longer for what is in flight."""

    def trim(self, most_bytes: int) -> None:
        """Let go of a receive buffer that is larger, and with it of what the last answer left there."""

    def close(self) -> None:
        """Close it; harmless when it is closed already."""
