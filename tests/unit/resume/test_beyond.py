"""Whose records behind an older position show that it was put back."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest

from onceover.errors import NotNow
from onceover.model import TopicPartition
from onceover.resume import beyond, resume
from onceover.resume.beyond import Behind
from onceover.stops.judge import Evidence
from onceover.wire.progress import NOBODY
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog
from tests.support.raw.mutations import Content
from tests.unit.stops.test_stops import GOOD, META, SOURCE

OWN = replace(GOOD, meta=replace(META, producer=4), target_end=90)


def looked_for(
    monkeypatch: pytest.MonkeyPatch, evidence: Evidence, found: int | None
) -> tuple[Any, Evidence]:
    """Return the producer ids that were looked for, and the evidence then."""
    asked = []

    def behind(_t: object, _tp: TopicPartition, _k: int, _e: int, ids: Collection[int]) -> Behind:
        asked.append(set(ids))
        return Behind(found)

    monkeypatch.setattr(resume, "behind", behind)
    all_evidence = {SOURCE: evidence}
    resume._with_what_follows("f", object(), 9, all_evidence, {})  # pyrefly: ignore[bad-argument-type]
    return asked, all_evidence[SOURCE]


def test_the_id_of_the_pair_and_that_of_now_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of lanes was changed, or the epochs of an id were used up in between."""
    asked, then = looked_for(monkeypatch, OWN, 60)
    assert asked == [{4, 9}]
    assert then.meta is None and then.doubt is not None and then.doubt.code == "PROGRESS_FOREIGN"
    assert looked_for(monkeypatch, OWN, None) == ([{4, 9}], OWN)


def test_a_pair_of_a_handlers_time_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of other partitions, which it gave there, follow on it under the same id."""
    without = replace(OWN, meta=META)
    assert looked_for(monkeypatch, without, 60) == ([], without)


def test_a_pair_that_no_lane_has_written_is_followed_by_nothing_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An enrolment's, or an operator's: the first lane writes its own in its place."""
    first = replace(OWN, meta=replace(META, instance=NOBODY))
    asked, then = looked_for(monkeypatch, first, 60)
    assert asked == [{9}] and then.doubt is not None


OWN_ID, OTHERS_ID = 7, 8
CONTENT = [Content(b"k", b"v", (), 1)]


@pytest.fixture
def log() -> FakeLog:
    """A log that holds a transaction of ours, which ends at 2."""
    made = FakeLog()
    made.append(CONTENT, OWN_ID)
    made.decide(OWN_ID, commit=True)
    return made


def holding(log: FakeLog) -> FakeCluster:
    cluster = FakeCluster("west")
    cluster.make_topic("t", 2).logs[1] = log
    return cluster


def after(log: FakeLog, known_end: int) -> Behind:
    return beyond.behind(holding(log), SOURCE, known_end, log.end, {OWN_ID})


def test_what_the_targets_retention_has_deleted_is_not_read() -> None:
    """What was aborted behind the known end, for one: nothing of it comes back, and nobody waits for it."""
    log = FakeLog(start=150, end=150)
    assert after(log, 100) == Behind(is_unclear=True)
    assert after(log, 149) == Behind()
    assert beyond.batch_behind(holding(log), SOURCE, 100, 150, OWN_ID) is None


def test_the_first_committed_batch_of_our_own_is_found(log: FakeLog) -> None:
    """Not what others have written, nor what was aborted, nor what stands before the end that is known."""
    log.append(CONTENT)
    log.append(CONTENT, OTHERS_ID)
    log.decide(OTHERS_ID, commit=True)
    assert after(log, 1) == Behind()
    log.append(CONTENT, OWN_ID)
    log.decide(OWN_ID, commit=False)
    assert after(log, 1) == Behind()
    log.append(CONTENT, OWN_ID)
    log.decide(OWN_ID, commit=True)
    assert after(log, 1) == Behind(found=7)


def test_what_reaches_over_the_known_end_is_not_behind_it() -> None:
    """A batch is ours whole, or not."""
    log = FakeLog()
    log.append([*CONTENT, *CONTENT], OWN_ID)
    log.decide(OWN_ID, commit=True)
    assert after(log, 1) == Behind()
    assert beyond.batch_behind(holding(log), SOURCE, 1, log.end, OWN_ID) is None


def test_what_is_open_is_written_all_the_same(log: FakeLog) -> None:
    """Where a transaction begins that nobody has ended, and what it has written behind that."""
    log.append(CONTENT, OWN_ID)
    assert after(log, 1) == Behind()
    assert beyond.batch_behind(holding(log), SOURCE, 1, log.end, OWN_ID) == 2
    assert beyond.batch_behind(holding(log), SOURCE, 3, log.end, OWN_ID) is None
    assert beyond.batch_behind(holding(log), SOURCE, 1, log.end, OTHERS_ID) is None


def test_a_record_that_was_aborted_was_never_committed(log: FakeLog) -> None:
    """Though it was told so; a marker is none, and of what compaction has removed nobody can say it."""
    log.append(CONTENT, OWN_ID)
    log.decide(OWN_ID, commit=False)
    log.append(CONTENT, OTHERS_ID)
    log.decide(OTHERS_ID, commit=True)
    assert after(log, 3) == Behind(is_dropped=True)
    assert after(log, 2) == after(log, 1) == Behind()
    log.batches = [each for each in log.batches if each.base != 2]
    assert after(log, 3) == Behind()


def test_others_may_have_written_more_than_is_read(log: FakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours may come behind it: the map has to tell."""
    for _ in range(3):
        log.append(CONTENT)
    monkeypatch.setattr(beyond, "_MOST_BYTES", 3 * 71)
    assert after(log, 1) == Behind()
    monkeypatch.setattr(beyond, "_MOST_BYTES", 71)
    assert after(log, 1) == Behind(is_unclear=True)
    assert beyond.batch_behind(holding(log), SOURCE, 1, log.end, OWN_ID) is None


@pytest.mark.parametrize(
    "look",
    [
        lambda cluster: beyond.behind(cluster, SOURCE, 1, 4, {OWN_ID}),
        lambda cluster: beyond.behind(cluster, SOURCE, 0, 4, {OWN_ID}),
        lambda cluster: beyond.batch_behind(cluster, SOURCE, 1, 4, OWN_ID),
    ],
)
def test_a_lane_waits_for_no_leader(log: FakeLog, look: Callable[[FakeCluster], object]) -> None:
    """One that is lost between two questions: other partitions have theirs."""
    log.append([*CONTENT, *CONTENT])
    cluster = holding(log)
    cluster.tries = 9

    def heard(request: str, _: str) -> None:
        if request == "Metadata":
            cluster.all_topics["t"].leaders[1] = -1

    cluster.heard = heard
    with pytest.raises(NotNow, match="t:1 has no leader"):
        look(cluster)
    assert cluster.log.count("Metadata") == 1
