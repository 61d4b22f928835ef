"""What a worker goes on with where a client file is not in order when its next task begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.config.faults import BadConfig, Fault
from onceover.spark import worker
from onceover.spark.worker import RunClients

CLIENTS = (ClientConfig("east", {}), ClientConfig("west", {}))


def test_a_client_file_that_is_not_in_order_changes_nothing_for_a_run_that_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also for its next task; another run begins with nothing."""
    in_order = True

    def resolve(_: object) -> tuple[ClientConfig, ClientConfig]:
        if not in_order:
            raise BadConfig([Fault("east.properties", "", "mode 0644", "chmod 600")])
        return CLIENTS

    monkeypatch.setattr(worker, "resolve_clients", resolve)
    flow: Any = SimpleNamespace(flow="f")
    clients = RunClients()
    assert clients.of(flow, "run-1") == CLIENTS
    in_order = False
    assert clients.of(flow, "run-1") == CLIENTS
    with pytest.raises(BadConfig, match="mode 0644"):
        clients.of(flow, "run-2")
