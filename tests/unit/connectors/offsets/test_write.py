"""Writing offsets: what a broker's answers mean, and what is tried again; a scripted broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from onceover.connectors.offsets import write
from onceover.connectors.offsets.write import Entry, HeldProducer, write_in_transaction, write_plainly
from onceover.errors import Fenced, NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.model import TopicPartition
from tests.support.fakes.fakebroker import LOST
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.kafka.scenes import end_of, target

P0 = TopicPartition("t", 0)
ENTRIES = [Entry(0, b"a", b"1"), Entry(1, b"b", None), Entry(0, b"a", b"2")]
DENIED_TOPIC, DENIED_ID, FENCED, OLD_EPOCH, TOO_LARGE, MOVED = 29, 53, 90, 47, 10, 6


@pytest.fixture(params=[(2, 13), (0, 11)], ids=["v5", "v3"])
def broker(request: pytest.FixtureRequest) -> FakeCluster:
    return target(*request.param, alias="kafka")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails, fails at once."""
    monkeypatch.setattr(write, "_TIMEOUT_S", 0.0)


def nothing() -> None:
    """See nothing that would speak against it."""


def in_transaction(broker: FakeCluster, look: Callable[[], None] = nothing) -> None:
    write_in_transaction(broker, "t", "id", ENTRIES, look)


def plainly(broker: FakeCluster) -> None:
    write_plainly(broker, "t", ENTRIES)


def commits(broker: FakeCluster) -> int:
    return sum(request.startswith("EndTxn") for request in broker.log)


@pytest.mark.parametrize("way", [in_transaction, plainly])
def test_every_entry_gets_to_its_partition(broker: FakeCluster, way: Callable[[FakeCluster], None]) -> None:
    """In the order in which they were given."""
    way(broker)
    markers = 1 if way is in_transaction else 0
    assert [end_of(broker, TopicPartition("t", n)) for n in range(2)] == [102 + markers, 201 + markers]
    assert commits(broker) == markers


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("request_name", "code", "kind", "text"),
    [
        ("answer", FENCED, Fenced, "another producer|error 90"),
        ("answer", OLD_EPOCH, Fenced, "error 47"),
        ("answer", DENIED_TOPIC, UsageError, "may not WRITE topic t on kafka"),
        ("InitProducerId", DENIED_ID, UsageError, "may not WRITE transactional id id on kafka"),
        ("answer", MOVED, Retriable, "kafka did not take offsets for t: .*error 6"),
        ("answer", LOST, Retriable, LOST),
        ("InitProducerId", LOST, Retriable, LOST),
        ("answer", TOO_LARGE, NeedsOperator, "kafka did not take offsets for t: error 10: no"),
    ],
)
def test_errors_of_a_transaction_say_what_to_do_next(
    broker: FakeCluster, request_name: str, code: int | str, kind: type[OnceoverError], text: str
) -> None:
    """By their code; nothing is committed."""
    broker.codes[request_name] = deque([code] * 9)
    with pytest.raises(kind, match=text) as caught:
        in_transaction(broker)
    assert type(caught.value) is kind
    assert commits(broker) == 0


@pytest.mark.parametrize("code", [FENCED, OLD_EPOCH])
def test_a_commit_that_is_fenced_says_so(broker: FakeCluster, code: int) -> None:
    """Whoever came later writes; this one does not come back."""
    version = 5 if broker.feature.transaction_version else 3
    broker.codes[f"EndTxn v{version}"].append(code)
    with pytest.raises(Fenced) as caught:
        in_transaction(broker)
    assert (caught.value.code, commits(broker)) == ("FENCED", 1)
    assert broker.log.count("InitProducerId") == 1


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("request_name", "code", "kind", "text"),
    [
        ("answer", DENIED_TOPIC, UsageError, "may not WRITE topic t on kafka"),
        ("InitProducerId without an id", 31, UsageError, "may not WRITE topic t on kafka"),
        ("answer", MOVED, Retriable, "kafka did not take offsets for t: .*error 6"),
        ("answer", LOST, Retriable, LOST),
        ("answer", TOO_LARGE, NeedsOperator, "kafka did not take offsets for t: error 10: no"),
    ],
)
def test_errors_without_a_transaction_say_the_same(
    broker: FakeCluster, request_name: str, code: int | str, kind: type[OnceoverError], text: str
) -> None:
    """There is nobody to be fenced by."""
    broker.codes[request_name] = deque([code] * 9)
    with pytest.raises(kind, match=text) as caught:
        plainly(broker)
    assert type(caught.value) is kind


@pytest.mark.parametrize("code", [MOVED, LOST])
@pytest.mark.parametrize("way", [in_transaction, plainly])
def test_a_leader_that_moves_is_waited_for(
    broker: FakeCluster, way: Callable[[FakeCluster], None], code: int | str
) -> None:
    """Everything again, by a producer of its own: the first may have left anything."""
    broker.codes["answer"].extend([0, code])
    way(broker)
    assert [partition for partition, *_ in broker.batches][-2:] == [0, 1]
    assert broker.log.count("InitProducerId" + (" without an id" if way is plainly else "")) == 2
    assert commits(broker) == (1 if way is in_transaction else 0)


def test_it_looks_when_it_has_the_id_and_before_it_takes_it_again(broker: FakeCluster) -> None:
    """A newer run is seen before it is fenced."""
    looked: list[int] = []
    broker.codes["answer"].append(MOVED)
    in_transaction(broker, lambda: looked.append(broker.log.count("InitProducerId")))
    assert looked == [1, 1, 2]

    def overtaken() -> None:
        raise Fenced("another run")

    broker.log.clear()
    with pytest.raises(Fenced):
        in_transaction(broker, overtaken)
    assert (commits(broker), "answer" in broker.log) == (0, False)


def test_what_a_killed_run_has_left_open_is_ended_first(broker: FakeCluster) -> None:
    """Also where the coordinator takes it for over: readers of what is committed would wait for ever."""
    broker.all_topics["t"].logs[0].pending[40] = 100
    in_transaction(broker)
    ended = ["DescribeProducers", "AddPartitionsToTxn v3", "EndTxn v3"]
    assert broker.asked()[:5] == ["InitProducerId", *ended, "InitProducerId"]
    assert not broker.all_topics["t"].logs[0].pending


def test_a_held_producer_writes_one_transaction_after_the_other(broker: FakeCluster) -> None:
    """Under the id that it took when it was made."""
    held = HeldProducer(broker, P0, "id")
    for number in range(3):
        held.write([(b"k", b"%d" % number), (b"gone", None)])
    held.close()
    assert (broker.log.count("InitProducerId"), commits(broker), end_of(broker, P0)) == (
        1,
        3,
        100 + 3 * (2 + 1),
    )
