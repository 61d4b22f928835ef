"""TLS and SASL for our blocking connections, from librdkafka's configuration keys.

Whoever has configured another client of that library takes its keys over as they are.
"""

from __future__ import annotations

import base64
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.scram import SaslMechanismScram

from onceover.errors import UsageError
from onceover.kafka.link import kerberos
from onceover.kafka.link.tokens import TokenProvider

SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
# Brokers store no password with fewer, and Java's client answers no fewer.
_LEAST_ROUNDS: Final = 4096


class ScramLogin(SaslMechanismScram):
    """The library's login with SCRAM, which shows nothing to a server that wants it made easy to guess from.

    What a client answers is as hard to guess a password from as the server has asked for: with one round and
    no salt a list of passwords is tried in no time, by whoever it was sent to or has listened.
    """

    def receive(self, auth_bytes: bytes) -> bool:
        """Take a server's message; true at the end.

        Raises:
            ValueError: it is none, or asks for less than Kafka lets anybody set up.
        """
        if self._state == 0:
            _check_effort(auth_bytes)
        return bool(super().receive(auth_bytes))


def _check_effort(first_message: bytes) -> None:
    asked = dict(pair.split("=", 1) for pair in first_message.decode().split(","))
    rounds = int(asked["i"])
    if rounds < _LEAST_ROUNDS:
        raise ValueError(f"it asks for {rounds} rounds of SCRAM, and Kafka has {_LEAST_ROUNDS} at least")
    if not base64.b64decode(asked["s"]):
        raise ValueError("it asks for SCRAM without a salt")


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
    except (OSError, ValueError) as error:
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


def sasl_client(properties: Mapping[str, str], host: str) -> Any:
    """Return the library's client side of the mechanism (``auth_bytes``, ``receive``, ``is_done``).

    Args:
        host: of the broker.

    Raises:
        As ``KerberosLogin``, for GSSAPI.
    """
    mechanism = sasl_mechanism(properties)
    if mechanism == kerberos.MECHANISM:
        return kerberos.KerberosLogin(properties, host)
    config: dict[str, Any] = {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": properties.get("sasl.username", ""),
        "sasl_plain_password": properties.get("sasl.password", ""),
    }
    if mechanism in SCRAM:
        return ScramLogin(**config)
    if mechanism == "OAUTHBEARER":
        config["sasl_oauth_token_provider"] = TokenProvider(properties)
    return get_sasl_mechanism(mechanism)(**config)
