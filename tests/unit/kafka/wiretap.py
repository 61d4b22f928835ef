"""A scripted peer at the level of bytes: a real ``Connection`` talks to it, nothing leaves the process."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from onceover.kafka.link.channel import Address
from onceover.kafka.link.connection import Connection

# What a peer says to a request: its API key, version and correlation id, to all bytes that come back.
Script = Callable[[int, int, int], bytes]
_HEAD = struct.Struct(">ihhi")


class ScriptedSocket:
    """The socket of a peer that answers as it is told and then hangs up."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._incoming = bytearray()
        self._sent = bytearray()
        self.closed = False

    def sendmsg(self, buffers: list[memoryview]) -> int:
        data = b"".join(bytes(buffer) for buffer in buffers)
        self._sent += data
        while len(self._sent) >= _HEAD.size:
            size, key, version, correlation_id = _HEAD.unpack_from(self._sent)
            if len(self._sent) < 4 + size:
                break
            del self._sent[: 4 + size]
            self._incoming += self._script(key, version, correlation_id)
        return len(data)

    def recv_into(self, into: memoryview) -> int:
        # A few bytes at a time, as a network may deliver them.
        size = min(len(into), len(self._incoming), 1 << 20)
        into[:size] = self._incoming[:size]
        del self._incoming[:size]
        return size

    def setsockopt(self, *_: int) -> None:
        pass

    def settimeout(self, _: float) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def framed(correlation_id: int, body: bytes) -> bytes:
    """Return an answer as it goes over the wire; ``body`` follows the correlation id."""
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def connect(
    monkeypatch: pytest.MonkeyPatch, script: Script, properties: Mapping[str, str] | None = None
) -> tuple[Connection, ScriptedSocket]:
    """Return a connection to a peer that follows ``script``, and the peer's socket.

    Raises:
        OnceoverError: what the connection makes of answers to its greeting, with SASL.
    """
    peer = ScriptedSocket(script)
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: peer)
    # It would look at the listener once more, through a connection of its own.
    monkeypatch.setattr("onceover.kafka.link.connection.wrong_protocol", lambda *_: None)
    return Connection(Address("127.0.0.1", 9092), properties or {}), peer


def body(response_type: Any, version: int) -> bytes:
    """Return a plausible answer behind the correlation id: every field of the version, one of each list."""
    answer = _filled(response_type, response_type._struct, version)
    flexible = response_type.flexible_version_q(version) and response_type.API_KEY != 18
    return (b"\0" if flexible else b"") + bytes(answer.encode(version=version))


def _filled(kind: Any, struct_: Any, version: int) -> Any:
    values = {field.name: _value(field, version) for field in struct_.untagged_fields(version)}
    return kind(version=version, **{name: value for name, value in values.items() if value is not None})


def _value(field: Any, version: int) -> Any:
    if field.is_struct_array():
        return [_filled(field.data_class, field, version)]
    if field.is_struct():
        return _filled(field.data_class, field, version)
    if field.is_array():
        return [_simple(field.array_of.type_str)]
    return _simple(field.type_str)


def _simple(name: str) -> Any:
    plain = {"string": "t", "bool": False, "bytes": b"x", "records": b"records", "float64": 1.0}
    if name in plain:
        return plain[name]
    if name == "uuid":
        return "00000000-0000-0000-0000-000000000007"
    return None if name == "bitfield" else 0
