"""What configures confluent-kafka's clients: the same keys, and tokens by the same way as our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from onceover.kafka.security import sasl_mechanism
from onceover.kafka.tokens import TokenProvider

# Of syslog. librdkafka would write a line to stderr for every connection that fails; we raise what it means.
_LOG_CRITICAL: Final = 2
# What says how tokens are got. The library would follow a redirect of the endpoint, with the secret.
_OF_TOKENS: Final = ("sasl.oauthbearer.", "enable.sasl.oauthbearer.", "https.ca.")


def library_properties(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the library's configuration for a client with these keys; it holds secrets."""
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
