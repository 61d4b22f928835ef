"""What a listener speaks, asked when it hung up before its first answer.

A broker that is stopping hangs up, too, so hanging up alone proves nothing and counts as temporary. A
wrong ``security.protocol`` is said only where the listener itself shows what it speaks instead.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.sasl import SaslHandshakeRequest

from onceover.errors import UsageError
from onceover.kafka.codes import KafkaCode
from onceover.kafka.link.security import sasl_mechanism, tls_context, uses_tls

_TIMEOUT_S: Final = 3.0
# ILLEGAL_SASL_STATE: what a listener without SASL answers to a handshake.
_NO_SASL: Final = 34
_MECHANISM: Final = "PLAIN"
_LENGTH: Final = struct.Struct(">i")
# The answer to a handshake begins with it.
_CODE: Final = struct.Struct(">h")
# An answer to ApiVersions or SaslHandshake has a few hundred bytes.
_MAX_ANSWER_BYTES: Final = 1 << 16


def wrong_protocol(
    address: tuple[str, int], properties: Mapping[str, str], at: tuple[str, int]
) -> UsageError | None:
    """Return the error when the listener speaks another security protocol than ours, else None.

    Args:
        address: as the broker is called.
        at: where it was met: behind one name there may be others.
    """
    spoken = _spoken(at, address[0], properties)
    if spoken is None:
        return None
    ours = properties.get("security.protocol", "plaintext").upper()
    return UsageError(
        f"{address[0]}:{address[1]} speaks another security.protocol than this client",
        code=KafkaCode.WRONG_PROTOCOL,
        where=f"{address[0]}:{address[1]}",
        expected=spoken,
        seen=f"security.protocol {ours}",
        resolve="set security.protocol of this cluster's client to what the listener speaks, or name the "
        "port of another listener in bootstrap.servers",
    )


def refused_by_tls(address: object, error: ssl.SSLError) -> UsageError:
    """Return the error for a TLS alert, or an answer that is not TLS, before anything was exchanged."""
    return UsageError(
        f"{address} refuses the TLS connection: {error.reason or error}",
        code=KafkaCode.TLS_REFUSED,
        where=str(address),
        resolve="check ssl.certificate.location and ssl.key.location (the broker may want a certificate of "
        "an authority that it trusts), security.protocol and the port",
    )


def no_kafka(address: object, seen: bytes) -> UsageError:
    """Return the error for bytes that cannot be the beginning of a first answer."""
    return UsageError(
        f"{address} does not speak Kafka's protocol",
        code=KafkaCode.NOT_KAFKA,
        where=str(address),
        seen=f"first bytes {seen.hex(' ')}",
        resolve="correct bootstrap.servers: it names the port of something else",
    )


def _spoken(at: tuple[str, int], host: str, properties: Mapping[str, str]) -> str | None:
    if uses_tls(properties):
        if _answers_plainly(at, host):
            return "SASL_PLAINTEXT" if _wants_sasl(at, host, None) else "PLAINTEXT"
    elif _shakes_hands(at):
        return "SSL or SASL_SSL"
    if sasl_mechanism(properties) is None and _wants_sasl(at, host, tls_context(properties)):
        return "SASL_SSL" if uses_tls(properties) else "SASL_PLAINTEXT"
    return None


def _answers_plainly(at: tuple[str, int], host: str) -> bool:
    request = ApiVersionsRequest(version=0)
    return _ask(at, host, None, request) is not None


def _wants_sasl(at: tuple[str, int], host: str, context: ssl.SSLContext | None) -> bool:
    answer = _ask(at, host, context, SaslHandshakeRequest(version=1, mechanism=_MECHANISM))
    if answer is None or len(answer) < _CODE.size:
        return False
    (code,) = _CODE.unpack_from(answer)
    return bool(code != _NO_SASL)


def _shakes_hands(at: tuple[str, int]) -> bool:
    """Tell whether the listener answers a TLS greeting with TLS, be it a refusal."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent or believed
    try:
        with socket.create_connection(at, _TIMEOUT_S) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _ask(at: tuple[str, int], host: str, context: ssl.SSLContext | None, request: Any) -> bytes | None:
    """Return the answer without its correlation id, or None when there is no sensible one."""
    request.with_header(correlation_id=1, client_id="onceover")
    with suppress(OSError), socket.create_connection(at, _TIMEOUT_S) as plain:
        stream = plain if context is None else context.wrap_socket(plain, server_hostname=host)
        with stream:
            stream.sendall(request.encode(framed=True, header=True))
            size = _LENGTH.unpack(_exactly(stream, _LENGTH.size))[0]
            if _LENGTH.size <= size <= _MAX_ANSWER_BYTES:
                return _exactly(stream, size)[_LENGTH.size :]
    return None


def _exactly(stream: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = stream.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("closed")
        data += piece
    return data
