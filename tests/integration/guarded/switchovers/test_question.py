"""What was said yes to before an unplanned switchover, and whether it is still that."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.config.flow.load import load_flow
from onceover.drills.journal import DrillJournal
from onceover.drills.switching.switchover import Switchover, SwitchoverOutcome
from onceover.drills.switching.unplanned import UnplannedSteps
from onceover.errors import NeedsOperator, Retriable, UsageError
from onceover.groups import apply
from onceover.kafka.cluster import LiveCluster
from onceover.planning.approval import Approval
from onceover.planning.operation import Caller, wait
from onceover.state.committed import all_progress
from onceover.state.read import read_flow_state
from onceover.state.records.enrolment import Promoted
from onceover.state.records.progress import beside
from onceover.wiring.failovers import switchovers
from onceover.wiring.failovers.switchovers import SwitchoverOptions, abort_drill, switchover
from onceover.wiring.flows import opened
from onceover.wiring.status import read_status
from tests.support.brokers.clusters import SharedCluster
from tests.support.drills.orphaned import DONE, Orphaned, orphaned
from tests.support.flows.groups import commit, offset_of
from tests.support.flows.replica import delete_topics

NOBODY = Caller(lambda _: None)


@pytest.fixture
def replica(
    tmp_path: Path, unique_name: str, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> Iterator[Orphaned]:
    """A flow whose clients a program moves."""
    with orphaned(tmp_path, unique_name, source_cluster.client, target_cluster.client) as replica:
        yield replica


def copied(replica: Orphaned) -> str:
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    return topic


@contextmanager
def unplanned(replica: Orphaned) -> Iterator[Switchover]:
    options = partial(switchover, options=SwitchoverOptions("unplanned"), pause=wait)
    with opened(load_flow(str(replica.flow.path)), options) as operation:
        yield operation


def as_if_away(real: Callable[..., Mapping[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return a status of a source that does not answer."""

    def read(*of: Any, **how: Any) -> dict[str, Any]:
        entry = real(*of, **how)
        unknown = {"high_watermark": None, "lso": None, "lag_offsets": None, "oldest_missing_s": None}
        return {**entry, "partitions": [{**each, **unknown} for each in entry["partitions"]]}

    return read


@pytest.mark.soak
def test_a_source_that_answers_by_now_is_another_question(
    replica: Orphaned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is promoted of what a planned switchover would lose nothing of; shown, it may be given up."""
    copied(replica)
    with monkeypatch.context() as away, unplanned(replica) as operation:
        away.setattr(switchovers, "read_status", as_if_away(read_status))
        plan = operation.plan()
    approved = Approval.from_json(json.loads(json.dumps(Approval.of(plan.items).to_json())))
    assert "does not answer" in plan.describe()
    with unplanned(replica) as operation:
        with pytest.raises(NeedsOperator) as refused:
            operation.apply(NOBODY, approved)
        assert (refused.value.code, "source east" in str(refused.value)) == ("PLAN_CHANGED", True)
        outcome = operation.apply(NOBODY, Approval.of(operation.plan().items))
    assert outcome.verdict == "PASS"


def test_a_task_that_is_tried_again_behind_its_end_tells_of_it(replica: Orphaned) -> None:
    """Its approval has done what it was given for; another one finds nothing to switch over."""
    copied(replica)
    with unplanned(replica) as operation:
        approved = Approval.of(operation.plan().items)
        first = operation.apply(NOBODY, approved)
    with unplanned(replica) as operation:
        again = operation.apply(NOBODY, approved)
        assert (again.exit_code, list(again.waiting)) == (DONE, [])
        assert dict(again.counts) == dict(first.counts)
        assert first.drill in again.describe()
        with pytest.raises(UsageError, match="copies none of the topics"):
            operation.apply(NOBODY, Approval.of([]))


def promoted(replica: Orphaned) -> dict[str, Promoted]:
    with LiveCluster(ClientConfig("target", replica.target_client)) as cluster:
        state = read_flow_state(cluster, replica.name)
    return {e.source: e.promoted for e in state.enrolled.values() if e.promoted and e.is_promoted}


def marked(replica: Orphaned) -> set[tuple[int, str, int]]:
    """Return what tells of a promotion where the flow's state has lost it: its generation, drill and end."""
    with LiveCluster(ClientConfig("target", replica.target_client)) as cluster:
        metas = [beside(each).meta for each in all_progress(cluster, replica.name).values()]
    return {(m.generation, m.promoted.drill, m.promoted.end) for m in metas if m and m.promoted}


def begun_behind(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Let something happen between the plan of the next drill and its beginning."""
    begin = DrillJournal.begin

    def late(journal: DrillJournal, drill: str, said: Mapping[str, Any]) -> None:
        monkeypatch.setattr(DrillJournal, "begin", begin)
        meanwhile()
        begin(journal, drill, said)

    monkeypatch.setattr(DrillJournal, "begin", late)


@pytest.mark.parametrize("yes", ["the same", pytest.param("another", marks=pytest.mark.soak)])
def test_one_that_began_behind_another_one_promotes_nothing_again(
    replica: Orphaned, monkeypatch: pytest.MonkeyPatch, yes: str
) -> None:
    """Planned before it, and begun behind it: the way back begins where the first one has promoted."""
    topic = copied(replica)
    with unplanned(replica) as operation, unplanned(replica) as first:
        approved = Approval.of(operation.plan().items)
        done: list[Any] = []

        def meanwhile() -> None:
            done.append(first.apply(NOBODY, approved))
            replica.target.plain(topic, 0, replica.target.records(5))

        begun_behind(monkeypatch, meanwhile)
        if yes == "the same":
            assert dict(operation.apply(NOBODY, approved).counts) == dict(done[0].counts)
        else:
            with pytest.raises(NeedsOperator, match="since it was planned") as refused:
                operation.apply(NOBODY, Approval.of(operation.plan().items))
            assert refused.value.code == "PLAN_CHANGED"
    at = promoted(replica)[topic]
    assert (at.drill, dict(at.ends)) == (done[0].drill, {0: 11})
    assert marked(replica) == {(at.generation, at.drill, 11)}


@pytest.mark.soak
def test_one_that_was_planned_before_clients_had_gone_back_promotes_nothing(
    replica: Orphaned, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes when clients are on the source again, and the flow copies it again."""
    topic = copied(replica)

    def meanwhile() -> None:
        replica.switch_over(capsys)
        origin = f"promoted:{replica.fail_back(capsys, topic).path}"
        seeded = replica.command(capsys, "seed", "apply", replica.name, "--from", origin, "--replace")
        assert seeded[0] == DONE, seeded
        replica.source.plain(topic, 0, replica.source.records(3))
        replica.copy()

    with unplanned(replica) as operation:
        begun_behind(monkeypatch, meanwhile)
        with pytest.raises(NeedsOperator, match="since it was planned"):
            operation.apply(NOBODY, Approval.of(operation.plan().items))
    assert not promoted(replica)


def test_a_copy_that_was_made_anew_is_not_the_one_that_was_shown(replica: Orphaned) -> None:
    """Its stop was shown for another reason, which hides that the copy is gone."""
    topic = copied(replica)
    delete_topics(replica.source_client, [topic])
    replica.source.create_topic(topic, 1, {})
    with unplanned(replica) as operation:
        approved = Approval.of(operation.plan().items)
    delete_topics(replica.target_client, [topic])
    replica.target.create_topic(topic, 1, {})
    with unplanned(replica) as operation:
        with pytest.raises(NeedsOperator) as refused:
            operation.apply(NOBODY, approved)
        assert "made anew" in operation.plan().describe()
    assert (refused.value.code, f"copy {topic}" in str(refused.value)) == ("PLAN_CHANGED", True)
    assert not promoted(replica)


@pytest.mark.soak
def test_a_task_that_is_tried_again_behind_an_abort_does_nothing(
    replica: Orphaned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster was away, somebody has ended it between two tries: nothing is promoted without a yes."""
    copied(replica)
    with monkeypatch.context() as away, unplanned(replica) as operation:

        def stop(*_: object) -> Mapping[str, Any]:
            raise Retriable("west is away")

        away.setattr(UnplannedSteps, "stop", stop)
        approved = Approval.of(operation.plan().items)
        assert operation.apply(NOBODY, approved).exit_code == Retriable.exit_code
    found = abort_drill(load_flow(str(replica.flow.path)), wait)
    assert (found.drill, found.withdrawn is None) == (None, False)
    with unplanned(replica) as operation:
        with pytest.raises(NeedsOperator) as refused:
            operation.apply(NOBODY, approved)
        assert refused.value.code == "DRILL_ABORTED"
        assert operation.apply(NOBODY, Approval.of(operation.plan().items)).exit_code == DONE


def test_a_group_that_is_moved_over_what_it_may_not_have_read_is_told(
    replica: Orphaned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's commit on the target is moved on; the report has the group, and how much."""
    monkeypatch.setattr(apply, "WATCH_S", 0.5)
    topic, group = copied(replica), f"{replica.name}-billing"
    commit(replica.source_client, group, topic, {0: 7})
    commit(replica.target_client, group, topic, {0: 2})
    with unplanned(replica) as operation:
        outcome = operation.apply(NOBODY, Approval.of(operation.plan().items))
    assert isinstance(outcome, SwitchoverOutcome)
    assert offset_of(replica.target_client, group, topic) == 7
    (text,) = [text for code, text in outcome.findings if code == "GROUP_SKIPS"]
    assert f"{group} {topic}:0" in text
    assert "from 2 to 7" in text
    assert "5 offsets" in text


@pytest.mark.soak
def test_a_topic_that_was_deleted_keeps_no_other_topics_groups_back(replica: Orphaned) -> None:
    """A group that was never put in place before goes on where it is, as the source tells that."""
    topic, group = copied(replica), f"{replica.name}-billing"
    gone = replica.topic("gone")
    replica.copy()
    commit(replica.source_client, group, topic, {0: 7})
    delete_topics(replica.source_client, [gone])
    with unplanned(replica) as operation:
        plan = operation.plan()
        outcome = operation.apply(NOBODY, Approval.of(plan.items))
    assert "answers in 1 of 2 partitions" in plan.describe()
    assert isinstance(outcome, SwitchoverOutcome)
    assert (outcome.verdict, offset_of(replica.target_client, group, topic)) == ("PASS", 7)
