"""TLS and SASL for our blocking connections, from librdkafka's configuration keys.

The same keys configure confluent-kafka's admin client, so a flow names its credentials once.
"""

from __future__ import annotations

import base64
import http
import http.client
import json
import math
import ssl
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider

from onceover.errors import OnceoverError, Retriable, UsageError

_TOKEN_TIMEOUT_S = 10.0
# Fetched anew when less than this is left, so that a token does not run out during the handshake.
_TOKEN_MARGIN_S = 30.0
# Too slow, too often: the only 4xx that pass by themselves.
_TEMPORARY_HTTP = (http.HTTPStatus.REQUEST_TIMEOUT, http.HTTPStatus.TOO_MANY_REQUESTS)


# What reading an answer raises that is none: another document, or another address than was meant.
_NO_ANSWER = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def uses_tls(properties: Mapping[str, str]) -> bool:
    """Tell whether ``security.protocol`` encrypts."""
    return properties.get("security.protocol", "plaintext").upper() in ("SSL", "SASL_SSL")


def sasl_mechanism(properties: Mapping[str, str]) -> str | None:
    """Return the SASL mechanism to use, or None without SASL."""
    if not properties.get("security.protocol", "plaintext").upper().startswith("SASL_"):
        return None
    return properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "PLAIN"


def tls_context(properties: Mapping[str, str]) -> ssl.SSLContext | None:
    """Build the TLS context, or None for plain connections.

    Raises:
        UsageError: a certificate or key cannot be read.
    """
    if not uses_tls(properties):
        return None
    try:
        context = ssl.create_default_context(
            cafile=properties.get("ssl.ca.location"), cadata=properties.get("ssl.ca.pem")
        )
        # librdkafka checks the host name unless told "none"; so do we.
        context.check_hostname = properties.get("ssl.endpoint.identification.algorithm", "https") != "none"
        _load_client_certificate(context, properties)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise UsageError(
            f"the TLS settings cannot be used: {error}",
            expected="readable PEM files in ssl.ca.location, ssl.certificate.location, ssl.key.location",
            resolve="check the paths and that the key fits the certificate",
        ) from error
    return context


def _load_client_certificate(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    password = properties.get("ssl.key.password")
    if location := properties.get("ssl.certificate.location"):
        context.load_cert_chain(location, properties.get("ssl.key.location"), password)
    elif certificate := properties.get("ssl.certificate.pem"):
        # ssl reads key pairs from files only; this one lives for the call, readable by us alone.
        with tempfile.TemporaryDirectory() as folder:
            pair = Path(folder) / "client.pem"
            pair.touch(mode=0o600)
            pair.write_text(certificate + "\n" + properties.get("ssl.key.pem", ""))
            context.load_cert_chain(pair, None, password)


def sasl_client(properties: Mapping[str, str]) -> Any:
    """Return the library's client side of the mechanism (``auth_bytes``, ``receive``, ``is_done``)."""
    mechanism = sasl_mechanism(properties)
    config: dict[str, Any] = {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": properties.get("sasl.username", ""),
        "sasl_plain_password": properties.get("sasl.password", ""),
    }
    if mechanism == "OAUTHBEARER":
        config["sasl_oauth_token_provider"] = TokenProvider(properties)
    return get_sasl_mechanism(mechanism)(**config)


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """OAUTHBEARER tokens: OIDC client credentials (KIP-768), or unsecured ones for tests."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__()
        self._properties = properties
        self._token = ""
        self._expires_s = 0.0

    def token(self) -> str:
        """Return a token that is valid for at least half a minute."""
        if time.time() > self._expires_s - _TOKEN_MARGIN_S:
            if self._properties.get("sasl.oauthbearer.method", "default").lower() == "oidc":
                self._token, self._expires_s = self._fetch()
            else:
                self._token, self._expires_s = self._unsecured()
        return self._token

    def _unsecured(self) -> tuple[str, float]:
        """Return an unsigned JWT (RFC 7515, alg none) as librdkafka builds it for development."""
        settings = dict(
            pair.split("=", 1)
            for pair in self._properties.get("sasl.oauthbearer.config", "").split()
            if "=" in pair
        )
        # Whole seconds: brokers compare with a clock of whole milliseconds, so that a token with a finer
        # time, shown within the same millisecond, counts as issued in the future (one in three was refused).
        now = math.floor(time.time())
        expires = now + float(settings.get("lifeSeconds", "3600"))
        claims = {
            settings.get("principalClaimName", "sub"): settings.get("principal", "onceover"),
            "iat": now,
            "exp": expires,
        }
        parts = [_base64url({"alg": "none"}), _base64url(claims), ""]
        return ".".join(parts), expires

    def _fetch(self) -> tuple[str, float]:
        properties = self._properties
        url = properties["sasl.oauthbearer.token.endpoint.url"]
        form = {"grant_type": "client_credentials", "scope": properties.get("sasl.oauthbearer.scope", "")}
        identity = (
            f"{properties['sasl.oauthbearer.client.id']}:{properties['sasl.oauthbearer.client.secret']}"
        )
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked when the flow file is read
            url,
            data=urllib.parse.urlencode(form).encode(),
            headers={"Authorization": "Basic " + base64.b64encode(identity.encode()).decode()},
        )
        try:
            with urllib.request.urlopen(request, timeout=_TOKEN_TIMEOUT_S) as response:  # noqa: S310
                answer = json.load(response)
            return str(answer["access_token"]), time.time() + float(answer.get("expires_in", 300))
        except (OSError, http.client.HTTPException, *_NO_ANSWER) as error:
            raise _no_token(url, error) from error


def _no_token(url: str, error: Exception) -> OnceoverError:
    """Tell an endpoint that is away from one that answers, and will answer the same again."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()  # it holds the connection
        seen = f"HTTP {error.code} {error.reason}"
        temporary = error.code in _TEMPORARY_HTTP or error.code >= http.HTTPStatus.INTERNAL_SERVER_ERROR
    else:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        seen = type(cause).__name__
        temporary = isinstance(cause, OSError) and not isinstance(cause, ssl.SSLCertVerificationError)
    if temporary:
        return Retriable(
            "no token from the token endpoint",
            where=url,
            seen=seen,
            resolve="check that it is up, then run again",
        )
    return UsageError(
        "the token endpoint gives no token",
        code="NO_TOKEN",
        where=url,
        seen=seen,
        resolve="check sasl.oauthbearer.client.id, .client.secret, .scope and .token.endpoint.url",
    )


def _base64url(document: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()
