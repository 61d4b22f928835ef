"""Audits of flows that somebody intervened in, between real brokers."""

from __future__ import annotations

import pytest

from onceover.audit.checks.result import PartitionResult
from onceover.audit.model import FindingKind, Reason, Side
from onceover.config.flow.load import load_flow
from onceover.state.read import read_flow_state
from onceover.state.records.verified import read_watermarks
from onceover.wiring.audit import AuditRequest, audit_bookkeeping
from onceover.wiring.flows import open_clusters
from tests.support.flows.handled import handler_keys
from tests.support.flows.replica import Replica, alter_config, delete_before
from tests.support.raw.adversary import EPOCH_MS
from tests.support.worlds.contentaudit import audit, partition

_HOUR_MS = 3_600_000
# The adversary's records are of the first hours of 2024.
_HALF_AN_HOUR_LATER = "2024-01-01T00:30:00Z"


def test_what_an_operator_skipped_is_counted_and_passed(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not on the target because somebody decided so: no loss, and no end of what is proven."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    replica.source.plain(topic, 0, replica.source.records(8))
    command = "partition", "skip-to", str(replica.flow.path), f"{topic}:0", "13", "--apply"
    assert replica.command(capsys, *command)[0] == 0
    assert replica.copy().records == 5

    result = partition(audit(replica.flow.watch.flow), topic)

    assert result.findings == ()
    (gap,) = result.unverifiable
    assert (gap.reason, gap.offset_from, gap.offset_to, gap.offsets) == (Reason.SKIPPED, 10, 13, 3)
    assert (result.records(Side.SOURCE), result.records(Side.TARGET)) == (15, 15)
    assert result.verified_to == 18


@pytest.mark.parametrize("command", [("skip-to", "0"), ("skip-to", "1"), ("reseed",)], ids=" ".join)
def test_what_an_operator_has_had_copied_once_more_is_repeated(
    replica: Replica, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    """Also from where its copy had begun: what it held before that is nobody's, this is its own."""
    topic, (kind, *offset) = replica.topic(), command
    replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    repair = "partition", kind, str(replica.flow.path), f"{topic}:0", *offset, "--apply"
    assert replica.command(capsys, *repair)[0] == 0
    again = replica.copy().records
    found = partition(audit(replica.flow.watch.flow), topic).findings
    assert [each.kind for each in found] == [FindingKind.REPEATED] * again


def test_what_was_copied_again_behind_an_audit_is_looked_at(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twice where it still stood, and once where somebody had deleted what the audit has seen."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    flow = replica.flow.watch.flow
    assert partition(audit(flow, keep=True), topic).verified_to == 5

    def reseeded() -> PartitionResult:
        command = "partition", "reseed", str(replica.flow.path), f"{topic}:0", "--apply"
        assert replica.command(capsys, *command)[0] == 0
        assert replica.copy().records == 5
        return partition(audit(flow, keep=True), topic)

    twice = reseeded()
    delete_before(replica.target_client, topic, twice.target_to)
    once = reseeded()

    assert [(each.kind, each.source_offset) for each in twice.findings] == [
        (FindingKind.REPEATED, offset) for offset in range(5)
    ]
    assert (once.findings, once.records(Side.TARGET), once.verified_to) == ((), 5, 5)
    assert partition(audit(flow), topic).source_from == 5


def test_handler_that_was_changed_is_no_finding(replica: Replica) -> None:
    """What another handler made cannot be judged by today's, unless both make the same of the records."""
    replica.configure(**handler_keys("spread", partitions=5))
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(12))
    replica.copy()

    replica.configure(**handler_keys("spread_batch", partitions=5))
    alike = audit(load_flow(replica.write_flow()))
    replica.configure(**handler_keys("spread", partitions=4))
    other = audit(load_flow(replica.write_flow()))

    for content in (alike, other):
        assert not any(each.findings for each in (*content.partitions, *content.beside))
    assert partition(alike, topic).unverifiable == ()
    assert partition(alike, topic).verified_to == 12
    assert {each.reason for each in partition(other, topic).unverifiable} == {Reason.HANDLER_CHANGED}
    assert partition(other, topic).verified_to == -1


def test_audit_since_a_time_looks_at_records_from_then_on_and_claims_no_more(replica: Replica) -> None:
    """What lies before is not proven: no watermark comes of it, so that the next audit begins there."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(5, timestamp_ms=EPOCH_MS))
    replica.copy()
    replica.target.plain(topic, 0, replica.target.records(1, value=b"strange"))
    replica.source.plain(topic, 0, replica.source.records(5, timestamp_ms=EPOCH_MS))
    replica.copy()
    replica.source.plain(topic, 0, replica.source.records(7, timestamp_ms=EPOCH_MS + _HOUR_MS))
    replica.copy()
    flow = replica.flow.watch.flow

    late = partition(audit(flow, AuditRequest(since=_HALF_AN_HOUR_LATER), keep=True), topic)
    source, target = open_clusters(flow)
    with source, target:
        marks = read_watermarks(read_flow_state(target, flow.flow).others)
    whole = partition(audit(flow), topic)

    assert (late.source_from, late.source_to, late.findings, late.unverifiable) == (10, 17, (), ())
    assert (late.records(Side.SOURCE), late.records(Side.TARGET)) == (7, 7)
    assert (late.verified_to, marks) == (-1, {})
    assert [each.kind for each in whole.findings] == [FindingKind.PHANTOM]


@pytest.mark.soak
def test_audit_since_a_time_that_no_copied_record_has_finds_nothing_wrong(replica: Replica) -> None:
    """A flow with a lag: what is asked for is not copied yet, and what is copied is not asked for."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(5, timestamp_ms=EPOCH_MS))
    replica.copy()
    replica.source.plain(topic, 0, replica.source.records(3, timestamp_ms=EPOCH_MS + _HOUR_MS))
    for since in (_HALF_AN_HOUR_LATER, "2025-01-01T00:00:00Z"):
        late = partition(audit(replica.flow.watch.flow, AuditRequest(since=since)), topic)
        assert (late.findings, late.records(Side.TARGET)) == ((), 0)
        assert {each.reason for each in late.unverifiable} == {Reason.NOT_COPIED_YET}


@pytest.mark.soak
def test_surplus_record_where_the_source_is_empty_is_found_since_any_time(replica: Replica) -> None:
    """No record of the source lies before that time, so nothing of the target does."""
    topic = replica.topic(partitions=2)
    replica.source.plain(topic, 0, replica.source.records(3))
    replica.copy()
    replica.target.plain(topic, 1, replica.target.records(1))
    for since in ("watermark", "start", "2025-01-01T00:00:00Z"):
        found = partition(audit(replica.flow.watch.flow, AuditRequest(since=since)), topic, 1)
        assert [(each.kind, each.target_offset) for each in found.findings] == [(FindingKind.PHANTOM, 0)]
        assert (found.target_from, found.target_to) == (0, 1)


@pytest.mark.soak
def test_timestamps_that_the_target_makes_are_not_compared(replica: Replica) -> None:
    """LogAppendTime there: key, value and headers are, and the flow's claims are checked all the same."""
    topic = replica.topic()
    replica.target_topic(topic)
    replica.copy()
    # As somebody may set it on a topic that is copied already; before, it would be refused.
    alter_config(replica.target_client, topic, {"message.timestamp.type": "LogAppendTime"})
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    flow = replica.flow.watch.flow

    right = audit(flow)
    source, target = open_clusters(flow)
    with source, target:
        checks = audit_bookkeeping(flow, source, target, right).checks
    replica.target.plain(topic, 0, replica.target.records(1, value=b"strange"))
    replica.source.plain(topic, 0, replica.source.records(1))
    replica.copy()
    wrong = partition(audit(flow), topic)

    stamped = {seen.timestamp_ms for seen in replica.target_records(topic).values()}
    assert min(stamped) > EPOCH_MS + 1_000_000
    assert (partition(right, topic).findings, partition(right, topic).verified_to) == ((), 10)
    assert checks
    assert [each for each in checks if not each.ok] == []
    assert [each.kind for each in wrong.findings] == [FindingKind.PHANTOM]


def test_leaked_record_is_named_however_far_its_transaction_lies(replica: Replica) -> None:
    """The stretch in which it appears does not hold the aborted transaction; the source does."""
    topic = replica.topic()
    leaked = replica.source.records(1, value=b"never committed")
    transaction = replica.source.transaction(topic)
    aborted_at = transaction.send(0, leaked)
    transaction.abort()
    replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    flow = replica.flow.watch.flow
    assert partition(audit(flow, keep=True), topic).verified_to > aborted_at
    replica.target.plain(topic, 0, leaked)
    replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()

    (finding,) = partition(audit(flow), topic).findings

    assert (finding.kind, finding.source_offset) == (FindingKind.LEAKED, aborted_at)
    assert "aborted" in finding.detail
