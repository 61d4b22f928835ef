"""A flow between a cluster that knows clients by certificates and one that asks an identity provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.errors import UsageError
from onceover.kafka.cluster import LiveCluster
from onceover_lab.embed.config import CLIENT_LISTENER, CONTROLLER_LISTENER, INTERNAL_LISTENER
from onceover_lab.embed.kafka import KafkaCluster, start_all
from onceover_lab.embed.security import Security, make_certificates
from tests.support.brokers.clusters import ClusterFactory
from tests.support.brokers.identity import AUDIENCE, IdentityServer, identity_server
from tests.support.brokers.rotating import goes_on_after, replace
from tests.support.flows.flows import assert_same
from tests.support.flows.replica import Replica

_LISTENER = f"listener.name.{CLIENT_LISTENER.lower()}"
_ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="
_SECRET, _NEXT = "first-91cc", "next-40fe"
_OF_CERTIFICATE = ("ssl.certificate.location", "ssl.key.location")


@pytest.fixture(scope="module")
def identity() -> Iterator[IdentityServer]:
    """An identity provider that knows one client."""
    with identity_server({"copier": _SECRET}) as provider:
        yield provider


@pytest.fixture(scope="module")
def pair(session_home: Path, identity: IdentityServer) -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    """The one takes certificates of its authority (mTLS), the other tokens of the identity provider."""
    factory = ClusterFactory(session_home)
    authority = make_certificates(session_home / "mtls" / "tls").ca
    protocols = f"{CLIENT_LISTENER}:SSL,{INTERNAL_LISTENER}:PLAINTEXT,{CONTROLLER_LISTENER}:PLAINTEXT"
    by_certificate = {
        "listener.security.protocol.map": protocols,
        f"{_LISTENER}.ssl.client.auth": "required",
        f"{_LISTENER}.ssl.truststore.type": "PEM",
        f"{_LISTENER}.ssl.truststore.location": str(authority),
    }
    keys = f"{identity.url}/keys"
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    by_token = {
        # New connections all the time, and each with a token.
        "connections.max.reauth.ms": "2000",
        f"{_LISTENER}.oauthbearer.sasl.server.callback.handler.class": handler,
        f"{_LISTENER}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys,
        f"{_LISTENER}.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{_LISTENER}.oauthbearer.sasl.oauthbearer.expected.issuer": identity.url,
        "sasl.oauthbearer.jwks.endpoint.url": keys,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": identity.url,
    }
    try:
        source, target = start_all(
            [
                lambda: factory("mtls", security=Security("SCRAM-SHA-512"), config=by_certificate),
                lambda: factory(
                    "oidc",
                    security=Security("OAUTHBEARER"),
                    config=by_token,
                    java_flags=[f"{_ALLOWED}{keys}"],
                ),
            ]
        )
        yield source, target
    finally:
        factory.close()


def with_certificate(cluster: KafkaCluster) -> dict[str, str]:
    """Return the client that shows a certificate of the cluster's authority."""
    mine = str(cluster.home / "tls" / "server.pem")
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(cluster.ca_path),
        "ssl.certificate.location": mine,
        "ssl.key.location": mine,
    }


def with_token(cluster: KafkaCluster, identity: IdentityServer, secret: str = _SECRET) -> dict[str, str]:
    """Return the client that asks the identity provider for its tokens."""
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(cluster.ca_path),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": f"{identity.url}/token",
        "enable.sasl.oauthbearer.unsecure.endpoint": "true",
        "sasl.oauthbearer.client.id": "copier",
        "sasl.oauthbearer.client.secret": secret,
        "sasl.oauthbearer.scope": "kafka.write",
        "sasl.oauthbearer.extensions": "pool=p-1",
    }


def test_a_flow_from_certificates_to_tokens_whose_secret_is_replaced(
    pair: tuple[KafkaCluster, KafkaCluster],
    identity: IdentityServer,
    tmp_path: Path,
    unique_name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Signed by the provider, checked by the broker with the provider's keys; the flow bears a new secret."""
    source, target = pair
    inside = (source.internal_bootstrap, target.internal_bootstrap)
    token = with_token(target, identity)
    with Replica(tmp_path, unique_name, with_certificate(source), token, unsecured=inside) as replica:
        goes_on_after(
            replica,
            caplog,
            "west",
            lambda: identity.secrets.update(copier=_NEXT),
            lambda: replace(replica, "target", with_token(target, identity, _NEXT)),
            secrets=(_SECRET, _NEXT),
        )
        identity.secrets["copier"] = _SECRET
    east, west = ({"bootstrap.servers": address} for address in inside)
    assert_same(east, west, [f"{unique_name}.a"])
    assert set(identity.scopes) == {"kafka.write"}


def test_tokens_of_another_issuer_and_missing_certificates_are_refused(
    pair: tuple[KafkaCluster, KafkaCluster],
) -> None:
    """Otherwise the brokers would have checked nothing."""
    source, target = pair
    anonymous = {k: v for k, v in with_certificate(source).items() if k not in _OF_CERTIFICATE}
    with identity_server({"copier": _SECRET}) as stranger:
        for client in (anonymous, with_token(target, stranger)):
            with LiveCluster(ClientConfig("east", client)) as cluster, pytest.raises(UsageError):
                cluster.cluster_id()
