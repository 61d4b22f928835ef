"""Who moves in a switchover without a restart: the matrix of docs/clients.md, a switchover for each column.

The seconds that the page tells are among the properties of the report that ``-o junit_family=xunit1
--junitxml=FILE`` writes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.brokers.moving import moving_clusters
from tests.support.drills.clientmoves import (
    ASSIGNED_AHEAD,
    ASSIGNED_BEHIND,
    CLASSIC,
    CONSUMER,
    Cast,
    Course,
    Gone,
    clients_switched_over,
)
from tests.support.drills.movers import KAFKA_PYTHON, LIBRDKAFKA, PLAIN, TRANSACTIONAL

NEW, OLD = "4.3.0", "3.9.1"
READERS = [CLASSIC, ASSIGNED_AHEAD, ASSIGNED_BEHIND]
EVERY = [CLASSIC, CONSUMER, ASSIGNED_AHEAD, ASSIGNED_BEHIND, PLAIN, TRANSACTIONAL]
OLD_ONES = [part for part in EVERY if part != CONSUMER]
FENCED = {CONSUMER: "is not a consumer group", TRANSACTIONAL: "InvalidPidMappingException"}
UNKNOWN_GROUP = {CONSUMER: "group id does not exist"}
SOON = {"metadata.recovery.rebootstrap.trigger.ms": "10000"}

RESTARTED = [
    Cast(OLD, OLD_ONES, anew=True),
    Cast(LIBRDKAFKA, EVERY, anew=True),
    Cast(KAFKA_PYTHON, OLD_ONES, anew=True),
]
NAME_IS_SWITCHED = [
    Cast(NEW, EVERY, moves=[*READERS, PLAIN], ends=FENCED),
    Cast(OLD, OLD_ONES),
    Cast(OLD, OLD_ONES, moves=OLD_ONES, settings={"metadata.recovery.strategy": "rebootstrap"}, tag="set"),
    Cast(LIBRDKAFKA, [*READERS, CONSUMER, PLAIN], moves=[*READERS, PLAIN], ends=UNKNOWN_GROUP),
    Cast(KAFKA_PYTHON, OLD_ONES),
]
ALL_GOES_THROUGH = [
    Cast(NEW, EVERY, moves=[*READERS, PLAIN], ends=FENCED),
    Cast(OLD, OLD_ONES, moves=OLD_ONES),
    Cast(LIBRDKAFKA, [*READERS, CONSUMER, PLAIN], moves=[*READERS, PLAIN], ends=UNKNOWN_GROUP),
    Cast(KAFKA_PYTHON, OLD_ONES, moves=READERS, ends={TRANSACTIONAL: "InvalidProducerIdMapping"}),
]
NOTHING_ANSWERS = [
    Cast(NEW, [CLASSIC, PLAIN], moves=[CLASSIC, PLAIN], settings=SOON),
    Cast(LIBRDKAFKA, [CLASSIC, PLAIN], moves=[CLASSIC, PLAIN], settings=SOON),
    Cast(NEW, [CLASSIC, PLAIN, TRANSACTIONAL], tag="default"),
    Cast(LIBRDKAFKA, [CLASSIC, PLAIN], tag="default"),
]
SOURCE_ANSWERS = [Cast(NEW, [CLASSIC, PLAIN]), Cast(LIBRDKAFKA, [CLASSIC, PLAIN])]

pytestmark = pytest.mark.soak


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("casts", "through", "gone"),
    [
        pytest.param([*NAME_IS_SWITCHED, *RESTARTED], False, Gone.SHUT, id="name"),
        pytest.param([*ALL_GOES_THROUGH, *RESTARTED], True, Gone.SHUT, id="through"),
        pytest.param(NOTHING_ANSWERS, False, Gone.SILENT, id="silent"),
        pytest.param([*SOURCE_ANSWERS, *RESTARTED], False, Gone.NOT, id="alive"),
    ],
)
def test_who_moves_without_a_restart(
    session_home: Path,
    casts: Sequence[Cast],
    through: bool,
    gone: Gone,
    record_property: Callable[[str, object], None],
) -> None:
    """Members miss nothing and their positions stay exact; who is started anew goes on exactly."""
    name = f"t{uuid.uuid4().hex[:12]}"
    folder = session_home / f"matrix-{name}"
    folder.mkdir()
    with (
        moving_clusters(folder / "clusters", through=through) as moving,
        clients_switched_over(moving, folder, name, casts, gone) as course,
    ):
        for cast in casts:
            for part in cast.parts:
                role = course.role(cast.library, part, anew=cast.anew, tag=cast.tag)
                record_property(f"{role.name.partition('-')[2]}", course.seconds(role))
                judge(course, cast, part)


def judge(course: Course, cast: Cast, part: str) -> None:
    """Tell whether it did what the matrix says."""
    role = course.role(cast.library, part, anew=cast.anew, tag=cast.tag)
    if cast.anew:
        course.assert_exact(role)
    elif part not in cast.moves and part not in cast.ends:
        assert course.seconds(role) is None, role.name
    elif part == CLASSIC:
        course.assert_complete(role)
    elif part in (PLAIN, TRANSACTIONAL) and part in cast.moves:
        course.assert_exact(role)
