"""What ``onceover groups`` makes of somebody who ends it before it has written anything."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.cli.commands import groups
from onceover.cli.main import main
from onceover.groups.apply import GroupSync
from onceover.groups.decide import Allowed
from tests.unit.groups.groupworld import SHIFT, Lines, World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """One group that goes on there, and one for which somebody else has committed."""
    world = World(here={"a": 4, "b": 7}, there={"b": 101})
    sync = GroupSync(cast(Any, world), Allowed(), cast(Any, Lines().opened), 1)
    monkeypatch.setattr(groups, "load_flow", lambda _: SimpleNamespace(flow="flights"))
    monkeypatch.setattr(groups, "opened", lambda *_: nullcontext(sync))
    return world


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once somebody wants the command to end."""
    event = threading.Event()
    monkeypatch.setattr(groups, "ending_signals", lambda: nullcontext(event))
    return event


@pytest.mark.parametrize("words", [("apply",), ("follow", "--interval", "1s")], ids=lambda words: words[0])
def test_a_command_that_was_ended_while_it_looks_twice_is_no_success(
    world: World, asked: threading.Event, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that starts consumers behind it must not go on."""
    asked.set()
    assert main(["groups", words[0], "flights", *words[1:]]) == 130
    assert world.there == {"b": 101}
    assert "interrupted" in capsys.readouterr().out


def test_a_follow_that_is_ended_between_two_looks_has_its_last_ones_answer(
    world: World, asked: threading.Event
) -> None:
    """That is how it ends."""
    del world.here["b"]
    world.before_commit = lambda _: asked.set()
    assert main(["groups", "follow", "flights"]) == 0
    assert world.there["a"] == 4 + SHIFT
