"""Over to where the log begins behind a group, and back: what it has read nowhere is still before it (G6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceover.config.home import HOME_VARIABLE
from tests.support.flows.groups import commit, offset_of
from tests.support.flows.replica import Replica, delete_before

DONE = 0
BACK = ("--direction", "failback")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals and indexes of the test's own."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "var"))


class Group:
    """One group, and the command under test."""

    def __init__(self, replica: Replica, capsys: pytest.CaptureFixture[str]) -> None:
        self.replica, self._capsys = replica, capsys
        self.name = f"{replica.name}-slow"
        self.topic = replica.topic()
        self.source, self.target = replica.source_client, replica.target_client

    def run(self, action: str, *options: str) -> tuple[str, int | None, str, int | None]:
        """Return what is decided, where the group goes on, and at which risk."""
        path = str(self.replica.flow.path)
        code, document = self.replica.command(
            self._capsys, "groups", action, path, "--group", self.name, *options
        )
        assert code == DONE, document
        (entry,) = document["positions"]
        changes: list[dict[str, Any]] = document["changes"]
        risk, records = (changes[0]["risk"], changes[0]["records"]) if changes else ("none", None)
        return entry["decision"], entry["new"], risk, records

    def stands(self) -> tuple[int | None, int | None]:
        return offset_of(self.source, self.name, self.topic), offset_of(self.target, self.name, self.topic)


@pytest.fixture
def group(replica: Replica, capsys: pytest.CaptureFixture[str]) -> Group:
    made = Group(replica, capsys)
    replica.source.plain(made.topic, 0, replica.source.records(50))
    replica.copy()
    return made


def test_a_group_that_read_nothing_over_there_is_still_in_place_at_home(group: Group) -> None:
    """The target's retention is the shorter one; then both go on from where they are."""
    commit(group.source, group.name, group.topic, {0: 10})
    delete_before(group.target, group.topic, 40)
    assert group.run("apply") == ("move", 40, "skip", 30)
    assert group.run("plan", *BACK) == ("in place", 10, "none", None)
    group.run("apply", *BACK)
    assert group.stands() == (10, 40)
    # It has gone on at home.
    commit(group.source, group.name, group.topic, {0: 20})
    assert group.run("apply") == ("in place", 40, "none", None)
    group.run("apply", *BACK)
    assert group.stands() == (20, 40)
    # It has gone on over there: what was not there is told once more before it is passed over at home, too.
    commit(group.target, group.name, group.topic, {0: 45})
    assert group.run("apply", *BACK) == ("move", 45, "skip", 20)
    assert group.stands() == (45, 45)


def test_the_same_the_other_way(group: Group) -> None:
    """The source's retention was the shorter one."""
    commit(group.source, group.name, group.topic, {0: 5})
    group.run("apply")
    commit(group.target, group.name, group.topic, {0: 45})
    delete_before(group.source, group.topic, 48)
    assert group.run("apply", *BACK) == ("move", 48, "skip", 3)
    assert group.run("plan") == ("in place", 45, "none", None)
    group.run("apply")
    assert group.stands() == (48, 45)


def test_a_group_that_was_ahead_of_the_copy_is_not_ahead_of_itself(group: Group) -> None:
    """It reads again what was not copied yet, over there; at home it goes on where it was."""
    group.replica.source.plain(group.topic, 0, group.replica.source.records(10))
    commit(group.source, group.name, group.topic, {0: 60})
    assert group.run("apply") == ("move", 50, "repeat", 10)
    assert group.run("apply", *BACK, "--allow-rewind") == ("in place", 60, "none", None)
    assert group.stands() == (60, 50)
