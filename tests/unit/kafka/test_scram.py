"""A login with SCRAM answers no server that asks for less than Kafka's brokers do."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from onceover.kafka.link.security import SCRAM, sasl_client

PASSWORD = "not-the-password-7f3a"
SALT = base64.b64encode(b"some-salt-of-hers").decode()


def login(mechanism: str) -> tuple[Any, str]:
    """Return a login that has begun, and its nonce."""
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "ann",
        "sasl.password": PASSWORD,
    }
    client = sasl_client(properties, "broker")
    return client, client.auth_bytes().decode().rpartition("r=")[2]


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize("rounds", ["1", "4095", "0", "-4096", "+1"])
def test_server_that_asks_for_few_rounds_gets_no_proof(mechanism: str, rounds: str) -> None:
    """As Java's client; a proof of one round is guessed from in no time."""
    client, nonce = login(mechanism)
    with pytest.raises(ValueError, match=r"rounds of SCRAM, and Kafka has 4096 at least"):
        client.receive(f"r={nonce}x,s={SALT},i={rounds}".encode())
    assert not client.is_done()


@pytest.mark.parametrize("asked", ["s=,i=4096", "i=4096", f"s={SALT}", f"s={SALT},i=many", "e=other-error"])
def test_server_that_asks_for_nothing_sensible_gets_no_proof(asked: str) -> None:
    """No salt, or no message at all."""
    client, nonce = login("SCRAM-SHA-256")
    with pytest.raises((ValueError, KeyError)):
        client.receive(f"r={nonce}x,{asked}".encode())


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize("rounds", [4096, 8192])
def test_server_that_asks_as_kafka_does_gets_a_proof(mechanism: str, rounds: int) -> None:
    """The near miss."""
    client, nonce = login(mechanism)
    assert not client.receive(f"r={nonce}x,s={SALT},i={rounds}".encode())
    assert b",p=" in client.auth_bytes()
