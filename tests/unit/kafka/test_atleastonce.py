"""At least once against a scripted broker: what is in the transaction, what is not, in which order."""

from __future__ import annotations

from uuid import UUID

import pytest

from onceover.errors import MustReset, UsageError
from onceover.kafka.ports import Outgoing, Refused
from onceover.kafka.produce.atleastonce import AtLeastOnceProducer, IdempotentProducer
from onceover.txn.txnstate import IllegalTransition
from tests.support.fakes.fakebroker import LOST
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.kafka.scenes import GROUP, OFFSETS, P0, P1, batch, names_of, producer, target

SOURCE = P0
PRODUCE = 0


def both(cluster: FakeCluster) -> AtLeastOnceProducer:
    """Return an initialised producer of both kinds."""
    made = AtLeastOnceProducer(producer(cluster), IdempotentProducer(cluster))
    assert made.init()
    cluster.log.clear()
    return made


def data(target: object = P0, count: int = 1) -> Outgoing:
    """Return a batch that was read from the source."""
    return batch(P1 if target is P1 else P0, count)._replace(source=SOURCE, source_runs=((0, count),))


def never_committed(made: AtLeastOnceProducer, cluster: FakeCluster) -> None:
    """Fail unless neither progress nor the end of a transaction can be sent any more."""
    with pytest.raises(IllegalTransition):
        made.add_offsets(GROUP, OFFSETS)
    with pytest.raises(IllegalTransition):
        made.commit()
    assert not any(request.startswith(("TxnOffsetCommit", "EndTxn")) for request in cluster.log)


def test_only_the_lanes_own_records_and_progress_are_in_the_transaction(cluster: FakeCluster) -> None:
    """Nothing of a transaction is asked before the data is answered."""
    made = both(cluster)
    made.send([data(P0, 3), data(P1)])
    assert cluster.asked() == ["Produce/1", "Produce/2", "answer", "answer"]
    assert not made.in_transaction
    assert [ack.base_offset for ack in made.drain()] == [100, 200]
    made.send([batch(P0)])
    made.drain()
    assert made.in_transaction
    made.add_offsets(GROUP, OFFSETS)
    made.commit()
    assert cluster.asked()[-2:] == list(names_of(cluster))
    # (partition, producer id, epoch, sequence): the data's own id and epoch, the lane's for its own record
    lane = cluster.batches[-1][1]
    assert [b[1:] for b in cluster.batches[:2]] == [(901, 0, 0), (901, 0, 0)]
    assert lane != 901


def test_later_batches_of_a_partition_are_pipelined_with_growing_sequences(cluster: FakeCluster) -> None:
    """The first of a partition is awaited once per producer id, not once per transaction."""
    made = both(cluster)
    made.send([data(P0, 2)])
    made.drain()
    made.add_offsets(GROUP, OFFSETS)
    made.commit()
    cluster.log.clear()
    for _ in range(3):
        made.send([data(P0, 2)])
        assert not made.make_room() and "answer" not in cluster.log
    made.send([data(P0, 2)])
    assert made.make_room() and not made.drain()
    assert [b[3] for b in cluster.batches] == [0, 2, 4, 6, 8]


def test_progress_is_refused_while_data_is_unanswered(cluster: FakeCluster) -> None:
    """Committed now, a crash would lose what is still on its way."""
    made = both(cluster)
    made.send([data()])
    made.drain()
    made.send([data()])
    never_committed(made, cluster)


@pytest.mark.parametrize("code", [5, 6, 45, 59, 3, 56, LOST])
def test_a_failed_send_stops_the_attempt_and_no_progress_follows(
    cluster: FakeCluster, code: int | str
) -> None:
    """Never dropped: the next attempt resumes from the progress."""
    made = both(cluster)
    made.send([data()])
    made.send([data()])
    cluster.codes["answer"].append(code)
    with pytest.raises(MustReset):
        made.drain()
    never_committed(made, cluster)


def test_refused_content_is_told_with_its_batch_and_no_progress_follows(cluster: FakeCluster) -> None:
    """The same way as exactly once goes, so that what follows is the same too."""
    made = both(cluster)
    sent = data()
    cluster.codes["answer"].append(87)
    with pytest.raises(Refused) as raised:
        made.send([sent])
    assert raised.value.outgoing is sent
    never_committed(made, cluster)


@pytest.mark.parametrize("code", [7, 19, 20])
def test_first_batch_is_repeated_under_its_sequence_while_replicas_are_short(
    cluster: FakeCluster, code: int
) -> None:
    """A broker that appended it already notices by the sequence, so that it is not there twice."""
    cluster.codes["answer"].extend([code, code])
    made = both(cluster)
    made.send([data(P0, 3)])
    assert cluster.asked().count("Produce/1") == 3
    assert [b[3] for b in cluster.batches] == [0]
    assert len(made.drain()) == 1


@pytest.mark.parametrize("code", [7, 19, 20])
def test_the_same_in_a_later_batch_stops_the_attempt(cluster: FakeCluster, code: int) -> None:
    """Others are behind it."""
    made = both(cluster)
    made.send([data()])
    made.send([data()])
    cluster.codes["answer"].append(code)
    with pytest.raises(MustReset, match="refused for the moment"):
        made.drain()
    never_committed(made, cluster)


def test_each_attempt_has_a_producer_id_of_its_own(cluster: FakeCluster) -> None:
    """Sequences begin at 0 again, and nothing of the old attempt can be taken for a repetition."""
    made = both(cluster)
    made.send([data(P0, 3)])
    assert made.init()
    made.send([data(P0, 3)])
    assert [b[1:] for b in cluster.batches] == [(901, 0, 0), (902, 0, 0)]


def test_the_lane_is_fenced_before_it_takes_an_id_for_the_data(cluster: FakeCluster) -> None:
    """Not yet means not at all."""
    made = AtLeastOnceProducer(producer(cluster), IdempotentProducer(cluster))
    cluster.codes["InitProducerId"].append(51)
    assert not made.init()
    assert cluster.asked() == ["InitProducerId"]
    with pytest.raises(IllegalTransition):
        made.send([data()])


def test_a_missing_right_is_named(cluster: FakeCluster) -> None:
    """Without WRITE on any topic there is no producer id."""
    made = AtLeastOnceProducer(producer(cluster), IdempotentProducer(cluster))
    cluster.codes["InitProducerId without an id"].append(31)
    with pytest.raises(UsageError, match="not authorized"):
        made.init()


@pytest.mark.parametrize("older", [1, 2])
def test_each_broker_gets_the_version_that_it_speaks(older: int) -> None:
    """While brokers are upgraded one by one, whichever is first."""
    cluster = target(0, 13)
    cluster.newest[older][PRODUCE] = 9
    made = both(cluster)
    made.send([data(P0), data(P1)])
    assert len(made.drain()) == 2


def test_topic_recreated_before_its_progress_is_noticed_where_produce_goes_by_name() -> None:
    """By id the broker notices itself."""
    cluster = target(0, 11)
    made = both(cluster)
    made.send([data()])
    made.drain()
    cluster.all_topics["t"].id = UUID(int=8)
    with pytest.raises(MustReset, match="recreated between its records and the commit"):
        made.add_offsets(GROUP, OFFSETS)
    never_committed(made, cluster)


def test_readers_wait_for_the_commit_of_a_transaction_and_for_nothing_else(cluster: FakeCluster) -> None:
    """So a lane commits when it runs dry in the one mode, and at its interval in the other."""
    assert producer(cluster).visible_at_commit
    assert not both(cluster).visible_at_commit


def test_abort_asks_nothing_of_the_data_and_close_drops_every_connection(cluster: FakeCluster) -> None:
    """The data stays, as it does after a crash."""
    made = both(cluster)
    made.send([data(P0), data(P1)])
    made.drain()
    made.send([batch(P0)])
    made.drain()
    made.abort()
    assert cluster.asked()[-1] == names_of(cluster)[1]
    made.close()
    assert cluster.connections and all(connection.closed for connection in cluster.connections)
