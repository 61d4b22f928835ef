"""Ctrl-C, or SIGTERM, in the middle of a request: what takes back what was done asks by the same cluster."""

from __future__ import annotations

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from onceover.kafka import calls
from onceover.kafka.link.connection import Connection, ConnectionLost
from tests.unit.kafka.wiretap import ScriptedSocket, body, connect, framed


def answered(_: int, version: int, correlation_id: int) -> bytes:
    return framed(correlation_id, body(ApiVersionsResponse, version))


def interrupt(*_: object) -> int:
    raise KeyboardInterrupt


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> tuple[Connection, ScriptedSocket]:
    connection, peer = connect(monkeypatch, answered)
    calls.api_versions(connection)
    return connection, peer


@pytest.mark.parametrize("where", ["sendmsg", "recv_into"])
def test_who_is_interrupted_leaves_no_answer_to_whoever_asks_next(
    connected: tuple[Connection, ScriptedSocket], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """It was another question: the connection is not used any more."""
    connection, peer = connected
    monkeypatch.setattr(peer, where, interrupt)
    with pytest.raises(KeyboardInterrupt):
        calls.api_versions(connection)
    assert (connection.usable, connection.closed, peer.closed) == (False, True, True)


def test_who_is_interrupted_between_question_and_answer_leaves_none_either(
    connected: tuple[Connection, ScriptedSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, peer = connected
    monkeypatch.setattr(connection, "receive", interrupt)
    with pytest.raises(KeyboardInterrupt):
        calls.api_versions(connection)
    assert (connection.usable, peer.closed) == (False, True)


def test_an_answer_that_is_owed_is_not_the_next_ones(connected: tuple[Connection, ScriptedSocket]) -> None:
    """Of many questions at once: who asked did not get to its answer."""
    connection, peer = connected
    connection.send(ApiVersionsRequest(version=0), ApiVersionsResponse)
    with pytest.raises(ConnectionLost, match="owed that nobody waits for"):
        calls.api_versions(connection)
    assert (connection.usable, peer.closed) == (False, True)
