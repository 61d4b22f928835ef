"""Exactly-once switched off: workers then believe what was aborted, unless it is overwritten before."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceover_lab.embed.connect import ConnectCluster
from tests.support.brokers.clusters import SharedCluster
from tests.support.connect.connect import EXACTLY_ONCE, Workers, counting_plugin, last_counts, rewound
from tests.support.connect.connect_tool import Case, Tool
from tests.support.raw.rawkafka import RawRecord
from tests.support.raw.rawtxn import OpenTransaction


@pytest.mark.soak
@pytest.mark.parametrize("own", [False, True], ids=["shared", "own"])
def test_workers_without_exactly_once_resume_at_the_committed_value(
    target_cluster: SharedCluster, unique_name: str, tmp_path: Path, own: bool
) -> None:
    """Every offset has an aborted one behind it, a thousand ahead; with a topic of its own or without."""
    plugin = counting_plugin()
    with (
        ConnectCluster.start(
            tmp_path / "workers",
            target_cluster.bootstrap,
            f"{unique_name}-group",
            plugins=[plugin],
            properties=EXACTLY_ONCE,
        ) as cluster,
        Case(tmp_path, unique_name, cluster, target_cluster.client) as case,
    ):
        case.begin()
        if own:
            case.migrate()
        case.connect.stop(case.name)
        abort_ahead(case, target_cluster.bootstrap)

        assert case.tool.downgrade(case.name, mode="soft").outcome(case.name) == "done"

        cluster.reconfigure({"exactly.once.source.support": "disabled"})
        # It was stopped before, so it stays so, and nothing shows yet that it goes on.
        finished = case.tool.downgrade(case.name, mode="soft").outcome(case.name)
        assert finished == ("done" if own else "unverifiable")
        case.connect.resume(case.name)
        case.assert_goes_on()
        assert all(count < 1000 for count in last_counts(case.connect.offsets(case.name)).values())


@pytest.mark.soak
def test_workers_that_still_run_exactly_once_are_noticed(
    workers: Workers, target_cluster: SharedCluster, unique_name: str, tmp_path: Path
) -> None:
    """The Connect file says what the workers are to be, their own file what they will be once restarted."""
    with Case(tmp_path, unique_name, workers.exactly_once, target_cluster.client) as case:
        case.begin()
        assert case.tool.downgrade(case.name, mode="soft").outcome(case.name) == "done"
        right = case.tool
        folder = right.path.parent
        case.tool = Tool(folder, case.cluster, keys={"worker": {"exactly.once.source.support": "disabled"}})

        early = case.tool.downgrade(case.name, mode="soft")

        assert (early.code, early.of(case.name)["error"]["code"]) == (3, "WORKER_MODE"), early
        case.connect.await_stopped(case.name)
        # What its tasks have written meanwhile is settled, too: the same again once the workers are right.
        assert early.of(case.name)["state"] == "STOPPED"
        case.tool = Tool(folder, case.cluster)
        again = case.tool.downgrade(case.name, mode="soft")
        assert (again.code, again.outcome(case.name)) == (0, "done"), again
        case.connect.resume(case.name)
        case.assert_goes_on()
        assert rewound(case.connect.offsets(case.name)) == set()


def abort_ahead(case: Case, bootstrap: str) -> None:
    """Write an aborted offset behind each of the connector's global ones."""
    offsets = case.connect.offsets(case.name)
    transaction = OpenTransaction(bootstrap, f"{case.name}-aborted", case.cluster.offsets_topic)
    for key, places in offsets.partitions.items():
        transaction.send(min(places), [RawRecord(key=key, value=b'{"count":1000}')])
    transaction.abort()
