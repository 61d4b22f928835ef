"""What configures confluent-kafka's clients: the same keys, and tokens by the same way as our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from onceover.errors import UsageError
from onceover.kafka import kerberos
from onceover.kafka.cluster import ClientSettings
from onceover.kafka.security import sasl_mechanism
from onceover.kafka.tokens import TokenProvider

# Of syslog. librdkafka would write a line to stderr for every connection that fails; we raise what it means.
_LOG_CRITICAL: Final = 2
# What says how tokens are got. The library would follow a redirect of the endpoint, with the secret.
_OF_TOKENS: Final = ("sasl.oauthbearer.", "enable.sasl.oauthbearer.", "https.ca.")
_TIMEOUT_S: Final = 30.0
# What passes by itself. Codes that the library calls retriable are not enough: it says so of errors of
# transactions alone. UNKNOWN_TOPIC_OR_PART is not among them: the callers ask metadata whether it is gone.
_TEMPORARY: Final = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._QUEUE_FULL,
        KafkaError._WAIT_COORD,
        KafkaError._WAIT_CACHE,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_CONTROLLER,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)


def library_properties(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the library's configuration for a client with these keys; it holds secrets.

    Raises:
        UsageError: the library cannot log in so.
    """
    if sasl_mechanism(properties) == kerberos.MECHANISM:
        raise UsageError(
            "confluent-kafka has no Kerberos, and this goes through it",
            code="NO_KERBEROS",
            seen="sasl.mechanism GSSAPI",
            resolve="use a listener with another mechanism for ACLs, audits and Connect's offsets",
        )
    found: dict[str, Any] = {key: text for key, text in properties.items() if not key.startswith(_OF_TOKENS)}
    found["log_level"] = _LOG_CRITICAL
    if sasl_mechanism(properties) == "OAUTHBEARER":
        provider = TokenProvider(properties)

        def token(_: str) -> tuple[str, float, str, dict[str, str]]:
            current = provider.current()
            # Brokers take the principal from the token; the library only wants some text.
            return current.text, current.expires_s, "", provider.extensions()

        found["oauth_cb"] = token
    return found


def open_admin(settings: ClientSettings) -> AdminClient:
    """Return the library's client."""
    own = {"socket.timeout.ms": int(_TIMEOUT_S * 1000), "socket.keepalive.enable": True}
    return AdminClient({**library_properties(settings.properties), **own})


def is_temporary(error: KafkaError) -> bool:
    """Tell whether an error of the library is known to pass by itself."""
    return error.code() in _TEMPORARY
