"""Clients in a planned switchover: who moves without a restart, and what it does to positions and records.

One switchover, of a name by which clients bootstrap; each test tells of one behaviour that docs/clients.md
documents. The whole matrix is in tests/soak/test_clients_matrix.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.clusters import SharedCluster
from tests.support.brokers.moving import moving_clusters
from tests.support.drills.clientmoves import (
    AHEAD,
    ASSIGNED_AHEAD,
    ASSIGNED_BEHIND,
    BEHIND,
    CLASSIC,
    CONSUMER,
    Cast,
    Course,
    clients_switched_over,
)
from tests.support.drills.movers import KAFKA_PYTHON, LIBRDKAFKA, PLAIN, TRANSACTIONAL
from tests.support.flows.replica import read_records
from tests.support.raw.adversary import Adversary
from tests.support.raw.rawkafka import RawConnection, build_batch

JAVA = "4.3.0"
CASTS = [
    Cast(
        JAVA,
        [CLASSIC, CONSUMER, ASSIGNED_AHEAD, ASSIGNED_BEHIND, PLAIN, TRANSACTIONAL],
        moves=[CLASSIC, ASSIGNED_AHEAD, ASSIGNED_BEHIND, PLAIN],
        ends={CONSUMER: "is not a consumer group", TRANSACTIONAL: "InvalidPidMappingException"},
    ),
    Cast(LIBRDKAFKA, [CLASSIC, ASSIGNED_BEHIND], moves=[CLASSIC, ASSIGNED_BEHIND]),
    Cast(KAFKA_PYTHON, [CLASSIC]),
    Cast(JAVA, [CLASSIC, CONSUMER, ASSIGNED_AHEAD, PLAIN, TRANSACTIONAL], anew=True),
    Cast(KAFKA_PYTHON, [CLASSIC, ASSIGNED_BEHIND], anew=True),
]


@pytest.fixture(scope="module")
def course(session_home: Path) -> Iterator[Course]:
    """One switchover with all of them."""
    name = f"t{uuid.uuid4().hex[:12]}"
    folder = session_home / f"clients-{name}"
    folder.mkdir()
    with (
        moving_clusters(folder / "clusters") as moving,
        clients_switched_over(moving, folder, name, CASTS) as course,
    ):
        yield course


@pytest.mark.soak
@pytest.mark.parametrize(
    ("library", "part"), [(cast.library, part) for cast in CASTS if cast.anew for part in cast.parts]
)
def test_started_anew_each_goes_on_at_the_exact_record(course: Course, library: str, part: str) -> None:
    """Ended before the name is switched, started behind it: nothing is lost, repeated or out of order."""
    course.assert_exact(course.role(library, part, anew=True))


@pytest.mark.soak
@pytest.mark.parametrize("library", [JAVA, LIBRDKAFKA])
def test_a_member_that_stays_up_misses_nothing_and_its_position_stays_exact(
    course: Course, library: str
) -> None:
    """It may be handed records twice: it reads on at its old number until it is told that it is no member."""
    course.assert_complete(course.role(library, CLASSIC))


@pytest.mark.soak
@pytest.mark.parametrize("library", [JAVA, LIBRDKAFKA])
def test_a_reader_with_assign_that_stays_up_repeats_and_commits_from_its_memory(
    course: Course, library: str
) -> None:
    """Its old number is within the target's log: it reads on there, and nobody refuses what it commits."""
    role = course.role(library, ASSIGNED_BEHIND)
    first = course.behind(role, "read")[0]
    assert first.offset < course.place(role, BEHIND)
    read = course.values_read(role, BEHIND)
    assert read.count(first.words) == 2
    assert course.behind(role, "committed")


@pytest.mark.soak
def test_a_reader_with_assign_whose_number_is_beyond_the_end_skips_without_a_word(course: Course) -> None:
    """Java takes it for a truncated log, and goes on at the end of the moment."""
    role = course.role(JAVA, ASSIGNED_AHEAD)
    first = course.behind(role, "read")[0]
    assert first.offset > course.place(role, AHEAD)
    skipped = [o for o in course.there[AHEAD] if course.place(role, AHEAD) <= o < first.offset]
    assert skipped
    assert not course.faults(role)


@pytest.mark.soak
def test_a_member_of_the_consumer_protocol_that_stays_up_ends(course: Course) -> None:
    """On the target its group is an empty classic one, which only who joins anew takes over.

    Nothing is said of its commits: in one of a dozen runs one was taken before it ended.
    """
    role = course.role(JAVA, CONSUMER)
    assert any("is not a consumer group" in each for each in course.faults(role))


@pytest.mark.soak
def test_an_idempotent_producer_that_stays_up_goes_on(course: Course) -> None:
    """Under the producer id that the source gave it: docs/clients.md tells why it should not."""
    role = course.role(JAVA, PLAIN)
    assert course.behind(role, "acked")
    course.assert_exact(role)


@pytest.mark.soak
def test_a_transactional_producer_that_stays_up_ends(course: Course) -> None:
    """The target never gave its transactional id a producer id: it says so, and nothing of it is written."""
    role = course.role(JAVA, TRANSACTIONAL)
    assert any("InvalidPidMappingException" in each for each in course.faults(role))
    assert not course.behind(role, "acked")


@pytest.mark.soak
def test_kafka_python_stays_where_it_is(course: Course) -> None:
    """It never bootstraps again: all others have long moved."""
    role = course.role(KAFKA_PYTHON, CLASSIC)
    assert course.seconds(role) is None


def test_a_producer_id_of_another_cluster_is_taken_for_that_of_somebody_here(
    target_cluster: SharedCluster, unique_name: str
) -> None:
    """Each cluster counts its producer ids from 0. A record whose number somebody else's had is acknowledged,
    and is not there."""
    with Adversary(target_cluster.bootstrap) as adversary, RawConnection(target_cluster.bootstrap) as target:
        topic = adversary.create_topic(unique_name)
        here = target.init_producer(None)

        def write(sequence: int, value: bytes) -> int:
            record = adversary.record(value=value)
            batch = build_batch([record], producer=here._replace(sequence=sequence))
            return target.produce(topic, 0, batch)

        offsets = [write(sequence, b"here") for sequence in range(3)]
        assert write(2, b"moved") == offsets[2]
    assert [each.value for each in read_records(target_cluster.client, topic).values()] == [b"here"] * 3
