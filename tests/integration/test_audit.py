"""Audits of flows between real brokers, read by this process or by Spark."""

from __future__ import annotations

from pathlib import Path

from onceover.audit.model import Compared, Side
from tests.support.contentaudit import audit, partition
from tests.support.feeds import PARTITIONS, feed
from tests.support.replica import Replica
from tests.support.replicate import START_S, run_cli


def test_everything_copied_agrees_on_both_sides(replica: Replica) -> None:
    """Plain, transactional, aborted, tiny and large batches: nothing differs, bytes are compared."""
    topic = replica.topic(partitions=PARTITIONS)
    feed(replica.source, topic)
    copied = replica.copy()

    content = audit(replica.flow.watch.flow)

    assert sum(p.records(Side.SOURCE) for p in content.partitions) == copied.records
    for number in range(PARTITIONS):
        result = partition(content, topic, number)
        source, target = result.digests
        assert source.same_content(target)
        assert source.compared is not Compared.RECORDS
        assert (result.findings, result.unverifiable) == ((), ())
        assert result.verified_to == result.source_to > 0


def test_command_audits_through_spark(replica: Replica, tmp_path: Path) -> None:
    """PASS through spark-submit, with the report and the Data Docs written."""
    topic = replica.topic(partitions=PARTITIONS)
    feed(replica.source, topic)
    copied = replica.copy()

    code, document = run_cli(tmp_path, "audit", str(replica.flow.path), timeout_s=START_S)

    assert (code, document["verdict"]) == (0, "PASS"), document
    assert document["records"] == {"source": copied.records, "target": copied.records}
    assert Path(document["report"]).exists() and Path(document["data_docs"]).exists()
