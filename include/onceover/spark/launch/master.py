"""Spark masters: what may be named, and whether one is there before Spark is started for it.

Spark itself waits a minute for a master that does not answer, and says so in sixty lines.
"""

from __future__ import annotations

import re
import socket
from typing import Final

from onceover.config import values
from onceover.config.faults import Invalid
from onceover.errors import Retriable, UsageError
from onceover.spark.codes import SparkCode

_CONNECT_S: Final = 5.0
_PORTS: Final = 1 << 16
_STANDALONE: Final = re.compile(r"spark://(.+)")


def checked(master: str) -> str:
    """Return ``master`` when it is one that a flow can run on.

    Raises:
        UsageError: it is not; nothing was started.
    """
    try:
        found: str = values.master(master)
    except Invalid as error:
        raise UsageError(
            f"{master!r} is {error.problem}",
            code=SparkCode.BAD_MASTER,
            expected=error.fix,
            resolve="correct the master",
        ) from None
    return found


def reach(master: str) -> None:
    """Return when a standalone master listens; others are not asked.

    Raises:
        Retriable: no address of it answers.
        UsageError: an address has no port.
    """
    match = _STANDALONE.fullmatch(master)
    if match is None:
        return
    problems = []
    for address in match.group(1).split(","):
        try:
            with socket.create_connection(_address(address), _CONNECT_S):
                return
        except OSError as error:
            problems.append(f"{address}: {error.strerror or error}")
    raise Retriable(
        "no Spark master answers",
        code=SparkCode.SPARK_MASTER_GONE,
        where=master,
        seen="; ".join(problems),
        resolve="check that it is up and that the address is right, then run again",
    )


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < _PORTS:
        raise UsageError(
            f"{text!r} is no address of a Spark master",
            code=SparkCode.BAD_MASTER,
            expected="host:port",
            resolve="correct the master",
        )
    return host.strip("[]"), int(port)
