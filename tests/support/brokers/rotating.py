"""A live flow whose login is replaced, on the broker first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import pytest
import yaml

from onceover_lab.embed.security import write_private
from tests.support.flows.replica import Replica, read_records
from tests.support.session.wait import wait_until

_TIMEOUT_S = 60.0


def replace(replica: Replica, side: str, client: Mapping[str, str]) -> None:
    """Write the file anew that the flow reads for this side."""
    path = replica.flow.path.with_name(f"{replica.name}-{side}.yaml")
    write_private(path, yaml.safe_dump(dict(client)).encode())


def goes_on_after(
    replica: Replica,
    caplog: pytest.LogCaptureFixture,
    alias: str,
    change: Callable[[], None],
    mend: Callable[[], None],
    secrets: Sequence[str] = (),
) -> None:
    """Let a live flow's login be refused, then mend it: the same run copies what was written meanwhile.

    Args:
        alias: of the cluster that refuses it.
        secrets: must not be seen in the log.
    """
    caplog.set_level(logging.INFO, logger="onceover")
    topic = replica.topic()
    replica.copy()
    written = 0

    def write() -> None:
        nonlocal written
        replica.source.idempotent(topic, 0, replica.source.records(20))
        written += 20

    def await_copied() -> None:
        def copied() -> bool:
            # A login that is refused in the middle of a transaction ends that one: its records are there too.
            return len(read_records(replica.unsecured_target, topic)) == written or not live.alive

        wait_until(copied, _TIMEOUT_S, "the flow goes on")
        assert live.alive

    with replica.running() as live:
        write()
        await_copied()
        change()
        words = f"{alias} refuses us, and did not before"
        wait_until(lambda: words in caplog.text or not live.alive, _TIMEOUT_S, words)
        write()
        mend()
        await_copied()
    for word in secrets:
        assert word not in caplog.text
