"""Audits that once had no answer, or a wrong one, on real brokers: the same stories as in memory."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path

import pytest

from onceover.audit.model import FindingKind, Reason
from onceover.audit.ranges import snapshot
from onceover.clock import now_ms
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import load_flow
from onceover.copy.loop import Until
from onceover.kafka import calls
from onceover.lead.leader import Leader
from onceover.model import TopicPartition
from onceover.state.committed import all_progress
from onceover.state.read import read_flow_state
from onceover.state.records.enrolment import LeftAt
from onceover.state.records.progress import promoted_progress
from onceover.state.records.verdicts import START
from onceover.wiring.audit import AuditRequest
from onceover.wiring.flows import identity, open_clusters
from tests.support.commands.replicate import START_S, run_cli
from tests.support.flows.handled import handler_keys
from tests.support.flows.replica import Replica, delete_before
from tests.support.worlds.contentaudit import audit, partition

BAD = b"nobody can take this"


def diverting(replica: Replica) -> str:
    """Copy a topic through a handler that fails on the last of seven records; return its name."""
    keys = handler_keys("spread", partitions=5, bad=BAD.decode())
    replica.configure(**keys, on_bad_record=f"dead_letter:letters-{replica.name}")
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(6, value=b"good"))
    replica.source.plain(topic, 0, replica.source.records(1, value=BAD))
    replica.copy()
    return topic


def test_record_that_a_handler_fails_on_is_told_once_and_passed(replica: Replica) -> None:
    """Diverted as the flow file says: no finding, and no end of what is proven."""
    topic = diverting(replica)
    flow = load_flow(replica.write_flow())

    first = partition(audit(flow, keep=True), topic)
    again = partition(audit(flow), topic)

    assert (first.findings, [each.reason for each in first.unverifiable]) == ((), [Reason.DEAD_LETTER])
    assert (first.verified_to, again.unverifiable, again.source_from) == (7, (), 7)


def test_record_that_a_handler_panics_on_goes_where_others_go_that_it_fails_on(replica: Replica) -> None:
    """What it raises is no ``Exception``, and its class loads what it needs when a partition comes."""
    keys = handler_keys("Panics", bad=BAD.decode())
    replica.configure(**keys, on_bad_record=f"dead_letter:letters-{replica.name}")
    topic = replica.topic()
    for value in (b"good", BAD, b"good"):
        replica.source.plain(topic, 0, replica.source.records(2, value=value))
    replica.copy()
    assert len(replica.target_records(f"letters-{replica.name}")) == 2
    result = partition(audit(load_flow(replica.write_flow())), topic)
    assert (result.findings, [each.reason for each in result.unverifiable]) == ((), [Reason.DEAD_LETTER] * 2)


def test_record_that_a_handler_hangs_on_and_that_was_skipped_is_no_end_of_an_audit(
    replica: Replica, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is still on the source, and the handler is asked for it again."""
    for module in ("copy.partition", "handlers.calling"):
        monkeypatch.setattr(f"onceover.{module}.LONGEST_S", 0.5)
    monkeypatch.setattr("onceover.handling.pace.TOO_LONG_S", 0.25)
    replica.configure(lanes=1, **handler_keys("hanging", bad=BAD.decode()))
    topic = replica.topic()
    for value in (b"good", BAD, b"good"):
        replica.source.plain(topic, 0, replica.source.records(1, value=value))
    with replica.flow.running() as (lead, layout):
        # In this thread: no other one of the process can be interrupted.
        replica.flow.lane(layout, 0, Until(time.monotonic() + START_S, {TopicPartition(topic, 0): 2}))
        lead.end()
    assert replica.stop_of(topic)["code"] == "HANDLER_FAILED"
    flow = str(replica.flow.path)
    code, _ = replica.command(capsys, "partition", "skip-to", flow, f"{topic}:0", "2", "--apply")
    assert code == 0
    replica.copy()
    result = partition(audit(load_flow(replica.write_flow())), topic)
    assert (result.findings, [each.reason for each in result.unverifiable]) == ((), [Reason.HANDLER_FAILED])
    assert "did not come back" in result.unverifiable[0].message


@pytest.mark.soak
def test_sample_of_a_handler_flow_compares_and_proves_nothing(replica: Replica) -> None:
    """What a record became may be in ranges that are not in the sample."""
    topic = diverting(replica)
    result = partition(audit(load_flow(replica.write_flow()), AuditRequest(sample=1), keep=True), topic)
    assert (result.findings, result.complete, result.verified_to) == ((), False, -1)


def test_partition_of_a_handler_flow_that_got_nothing_is_looked_at(replica: Replica) -> None:
    """Incrementally, too: whatever is there is nobody's."""
    replica.configure(**handler_keys("spread", partitions=5))
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(1))
    replica.copy()
    flow = load_flow(replica.write_flow())
    audit(flow, keep=True)
    replica.target.plain(topic, 4, replica.target.records(1))

    content = audit(flow)

    found = [each for result in (*content.partitions, *content.beside) for each in result.findings]
    assert [(each.kind, each.target) for each in found] == [(FindingKind.PHANTOM, TopicPartition(topic, 4))]


def test_open_transaction_of_somebody_else_on_the_target_hides_and_is_said_so(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was copied behind it cannot be read: that is an answer, and it does not take a minute."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    foreign = replica.target.transaction(topic)
    foreign.send(0, replica.target.records(1))
    replica.source.plain(topic, 0, replica.source.records(3))
    replica.copy()
    flow = replica.flow.watch.flow

    with monkeypatch.context() as patch:
        # Nobody ends it: half a minute would be waited for that.
        patch.setattr(snapshot, "_MARKERS_S", 1.0)
        hidden = partition(audit(flow), topic)
    foreign.abort()
    seen = partition(audit(flow), topic)

    assert (hidden.findings, {each.reason for each in hidden.unverifiable}) == (
        (),
        {Reason.OPEN_TRANSACTION},
    )
    assert (hidden.source_to, seen.findings, seen.verified_to) == (5, (), 8)


def test_what_no_audit_has_seen_stays_unproven_until_the_source_has_lost_it_too(replica: Replica) -> None:
    """Somebody deletes records of the target before the first audit; the second one knows no more."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    delete_before(replica.target_client, topic, 4)
    flow = replica.flow.watch.flow
    for _ in range(2):
        result = partition(audit(flow, keep=True), topic)
        assert [(each.offset_from, each.offset_to) for each in result.unverifiable] == [(0, 4)]
        assert result.verified_to <= 0

    delete_before(replica.source_client, topic, 4)

    assert [each.gone for each in partition(audit(flow, keep=True), topic).unverifiable] == [True]
    after = partition(audit(flow), topic)
    assert (after.unverifiable, after.verified_to) == ((), 5)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_command_answers_for_a_handler_flow_with_a_diverted_record(replica: Replica, tmp_path: Path) -> None:
    """Through Spark's workers as well."""
    diverting(replica)
    arguments = "audit", str(replica.write_flow()), "--full"
    code, document = run_cli(tmp_path, *arguments, timeout_s=2 * START_S)
    assert (code, document["verdict"]) == (3, "UNVERIFIABLE"), json.dumps(document)[:2000]
    assert document["unverifiable"]["by_reason"] == {"DEAD_LETTER": 1}
    code, document = run_cli(tmp_path, *arguments, "--sample", "1", timeout_s=2 * START_S)
    assert code in (0, 3), json.dumps(document)[:2000]


@pytest.mark.parametrize("made", ["plain", "by a handler"])
def test_what_clients_write_to_a_copy_that_is_promoted_is_no_finding(replica: Replica, made: str) -> None:
    """It is theirs, also where a handler had put copies, or in partitions that they have added; what was
    copied is compared as before.
    """
    if made == "by a handler":
        replica.configure(**handler_keys("spread", partitions=3))
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(8))
    replica.copy()
    promote(replica.flow.watch.flow, topic)
    if made == "plain":
        replica.target.add_partitions(topic, 3)
    for number in range(3):
        replica.target.plain(topic, number, replica.target.records(3))

    content = audit(replica.flow.watch.flow, AuditRequest(since=START))

    assert not any(each.findings for each in (*content.partitions, *content.beside))
    result = partition(content, topic)
    assert (result.unverifiable, result.verified_to) == ((), 8)


def promote(flow: Flow, topic: str) -> None:
    """Give a copy to clients, as a switchover does."""
    source, target = open_clusters(flow)
    with source, target, closing(Leader(identity(flow), source, target)) as leader:
        now, progress = LeftAt(leader.seize().generation, now_ms()), all_progress(target, flow.flow)
        enrolment = read_flow_state(target, flow.flow).enrolled[topic]
        copies = [enrolment.target_of(each) for each in enrolment.sources()]
        ends = {tp.partition: at for tp, at in target.list_offsets(copies, calls.LATEST).items()}
        cuts = {tp.partition: progress[tp].offset for tp in copies}
        promoted = enrolment.as_promoted("d1", now, ends, cuts)
        leader.enrol([promoted], promoted_progress(promoted, progress))
