"""What py4j says of a JVM that is killed while it is asked, by a real connection that is reset."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from threading import Thread

import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError

from onceover.spark.failures import cause_of

# To a closed socket with data unread: reset, as the kernel does for a killed process.
_RESET = struct.pack("ii", 1, 0)


@pytest.fixture
def dying_jvm() -> Iterator[int]:
    """A port behind which every question is cut off."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def die() -> None:
            # py4j asks once more.
            for _ in range(2):
                asked, _from = listening.accept()
                with asked:
                    asked.recv(1)
                    asked.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

        dying = Thread(target=die, daemon=True)
        dying.start()
        yield listening.getsockname()[1]
        dying.join(10)


def of_a_call(gateway: ClientServer) -> object:
    return JavaObject("o209", gateway._gateway_client).lastProgress()


def of_a_class(gateway: ClientServer) -> object:
    return gateway.jvm.PythonSQLUtils


@pytest.mark.parametrize("ask", [of_a_call, of_a_class])
def test_a_jvm_that_is_killed_while_it_is_asked_is_gone(
    dying_jvm: int, ask: Callable[[ClientServer], object]
) -> None:
    """It was a failure that nobody foresaw, and was not tried again."""
    gateway = ClientServer(JavaParameters(port=dying_jvm), PythonParameters(port=0))
    try:
        with pytest.raises(Py4JError) as caught:
            ask(gateway)
    finally:
        gateway.shutdown()
    assert cause_of(caught.value, os.getpid()).code == "JVM_GONE"
