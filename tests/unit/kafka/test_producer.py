"""The transactional producer against a scripted broker: order, retries, and what is never committed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from onceover.errors import MustReset, NeedsOperator, Unanswered, UsageError
from onceover.kafka import calls
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.codes import KafkaCode
from onceover.kafka.each import Each
from onceover.kafka.ports import Refused
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.model import TopicPartition
from onceover.txn.txnstate import IllegalTransition, RequestSet
from tests.support.fakes.fakebroker import LOST
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.kafka.scenes import (
    GROUP,
    OFFSETS,
    P0,
    P1,
    batch,
    names_of,
    never_committed,
    producer,
    target,
    v3,
    v5,
    whole_transaction,
)

PRODUCE = 0

# ---- order


def test_requests_of_the_newer_set_in_their_order() -> None:
    """Produce and TxnOffsetCommit add by themselves; EndTxn v5."""
    cluster = v5()
    made = producer(cluster)
    made.send([batch(P0), batch(P1)])
    made.drain()
    made.add_offsets(GROUP, OFFSETS)
    made.commit()
    assert made.requests is RequestSet.V5
    assert cluster.asked() == [
        "Produce/1",
        "Produce/2",
        "answer",
        "answer",
        "TxnOffsetCommit v5",
        "EndTxn v5",
    ]


def test_requests_of_the_older_set_in_their_order() -> None:
    """Partitions and group are added before anything is written to them; topic ids compared before commit."""
    cluster = v3()
    made = producer(cluster)
    made.send([batch(P0)])
    made.send([batch(P0)])
    made.drain()
    made.add_offsets(GROUP, OFFSETS)
    made.commit()
    assert made.requests is RequestSet.V3
    assert cluster.asked() == [
        "AddPartitionsToTxn v3",
        "Produce/1",
        "answer",
        "Produce/1",
        "answer",
        "AddOffsetsToTxn v3",
        "TxnOffsetCommit v3",
        "EndTxn v3",
    ]
    assert cluster.log[-2] == "Metadata"


@pytest.mark.parametrize(
    ("features", "expected"), [((2, 13), 13), ((2, 14), 13), ((2, 12), 12), ((0, 13), 11), ((1, 9), 9)]
)
def test_produce_version_follows_the_request_set(features: tuple[int, int], expected: int) -> None:
    """Never mixed: Produce above 11 would add partitions implicitly."""
    cluster = target(*features)
    producer(cluster).send([batch(P0)])
    assert cluster.produced_by == [expected]


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("newer", [(2, 13, 12), (0, 10, 9)], ids=["v5", "v3"])
def test_each_broker_gets_the_version_that_it_speaks(newer: tuple[int, int, int], first: int) -> None:
    """While brokers are upgraded one by one, whichever is first: the older one hangs up on what is newer."""
    cluster = target(*newer[:2])
    cluster.newest[first][PRODUCE] = newer[2]
    made = producer(cluster)
    made.send([batch(P0), batch(P1)])
    assert len(made.drain()) == 2
    made.add_offsets(GROUP, OFFSETS)
    made.commit()
    assert names_of(cluster)[1] in cluster.log


def test_a_leader_that_comes_back_with_another_version_is_asked_anew() -> None:
    """On a new connection of the same session: upgraded, or put back."""
    cluster = target(2, 12)
    made = producer(cluster)
    whole_transaction(made)
    for version in (13, 12):
        cluster.newest[1][PRODUCE] = version
        for connection in cluster.connections:
            connection.hung_up = True
        whole_transaction(made)


def test_what_went_by_name_is_compared_though_its_leader_goes_by_id_now() -> None:
    """It hung up between two batches of a transaction, and came back as a newer one."""
    cluster = target(2, 12)
    made = producer(cluster)
    made.send([batch(P0)])
    made.drain()
    cluster.newest[1][PRODUCE] = 13
    for connection in cluster.connections:
        connection.hung_up = True
    made.send([batch(P0)])
    made.drain()
    cluster.all_topics["t"].id = UUID(int=8)
    with pytest.raises(MustReset, match="recreated between its records and the commit"):
        made.commit()


def test_request_set_is_chosen_anew_at_each_init() -> None:
    """The cluster may have been upgraded meanwhile."""
    cluster = v3()
    made = producer(cluster)
    cluster.feature = v5().feature
    assert made.init() and made.requests is RequestSet.V5


def test_empty_commit_and_abort_ask_nothing(cluster: FakeCluster) -> None:
    """48 would be the answer."""
    made = producer(cluster)
    made.commit()
    made.abort()
    assert not cluster.log


def test_first_batch_of_a_partition_is_awaited_later_ones_are_pipelined(cluster: FakeCluster) -> None:
    """Nothing may lie behind a batch that can be told "not yet"."""
    made = producer(cluster)
    made.send([batch(P0)])
    made.send([batch(P0)])
    made.send([batch(P0)])
    assert cluster.asked()[-3:] == ["answer", "Produce/1", "Produce/1"]
    made.send([batch(P1)])
    assert cluster.asked().count("answer") == 4
    assert [ack.base_offset for ack in made.drain()] == [100, 101, 102, 200]


def test_a_few_requests_are_always_on_their_way(cluster: FakeCluster) -> None:
    """Reading ahead of the answers is what makes it fast."""
    made = producer(cluster)
    made.send([batch(P0)])
    made.drain()
    for _ in range(3):
        made.send([batch(P0)])
        assert not made.make_room(), "there is room for one more"
    made.send([batch(P0)])
    assert [ack.base_offset for ack in made.make_room()][:1] == [101]
    made.send([batch(P0)])
    assert made.drain()[-1].base_offset == 105


@pytest.mark.parametrize(
    ("code", "reason"), [(19, KafkaCode.FEW_REPLICAS), (20, KafkaCode.FEW_REPLICAS), (6, "MustReset")]
)
def test_too_few_replicas_are_told_as_such_and_of_whom(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    """They are waited for longer than what else a leader says."""
    monkeypatch.setattr("onceover.kafka.produce.requests.PATIENCE_S", 0.0)
    cluster.codes["answer"].append(code)
    made = producer(cluster)
    with pytest.raises(MustReset) as caught:
        made.send([batch(P0)])
    assert (caught.value.code, caught.value.partitions) == (reason, (P0,))


# ---- quotas


def test_a_broker_that_does_not_listen_for_a_while_is_told_on_a_new_connection(cluster: FakeCluster) -> None:
    """The rest of the transaction would come too late for it; its data is acknowledged already."""
    cluster.throttle_ms.extend([0, 90_000])
    made = producer(cluster)
    made.send([batch(P0)])
    assert made.pause_s == 0.0
    made.send([batch(P0)])
    made.send([batch(P0)])
    assert len(cluster.connections) == 1, "nothing is known before the answer"
    made.drain()
    assert 80.0 < made.pause_s <= 90.0
    made.send([batch(P0)])
    made.send([batch(P1)])
    assert [c.node for c in cluster.connections] == [1, 1, 2] and cluster.connections[0].closed
    assert [ack.base_offset for ack in made.drain()] == [103, 200]
    made.commit()


# ---- not yet


@pytest.mark.parametrize("code", [51, 19])
def test_first_round_is_repeated_unchanged_while_the_target_says_not_yet(
    cluster: FakeCluster, code: int
) -> None:
    """The previous transaction closes, or replicas are short: the same batch, the same sequence."""
    cluster.codes["answer"].extend([code, code])
    made = producer(cluster)
    made.send([batch(P0, 3)])
    assert cluster.asked().count("Produce/1") == 3
    assert [sequence for _, _, _, sequence in cluster.batches] == [0]
    assert len(made.drain()) == 1


@pytest.mark.parametrize("code", [51, 19])
def test_not_yet_in_a_later_round_is_a_reset(cluster: FakeCluster, code: int) -> None:
    """Batches behind it were refused for the gap, or will be."""
    made = producer(cluster)
    made.send([batch(P0)])
    made.send([batch(P0)])
    cluster.codes["answer"].append(code)
    with pytest.raises(MustReset, match=r"refused for the moment \(error \d+\), with others behind it"):
        made.drain()
    never_committed(made, cluster)


@pytest.mark.parametrize("request_", ["AddPartitionsToTxn v3", "AddOffsetsToTxn v3", "TxnOffsetCommit v3"])
@pytest.mark.parametrize("code", [51, 14])
def test_adding_is_repeated_while_the_target_says_not_yet(request_: str, code: int) -> None:
    """The older set asks before it writes."""
    cluster = v3()
    cluster.codes[request_].extend([code, code])
    made = producer(cluster)
    whole_transaction(made)
    assert cluster.asked().count(request_) == 3


@pytest.mark.parametrize("code", [15, 16])
def test_moved_coordinator_is_found_again(cluster: FakeCluster, code: int) -> None:
    """For the group and for the transaction."""
    commit, end = names_of(cluster)
    cluster.codes[commit].append(code)
    cluster.codes[end].append(code)
    whole_transaction(producer(cluster))
    assert cluster.forgotten == [GROUP, "id"]


# ---- refused and lost


@pytest.mark.parametrize("code", [10, 32, 87, -1, 2])
def test_refused_content_is_told_and_never_committed(cluster: FakeCluster, code: int) -> None:
    """The commit would say OK although a part is missing (docs/facts.md)."""
    cluster.codes["answer"].append(code)
    made = producer(cluster)
    with pytest.raises(Refused) as refused:
        made.send([batch(P0)])
    assert (refused.value.code, refused.value.outgoing.target) == (code, P0)
    never_committed(made, cluster)


def test_all_that_an_answer_refuses_is_told(cluster: FakeCluster) -> None:
    """Who deals with it one by one begins anew for each, and each partition may hold such a record."""
    cluster.add_topic("u", UUID(int=9), ends=(0, 0, 0), leaders=dict.fromkeys(range(3), 1))
    parts = [TopicPartition("u", number) for number in range(3)]
    cluster.codes["answer"].extend([87, 0, 32])
    made = producer(cluster)
    with pytest.raises(Refused) as refused:
        made.send([batch(tp) for tp in parts])
    assert (refused.value.code, refused.value.outgoing.target) == (87, parts[0])
    assert [(one.code, one.outgoing.target) for one in refused.value.others] == [(32, parts[2])]
    never_committed(made, cluster)


@pytest.mark.parametrize("code", [47, 90, 45, 49, 59, 120, 3, 6, 100, 139])
def test_every_other_answer_to_produce_is_a_reset(cluster: FakeCluster, code: int) -> None:
    """Fenced, gap, unknown producer, gone, moved, or a code that nobody knows."""
    cluster.codes["answer"].append(code)
    made = producer(cluster)
    with pytest.raises(MustReset):
        made.send([batch(P0)])
    never_committed(made, cluster)


@pytest.mark.parametrize("code", [47, 90, 48, 120, 3, 139])
def test_refused_progress_is_never_committed(cluster: FakeCluster, code: int) -> None:
    """Data without progress would be copied twice."""
    made = producer(cluster)
    made.send([batch(P0)])
    made.drain()
    cluster.codes[names_of(cluster)[0]].append(code)
    with pytest.raises(MustReset):
        made.add_offsets(GROUP, OFFSETS)
    never_committed(made, cluster)


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_that_is_not_ready_is_waited_for_unless_it_must_be_the_same(
    cluster: FakeCluster, code: int
) -> None:
    """What another one has told before is worth nothing: nothing may be committed on the strength of it."""
    made = producer(cluster)
    cluster.codes[names_of(cluster)[0]].append(code)
    made.add_offsets(GROUP, OFFSETS)
    made.commit()
    cluster.log.clear()
    cluster.codes[names_of(cluster)[0]].append(code)
    with pytest.raises(MustReset, match="was not ready for a write"):
        made.add_offsets(GROUP, OFFSETS, moving=False)
    never_committed(made, cluster)


def test_connection_lost_with_a_produce_unanswered_is_a_reset(cluster: FakeCluster) -> None:
    """What landed is unknown: never commit, never reason about it."""
    made = producer(cluster)
    made.send([batch(P0)])
    made.send([batch(P0)])
    cluster.codes["answer"].append(LOST)
    with pytest.raises(MustReset, match=LOST):
        made.drain()
    never_committed(made, cluster)


@pytest.mark.parametrize(
    ("timeout_ms", "code", "answered"), [(10**6, 47, True), (10**6, LOST, False), (0, 47, False)]
)
def test_answers_are_told_from_silence_and_from_what_only_time_says(
    cluster: FakeCluster, timeout_ms: int, code: int | str, answered: bool
) -> None:
    """By the transaction's timeout, the target has ended it by itself: 47 says no more than that."""
    cluster.codes["answer"].append(code)
    made = TransactionalProducer(cluster, "id", timeout_ms=timeout_ms)
    assert made.init()
    with pytest.raises(MustReset) as caught:
        made.send([batch(P0)])
    assert isinstance(caught.value, Unanswered) != answered


@pytest.mark.parametrize("code", [LOST, 47, 48, 51, 90, 139])
def test_commit_with_an_unknown_or_bad_outcome_is_a_reset(cluster: FakeCluster, code: int | str) -> None:
    """51 to a *first* EndTxn: somebody else ends our transaction."""
    made = producer(cluster)
    made.send([batch(P0)])
    made.drain()
    cluster.codes[names_of(cluster)[1]].append(code)
    with pytest.raises(MustReset):
        made.commit()
    assert cluster.asked().count(names_of(cluster)[1]) == 1
    with pytest.raises(IllegalTransition):
        made.send([batch(P0)])


def test_commit_is_repeated_while_the_coordinator_loads_and_then_closes(cluster: FakeCluster) -> None:
    """51 after an EndTxn of our own means that it is being done."""
    made = producer(cluster)
    made.send([batch(P0)])
    made.drain()
    end = names_of(cluster)[1]
    cluster.codes[end].extend([14, 51])
    made.commit()
    assert cluster.asked().count(end) == 3


def test_commit_with_answers_outstanding_is_illegal(cluster: FakeCluster) -> None:
    """A late refusal would not be noticed."""
    made = producer(cluster)
    made.send([batch(P0)])
    made.send([batch(P0)])
    with pytest.raises(IllegalTransition, match="unanswered"):
        made.commit()
    with pytest.raises(MustReset, match="requests in flight"):
        made.abort()


def test_abort_that_finds_nothing_open_is_done(cluster: FakeCluster) -> None:
    """The target has timed it out; the next transaction goes on."""
    made = producer(cluster)
    made.send([batch(P0)])
    made.drain()
    cluster.codes[names_of(cluster)[1]].append(48)
    made.abort()
    whole_transaction(made)


def test_base_offset_that_does_not_grow_is_a_reset() -> None:
    """V3 answers a repeated sequence with OK and drops the data (docs/facts.md)."""
    cluster = v3()
    made = producer(cluster)
    made.send([batch(P0, 2)])
    made.drain()
    cluster.all_topics["t"].logs[0].end = 101
    made.send([batch(P0)])
    with pytest.raises(MustReset, match="did not append"):
        made.drain()
    never_committed(made, cluster)


@pytest.mark.parametrize("version", [12, 11])
def test_topic_recreated_inside_a_transaction_by_name_is_noticed_before_the_commit(version: int) -> None:
    """What was written before is gone with the old topic; Produce by id would have been refused."""
    cluster = target(2 if version == 12 else 0, version)
    made = producer(cluster)
    made.send([batch(P0)])
    made.drain()
    cluster.all_topics["t"].id = UUID(int=8)
    with pytest.raises(MustReset, match="recreated between its records and the commit"):
        made.commit()
    assert not any(request.startswith("EndTxn") for request in cluster.log)


def test_missing_authorization_and_broker_settings_are_for_people(cluster: FakeCluster) -> None:
    """Not retried for ever."""
    made = producer(cluster)
    cluster.codes["answer"].append(29)
    with pytest.raises(UsageError, match="not authorized"):
        made.send([batch(P0)])
    made.init()
    made.send([batch(P0)])
    made.drain()
    cluster.codes[names_of(cluster)[0]].append(12)
    with pytest.raises(NeedsOperator):
        made.add_offsets(GROUP, OFFSETS)


@pytest.mark.parametrize("code", [29, 6, 3, 19, 45])
def test_errors_about_one_partition_name_it(cluster: FakeCluster, code: int) -> None:
    """So that the lane's others may go on without it; the transaction is lost all the same."""
    made = producer(cluster)
    made.send([batch(P0), batch(P1)])
    made.drain()
    cluster.codes["answer"].extend([0, code])
    made.send([batch(P0), batch(P1)])
    with pytest.raises((UsageError, MustReset)) as caught:
        made.drain()
    assert caught.value.partitions == (P1,)
    never_committed(made, cluster)


@pytest.mark.parametrize("code", [47, 49, 30, 53, 90])
def test_errors_about_the_producer_name_no_partition(cluster: FakeCluster, code: int) -> None:
    """Nobody is stopped because the lane was fenced, or has no right to its group or its id."""
    made = producer(cluster)
    cluster.codes["answer"].append(code)
    with pytest.raises((UsageError, MustReset)) as caught:
        made.send([batch(P0)])
    assert caught.value.partitions == ()
    never_committed(made, cluster)


@pytest.mark.parametrize("code", [29, 3])
def test_progress_that_is_refused_for_a_topic_names_it(cluster: FakeCluster, code: int) -> None:
    """READ is needed to commit offsets, whatever may be written."""
    made = producer(cluster)
    cluster.codes[names_of(cluster)[0]].append(code)
    with pytest.raises((UsageError, MustReset)) as caught:
        made.add_offsets(GROUP, OFFSETS)
    assert caught.value.partitions == (P0,)


def test_the_older_set_names_who_keeps_the_others_out_of_the_transaction() -> None:
    """One without the right, and the rest is not attempted (55)."""
    cluster = v3()
    made = producer(cluster)
    cluster.codes["AddPartitionsToTxn v3"].append(29)
    with pytest.raises(UsageError) as caught:
        made.send([batch(P1), batch(P0)])
    assert caught.value.partitions == (P0,)
    never_committed(made, cluster)


@pytest.mark.parametrize("failed", [True, False], ids=["no right", "not there"])
def test_topic_that_cannot_be_looked_up_is_named(monkeypatch: pytest.MonkeyPatch, failed: bool) -> None:
    """Before anything of the round is sent."""
    cluster = v5()
    made = producer(cluster)
    error = UsageError("no right")
    monkeypatch.setattr(cluster, "each_topic", lambda _: Each({}, {"t": error} if failed else {}))
    with pytest.raises(UsageError if failed else MustReset) as caught:
        made.send([batch(P0)])
    assert caught.value.partitions == (P0,)
    assert not any(request.startswith("Produce") for request in cluster.log)


# ---- size


def test_offsets_of_many_partitions_are_committed_in_portions(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's coordinator writes a request as one batch, which its topic limits to 1 MB."""
    sizes: list[int] = []
    original = calls.txn_offset_commit

    def spy(*arguments: Any, version: int) -> dict[TopicPartition, int]:
        offsets: dict[TopicPartition, OffsetToCommit] = arguments[4]
        sizes.append(sum(2 * len(tp.topic) + len(o.metadata) + 100 for tp, o in offsets.items()))
        return original(*arguments, version=version)

    monkeypatch.setattr("onceover.kafka.produce.producer.calls.txn_offset_commit", spy)
    many = {TopicPartition(f"{n:0249}", 0): OffsetToCommit(n, 1, "{}" * 200) for n in range(3000)}
    for number, tp in enumerate(many):
        cluster.add_topic(tp.topic, UUID(int=100 + number))
    made = producer(cluster)
    made.add_offsets(GROUP, many)
    assert GROUP not in cluster.groups
    made.commit()
    assert cluster.groups[GROUP].keys() == many.keys()
    assert len(sizes) > 1
    assert max(sizes) < 1_000_000


@pytest.mark.parametrize(
    ("code", "setting"), [(12, "offset.metadata.max.bytes"), (50, "transaction.max.timeout.ms")]
)
def test_the_setting_that_is_in_the_way_is_named(code: int, setting: str) -> None:
    """Not a missing right, and not a number alone."""
    cluster = v5()
    made = producer(cluster)
    request = names_of(cluster)[0] if code == 12 else "InitProducerId"
    cluster.codes[request].append(code)
    with pytest.raises(NeedsOperator) as refusal:
        made.add_offsets(GROUP, OFFSETS) if code == 12 else made.init()
    assert setting in str(refusal.value.resolve)
