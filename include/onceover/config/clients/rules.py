"""Checks of a cluster's client keys, one by one and against each other. Pure.

Every fault names the key and never its value, because any value may be a misplaced secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from onceover.advice import nearest_fix
from onceover.config.clients.keys import (
    ALLOWED,
    MECHANISMS,
    PLAIN_ENDPOINT,
    PROTOCOLS,
    SYNONYMS,
    is_secret,
    refusal_of,
)
from onceover.config.document import REFERENCE
from onceover.config.faults import Invalid

_PAIRS: Final = (
    ("https.ca.location", "https.ca.pem"),
    ("ssl.ca.location", "ssl.ca.pem"),
    ("ssl.certificate.location", "ssl.certificate.pem"),
    ("ssl.key.location", "ssl.key.pem"),
)
_PASSWORD_KEYS: Final = ("sasl.username", "sasl.password")
_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_OIDC_KEYS: Final = ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", _ENDPOINT)


class KeyFault(NamedTuple):
    """What is wrong with one client key; ``key`` is empty when a key is missing altogether."""

    key: str
    problem: str
    fix: str


def check_properties(values: Mapping[str, Any]) -> tuple[dict[str, str], list[KeyFault]]:
    """Return the keys in normal form, and everything that is wrong with them."""
    checked: dict[str, str] = {}
    faults: list[KeyFault] = []
    for key, value in values.items():
        name = SYNONYMS.get(key, key)
        try:
            normal = _check_one(name, value)
        except Invalid as error:
            faults.append(KeyFault(key, error.problem, error.fix))
            continue
        if checked.get(name, normal) != normal:
            faults.append(
                KeyFault(key, f"contradicts {name}, which is the same key", "remove one of the two")
            )
        checked.setdefault(name, normal)
    # A key that is present but wrong must not be reported as missing, too.
    named = {SYNONYMS.get(key, key) for key in values}
    faults += [fault for fault in _cross_checks(checked, named) if fault.key not in {f.key for f in faults}]
    return checked, faults


def literal_secrets(values: Mapping[str, Any]) -> list[KeyFault]:
    """Return a fault for every secret key of ``values`` that is not exactly one ``${NAME}``."""
    return [
        KeyFault(
            key,
            "a secret stands in the file, and such files live in git",
            'write "${NAME}" and set the variable, or use connection or client_file',
        )
        for key, value in values.items()
        if SYNONYMS.get(key, key) in ALLOWED and is_secret(key) and not _is_reference(value)
    ]


def endpoints(bootstrap: str) -> set[str]:
    """Return the servers of a checked ``bootstrap.servers``, comparable between two clusters."""
    return {entry.lower().replace("localhost:", "127.0.0.1:") for entry in bootstrap.split(",")}


def _is_reference(value: object) -> bool:
    return isinstance(value, str) and REFERENCE.fullmatch(value.strip()) is not None


def _check_one(key: str, value: object) -> str:
    refused = refusal_of(key)
    if refused:
        raise Invalid(f"refused: {refused[0]}", refused[1])
    if key not in ALLOWED:
        raise Invalid("not a client key that Onceover accepts", _advice(key))
    if isinstance(value, bool):
        value = str(value).lower()
    if not isinstance(value, str | int | float):
        raise Invalid(
            "expected a single value", "write one text or number; several servers are separated by commas"
        )
    if "\0" in str(value):
        # PLAIN ends its names there, and so do the libraries of TLS and Kerberos: it would be another login.
        raise Invalid("holds a NUL character", "write it without")
    if any("\ud800" <= char <= "\udfff" for char in str(value)):
        # JSON and Java's files can name one, and no text can be made of it that is sent.
        raise Invalid("holds half of a character", "write the character itself, not one of its surrogates")
    return ALLOWED[key].check(str(value))


def _advice(key: str) -> str:
    near = nearest_fix(key, ALLOWED)
    return near if near.startswith("did you") else "remove it; docs/flow-file.md lists the accepted keys"


def _cross_checks(checked: Mapping[str, str], named: set[str]) -> Iterator[KeyFault]:
    if "bootstrap.servers" not in named:
        yield KeyFault("bootstrap.servers", "is required", 'write "host:port", several separated by commas')
    protocol = checked.get("security.protocol", "PLAINTEXT")
    if _protocol_known(checked, named):
        yield from _unused(protocol, named)
        if protocol.startswith("SASL_"):
            yield from _sasl(checked, named)
    yield from _tls(named)


def _protocol_known(checked: Mapping[str, str], named: set[str]) -> bool:
    return "security.protocol" not in named or "security.protocol" in checked


def _unused(protocol: str, named: set[str]) -> Iterator[KeyFault]:
    """A credential that the protocol never uses means that the protocol was forgotten."""
    for family, marker in (("sasl.", "SASL"), ("ssl.", "SSL")):
        uses = protocol.startswith("SASL") if marker == "SASL" else protocol.endswith("SSL")
        unused = sorted(key for key in named if key.startswith(family) and key in ALLOWED)
        if unused and not uses:
            fitting = [name for name in PROTOCOLS if marker in name.split("_")]
            yield KeyFault(
                unused[0],
                f"has no effect with security.protocol {protocol}",
                f"set security.protocol to {' or '.join(fitting)}, or remove the {family}* keys",
            )


def _sasl(checked: Mapping[str, str], named: set[str]) -> Iterator[KeyFault]:
    mechanism = checked.get("sasl.mechanism")
    if mechanism is None:
        if "sasl.mechanism" not in named:
            yield KeyFault(
                "sasl.mechanism",
                f"is required with security.protocol {checked['security.protocol']}",
                f"one of: {', '.join(MECHANISMS)}",
            )
        return
    if mechanism == "OAUTHBEARER":
        yield from _oauth(checked, named)
        return
    if mechanism == "GSSAPI":
        if "sasl.kerberos.keytab" in named and "sasl.kerberos.principal" not in named:
            yield KeyFault("sasl.kerberos.principal", "is required with sasl.kerberos.keytab", "add it")
        return
    for key in _PASSWORD_KEYS:
        if key not in named:
            yield KeyFault(key, f"is required with sasl.mechanism {mechanism}", f"add {key}")


def _oauth(checked: Mapping[str, str], named: set[str]) -> Iterator[KeyFault]:
    method = checked.get("sasl.oauthbearer.method", "default")
    if method == "aws_iam":
        if "sasl.oauthbearer.aws.region" not in named:
            yield KeyFault("sasl.oauthbearer.aws.region", "is required with aws_iam", "add it")
    elif method == "oidc":
        for key in _OIDC_KEYS:
            if key not in named:
                yield KeyFault(key, "is required with sasl.oauthbearer.method oidc", f"add {key}")
        if checked.get(_ENDPOINT, "").lower().startswith("http:") and checked.get(PLAIN_ENDPOINT) != "true":
            yield KeyFault(
                _ENDPOINT,
                "is asked without TLS, which would show the client's secret to the whole way there",
                f"write https://, or where that way is safe set {PLAIN_ENDPOINT} to true",
            )
    elif checked.get("enable.sasl.oauthbearer.unsecure.jwt") != "true":
        yield KeyFault(
            "sasl.oauthbearer.method",
            "default makes unsecured tokens, which have to be permitted",
            "set it to oidc, or for tests set enable.sasl.oauthbearer.unsecure.jwt to true",
        )


def _tls(named: set[str]) -> Iterator[KeyFault]:
    for location, pem in _PAIRS:
        if location in named and pem in named:
            yield KeyFault(pem, f"is given together with {location}", "remove one of the two")
    has_certificate = named & {"ssl.certificate.location", "ssl.certificate.pem"}
    has_key = named & {"ssl.key.location", "ssl.key.pem"}
    if has_key and not has_certificate:
        yield KeyFault(min(has_key), "is a key without its certificate", "add ssl.certificate.location")
    if "ssl.certificate.pem" in named and not has_key:
        yield KeyFault("ssl.certificate.pem", "is a certificate without its key", "add ssl.key.pem")
    if "ssl.certificate.pem" in named and "ssl.key.location" in named:
        yield KeyFault(
            "ssl.key.location", "is a file, but the certificate is PEM text", "give both the same way"
        )
    if "ssl.certificate.location" in named and "ssl.key.pem" in named:
        yield KeyFault("ssl.key.pem", "is PEM text, but the certificate is a file", "give both the same way")
