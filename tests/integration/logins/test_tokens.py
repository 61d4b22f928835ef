"""Tokens of OAUTHBEARER: what becomes of the endpoint's answers, and where the client's secret goes."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import ClassVar, Final
from urllib.parse import quote, unquote

import pytest

from onceover.errors import OnceoverError, Retriable, UsageError
from onceover.kafka.link.tokens import TokenProvider
from onceover_lab.embed.ports import LOOPBACK, PortReservation
from onceover_lab.embed.security import make_certificates
from tests.support.session.serving import serving

_SECRET = "not-the-password-7f3a"


class TokenEndpoint(BaseHTTPRequestHandler):
    """Answers every request for a token with the status and text that the path names."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        _, status, text = self.path.split("/")
        body = unquote(text).encode()
        self.send_response(int(status))
        if status.startswith("3"):
            self.send_header("Location", unquote(text))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Stranger(BaseHTTPRequestHandler):
    """Notes what reaches it."""

    seen: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.seen.append(self.headers["Authorization"])
        self.send_error(404)

    do_POST = do_GET
    do_CONNECT = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of a token endpoint; it answers ``/<status>/<text>`` as it is told."""
    with serving(HTTPServer((LOOPBACK, 0), TokenEndpoint)) as port:
        yield f"http://{LOOPBACK}:{port}"


@pytest.mark.parametrize(
    ("answer", "kind", "seen"),
    [
        ('/400/{"error": "invalid_client"}', UsageError, "HTTP 400 Bad Request (invalid_client)"),
        ('/400/{"error": "echo"}', UsageError, "HTTP 400"),
        ("/401/no", UsageError, "HTTP 401"),
        ("/404/no", UsageError, "HTTP 404"),
        ("/200/<html>", UsageError, "JSONDecodeError"),
        ('/200/{"token": 1}', UsageError, "KeyError"),
        ("/200/[]", UsageError, "TypeError"),
        ('/200/{"access_token": null}', UsageError, "TypeError"),
        ('/200/{"access_token": "a b"}', UsageError, "ValueError"),
        ('/200/{"access_token": "a", "expires_in": "soon"}', UsageError, "ValueError"),
        ("/429/slowly", Retriable, "HTTP 429"),
        ("/500/oops", Retriable, "HTTP 500"),
        ("/503/soon", Retriable, "HTTP 503"),
    ],
)
def test_token_endpoint_that_refuses_is_no_outage(
    endpoint: str, answer: str, kind: type[OnceoverError], seen: str
) -> None:
    """Only what the endpoint itself calls passing is tried again; the secret is in no text."""
    _, status, text = answer.split("/", 2)
    with pytest.raises(kind) as caught:
        TokenProvider(oidc(f"{endpoint}/{status}/{quote(text)}")).token()
    assert seen in str(caught.value.seen)
    assert "echo" not in str(caught.value.seen)
    assert _SECRET not in f"{caught.value!r} {caught.value}"


def test_what_an_endpoint_s_address_asks_by_is_not_shown(endpoint: str) -> None:
    """Some want a key of their own there."""
    with pytest.raises(UsageError) as caught:
        TokenProvider(oidc(f"{endpoint}/401/no?code={_SECRET}")).token()
    assert caught.value.where == f"{endpoint}/401/no?…"
    assert _SECRET not in f"{caught.value!r} {caught.value}"


def test_nothing_that_an_endpoint_chooses_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may send back what it was sent, as a server does that shows what it does not understand."""
    monkeypatch.setattr(TokenEndpoint, "responses", {400: (_SECRET, ""), 999: (_SECRET, "")})
    seen = []
    with serving(HTTPServer((LOOPBACK, 0), TokenEndpoint)) as port:
        for status in (400, 999):
            with pytest.raises(OnceoverError) as caught:
                TokenProvider(oidc(f"http://{LOOPBACK}:{port}/{status}/no")).token()
            seen.append(str(caught.value))
    assert not any(_SECRET in text for text in seen)
    assert "HTTP 400 Bad Request" in seen[0] and "HTTP 999" in seen[1]


def test_token_endpoint_that_is_away_is_an_outage() -> None:
    """Nobody listens there: it may be restarting."""
    nobody = PortReservation()
    try:
        with pytest.raises(Retriable, match="no token"):
            TokenProvider(oidc(f"http://{LOOPBACK}:{nobody.port}/token")).token()
    finally:
        nobody.release()


_IN_TIME_S: Final = 0.5
_GIVEN_UP_S: Final = 10.0


class Trickle(BaseRequestHandler):
    """Begins an answer and goes on with it, a piece now and then, for as long as somebody listens."""

    begins: ClassVar[bytes]
    goes_on: ClassVar[bytes]
    over: ClassVar[threading.Event]

    def handle(self) -> None:
        self.request.recv(1 << 16)
        with suppress(OSError):
            self.request.sendall(self.begins)
            while not self.over.wait(_IN_TIME_S / 10):
                self.request.sendall(self.goes_on)


@pytest.mark.parametrize("proxied", [False, True], ids=["asked directly", "behind a proxy"])
@pytest.mark.parametrize(
    ("begins", "goes_on"),
    [
        (b"HTTP/1.1 2", b"0"),
        (b"HTTP/1.1 200 OK\r\nX-Header: ", b"x"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1", b";"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", b" "),
    ],
    ids=["status", "header", "one answer before the other", "chunk", "body", "reason of a refusal"],
)
def test_an_endpoint_that_trickles_is_given_up(
    begins: bytes, goes_on: bytes, proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for the token is a lane, or the leader: it would neither copy nor fail, for ever."""
    monkeypatch.setattr("onceover.kafka.link.tokens._TIMEOUT_S", _IN_TIME_S)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    over = threading.Event()
    handler = type("Told", (Trickle,), {"begins": begins, "goes_on": goes_on, "over": over})
    with serving(ThreadingTCPServer((LOOPBACK, 0), handler)) as port:
        url = f"http://{LOOPBACK}:{port}/token"
        if proxied:
            monkeypatch.setenv("https_proxy", url)
            url = "https://elsewhere.invalid/token"
        release = threading.Timer(_GIVEN_UP_S, over.set)
        release.start()
        began_s = time.monotonic()
        with pytest.raises(OnceoverError, match="no token") as caught:
            TokenProvider(oidc(url)).token()
        took_s = time.monotonic() - began_s
        release.cancel()
        over.set()
    # What was heard of an error's status counts, also where its words have no end.
    refused = not proxied and begins.startswith(b"HTTP/1.1 400")
    assert isinstance(caught.value, UsageError if refused else Retriable)
    assert took_s < _GIVEN_UP_S / 2


def oidc(url: str) -> dict[str, str]:
    """Return a client that asks ``url`` for its tokens."""
    return {
        "bootstrap.servers": f"{LOOPBACK}:9",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.id": "copier",
        "sasl.oauthbearer.client.secret": _SECRET,
    }


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_of_the_endpoint_is_followed(endpoint: str, status: int) -> None:
    """The client's secret would go wherever it says, and in plain text."""
    with serving(HTTPServer((LOOPBACK, 0), Stranger)) as port:
        elsewhere = quote(f"http://{LOOPBACK}:{port}/token", safe="")
        with pytest.raises(UsageError) as caught:
            TokenProvider(oidc(f"{endpoint}/{status}/{elsewhere}")).token()
    assert Stranger.seen == []
    assert str(status) in str(caught.value.seen)
    assert "taken nowhere else" in str(caught.value.resolve)


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_no_proxy_is_shown_a_secret_that_goes_without_tls(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An endpoint that was permitted as it is, such as one beside the client, is asked directly."""
    monkeypatch.setattr(Stranger, "seen", [])
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with serving(HTTPServer((LOOPBACK, 0), Stranger)) as port:
        monkeypatch.setenv(name, f"http://{LOOPBACK}:{port}")
        answer = quote('{"access_token": "abc", "expires_in": 600}')
        assert TokenProvider(oidc(f"{endpoint}/200/{answer}")).token() == "abc"
    assert Stranger.seen == []


def test_a_proxy_passes_tls_on_and_sees_no_secret(
    secured_endpoint: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for a line to the endpoint, and for nothing else."""
    monkeypatch.setattr(Stranger, "seen", [])
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    url, ca = secured_endpoint
    with serving(HTTPServer((LOOPBACK, 0), Stranger)) as port:
        monkeypatch.setenv("https_proxy", f"http://{LOOPBACK}:{port}")
        with pytest.raises(Retriable):
            TokenProvider({**oidc(f"{url}/200/x"), "https.ca.location": str(ca)}).token()
    assert Stranger.seen == [None]


@pytest.fixture
def secured_endpoint(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of an endpoint whose certificate is of a private authority, and that authority."""
    files = make_certificates(tmp_path / "idp")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.keystore)
    server = HTTPServer((LOOPBACK, 0), TokenEndpoint)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server) as port:
        yield f"https://{LOOPBACK}:{port}", files.ca


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_endpoint_of_a_private_authority_is_trusted_by_its_own_key(
    secured_endpoint: tuple[str, Path], tmp_path: Path
) -> None:
    """The brokers' authority is another one; without it nothing is sent."""
    url, ca = secured_endpoint
    client = oidc(f"{url}/200/" + quote('{"access_token": "abc.def", "expires_in": 600}'))
    with pytest.raises(UsageError) as caught:
        TokenProvider(client).token()
    assert "https.ca.location" in str(caught.value.resolve)
    stranger = make_certificates(tmp_path / "stranger").ca
    with pytest.raises(UsageError, match="gives no token"):
        TokenProvider({**client, "https.ca.location": str(stranger)}).token()
    with pytest.raises(UsageError, match="cannot be used"):
        TokenProvider({**client, "https.ca.location": str(tmp_path / "none.pem")}).token()
    for trust in ({"https.ca.location": str(ca)}, {"https.ca.pem": ca.read_text()}):
        assert TokenProvider({**client, **trust}).token() == "abc.def"
