"""Whose order it is: a run never takes anybody else's for its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.connectors.model import OFFSETS_TOPIC_KEY
from onceover.connectors.offsets.configtopic import CONFIG, TARGET, ConfigRecords, Order
from onceover.connectors.record.commands import asking_command
from onceover.connectors.record.manifest import WENT_ON, Manifest
from onceover.connectors.record.orders import share, standing, told
from tests.unit.connectors.views import GLOBAL, OWN

URL = "http://w:8083"
STATES = st.sampled_from(["STARTED", "PAUSED", "STOPPED", None])


def orders(*asked: Any, first: int = 10) -> tuple[Order, ...]:
    """Return orders that were written one after the other, a second apart."""
    return tuple(Order(first + n, (first + n) * 1000, each) for n, each in enumerate(asked))


@given(st.lists(STATES), st.lists(STATES), st.data())
def test_no_order_of_somebody_else_is_called_the_runs(
    before: list[str | None], behind: list[str | None], data: st.DataObject
) -> None:
    """Whoever else has noted theirs; and nothing is given back but what the run's own came behind."""
    since = orders(*before, "STOPPED", *behind)
    mine = since[len(before)]
    theirs = [order for order in since if order is not mine]
    known = data.draw(st.sets(st.sampled_from([each.offset for each in theirs]))) if theirs else set()

    found = share(since, "STOPPED", known)

    assert found.own in ((), (mine,))
    if found.own:
        assert list(found.others) == theirs
    if found.displaced:
        assert not behind and found.displaced is theirs[-1] and found.displaced.asked in ("STARTED", "PAUSED")
    if known == {each.offset for each in theirs}:
        assert found.own == (mine,)


@pytest.mark.parametrize(
    ("asked", "wanted", "own", "displaced"),
    [
        (["STOPPED"], "STOPPED", 10, None),
        (["STARTED", "STOPPED"], "STOPPED", 11, 10),
        (["STOPPED", "STARTED"], "STOPPED", 10, None),
        (["STOPPED", "STOPPED"], "STOPPED", None, None),
        (["STOPPED", "STARTED", "STOPPED"], "STOPPED", None, None),
        (["STARTED"], "STOPPED", None, None),
        ([], "STOPPED", None, None),
        # Deleted meanwhile: there is nothing to give back.
        ([None, "STOPPED"], "STOPPED", 11, None),
        ([{"a": "1"}, {"a": "2"}], {"a": "2"}, 11, 10),
        ([{"a": "2"}, {"a": "1"}], {"a": "2"}, 10, None),
        # The workers may write it in another form than it was put.
        ([{"a": "2", "name": "c"}], {"a": "2"}, 10, None),
        ([{"b": "1"}, {"b": "2"}], {"a": "2"}, None, None),
    ],
)
def test_the_runs_order_is_known_by_what_it_asked_for(
    asked: list[Any], wanted: Any, own: int | None, displaced: int | None
) -> None:
    """One record of that is its own; two may be anybody's."""
    found = share(orders(*asked), wanted)
    assert ([each.offset for each in found.own], found.displaced and found.displaced.offset) == (
        [] if own is None else [own],
        displaced,
    )


@pytest.mark.parametrize(
    ("asked", "sent", "own", "displaced"),
    [
        (["STOPPED"], 2, [10], None),
        (["STOPPED", "STOPPED"], 2, [10, 11], None),
        # One of them is somebody's.
        (["STOPPED", "STOPPED", "STOPPED"], 2, [], None),
        (["STARTED", "STOPPED"], 2, [11], 10),
        # The second may be that of whoever has asked for the other state.
        (["STARTED", "STOPPED", "STOPPED"], 2, [], None),
        (["STOPPED", "STARTED", "STOPPED"], 2, [], None),
        (["STOPPED", "STOPPED", None], 2, [], None),
        # Ended before it was sent.
        (["STOPPED"], 0, [], None),
        ([{"a": "2"}, {"a": "2"}], 2, [10, 11], None),
    ],
)
def test_orders_that_are_alike_are_the_runs_up_to_what_it_has_sent(
    asked: list[Any], sent: int, own: list[int], displaced: int | None
) -> None:
    """A proxy that gives up on a request does not take it back."""
    wanted = next(each for each in asked if each not in ("STARTED", None))
    found = share(orders(*asked), wanted, sent=sent)
    assert [each.offset for each in found.own] == own
    assert (found.displaced and found.displaced.offset) == displaced
    assert [*found.own, *found.others] == sorted(orders(*asked), key=lambda each: each.offset not in own)


def test_repeated_order_behind_what_another_run_has_noted_is_the_runs() -> None:
    """Whose the others are is known: so are these."""
    found = share(orders("STOPPED", "STARTED", "STOPPED", "STOPPED"), "STOPPED", {10, 11}, sent=2)
    assert [each.offset for each in found.own] == [12, 13]
    assert found.displaced and found.displaced.asked == "STARTED"


def test_configuration_with_another_offsets_topic_is_not_the_runs() -> None:
    """The line is what a run changes; whoever puts another one has put it for himself."""
    found = share(orders({"name": "c", "batch": "7"}), {"name": "c", OFFSETS_TOPIC_KEY: OWN})
    assert not found.own and len(found.others) == 1


def test_orders_are_told_without_what_a_configuration_holds() -> None:
    """It may be a password."""
    text = told(orders("STOPPED", {"password": "hunter2"}, None))
    assert text == (
        "STOPPED at 1970-01-01 00:00:10.000 UTC, another configuration at 1970-01-01 00:00:11.000 UTC, "
        "its deletion at 1970-01-01 00:00:12.000 UTC"
    )


def records(*asked: str) -> ConfigRecords:
    """Return a configuration topic with these orders for the connector's state."""
    given_ = orders(*asked)
    key = "target-state-c"
    return ConfigRecords({key: {"state.v2": asked[-1]}}, {key: given_[-1].offset}, {key: given_})


def ran(asking: str = "", left: int | None = 10) -> Manifest:
    """Return a run that knew of the orders up to offset 10."""
    found = Manifest.begin("migrate", "c", (GLOBAL, OWN), "RUNNING", {}, {}, exactly_once=True)
    return found if left is None else found.with_orders({TARGET: left}, asking)


@pytest.mark.parametrize(
    ("found", "seen", "words"),
    [
        (ran(), records("STARTED"), ""),
        (ran(), records("STARTED", "STOPPED"), "somebody has asked for STOPPED at 1970-01-01 00:00:11"),
        (ran(), records("STARTED", "PAUSED"), "somebody has asked for PAUSED"),
        (ran(), records("STOPPED", "STARTED"), ""),
        (ran("STOPPED"), records("STARTED", "STOPPED"), "nobody can tell"),
        # Sent twice, or somebody's.
        (ran("STOPPED"), records("STARTED", "STOPPED", "STOPPED"), "nobody can tell"),
        (ran("STOPPED"), records("STARTED", "STARTED", "STOPPED"), "somebody has asked"),
        (ran("STARTED"), records("STARTED", "STOPPED"), "somebody has asked"),
        # Written by a release that did not look; asked of a person; as it was before.
        (ran(left=None), records("STARTED", "STOPPED"), ""),
        (ran().with_step(WENT_ON), records("STARTED", "STOPPED"), ""),
        (replace(ran(), initial_state="STOPPED"), records("STARTED", "STOPPED"), ""),
        (None, records("STARTED", "STOPPED"), ""),
    ],
)
def test_who_made_a_connector_stand_still_is_said(
    found: Manifest | None, seen: ConfigRecords, words: str
) -> None:
    """Since when, and how to let it run; nothing where the run's own order is the last."""
    said = standing(seen, found, URL)
    assert words in said and bool(said) is bool(words)
    assert bool(said) is ("`curl -X PUT http://w:8083/connectors/c/resume`" in said)


def test_orders_behind_an_offset() -> None:
    """Of one kind and one connector."""
    found = records("STARTED", "STOPPED", "STARTED")
    assert [each.offset for each in found.since("c", TARGET, 10)] == [11, 12]
    assert [each.offset for each in found.since("c", TARGET, None)] == [10, 11, 12]
    assert not found.since("c", CONFIG, None) and not found.since("d", TARGET, None)


@pytest.mark.parametrize(
    ("name", "state", "expected"),
    [
        ("c", "STARTED", "curl -X PUT http://w:8083/connectors/c/resume"),
        ("a b'c", "STOPPED", "curl -X PUT http://w:8083/connectors/a%20b%27c/stop"),
        ("c", "PAUSED", "curl -X PUT http://w:8083/connectors/c/pause"),
    ],
)
def test_command_that_asks_a_worker_for_a_state(name: str, state: str, expected: str) -> None:
    """As it is copied into a shell."""
    assert asking_command(URL, name, state) == expected
