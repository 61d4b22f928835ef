"""Whose records behind an older position show that it was put back."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from onceover.errors import Retriable
from onceover.model import TopicPartition
from onceover.resume import beyond, resume
from onceover.resume.beyond import Behind
from onceover.stops.judge import Evidence
from onceover.wire.batches.batch import BatchHeader
from onceover.wire.progress import NOBODY
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
    resume._with_what_follows("f", object(), 9, all_evidence, {})  # type: ignore[arg-type]
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


class EmptyLog:
    """Nothing is left of it but its end; what lay before cannot be read."""

    END = 150

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> EmptyLog:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def headers(self, start: int, end: int) -> list[BatchHeader]:
        if start < self.END:
            raise Retriable("error 1")
        return []


def test_what_the_targets_retention_has_deleted_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was aborted behind the known end, for one: nothing of it comes back, and nobody waits for it."""
    monkeypatch.setattr(beyond, "PartitionReader", EmptyLog)
    target: Any = SimpleNamespace(list_offsets=lambda tps, *_: dict.fromkeys(tps, EmptyLog.END))
    assert beyond.behind(target, SOURCE, 100, EmptyLog.END, {7}) == Behind(is_unclear=True)
    assert beyond.behind(target, SOURCE, EmptyLog.END - 1, EmptyLog.END, {7}) == Behind()
    assert beyond.written_behind(target, SOURCE, 100, EmptyLog.END, 7) is None
