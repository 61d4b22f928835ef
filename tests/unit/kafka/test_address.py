"""Addresses that can be nobody's: of a client's settings, or as a broker calls itself."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from onceover.errors import UsageError
from onceover.kafka.link.channel import Address
from onceover.kafka.link.connection import Connection, ConnectionLost


@pytest.mark.parametrize(
    "address",
    [
        Address("kafka..example.com", 9092),
        Address(".kafka.example.com", 9092),
        Address("a" * 64, 9092),
        Address("127.0.0.1", 70_000),
        Address("127.0.0.1", -1),
    ],
)
def test_address_that_can_be_nobodys_is_a_fault_and_no_outage(address: Address) -> None:
    """Another try would not help, and Python's own error would end whoever asks."""
    with pytest.raises(UsageError, match="can be no address of a broker") as refusal:
        Connection(address, {})
    assert (refusal.value.code, refusal.value.where) == ("BAD_ADDRESS", str(address))


@pytest.mark.parametrize("problem", [socket.gaierror(-2, "Name or service not known"), TimeoutError()])
def test_name_that_is_not_known_now_may_be_later(monkeypatch: pytest.MonkeyPatch, problem: Exception) -> None:
    """The near miss: a resolver that is away, or a pod that is not there yet."""

    def away(*_: Any, **__: Any) -> Any:
        raise problem

    monkeypatch.setattr(socket, "create_connection", away)
    with pytest.raises(ConnectionLost):
        Connection(Address("kafka.example.com", 9092), {})
