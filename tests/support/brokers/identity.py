"""A small identity provider: client credentials in, signed tokens out, and the keys to check them by."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from onceover_lab.embed.ports import LOOPBACK
from tests.support.session.serving import serving

_KEY_ID = "k1"
AUDIENCE = "kafka"


class IdentityServer:
    """Knows clients by their secrets, which a test may replace.

    Args:
        secrets: by client id.
        life_s: of a token.
    """

    def __init__(self, secrets: Mapping[str, str], life_s: int = 60) -> None:
        self.secrets = dict(secrets)
        self.scopes: list[str] = []
        self._life_s = life_s
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.url = ""

    def keys(self) -> dict[str, Any]:
        """Return the public key as a JWK set."""
        numbers = self._key.public_key().public_numbers()
        parts = {
            name: _base64url(value.to_bytes((value.bit_length() + 7) // 8, "big"))
            for name, value in (("n", numbers.n), ("e", numbers.e))
        }
        return {"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": _KEY_ID, **parts}]}

    def token(self, subject: str) -> str:
        """Return a token for whoever has proved who it is."""
        now = int(time.time())
        claims = {"iss": self.url, "sub": subject, "aud": AUDIENCE, "iat": now, "exp": now + self._life_s}
        documents = ({"alg": "RS256", "typ": "JWT", "kid": _KEY_ID}, claims)
        signed = ".".join(_base64url(json.dumps(document).encode()) for document in documents)
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64url(signature)}"

    def answer(self, authorization: str, form: Mapping[str, list[str]]) -> tuple[int, dict[str, Any]]:
        """Return status and document for a request of client credentials (RFC 6749 4.4)."""
        client, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if form.get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        if self.secrets.get(client) != secret:
            return 401, {"error": "invalid_client"}
        self.scopes += form.get("scope", [])
        return 200, {"access_token": self.token(client), "token_type": "Bearer", "expires_in": self._life_s}


@contextmanager
def identity_server(secrets: Mapping[str, str], life_s: int = 60) -> Iterator[IdentityServer]:
    """Let one serve on loopback."""
    provider = IdentityServer(secrets, life_s)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, provider.keys())

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self._send(*provider.answer(self.headers["Authorization"], form))

        def _send(self, status: int, document: Mapping[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with serving(ThreadingHTTPServer((LOOPBACK, 0), Handler)) as port:
        provider.url = f"http://{LOOPBACK}:{port}"
        yield provider


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
