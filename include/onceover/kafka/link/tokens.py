"""Tokens for OAUTHBEARER: from an identity provider (KIP-768), signed for Amazon's IAM, or unsecured ones.

Invariant: the client's secret goes to the token endpoint that the configuration names, and nowhere else. No
redirect is followed, whatever the endpoint answers, and no proxy is shown the secret: one of the environment
(``https_proxy``) passes bytes of TLS on, and an endpoint without TLS is asked directly. (That only what was
permitted is asked without TLS is checked where the configuration is read.) Of what an endpoint says only
words of the standards are repeated, and an answer is there soon, or none, whatever is sent and however
slowly: who waits for a token may have a transaction open.
"""

from __future__ import annotations

import base64
import http
import http.client
import importlib
import json
import math
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kafka.net.sasl.oauth import AbstractTokenProvider

from onceover import intime
from onceover.errors import OnceoverError, Retriable, UsageError
from onceover.hosts import without_query
from onceover.kafka.codes import KafkaCode

_TIMEOUT_S: Final = 10.0
# Fetched anew when less than this is left, so that a token does not run out during the handshake.
_MARGIN_S: Final = 30.0
# Real answers have a few kilobytes.
_MAX_ANSWER_BYTES: Final = 1 << 20
# Where the endpoint does not say how long its token lives.
_USUAL_LIFE_S: Final = 300
# Too slow, too often: the only 4xx that pass by themselves.
_TEMPORARY_HTTP: Final = (http.HTTPStatus.REQUEST_TIMEOUT, http.HTTPStatus.TOO_MANY_REQUESTS)
# What reading an answer raises that is none: another document, or another address than was meant.
_NO_ANSWER: Final = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
# RFC 6750: anything else would read as more than a token where it is sent.
_BEARER: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
# RFC 6749 5.2. Only these are repeated: what else an endpoint says may hold what it was sent.
_REASONS: Final = frozenset(
    {
        "invalid_request",
        "invalid_client",
        "invalid_grant",
        "unauthorized_client",
        "unsupported_grant_type",
        "invalid_scope",
    }
)
_EXTENSION: Final = "extension_"


class Token(NamedTuple):
    """What a broker is shown, and when it is over, in seconds since the epoch."""

    text: str
    expires_s: float


class TokenProvider(AbstractTokenProvider):
    """OAUTHBEARER tokens: OIDC client credentials (KIP-768), or unsecured ones for tests."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__()
        self._properties = properties
        self._token = Token("", 0.0)

    def token(self) -> str:
        """Return a token that is valid for at least half a minute.

        Raises:
            Retriable: the token endpoint is away.
            UsageError: it answers, and gives no token.
        """
        return self.current().text

    def current(self) -> Token:
        """Return the same, with its end.

        Raises:
            As ``token``.
        """
        if time.time() > self._token.expires_s - _MARGIN_S:
            match _method(self._properties):
                case "oidc":
                    self._token = _fetch(self._properties)
                case "aws_iam":
                    self._token = _signed(self._properties["sasl.oauthbearer.aws.region"])
                case _:
                    self._token = self._unsecured()
        return self._token

    def extensions(self) -> dict[str, str]:
        """Return what is sent beside the token (KIP-342): some services find the cluster by it."""
        if _method(self._properties) == "oidc":
            pairs = self._properties.get("sasl.oauthbearer.extensions", "").split(",")
            return dict(pair.strip().split("=", 1) for pair in pairs if pair.strip())
        found = self._settings().items()
        return {key.removeprefix(_EXTENSION): value for key, value in found if key.startswith(_EXTENSION)}

    def _settings(self) -> dict[str, str]:
        pairs = self._properties.get("sasl.oauthbearer.config", "").split()
        return dict(pair.split("=", 1) for pair in pairs if "=" in pair)

    def _unsecured(self) -> Token:
        """Return an unsigned JWT (RFC 7515, alg none) as librdkafka builds it for development."""
        settings = self._settings()
        # Whole seconds: brokers compare with a clock of whole milliseconds, so that a token with a finer
        # time, shown within the same millisecond, counts as issued in the future (one in three was refused).
        now = math.floor(time.time())
        expires = now + float(settings.get("lifeSeconds", "3600"))
        claims = {
            settings.get("principalClaimName", "sub"): settings.get("principal", "onceover"),
            "iat": now,
            "exp": expires,
        }
        return Token(".".join([_base64url({"alg": "none"}), _base64url(claims), ""]), expires)


def _method(properties: Mapping[str, str]) -> str:
    return properties.get("sasl.oauthbearer.method", "default").lower()


def _signed(region: str) -> Token:
    """Return what Amazon's brokers take: a request, signed with the role or the keys of this machine."""
    try:
        signer = importlib.import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    except ImportError as error:
        raise UsageError(
            "tokens for Amazon's IAM need the package aws-msk-iam-sasl-signer-python, which is not installed",
            code=KafkaCode.NO_SIGNER,
            seen=str(error),
            resolve="pip install aws-msk-iam-sasl-signer-python, on Spark's executors, too",
        ) from error
    try:
        text, expires_ms = signer.generate_auth_token(region)
    except Exception as error:  # its library raises what it likes, and none of it says what may pass
        raise UsageError(
            "Amazon's signer gives no token",
            code=KafkaCode.NO_TOKEN,
            where=region,
            seen=type(error).__name__,
            resolve="check the role or the keys of this machine (its own role, AWS_PROFILE, "
            "AWS_ACCESS_KEY_ID) and sasl.oauthbearer.aws.region",
        ) from error
    return Token(text, expires_ms / 1000)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The library would repeat the request elsewhere, with the client's secret in it."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _fetch(properties: Mapping[str, str]) -> Token:
    url = properties["sasl.oauthbearer.token.endpoint.url"]
    scope = properties.get("sasl.oauthbearer.scope")
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    identity = f"{properties['sasl.oauthbearer.client.id']}:{properties['sasl.oauthbearer.client.secret']}"
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked when the flow file is read
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={"Authorization": "Basic " + base64.b64encode(identity.encode()).decode()},
    )
    tls = intime.Tls(context=_trusting(properties))
    # Whatever stands in http_proxy would be sent the request itself, and could give any token it likes.
    proxies = {scheme: at for scheme, at in urllib.request.getproxies().items() if scheme == "https"}
    opener = urllib.request.build_opener(
        _NoRedirects, intime.Plain, tls, urllib.request.ProxyHandler(proxies)
    )
    began_s = time.time()
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as response:
            answer = json.loads(_whole(response))
        token, life_s = answer["access_token"], float(answer.get("expires_in", _USUAL_LIFE_S))
        if not _BEARER.fullmatch(token):
            raise ValueError("no bearer token")
        return Token(token, began_s + life_s)
    except (OSError, http.client.HTTPException, *_NO_ANSWER) as error:
        raise _no_token(without_query(url), error) from error


def _trusting(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context for the endpoint, which is rarely of the brokers' authority."""
    try:
        return ssl.create_default_context(
            cafile=properties.get("https.ca.location"), cadata=properties.get("https.ca.pem")
        )
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the certificates to trust a token endpoint by cannot be used: {error}",
            expected="a readable PEM file in https.ca.location, or PEM text in https.ca.pem",
            resolve="check the path and what the file holds",
        ) from error


def _whole(response: http.client.HTTPResponse) -> bytes:
    """Return the answer, which has to be no larger than one is."""
    found = response.read(_MAX_ANSWER_BYTES + 1)
    if len(found) > _MAX_ANSWER_BYTES:
        raise ValueError("too large for a token")
    return found


def _no_token(url: str, error: Exception) -> OnceoverError:
    """Tell an endpoint that is away from one that answers, and will answer the same again."""
    resolve = "check sasl.oauthbearer.client.id, .client.secret, .scope and .token.endpoint.url"
    if isinstance(error, urllib.error.HTTPError):
        seen = f"HTTP {error.code}{_phrase(error.code)}{_reason(error)}"
        error.close()  # it holds the connection
        temporary = error.code in _TEMPORARY_HTTP or error.code >= http.HTTPStatus.INTERNAL_SERVER_ERROR
        if http.HTTPStatus.MULTIPLE_CHOICES <= error.code < http.HTTPStatus.BAD_REQUEST:
            resolve = (
                "write the address that it sends to into sasl.oauthbearer.token.endpoint.url: the secret is "
                "taken nowhere else"
            )
    else:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        seen = type(cause).__name__
        distrusted = isinstance(cause, ssl.SSLCertVerificationError)
        temporary = isinstance(cause, OSError) and not distrusted
        if distrusted:
            resolve = "set https.ca.location to the authority that signed the endpoint's certificate"
    if temporary:
        return Retriable(
            "no token from the token endpoint",
            where=url,
            seen=seen,
            resolve="check that it is up, then run again",
        )
    return UsageError(
        "the token endpoint gives no token", code=KafkaCode.NO_TOKEN, where=url, seen=seen, resolve=resolve
    )


def _phrase(code: int) -> str:
    """Return what the standard says of a status; an endpoint may say there what it was sent."""
    known = code in set(http.HTTPStatus)
    return f" {http.HTTPStatus(code).phrase}" if known else ""


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        reason = json.loads(error.read(_MAX_ANSWER_BYTES))["error"]
    except (OSError, http.client.HTTPException, *_NO_ANSWER):
        return ""
    return f" ({reason})" if isinstance(reason, str) and reason in _REASONS else ""


def _base64url(document: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()
