"""A collector of OpenTelemetry's that takes the metrics, or does not."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from onceover.metrics import catalogue as m
from onceover.metrics.figures import Figures, exposition
from onceover.metrics.otlp import PushAnswer, Taken
from onceover.metrics.push import OtlpPush
from onceover.planning.background import in_background
from onceover_lab.embed.security import make_certificates
from tests.support.session.wait import wait_until

WAIT_S = 20.0


def scraped() -> bytes:
    """Return a text with one sample."""
    figures = Figures()
    figures.put(m.FLOW_FILES, 3)
    return exposition([figures.texts()])


class Collector(BaseHTTPRequestHandler):
    """Answers with ``status`` and keeps what it was sent."""

    status = 200
    answer = b""
    taken: list[tuple[str, bytes]]
    tokens: list[str | None]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.taken.append((self.path, body))
        self.tokens.append(self.headers.get("Authorization"))
        self.send_response(self.status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def collecting(keystore: Path | None = None) -> Iterator[tuple[str, type[Collector]]]:
    """Run a collector, with TLS where it has a certificate; yield its address and itself."""
    handler = type("Taking", (Collector,), {"taken": [], "tokens": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if keystore is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(keystore)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        scheme = "http" if keystore is None else "https"
        yield f"{scheme}://127.0.0.1:{server.server_address[1]}", handler
        server.shutdown()


def test_a_collector_is_sent_what_prometheus_would_be_told() -> None:
    """To the path that OTLP has for it, with who it is from."""
    with collecting() as (url, collector):
        push = OtlpPush(f"{url}/", "1.2", scraped, 0.01)
        push.start()
        wait_until(lambda: collector.taken, WAIT_S, "something is sent")
        push.stop()
    path, body = collector.taken[0]
    assert path == "/v1/metrics"
    [told] = ExportMetricsServiceRequest.FromString(body).resource_metrics
    resource = {each.key: each.value.string_value for each in told.resource.attributes}
    assert (resource["service.name"], resource["service.version"]) == ("onceover", "1.2")
    names = {metric.name for metric in told.scope_metrics[0].metrics}
    assert names == {m.FLOW_FILES.name}


PART = ExportMetricsServiceResponse(
    partial_success=ExportMetricsPartialSuccess(rejected_data_points=1, error_message="too old")
).SerializeToString()


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (400, b"", " does not take the metrics; it answers 400"),
        (301, b"", " does not take the metrics; it answers 301"),
        (302, b"", " does not take the metrics; it answers 302"),
        (307, b"", " does not take the metrics; it answers 307"),
        (200, PART, " takes only a part of the metrics; it rejects 1 samples: too old"),
    ],
)
def test_that_a_collector_takes_nothing_is_said_once(
    status: int, answer: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Or a part. And that it does again: what it is sent then is true by then."""
    caplog.set_level(logging.INFO)
    with collecting() as (url, collector):
        collector.status, collector.answer = status, answer
        push = OtlpPush(url, "1.2", scraped, 0.01)
        push.start()
        wait_until(lambda: len(collector.taken) > 3, WAIT_S, "it was tried again")
        collector.status, collector.answer = 200, b""
        wait_until(lambda: f"{url} takes the metrics" in caplog.text, WAIT_S, "it is taken")
        push.stop()
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("onceover")]
    assert [line.partition(url)[2] for line in lines] == [
        f"{said}; it is tried again every 0.01 s",
        " takes the metrics",
    ]
    assert {path for path, _ in collector.taken} == {"/v1/metrics"}


def test_a_collector_that_nobody_reaches_does_not_take_the_metrics() -> None:
    """The last thing that it answered is not what it says now."""
    with collecting() as (url, collector):
        push = OtlpPush(url, "1.2", scraped, 60.0, patience_s=1.0)
        assert push.push() == (Taken.ALL, "")
        assert collector.taken
    assert push.push() == (Taken.NONE, "no answer comes")
    push.stop()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n"


@contextmanager
def answering(answer: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """Run what ``answer`` gives to whoever connects, until the event is set; yield its address."""
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        while not over.is_set():
            connection, _ = listener.accept()
            with suppress(OSError), connection:
                connection.recv(1 << 16)
                answer(connection, over)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        over.set()
        with suppress(OSError), socket.create_connection(listener.getsockname()):
            pass
        thread.join(WAIT_S)


def trickle_head(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while not over.wait(0.1):
        connection.sendall(b"x")


def trickle_body(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
    while not over.wait(0.1):
        connection.sendall(b"x")


def endless(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(HEAD + b"\r\n")
    while not over.is_set():
        connection.sendall(bytes(1 << 16))


def half(connection: socket.socket, _: threading.Event) -> None:
    connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\nx")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (trickle_head, "no answer comes"),
        (trickle_body, "its answer does not come to its end"),
        (endless, "its answer does not come to its end"),
        (half, "its answer does not come to its end"),
    ],
)
def test_an_answer_that_does_not_end_is_given_up(
    answer: Callable[[socket.socket, threading.Event], None], why: str
) -> None:
    """However it comes: the next samples would never be sent, and nobody would be told."""
    with answering(answer) as url:
        push = OtlpPush(url, "1.2", scraped, 60.0, patience_s=0.5)
        told = in_background(push.push)
        assert told.result(WAIT_S) == (Taken.NONE, why)
        push.stop()


TRUST = "OTEL_EXPORTER_OTLP_CERTIFICATE"
LIBRARY_TRUST = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def pushed(url: str) -> PushAnswer:
    """Return what becomes of samples that are sent there once."""
    push = OtlpPush(url, "1.2", scraped, 60.0, patience_s=1.0)
    answer = push.push()
    push.stop()
    return answer


def test_what_is_wrong_with_tls_is_no_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who looks for a collector that does not answer looks in the wrong place."""
    files = make_certificates(tmp_path)
    for name in LIBRARY_TRUST:
        monkeypatch.delenv(name, raising=False)
    with collecting(files.keystore) as (url, collector):
        unknown = pushed(url)
        monkeypatch.setenv(TRUST, str(tmp_path / "none.pem"))
        missing = pushed(url)
        assert not collector.taken
        monkeypatch.setenv(TRUST, str(files.ca))
        assert pushed(url) == (Taken.ALL, "")
    assert unknown == (Taken.NONE, f"no TLS is possible with it; {TRUST} says who is trusted")
    assert missing == (Taken.NONE, f"a file is not there that {TRUST}, or its like, names")


def test_what_the_library_trusts_does_not_go_before_what_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines have the library's own variables set, for all that is public."""
    files, others = (make_certificates(tmp_path / who) for who in ("ours", "others"))
    for name in LIBRARY_TRUST:
        monkeypatch.setenv(name, str(others.ca))
    monkeypatch.setenv(TRUST, str(files.ca))
    with collecting(files.keystore) as (url, _):
        assert pushed(url) == (Taken.ALL, "")


def test_a_login_of_this_machine_goes_to_no_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor in the place of the token that was named for it."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with collecting() as (url, collector):
        assert pushed(url) == (Taken.ALL, "")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20token")
        assert pushed(url) == (Taken.ALL, "")
    assert collector.tokens == [None, "Bearer token"]
