"""Writing offsets: what a broker's answers mean, and what is tried again; a scripted broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import cast

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.connectors.offsets import write
from onceover.connectors.offsets.write import Entry, HeldProducer, write_in_transaction, write_plainly
from onceover.errors import Fenced, NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from tests.unit.kafka.broker import LOST, FakeCluster

P0 = TopicPartition("t", 0)
ENTRIES = [Entry(0, b"a", b"1"), Entry(1, b"b", None), Entry(0, b"a", b"2")]
DENIED_TOPIC, DENIED_ID, FENCED, OLD_EPOCH, TOO_LARGE, MOVED = 29, 53, 90, 47, 10, 6


class Target(FakeCluster):
    """One that may be named in messages."""

    alias = "kafka"
    config = ClientConfig("kafka", {"bootstrap.servers": "127.0.0.1:1"})


@pytest.fixture(params=[(2, 13), (0, 11)], ids=["v5", "v3"])
def broker(request: pytest.FixtureRequest) -> Target:
    return Target(*request.param)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails, fails at once."""
    monkeypatch.setattr(write, "_TIMEOUT_S", 0.0)


def cluster(broker: Target) -> Cluster:
    return cast("Cluster", broker)


def nothing() -> None:
    """See nothing that would speak against it."""


def in_transaction(broker: Target, look: Callable[[], None] = nothing) -> None:
    write_in_transaction(cluster(broker), "t", "id", ENTRIES, look)


def plainly(broker: Target) -> None:
    write_plainly(cluster(broker), "t", ENTRIES)


def commits(broker: Target) -> int:
    return sum(request.startswith("EndTxn") for request in broker.log)


@pytest.mark.parametrize("way", [in_transaction, plainly])
def test_every_entry_gets_to_its_partition(broker: Target, way: Callable[[Target], None]) -> None:
    """In the order in which they were given."""
    way(broker)
    assert broker.ends == {0: 102, 1: 201}
    assert commits(broker) == (1 if way is in_transaction else 0)


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
        ("answer", TOO_LARGE, NeedsOperator, "kafka did not take offsets for t: no"),
    ],
)
def test_errors_of_a_transaction_say_what_to_do_next(
    broker: Target, request_name: str, code: int | str, kind: type[OnceoverError], text: str
) -> None:
    """By their code; nothing is committed."""
    broker.codes[request_name] = deque([code] * 9)
    with pytest.raises(kind, match=text) as caught:
        in_transaction(broker)
    assert type(caught.value) is kind
    assert commits(broker) == 0


@pytest.mark.parametrize("code", [FENCED, OLD_EPOCH])
def test_a_commit_that_is_fenced_says_so(broker: Target, code: int) -> None:
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
        ("answer", TOO_LARGE, NeedsOperator, "kafka did not take offsets for t: no"),
    ],
)
def test_errors_without_a_transaction_say_the_same(
    broker: Target, request_name: str, code: int | str, kind: type[OnceoverError], text: str
) -> None:
    """There is nobody to be fenced by."""
    broker.codes[request_name] = deque([code] * 9)
    with pytest.raises(kind, match=text) as caught:
        plainly(broker)
    assert type(caught.value) is kind


@pytest.mark.parametrize("code", [MOVED, LOST])
@pytest.mark.parametrize("way", [in_transaction, plainly])
def test_a_leader_that_moves_is_waited_for(
    broker: Target, way: Callable[[Target], None], code: int | str
) -> None:
    """Everything again, by a producer of its own: the first may have left anything."""
    broker.codes["answer"].extend([0, code])
    way(broker)
    assert [partition for partition, *_ in broker.batches][-2:] == [0, 1]
    assert broker.log.count("InitProducerId" + (" without an id" if way is plainly else "")) == 2
    assert commits(broker) == (1 if way is in_transaction else 0)


def test_it_looks_when_it_has_the_id_and_before_it_takes_it_again(broker: Target) -> None:
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


def test_what_a_killed_run_has_left_open_is_ended_first(broker: Target) -> None:
    """Also where the coordinator takes it for over: readers of what is committed would wait for ever."""
    broker.left_open = {P0}
    in_transaction(broker)
    asked = broker.asked()
    assert asked[:4] == ["InitProducerId", "AddPartitionsToTxn v3", "EndTxn v3", "InitProducerId"]


def test_a_held_producer_writes_one_transaction_after_the_other(broker: Target) -> None:
    """Under the id that it took when it was made."""
    held = HeldProducer(cluster(broker), P0, "id")
    for number in range(3):
        held.write([(b"k", b"%d" % number), (b"gone", None)])
    held.close()
    assert (broker.log.count("InitProducerId"), commits(broker), broker.ends[0]) == (1, 3, 106)
