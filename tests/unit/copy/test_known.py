"""What a lane has found out goes from one of its tasks to the next, and to nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.copy.known import Knowledge, Known
from onceover.errors import Retriable, Unanswered
from onceover.kafka.codes import KafkaCode
from onceover.model import TopicPartition
from onceover.state import names
from onceover.stops.aside import SILENT, Troubles, TroubleSide
from onceover.stops.record import Stop
from onceover.stops.requests import asks_to_stop
from tests.unit.stops.test_aside import Clock

A = TopicPartition("t", 0)
SILENCE = Retriable("silent")
KEY = names.resume_key("t", 0)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    # Not the names that a request has, but with others' values beside them.
    keys = st.sampled_from(["v", "id", "x"])
    wrong = st.fixed_dictionaries({}, optional={"at_ms": st.lists(inner), "run": st.lists(inner)})
    return st.lists(inner) | st.dictionaries(keys, inner) | wrong


def test_the_next_task_of_a_lane_knows_what_the_last_one_did() -> None:
    """A patience may be longer than a task, and a debt of bandwidth, too."""
    knowledge = Knowledge()
    known = knowledge.of("f", "run", 0)
    known.troubles.note(A, TroubleSide.SOURCE, SILENCE)
    known.throttle.spend(1_000, 1.0)
    again = knowledge.of("f", "run", 0)
    assert again.troubles.has(A, TroubleSide.SOURCE) and again.throttle.wait_s > 900


def test_a_patience_goes_on_over_tasks_and_ends() -> None:
    """Ten minutes of silence in tasks of five: seen in the second, not in the first."""
    knowledge, clock = Knowledge(), Clock()
    knowledge.of("f", "run", 0).troubles.clock = clock
    told = []
    for _ in range(3):
        troubles = knowledge.of("f", "run", 0).troubles
        for _ in range(60):
            troubles.note(A, TroubleSide.SOURCE, SILENCE)
            clock.now_s += SILENT.cap_s
        told.append(troubles.lasting(A, TroubleSide.SOURCE))
    assert told == [None, None, SILENCE]


@given(st.lists(st.tuples(st.sampled_from("fg"), st.integers(0, 5), st.integers(0, 1)), max_size=40))
def test_runs_lanes_and_flows_know_nothing_of_each_other(tasks: list[tuple[str, int, int]]) -> None:
    """A worker process may see tasks of two flows; of each only the newest run is kept."""
    knowledge = Knowledge()
    model: dict[tuple[str, int, int], Known] = {}
    for flow, run, lane in tasks:
        model = {key: known for key, known in model.items() if key[0] != flow or key[1] == run}
        known = knowledge.of(flow, str(run), lane)
        assert all(known is not other for key, other in model.items() if key != (flow, run, lane))
        assert known is model.setdefault((flow, run, lane), known)
        assert len(knowledge._lanes) == len(model) <= 4


@pytest.mark.parametrize(
    ("code", "after_s"), [(KafkaCode.NO_LEADER, None), (KafkaCode.FEW_REPLICAS, 600.0), (None, 120.0)]
)
def test_a_failure_whose_reason_is_known_has_its_own_patience(
    code: str | None, after_s: float | None
) -> None:
    """A broker of the offset map's is away, others write another part of it: no stop after two minutes."""
    clock, b = Clock(), TopicPartition("t", 1)
    begun_s = clock.now_s
    known = Known(troubles=Troubles(clock=clock))
    error = Unanswered("away", code=code).about(("map", 3))
    known.failed([A, b], error)
    while (waited_s := clock.now_s - begun_s) < 2000 and not known.troubles.lasting(A, TroubleSide.COPY):
        known.passed([b])
        clock.now_s += 1.0
        if known.troubles.is_due(A):
            known.failed([A], error)
    assert waited_s == 2000 if after_s is None else after_s <= waited_s < after_s + 70


def test_a_request_to_look_again_is_heeded_once() -> None:
    """It stays in the state for a while, over resets and tasks; asked again, it counts again."""
    known = Known()
    other = {names.REQUEST_STOP: {"run": "r"}}
    assert known.asked(other) == set()
    assert known.asked({**other, KEY: {"at_ms": 1}}) == {KEY}
    assert known.asked({**other, KEY: {"at_ms": 1}}) == set()
    assert known.asked({**other, KEY: {"at_ms": 2}}) == {KEY}
    assert known.asked(other) == set()
    assert known.asked({KEY: {"at_ms": 3}}) == {KEY}


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), _nested, max_leaves=5))
def test_what_is_no_request_asks_for_nothing(value: Any) -> None:
    """A hand, or another release, wrote it; it used to end lanes and driver, again at each start."""
    known, stop = Known(), Stop("RECORD_REFUSED", "m", "e", "s", "r", 5)
    assert known.asked({KEY: value}) == set()
    assert not asks_to_stop(value, "run") and not stop.is_meant_by(value)
    assert known.asked({KEY: {"at_ms": 3, "more": value}}) == {KEY}
    assert asks_to_stop({"run": "run", "more": value}, "run") and not asks_to_stop({"run": "other"}, "run")
