"""Reading of one cluster as much as answers: a silent broker takes nothing from the others."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings

from onceover.cli.terminal.statustext import describe
from onceover.kafka import calls
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.model import TopicPartition
from onceover.operate import statusread
from onceover.operate.statusfacts import StatusFacts, StatusSide
from onceover.operate.statusread import FlowFacts, PartitionStatusReader
from onceover.operate.statusshape import shape
from onceover.state import names
from onceover.state.records.enrolment import Enrolment, PlacedProgress
from onceover.state.records.layout import Layout
from onceover.state.records.verdicts import AuditAnswer, AuditFailure, Verdicts
from onceover.state.records.verified import Watermark
from onceover.stops.record import Stop
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.raw.junk import damaged
from tests.support.session.examples import examples

_LEADER_MOVED = 6


def topic(*leaders: int) -> TopicInfo:
    """Return a topic whose partitions are led by these brokers."""
    return TopicInfo("t", UUID(int=1), {n: PartitionInfo(node, 0) for n, node in enumerate(leaders)}, False)


def brokers(*led: int) -> FakeCluster:
    """Return a cluster as it is now: these lead the partitions, which end at 100 times their number."""
    made = FakeCluster()
    made.nodes = {1, 2, 3, 9}
    made.add_topic("t", UUID(int=1), [100 * max(0, node) for node in led], leaders=dict(enumerate(led)))
    return made


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statusread, "_PAUSE_S", 0.0)


def read(brokers: FakeCluster, info: TopicInfo) -> tuple[dict[int, int], PartitionStatusReader]:
    reader = PartitionStatusReader(brokers, {"t": info})
    found = reader.offsets([TopicPartition("t", p) for p in info.partitions], calls.LATEST)
    return {tp.partition: offset for tp, offset in found.items()}, reader


def test_silent_broker_takes_nothing_from_the_others_and_is_asked_once() -> None:
    """Its partitions are missing, with the reason; waiting again would cost as much again."""
    cluster = brokers(1, 2, 3)
    cluster.down.add(2)

    found, reader = read(cluster, topic(1, 2, 3))
    again = reader.offsets([TopicPartition("t", 1)], calls.EARLIEST)

    assert (found, again) == ({0: 100, 2: 300}, {})
    assert "broker 2 of west does not answer" in str(reader.error)
    assert cluster.log.count("no connection/2") == 1


def test_leader_that_has_moved_is_looked_up() -> None:
    """Broker 9 says that it no longer leads: the metadata of a moment later names the one that does."""
    found, reader = read(brokers(1, 3), topic(1, 9))

    assert (found, reader.error) == ({0: 100, 1: 300}, None)


def test_partition_without_a_leader_is_said() -> None:
    """Its broker is dead and the cluster knows it."""
    found, reader = read(brokers(1, -1), topic(1, -1))

    assert found == {0: 100}
    assert "no leader on west" in str(reader.error)


def test_state_values_of_a_wrong_shape_are_problems_and_the_others_count() -> None:
    """Whatever another writer left there."""
    facts = FlowFacts()
    facts.read(
        {names.LAYOUT: [], "topic/t": {"v": 1}, names.DISCOVERED: {"v": 1}},
        {names.HEARTBEAT: 5, names.REFUSED: {"refused": [{"object": "a"}]}, "verified/t/0": None, "else": 1},
    )

    assert len(facts.problems) == 5
    assert {p["code"] for p in facts.problems} == {"STATE_UNREADABLE"}
    assert (facts.layout, facts.known, facts.first_look.is_over) == (None, {}, True)


def test_a_record_that_the_driver_would_not_take_is_a_problem() -> None:
    """It ends the run, which names the same key: what another topic's key holds, and a claim that is none."""
    facts = FlowFacts()
    enrolment = Enrolment("t", "t", UUID(int=1), UUID(int=2), {0: 0}, 5).to_json()
    claim = {"v": 1, "source": "t", "target": "t", "at_ms": 5}
    odd = {"topic/u": enrolment, "claim/u": claim, "claim/v": []}
    facts.read({"topic/t": enrolment, "claim/t": claim, **odd}, {})

    assert list(facts.known) == ["t"]
    assert len(facts.problems) == len(odd)
    assert all(any(repr(key) in problem["message"] for problem in facts.problems) for key in odd)


NOW_MS = 1_700_000_000_000.0
_ANSWER = AuditAnswer(
    verdict="FAIL", at_ms=5, summary="s", report="r", host="h", since="start", topics=("t",)
)
_FAILURE = AuditFailure(
    topic="t",
    partition=0,
    target="t:0",
    ids=(str(UUID(int=1)), str(UUID(int=2))),
    source_from=0,
    source_to=5,
    what={"missing": 5},
    answer=0,
)
_LAYOUT = Layout(
    generation=3,
    run="r",
    lanes=2,
    fence_up_to=2,
    ready=True,
    source_cluster_id="s",
    target_cluster_id="t",
    flow_sha256="0",
    started_at_ms=5,
    host="h",
    ended_at_ms=6,
)
_STATE: dict[str, Any] = {
    names.LAYOUT: _LAYOUT.to_json(),
    "topic/t": Enrolment("t", "t", UUID(int=1), UUID(int=2), {0: 0, 1: 5}, 5, since={1: 2}).to_json(),
    names.DISCOVERED: {"v": 1},
    names.HEARTBEAT: {"v": 1, "run": "r", "at_ms": 7, "pid": 8},
    names.REFUSED: {
        "refused": [{"object": "u", "code": "C", "message": "m", "resolve": "r", "blocks": True}]
    },
    names.VERDICTS: Verdicts(
        last=_ANSWER, failures=(_FAILURE,), rules={"same": 0}, more=1, audits=(_ANSWER,)
    ).to_json(),
    "verified/t/0": Watermark(
        offset=5, target_offset=5, source_id=UUID(int=1), target_id=UUID(int=2), timestamp_ms=5, at_ms=5
    ).to_json(),
    "stop/t/0": Stop("CODE", "m", "e", "s", "do", 5, 6, 7).to_json(),
}


def entry_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of ``status`` for a state that was read; nothing else was."""
    facts = FlowFacts()
    facts.read(state, {})
    sides = StatusSide(alias="east"), StatusSide(alias="west")
    entry = shape(StatusFacts(flow="f", now_ms=NOW_MS, source=sides[0], target=sides[1], state=facts))
    describe(entry)
    return entry


def test_rights_that_stay_on_the_target_although_the_source_may_forbid_them_are_a_need() -> None:
    """Told once, and with exit code 3; another remark about ACLs waits for nobody."""
    texts = {"object": "acls", "message": "m", "resolve": "r", "blocks": False}
    refused = [{**texts, "code": "NOT_AUTHORIZED"}, {**texts, "code": "ACLS_STAY"}]
    entry = entry_of({**_STATE, names.REFUSED: {"refused": refused}})
    assert [note["code"] for note in entry["notes"]] == ["NOT_AUTHORIZED"]
    assert {"code": "ACLS_STAY", "message": "m", "resolve": "r", "exit": 3} in entry["needs"]
    alone = {names.LAYOUT: _LAYOUT.to_json()}
    assert entry_of({**alone, names.REFUSED: {"refused": refused[:1]}})["exit"] == 0
    assert entry_of({**alone, names.REFUSED: {"refused": refused}})["exit"] == 3


def test_state_that_is_in_order_has_no_problem() -> None:
    """The near miss of everything below."""
    entry = entry_of(_STATE)
    assert [need["code"] for need in entry["needs"]] == ["AUDIT_FAILED", "CODE", "C"]


@settings(max_examples=examples(50))
@given(damaged(_STATE))
def test_one_odd_value_anywhere_in_the_state_is_a_problem_at_most(state: dict[str, Any]) -> None:
    """Whatever stands where: ``status`` has an entry, and what is in order is in it."""
    entry = entry_of(state)
    others = {"AUDIT_FAILED", "CODE", "C", "STATE_UNREADABLE", "RUN_FAILED"}
    assert len(others & {need["code"] for need in entry["needs"]}) >= 2


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("failures", 0, "ids"), []),
        (("failures", 0, "answer"), 1),
        (("failures", 0, "answer"), -1),
        (("rules", "same"), 7),
        (("failures", 0, "what"), 5),
        (("more",), float("inf")),
        (("last", "at_ms"), 10**400),
        (("audits",), []),
    ],
)
def test_verdict_that_names_what_is_not_there_is_a_problem(path: tuple[Any, ...], value: Any) -> None:
    """Said with the key; the flow's other values count."""
    state = copy.deepcopy(_STATE)
    holder = state[names.VERDICTS]
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    codes = [need["code"] for need in entry_of(state)["needs"]]
    assert codes == ["STATE_UNREADABLE", "CODE", "C"]


def test_what_was_proven_before_an_operator_had_it_copied_again_is_not_called_proven() -> None:
    """As the next audit has it: where the target had lost some of it by then."""
    mark = Watermark(
        offset=5, target_offset=5, source_id=UUID(int=1), target_id=UUID(int=2), timestamp_ms=5, at_ms=5
    )
    enrolled = Enrolment("t", "t", UUID(int=1), UUID(int=2), {0: 0}, 5)
    put = replace(enrolled, changed={0: "later"}, placed={0: PlacedProgress(2, 3, 4)})
    told = [
        entry_of({names.LAYOUT: _LAYOUT.to_json(), "topic/t": of.to_json(), "verified/t/0": known.to_json()})
        for of, known in ((enrolled, mark), (put, mark), (put, replace(mark, approval="later")))
    ]
    assert [each["partitions"][0]["verified"] is not None for each in told] == [True, False, True]
