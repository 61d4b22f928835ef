"""Nothing is written over what another reader has committed, whatever its coordinator tells of it (G6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from onceover.kafka import calls
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.wiring.groups import GroupRequest
from tests.support.flows.groups import commit, commit_undecided, offset_of
from tests.support.flows.operations import apply_groups
from tests.support.flows.replica import Replica
from tests.support.session.wait import wait_until

DONE, TEMPORARY = 0, 5
_TIMEOUT_S = 30.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals and indexes of the test's own."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))


def copied(replica: Replica, partitions: int = 1, records: int = 10) -> str:
    """Copy a topic with so many plain records in each partition; return its name."""
    topic = replica.topic(partitions=partitions)
    for partition in range(partitions):
        replica.source.plain(topic, partition, replica.source.records(records))
    replica.copy()
    return topic


def apply(replica: Replica, group: str) -> tuple[int, dict[str, str]]:
    """Put one group in place; return the exit code, and the codes of what was left alone by object."""
    flow, request = replica.flow.watch.flow, GroupRequest(patterns=[group])
    applied = apply_groups(flow, request)
    return applied.exit_code, {r.object: r.code for r in [*applied.plan.refused, *applied.refused]}


def test_a_first_commit_that_is_pending_is_waited_for_and_other_partitions_go_on(replica: Replica) -> None:
    """Of all partitions of a group, a coordinator leaves out those that have nothing but a pending commit."""
    topic, group = copied(replica, partitions=2), f"{replica.name}-reader"
    commit(replica.source_client, group, topic, {0: 4, 1: 4})
    with commit_undecided(replica.target_client, group, TopicPartition(topic, 0, 8)) as reader:
        assert apply(replica, group) == (TEMPORARY, {f"{group} {topic}:0": "COMMIT_PENDING"})
        assert offset_of(replica.target_client, group, topic, 1) == 4
        reader.commit_transaction(_TIMEOUT_S)
    wait_until(lambda: offset_of(replica.target_client, group, topic) == 8, _TIMEOUT_S, "it is decided")
    assert apply(replica, group)[0] == DONE
    assert offset_of(replica.target_client, group, topic) == 8


def test_a_kill_before_the_end_of_our_own_write_keeps_no_reader_waiting(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write that a coordinator has to take first is for a partition that no reader asks for."""
    topic, group = copied(replica), f"{replica.name}-reader"
    commit(replica.source_client, group, topic, {0: 5})
    monkeypatch.setattr(TransactionalProducer, "abort", lambda _: None)
    assert apply(replica, group) == (DONE, {})
    assert offset_of(replica.target_client, group, topic) == 5


class Early:
    """A coordinator that tells an older offset of one group until it has taken a write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, group: str, offset: int) -> None:
        self.told = 0
        self._group, self._offset = group, offset
        self._fetch, self._write = calls.offset_fetch, calls.txn_offset_commit
        monkeypatch.setattr(calls, "offset_fetch", lambda *a, **k: self._read(*a, **k))
        monkeypatch.setattr(calls, "txn_offset_commit", self._written)
        self._reading = True

    def _read(self, connection: Any, asked: Any, *, stable: bool) -> Any:
        answers = self._fetch(connection, asked, stable=stable)
        if asked.get(self._group) is None or not self._reading:
            return answers
        self.told += 1
        error, found = answers[self._group]
        early = {tp: CommittedOffset(0, self._offset, -1, "") for tp in found}
        return {**answers, self._group: (error, early)}

    def _written(self, *arguments: Any, **named: Any) -> Any:
        codes = self._write(*arguments, **named)
        self._reading = False
        return codes


def test_a_group_is_not_moved_back_by_what_its_coordinator_tells_too_early(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen with Kafka 4.3 while a coordinator still reads its log; the reader here is further than there."""
    topic, group = copied(replica), f"{replica.name}-reader"
    commit(replica.source_client, group, topic, {0: 5})
    commit(replica.target_client, group, topic, {0: 8})
    early = Early(monkeypatch, group, 2)
    code, left = apply(replica, group)
    assert early.told
    assert left == {f"{group} {topic}:0": "COMMITS_MOVE"}
    assert offset_of(replica.target_client, group, topic) == 8
    assert (apply(replica, group), code) == ((DONE, {f"{group} {topic}:0": "AHEAD"}), DONE)
    assert offset_of(replica.target_client, group, topic) == 8
