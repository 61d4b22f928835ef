"""Handlers in Spark's workers, as a user runs them: the whole way from the flow file to the target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.brokers.clusters import SharedCluster
from tests.support.commands.replicate import Replicate
from tests.support.flows.flows import write_flow
from tests.support.flows.replica import read_records
from tests.support.raw.adversary import Adversary
from tests.support.raw.rawkafka import RawRecord

T0_MS = 1_704_067_200_000


@pytest.mark.soak
def test_mask_and_dead_letters_through_spark(
    tmp_path: Path, unique_name: str, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> None:
    """A shipped handler, its argument from the environment, and one value that is no JSON."""
    letters = f"{unique_name}-letters"
    with Adversary(source_cluster.bootstrap) as adversary:
        adversary.create_topic(unique_name, 2)
        for partition in (0, 1):
            values = [json.dumps({"card": n, "n": n}).encode() for n in range(50)] + [b"no json"]
            records = [RawRecord(b"k", value, (), T0_MS + n) for n, value in enumerate(values)]
            adversary.plain(unique_name, partition, records)
    flow = write_flow(
        tmp_path,
        unique_name,
        source_cluster.client,
        target_cluster.client,
        [unique_name],
        handler="onceover.handlers.mask:MaskFields",
        handler_args={"fields": ["card"], "replacement": "${PATH}"},
        on_bad_record=f"dead_letter:{letters}",
    )
    run = Replicate(flow, tmp_path, "--until", "caught-up")
    assert run.wait() == 0, run.text()
    for partition in (0, 1):
        masked = [
            json.loads(s.value or b"")
            for s in read_records(target_cluster.client, unique_name, partition).values()
        ]
        assert [document["n"] for document in masked] == list(range(50))
        assert all(isinstance(document["card"], str) and "/" in document["card"] for document in masked)
    assert [s.value for s in read_records(target_cluster.client, letters).values()] == [b"no json"] * 2


@pytest.mark.soak
def test_handler_that_cannot_be_loaded_ends_the_run_with_2(
    tmp_path: Path, unique_name: str, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> None:
    """Nothing is started."""
    flow = write_flow(
        tmp_path,
        unique_name,
        source_cluster.client,
        target_cluster.client,
        [unique_name],
        handler="no_such_module_anywhere:f",
    )
    run = Replicate(flow, tmp_path, "--until", "caught-up")
    assert run.wait() == 2, run.text()
    assert "no_such_module_anywhere" in run.document()["error"]["message"]
