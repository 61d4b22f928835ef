"""The librdkafka client keys that a cluster may be given: one closed list.

A key that is not here is refused by name, with its reason, before any connection is made. What
decides exactly-once (transactions, acknowledgements, offsets) belongs to Onceover alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from onceover.config.faults import Invalid
from onceover.hosts import is_host, is_http_address, without_query

Check = Callable[[str], str]

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
# A key of our own: librdkafka asks any endpoint.
PLAIN_ENDPOINT: Final = "enable.sasl.oauthbearer.unsecure.endpoint"
# RFC 7628 3.1; a comma would begin the next one.
_EXTENSION: Final = re.compile(r"[A-Za-z]+=[\x20-\x2b\x2d-\x7e]+")
_TAKEN_EXTENSION: Final = "auth"
# As clients have their keys, known to us or not: sasl.username, api.version.request.
_DOTTED: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}(?:\.[a-z0-9_-]{1,40})+")


@dataclass(frozen=True, slots=True)
class ClientKey:
    """One accepted key: ``check`` returns the value in its normal form or raises ``Invalid``."""

    doc: str
    check: Check
    secret: bool = False
    verbatim: bool = True  # False: never printed although public, because it is long (PEM text)


def check_bootstrap(value: str) -> str:
    """Return ``host:port,host:port`` without blanks.

    Raises:
        Invalid: an entry without host or port, or with a scheme, path or user name.
    """
    entries = [entry.strip() for entry in value.split(",") if entry.strip()]
    if not entries:
        raise Invalid("no server is named", 'write "host:port", several separated by commas')
    for number, entry in enumerate(entries, start=1):
        host, colon, port = entry.rpartition(":")
        in_range = re.fullmatch(r"[0-9]{1,5}", port) is not None and 1 <= int(port) <= 65535
        if not colon or not in_range or not is_host(host):
            raise Invalid(
                f"server {number} of {len(entries)} is not host:port",
                'write "host:port" with a port from 1 to 65535, several separated by commas',
            )
    return ",".join(entries)


def _one_of(values: Collection[str], *, upper: bool) -> Check:
    def check(value: str) -> str:
        normal = value.strip().upper() if upper else value.strip().lower()
        if normal not in values:
            raise Invalid("not a valid value", f"one of: {', '.join(values)}")
        return normal

    return check


def _between(low: int, high: int) -> Check:
    def check(value: str) -> str:
        # Underscores between digits, as in the numbers of a YAML file.
        if not re.fullmatch(r"[0-9](?:_?[0-9]){0,9}", value.strip()) or not low <= int(value) <= high:
            raise Invalid("out of range", f"a whole number from {low} to {high}")
        return str(int(value))

    return check


def _text(value: str) -> str:
    if not value.strip():
        raise Invalid("is empty", "give a value or remove the key")
    return value


def _pem(value: str) -> str:
    if "-----BEGIN " not in value:
        raise Invalid("is not PEM text", "it has to contain a -----BEGIN ...----- line")
    return value


def _authorities(value: str) -> str:
    # Python's TLS takes ASCII alone, and names of authorities stand beside their certificates as a comment.
    return _pem(value).encode("ascii", "replace").decode()


def _token_url(value: str) -> str:
    if not is_http_address(value.strip()):
        raise Invalid(
            "is not an http(s) address without credentials",
            "write https://host/path; the credentials go into sasl.oauthbearer.client.id and .secret",
        )
    return value.strip()


def _region(value: str) -> str:
    # It becomes part of a host name.
    if not re.fullmatch(r"[a-z0-9-]{1,63}", value.strip()):
        raise Invalid("is no region", "write it as in eu-west-1")
    return value.strip()


def _extensions(value: str) -> str:
    pairs = [pair.strip() for pair in value.split(",")]
    names = [pair.partition("=")[0] for pair in pairs]
    if not all(map(_EXTENSION.fullmatch, pairs)) or _TAKEN_EXTENSION in names or len(set(names)) < len(names):
        raise Invalid(
            "is no list of name=value", "write name=value,name=value: names of letters, each once, not auth"
        )
    return ",".join(pairs)


def _boolean(value: str) -> str:
    # A file in YAML may call them so, too.
    plain = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(value.strip().lower(), value)
    return _one_of(("true", "false"), upper=False)(plain)


ALLOWED: Final[dict[str, ClientKey]] = {
    "bootstrap.servers": ClientKey("`host:port`, several separated by commas; required", check_bootstrap),
    "security.protocol": ClientKey(
        "PLAINTEXT (default), SSL, SASL_PLAINTEXT or SASL_SSL", _one_of(PROTOCOLS, upper=True)
    ),
    "sasl.mechanism": ClientKey(
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI; `sasl.mechanisms` is the same key",
        _one_of(MECHANISMS, upper=True),
    ),
    "sasl.username": ClientKey("for PLAIN and SCRAM", _text),
    "sasl.password": ClientKey("for PLAIN and SCRAM", _text, secret=True),
    "sasl.kerberos.service.name": ClientKey("for GSSAPI: of the brokers' principals; `kafka`", _text),
    "sasl.kerberos.principal": ClientKey("for GSSAPI: who logs in", _text),
    "sasl.kerberos.keytab": ClientKey("for GSSAPI: file with its keys; without one, the ticket cache", _text),
    "sasl.oauthbearer.method": ClientKey(
        "`default` (unsecured token, tests only), `oidc`, or `aws_iam` (Amazon MSK)",
        _one_of(("default", "oidc", "aws_iam"), upper=False),
    ),
    "sasl.oauthbearer.aws.region": ClientKey("for `aws_iam`: of the cluster", _region),
    "sasl.oauthbearer.config": ClientKey("principal and claims of the unsecured token", _text, secret=True),
    "sasl.oauthbearer.client.id": ClientKey("for `oidc`", _text),
    "sasl.oauthbearer.client.secret": ClientKey("for `oidc`", _text, secret=True),
    "sasl.oauthbearer.token.endpoint.url": ClientKey("for `oidc`: where tokens are fetched", _token_url),
    "sasl.oauthbearer.scope": ClientKey("for `oidc`", _text),
    "sasl.oauthbearer.extensions": ClientKey(
        "for `oidc`: `name=value`, several separated by commas, sent beside the token", _extensions
    ),
    "https.ca.location": ClientKey(
        "for `oidc`: file with the certificates to trust the token endpoint by (default: the machine's)",
        _text,
    ),
    "https.ca.pem": ClientKey("the same as PEM text", _authorities, verbatim=False),
    "enable.sasl.oauthbearer.unsecure.jwt": ClientKey(
        "`true` permits the unsecured token of `default`", _boolean
    ),
    PLAIN_ENDPOINT: ClientKey(
        "`true` permits a token endpoint without TLS, which shows the client's secret to the whole way there",
        _boolean,
    ),
    "ssl.ca.location": ClientKey("file with the certificates to trust", _text),
    "ssl.ca.pem": ClientKey("the same as PEM text", _authorities, verbatim=False),
    "ssl.certificate.location": ClientKey("file with the client certificate", _text),
    "ssl.certificate.pem": ClientKey("the same as PEM text", _pem, verbatim=False),
    "ssl.key.location": ClientKey("file with the client's private key", _text),
    "ssl.key.pem": ClientKey("the same as PEM text", _pem, secret=True),
    "ssl.key.password": ClientKey("pass phrase of the private key", _text, secret=True),
    "ssl.endpoint.identification.algorithm": ClientKey(
        "`https` (default: the host name must be in the certificate) or `none`",
        _one_of(("https", "none"), upper=False),
    ),
    "client.id": ClientKey("shown in the broker's logs and quotas", _text),
    "socket.timeout.ms": ClientKey("10000 to 300000, how long an answer may take", _between(10_000, 300_000)),
}

SYNONYMS: Final = {"sasl.mechanisms": "sasl.mechanism"}

_EXACTLY_ONCE: Final = "would break exactly-once: Onceover alone decides it"
_REMOVE: Final = "remove it"
_OWN_GROUP: Final = (
    "progress is kept in the flow's own group, never in a consumer group from the configuration",
    "remove it; if the Connection is shared, make one for Onceover alone",
)
_PASSTHROUGH: Final = ("record batches are copied as they are", _REMOVE)
_MEMORY: Final = ("memory and batching follow the flow file", "use limits.memory_per_lane and transaction")
_CODE: Final = ("would run code named by configuration", _REMOVE)
_KERBEROS: Final = (
    "tickets are got by the library, never by a command",
    "use sasl.kerberos.service.name, .principal and .keytab",
)
_JKS: Final = (
    "Java key stores are not read",
    "export to PEM and use ssl.ca.location, ssl.certificate.location",
)

REFUSED: Final[dict[str, tuple[str, str]]] = {
    "transactional.id": (_EXACTLY_ONCE, _REMOVE),
    "transaction.timeout.ms": (_EXACTLY_ONCE, "remove it; transaction.max_interval sets the rhythm"),
    "enable.idempotence": (_EXACTLY_ONCE, _REMOVE),
    "enable.gapless.guarantee": (_EXACTLY_ONCE, _REMOVE),
    "acks": (_EXACTLY_ONCE, _REMOVE),
    "request.required.acks": (_EXACTLY_ONCE, _REMOVE),
    "retries": (_EXACTLY_ONCE, _REMOVE),
    "message.send.max.retries": (_EXACTLY_ONCE, _REMOVE),
    "max.in.flight": (_EXACTLY_ONCE, _REMOVE),
    "max.in.flight.requests.per.connection": (_EXACTLY_ONCE, _REMOVE),
    "isolation.level": ("the source is always read committed: anything else breaks exactly-once", _REMOVE),
    "group.id": _OWN_GROUP,
    "group.instance.id": _OWN_GROUP,
    "enable.auto.commit": _OWN_GROUP,
    "enable.auto.offset.store": _OWN_GROUP,
    "auto.commit.interval.ms": _OWN_GROUP,
    "auto.offset.reset": ("where a topic starts is decided once, at enrolment", "use topics.start"),
    "allow.auto.create.topics": ("topics are never created by a request", _REMOVE),
    "partitioner": ("records keep their partition number", _REMOVE),
    "compression.type": _PASSTHROUGH,
    "compression.codec": _PASSTHROUGH,
    "batch.size": _MEMORY,
    "linger.ms": _MEMORY,
    "message.max.bytes": _MEMORY,
    "fetch.max.bytes": _MEMORY,
    "max.partition.fetch.bytes": _MEMORY,
    "enable.ssl.certificate.verification": (
        "switching certificate checks off would let anybody read the passwords",
        "put the issuing certificate into ssl.ca.location",
    ),
    "sasl.jaas.config": ("is a key of Java clients", "use sasl.username and sasl.password"),
    "debug": ("prints payloads and credentials", _REMOVE),
    "oauth_cb": _CODE,
    "error_cb": _CODE,
    "stats_cb": _CODE,
    "throttle_cb": _CODE,
    "log_cb": _CODE,
    "on_commit": _CODE,
}

REFUSED_PREFIXES: Final[dict[str, tuple[str, str]]] = {
    "sasl.kerberos.": _KERBEROS,
    "ssl.truststore.": _JKS,
    "ssl.keystore.": _JKS,
    "plugin.": _CODE,
    "queue.buffering.": _MEMORY,
    "queued.": _MEMORY,
}


def refusal_of(key: str) -> tuple[str, str] | None:
    """Return (reason, fix) when ``key`` is known and refused, else ``None``."""
    if key in ALLOWED:
        return None
    if key in REFUSED:
        return REFUSED[key]
    return next((why for prefix, why in REFUSED_PREFIXES.items() if key.startswith(prefix)), None)


def is_secret(key: str) -> bool:
    """Return whether the value of ``key`` must never be shown; unknown keys count as secret."""
    known = ALLOWED.get(SYNONYMS.get(key, key))
    return known is None or known.secret


def shown_client_key(key: str) -> str | None:
    """Return ``key`` for people; None where no client can have one that is called so.

    A value that is broken into lines, as a private key is, leaves lines that are read as keys.
    """
    if key in ALLOWED or key in SYNONYMS or refusal_of(key):
        return key
    # Only what separates the two is missing.
    begun = next((name for name, known in ALLOWED.items() if known.secret and key.startswith(name)), None)
    if begun is not None:
        return f"{begun}…"
    return key if _DOTTED.fullmatch(key) else None


def shown_value(key: str, value: str) -> str:
    """Return ``value`` for people, or ``***`` for a secret and ``(PEM)`` for a certificate."""
    if is_secret(key):
        return "***"
    if key == "sasl.oauthbearer.token.endpoint.url":
        return without_query(value)
    return value if ALLOWED[SYNONYMS.get(key, key)].verbatim else "(PEM)"
