"""Audits of flows between real brokers, read by this process or by Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from onceover.audit.model import ComparedAs, FindingKind, Mode, Reason, Side
from onceover.model import TopicPartition
from onceover.release import own_version
from onceover.state.read import read_flow_state
from onceover.state.records.verdicts import START
from onceover.state.records.verified import read_watermarks
from onceover.wiring.audit import AuditRequest, keep_verified
from onceover.wiring.flows import open_clusters
from tests.support.commands.replicate import START_S, run_cli
from tests.support.flows.feeds import PARTITIONS, feed
from tests.support.flows.flows import InlineFlow
from tests.support.flows.handled import handler_keys
from tests.support.flows.replica import Replica, alter_config, delete_before
from tests.support.raw.adversary import Traffic
from tests.support.session.modes import open_to_others
from tests.support.session.wait import wait_until
from tests.support.worlds.contentaudit import audit, partition

_TIMEOUT_S = 30.0
# So that small topics have several ranges.
SMALL_RANGES = AuditRequest(since=START, range_bytes=64 << 10)


def test_everything_copied_agrees_on_both_sides(replica: Replica) -> None:
    """Plain, transactional, aborted, tiny and large batches: nothing differs, most is compared as bytes."""
    topic = replica.topic(partitions=PARTITIONS)
    feed(replica.source, topic)
    copied = replica.copy()

    content = audit(replica.flow.watch.flow, SMALL_RANGES)

    assert sum(p.records(Side.SOURCE) for p in content.partitions) == copied.records
    for number in range(PARTITIONS):
        result = partition(content, topic, number)
        assert len(result.digests) > 2
        assert {d.compared for d in result.digests} & {ComparedAs.BYTES, ComparedAs.MIXED}
        assert (result.findings, result.unverifiable) == ((), ())
        assert result.verified_to == result.source_to > 0


def test_running_flow_under_load_is_audited_up_to_the_start(replica: Replica) -> None:
    """Bounds are fixed at the start: what comes later is not looked at, and everything before agrees."""
    replica.configure(topics={"naming": "prefix"})
    topic = replica.topic(partitions=PARTITIONS)
    with (
        Traffic(replica.source.bootstrap, {topic: PARTITIONS}, seed=11) as traffic,
        replica.running(seconds=60.0) as live,
    ):
        wait_until(lambda: traffic.total > 500 and live.alive, _TIMEOUT_S, "there is something to audit")
        first = audit(replica.flow.watch.flow, SMALL_RANGES, keep=True)
        second = audit(replica.flow.watch.flow, keep=True)
        traffic.stop()
    for content in (first, second):
        assert not any(p.findings for p in content.partitions)
        reasons = {each.reason for p in content.partitions for each in p.unverifiable}
        assert reasons <= {Reason.OPEN_TRANSACTION, Reason.NOT_COPIED_YET}
        assert all(p.verified_to == p.source_to for p in content.partitions)
    for before, after in zip(first.partitions, second.partitions, strict=True):
        assert after.source_from == after.verified_before == before.verified_to <= after.verified_to
        assert after.target_from == before.target_to or before.target_to > after.target_from


def test_open_transaction_is_counted_and_never_passed(replica: Replica) -> None:
    """Records behind an open transaction of the source cannot be compared, and that is said."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(5))
    open_transaction = replica.source.transaction(topic)
    open_transaction.send(0, replica.source.records(3))
    replica.source.plain(topic, 0, replica.source.records(4))
    replica.copy()

    content = audit(replica.flow.watch.flow, AuditRequest(settle_s=0.0))

    (gap,) = partition(content, topic).unverifiable
    assert (gap.reason, gap.offset_from, gap.offset_to, gap.offsets) == (Reason.OPEN_TRANSACTION, 5, 12, 7)
    assert partition(content, topic).records(Side.SOURCE) == 5
    open_transaction.abort()


def test_what_retention_removed_on_either_side_is_counted_and_the_rest_compared(replica: Replica) -> None:
    """A log that begins later than the copy is no loss."""
    topic = replica.topic()
    for _ in range(4):
        replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    delete_before(replica.source_client, topic, 15)
    once = partition(audit(replica.flow.watch.flow), topic)
    delete_before(replica.target_client, topic, 30)
    twice = partition(audit(replica.flow.watch.flow), topic)

    assert [(g.reason, g.offset_from, g.offset_to) for g in once.unverifiable] == [(Reason.DELETED, 0, 15)]
    assert once.records(Side.SOURCE) == once.records(Side.TARGET) == 25
    assert sum(gap.offsets for gap in twice.unverifiable) == twice.source_from
    assert twice.records(Side.SOURCE) == twice.records(Side.TARGET) == 40 - twice.source_from < 25
    assert once.findings == twice.findings == ()


def test_lag_of_a_flow_that_does_not_run_is_unverifiable(replica: Replica) -> None:
    """Records that nobody has copied are not missing, and not proven."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    replica.source.plain(topic, 0, replica.source.records(6))

    result = partition(audit(replica.flow.watch.flow), topic)

    (gap,) = result.unverifiable
    assert (gap.reason, gap.offset_from, gap.offset_to) == (Reason.NOT_COPIED_YET, 10, 16)
    assert result.findings == ()


def test_surplus_record_is_found_and_holds_the_watermark(replica: Replica) -> None:
    """A record that somebody else wrote into the copy is named, and nothing behind it counts as proven."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    flow = replica.flow.watch.flow
    before = partition(audit(flow, keep=True), topic)
    replica.target.plain(topic, 0, replica.target.records(1, value=b"strange"))
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()

    result = partition(audit(flow, keep=True), topic)
    again = partition(audit(flow), topic)

    (finding,) = result.findings
    assert finding.kind is FindingKind.PHANTOM
    assert finding.target_offset == result.target_from
    assert (result.verified_to, again.verified_before) == (before.verified_to, 10)
    assert again.findings == result.findings
    full = partition(audit(flow, AuditRequest(since=START)), topic)
    assert full.findings == result.findings


def test_what_the_flow_has_not_taken_in_and_what_belongs_to_nobody_is_told(replica: Replica) -> None:
    """A topic that was never enrolled cannot be compared; a target partition without a source is surplus."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(3))
    replica.copy()
    late = replica.topic("late")
    replica.source.plain(late, 0, replica.source.records(2))
    replica.target.add_partitions(topic, 2)
    replica.target.plain(topic, 1, replica.target.records(2, value=b"nobody's"))

    content = audit(replica.flow.watch.flow, show=True)

    assert partition(content, topic).findings == ()
    unknown, surplus = sorted(content.beside, key=lambda result: len(result.findings))
    (gap,) = unknown.unverifiable
    assert (gap.reason, gap.source.topic, gap.offsets) == (Reason.NOT_ENROLLED, late, 2)
    assert [finding.kind for finding in surplus.findings] == [FindingKind.PHANTOM] * 2
    assert all("nobody's" in (finding.payload or "") for finding in surplus.findings)


@pytest.mark.parametrize("form", [pytest.param("spread", marks=pytest.mark.soak), "spread_batch"])
def test_flow_with_a_handler_is_audited_by_applying_it_again(replica: Replica, form: str) -> None:
    """Records dropped, multiplied and spread over more partitions; what nobody made is surplus."""
    replica.configure(**handler_keys(form, partitions=5))
    topic = replica.topic(partitions=PARTITIONS)
    feed(replica.source, topic)
    copied = replica.copy()
    flow = replica.flow.watch.flow

    right = audit(flow, AuditRequest(since=START), keep=True)
    replica.target.plain(topic, 4, replica.target.records(1, value=b"nobody's"))
    wrong = audit(flow)

    assert sum(p.records(Side.TARGET) for p in right.partitions) == copied.records
    assert [p.findings for p in (*right.partitions, *right.beside)] == [()] * len(
        (*right.partitions, *right.beside)
    )
    assert all(p.verified_to == p.source_to > 0 for p in right.partitions)
    (finding,) = [f for p in (*wrong.partitions, *wrong.beside) for f in p.findings]
    assert (finding.kind, finding.target) == (FindingKind.PHANTOM, TopicPartition(topic, 4))


# Longer than the brokers have been there.
UNCLEANED = {"min.compaction.lag.ms": str(1 << 50)}


def compacted(replica: Replica, **config: str) -> str:
    """Copy a compacted topic with three values of each of two keys; return its name."""
    topic = replica.topic(config={"cleanup.policy": "compact", **config})
    for value in (b"1", b"2", b"3"):
        replica.source.plain(topic, 0, [replica.source.record(key=key, value=value) for key in (b"a", b"b")])
    replica.copy()
    return topic


def test_compacted_topic_is_compared_record_by_record(replica: Replica) -> None:
    """A foreign tombstone of a key that was proven is seen by the next audit, which reads no key's value."""
    topic = compacted(replica, **UNCLEANED)
    flow = replica.flow.watch.flow

    right = partition(audit(flow, keep=True), topic)
    replica.target.plain(topic, 0, [replica.target.record(key=b"a", value=None)])
    wrong = partition(audit(flow, keep=True), topic)

    assert (right.mode, right.findings, right.unverifiable) == (Mode.COMPACTED, (), ())
    assert right.records(Side.SOURCE) == right.records(Side.TARGET) == 6
    assert (wrong.source_from, [each.kind for each in wrong.findings]) == (6, [FindingKind.PHANTOM])


def test_what_a_log_cleaner_took_is_counted_and_no_finding(replica: Replica) -> None:
    """The broker cleans one side: earlier values can be compared no more; the latest ones have to agree."""
    replica.configure(topics={"sync_configs": False})
    topic = compacted(replica, **UNCLEANED)
    flow = replica.flow.watch.flow
    alter_config(replica.target_client, topic, {"cleanup.policy": "compact"})

    def is_cleaned() -> bool:
        # A cleaner leaves the newest segment alone: something has to follow what it is to take.
        replica.target.plain(topic, 0, [replica.target.record(key=b"z", value=b"foreign")])
        return sum(seen.key != b"z" for seen in replica.target_records(topic).values()) < 6

    wait_until(is_cleaned, 60.0, "the target is cleaned")
    result = partition(audit(flow), topic)

    assert {each.kind for each in result.findings} == {FindingKind.PHANTOM}
    assert all(each.target_offset is not None for each in result.findings)
    assert {each.reason for each in result.unverifiable} == {Reason.COMPACTED_HISTORY}
    assert result.verified_to <= 0


def test_diverted_and_skipped_records_are_told_apart_from_lost_ones(replica: Replica) -> None:
    """The dead-letter topic says which records were diverted: they are counted, and nothing is wrong.

    So it does when the flow file names it no more.
    """
    replica.configure(on_bad_record=f"dead_letter:letters-{replica.name}", topics={"sync_configs": False})
    topic = replica.topic()
    replica.target_topic(topic, config={"max.message.bytes": "20000"})
    replica.source.plain(topic, 0, replica.source.records(2))
    replica.source.plain(topic, 0, replica.source.records(1, value=bytes(30_000)))
    replica.source.plain(topic, 0, replica.source.records(2))
    replica.copy()

    result = partition(audit(replica.flow.watch.flow), topic)

    assert result.findings == ()
    assert [(gap.reason, gap.offset_from) for gap in result.unverifiable] == [(Reason.DEAD_LETTER, 2)]
    source, target = result.digests
    assert source.same_content(target)
    assert source.records == 4

    replica.configure(on_bad_record="stop")
    later = InlineFlow(replica.write_flow())
    for copied in (False, True):
        if copied:
            replica.source.plain(topic, 0, replica.source.records(2))
            later.copy()
        result = partition(audit(later.watch.flow, AuditRequest(since=START)), topic)
        assert result.findings == ()
        assert [(gap.reason, gap.offset_from) for gap in result.unverifiable] == [(Reason.DEAD_LETTER, 2)]


def test_watermark_never_goes_back_and_survives_an_audit_that_was_overtaken(replica: Replica) -> None:
    """An older audit that writes after a newer one changes nothing."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    flow = replica.flow.watch.flow
    older = audit(flow)
    replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    audit(flow, keep=True)
    source, target = open_clusters(flow)
    with source, target:
        keep_verified(flow, target, older)
        marks = read_watermarks(read_flow_state(target, flow.flow).others)
    assert [mark.offset for mark in marks.values()] == [10]


def spark_audit(home: Path, flow: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run the command; beside other work, Spark and Great Expectations take minutes."""
    return run_cli(home, "audit", str(flow), *arguments, timeout_s=2 * START_S)


def on_terminal(home: Path, *arguments: str) -> str:
    """Run a command with a terminal as its standard error; return what that shows."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "onceover.cli.main", *arguments]
    environment = {**os.environ, "ONCEOVER_HOME": str(home)}
    with os.fdopen(ours, "rb", buffering=0) as screen:
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=theirs) as child:
            os.close(theirs)
            shown = b""
            # Linux tells of the other end's last close with EIO.
            with suppress(OSError):
                while part := screen.read(1 << 12):
                    shown += part
        assert child.returncode == 0, shown
    return shown.decode()


@pytest.mark.timeout(600)
def test_command_names_what_is_wrong_since_the_watermark(
    replica: Replica, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through spark-submit: FAIL, exit code 1, with the record, the report and the Data Docs."""
    topic = replica.topic(partitions=PARTITIONS)
    feed(replica.source, topic)
    replica.copy()
    audit(replica.flow.watch.flow, keep=True)
    replica.target.plain(topic, 1, replica.target.records(1, value=b"strange"))
    page = tmp_path / "page.html"

    code, document = spark_audit(
        tmp_path, replica.flow.path, "--show-payload", "--topics", topic, "--report", str(page)
    )

    assert (code, document["verdict"], document["findings"]["total"]) == (1, "FAIL", 1), document
    (finding,) = document["findings"]["listed"]
    assert (finding["kind"], finding["target_partition"]) == ("PHANTOM", 1)
    assert "strange" in finding["payload"]
    assert document["records"]["source"] == 0
    assert document["about"]["versions"]["onceover"] == own_version()
    assert page.exists()
    docs = Path(document["data_docs"])
    assert docs.exists()
    # Nothing is served from there.
    assert docs.is_relative_to(tmp_path / replica.flow.watch.flow.flow / "audit-payload")
    assert open_to_others(tmp_path / replica.flow.watch.flow.flow) == []
    assert open_to_others(page) == []

    code, told = replica.command(capsys, "status", str(replica.flow.path))
    (entry,) = told["flows"]
    assert (code, [need["code"] for need in entry["needs"]]) == (1, ["AUDIT_FAILED"])
    assert (entry["audit"]["verdict"], entry["audit"]["report"]) == ("FAIL", str(page))
    (wrong,) = entry["audit"]["failed"]["partitions"]
    assert (wrong["partition"], wrong["what"]["PHANTOM"]) == (1, 1)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_command_passes_everything_and_a_sample_through_spark(replica: Replica, tmp_path: Path) -> None:
    """PASS, exit code 0; a sample keeps the newest range of every partition."""
    topic = replica.topic(partitions=PARTITIONS)
    feed(replica.source, topic)
    copied = replica.copy()

    code, document = spark_audit(tmp_path, replica.flow.path, "--full")
    assert (code, document["verdict"], document["complete"]) == (0, "PASS", True), document
    assert document["records"] == {"source": copied.records, "target": copied.records}

    shown = on_terminal(tmp_path, "audit", str(replica.flow.path), "--full")
    assert "comparing: 0 % of 3 ranges" in shown
    assert "judging" in shown
    assert list((tmp_path / replica.flow.watch.flow.flow / "log").glob("*.progress")) == []

    code, document = spark_audit(tmp_path, replica.flow.path, "--full", "--sample", "2")
    assert (code, document["ranges"]["compared"]) == (0, 3), document
