"""The planned way back, with groups that have committed nothing since the copy was promoted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from onceover.drills.leaving import commits
from onceover.groups import apply
from onceover.state import names
from tests.support.drills.orphaned import DECIDE, DONE, Capture, Orphaned
from tests.support.drills.switching import step_of, trouble
from tests.support.flows.flows import InlineFlow, assert_same
from tests.support.flows.groups import commit, commit_all, committed_all, delete_group
from tests.support.flows.replica import Seen, delete_topics, read_records
from tests.support.raw.adversary import COMPACT_AT_ONCE

HOW = {"fence": "command", "redirect": "command", "command": ["./switch"], "quiet": "500ms"}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody here commits without being a member."""
    monkeypatch.setattr(commits, "COMMITS_S", 0.5)
    monkeypatch.setattr(apply, "WATCH_S", 0.5)


def switched_over(replica: Orphaned, capsys: Capture, flow: InlineFlow) -> dict[str, Any]:
    """Run a planned switchover of a flow that has copied everything."""
    flow.copy()
    arguments = "drill", "run", str(flow.path), "--mode", "planned", "--approve"
    code, told = replica.command(capsys, *arguments)
    assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
    return told


def both_ways(replica: Orphaned) -> InlineFlow:
    """Let each flow name the other; return the one from target to source."""
    replica.configure(switchover={**HOW, "reverse": f"{replica.name}-back"})
    return replica.back(switchover={**HOW, "reverse": replica.name})


def following(records: Mapping[int, Seen], at: int) -> Seen | None:
    return next((records[offset] for offset in sorted(records) if offset >= at), None)


@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_group_that_rests_in_the_copy_goes_back_to_exactly_where_it_was(
    replica: Orphaned, capsys: Capture, *, again: bool
) -> None:
    """One at every offset: among markers, aborted records and what compaction has left, and at the end."""
    back = both_ways(replica)
    mixed, holes = replica.topic("mixed"), replica.topic("holes", config=COMPACT_AT_ONCE)
    replica.source.interleaved(mixed, 0)
    replica.source.plain(mixed, 0, replica.source.records(2))
    replica.source.interleaved(mixed, 0)
    replica.source.holes(holes)
    replica.stop_compaction(holes)
    resting: dict[str, dict[str, int]] = {}
    for topic in (mixed, holes):
        end = max(read_records(replica.source_client, topic)) + 2
        resting[topic] = {f"{replica.name}-{topic[-5:]}-{at}": at for at in range(end)}
        commit_all(replica.source_client, topic, {group: {0: at} for group, at in resting[topic].items()})
    busy = f"{replica.name}-busy"
    commit(replica.source_client, busy, mixed, {0: 3})
    switched_over(replica, capsys, replica.flow)
    replica.target.plain(mixed, 0, replica.target.records(5))
    replica.target.plain(holes, 0, replica.target.records(1, key=b"new"))
    commit(replica.target_client, busy, mixed, {0: max(read_records(replica.target_client, mixed)) - 1})
    # Brokers forget positions of groups that do nothing after a week, by default.
    forgotten = {group for groups in resting.values() for group in list(groups)[::3]}
    for group in forgotten:
        delete_group(replica.source_client, group)
    told = switched_over(replica, capsys, back)
    assert step_of(told, "place")["evidence"]["rested"] == sum(map(len, resting.values()))
    assert f"by flow {replica.name}" in step_of(told, "place")["evidence"]["rested_at"][0]
    assert_same(replica.target_client, replica.source_client, [mixed, holes])
    for topic, groups in resting.items():
        now = committed_all(replica.source_client, topic, groups)
        after = read_records(replica.source_client, topic)
        for group, at in groups.items():
            came = now[group][0][0]
            assert following(after, came) == following(after, at), (group, came, at)
            if group not in forgotten:
                assert came == at, group
    if again:
        over_once_more(replica, capsys, resting)


def over_once_more(replica: Orphaned, capsys: Capture, resting: Mapping[str, Mapping[str, int]]) -> None:
    """Before the second copy stands what the way back knows, and the first copy before that."""
    there = {t: committed_all(replica.target_client, t, groups) for t, groups in resting.items()}
    switched_over(replica, capsys, replica.flow)
    for topic, groups in resting.items():
        now = committed_all(replica.target_client, topic, groups)
        records = read_records(replica.target_client, topic)
        for group in groups:
            places = [found[group][0][0] for found in (there[topic], now)]
            assert following(records, places[0]) == following(records, places[1]), (group, places)


@pytest.mark.soak
def test_where_nothing_tells_what_a_position_stands_for_it_is_refused(
    replica: Orphaned, capsys: Capture
) -> None:
    """The map of the flow that was promoted is gone: the group and the way out are named."""
    back = both_ways(replica)
    topic, group = replica.topic(), f"{replica.name}-idle"
    replica.source.interleaved(topic, 0)
    commit(replica.source_client, group, topic, {0: 4})
    switched_over(replica, capsys, replica.flow)
    delete_topics(replica.target_client, [names.map_topic(replica.name)])
    back.copy()
    code, told = replica.command(capsys, "drill", "run", str(back.path), "--mode", "planned", "--approve")
    error = step_of(told, "look")["error"]
    assert (code, error["code"], error["seen"]) == (DECIDE, "NOT_READY", "NOT_COVERED")
    assert f"{group} {topic}:0" in error["message"]
    assert f"onceover translate {replica.name} {topic}:0" in error["resolve"]
