"""What the offset map and the progress know decides whether a group may go on, and where (G6, G7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from onceover.config.home import HOME_VARIABLE
from onceover.mirrormaker.records import checkpoints_topic, offset_syncs_topic
from onceover.state import names
from tests.support.flows.groups import commit_all, committed_all, unread
from tests.support.flows.handled import handler_keys
from tests.support.flows.replica import Replica, read_records

DONE, OPERATOR = 0, 3
_TIMEOUT_S = 30.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals and indexes of the test's own."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "var"))


class Groups:
    """One group for each of some offsets, and the command under test."""

    def __init__(self, replica: Replica, capsys: pytest.CaptureFixture[str]) -> None:
        self.replica = replica
        self._capsys = capsys

    def commit(self, topic: str, *offsets: int) -> None:
        wanted = {self._name(offset): {0: offset} for offset in offsets}
        commit_all(self.replica.source_client, topic, wanted)

    def run(self, action: str, expect: int) -> dict[int, dict[str, Any]]:
        """Return the decision about each group, by what it has committed."""
        path = str(self.replica.flow.path)
        mine = ("--group", f"{self.replica.name}-.*")
        code, document = self.replica.command(self._capsys, "groups", action, path, *mine)
        assert code == expect, document
        return {entry["committed"]: entry for entry in document["positions"]}

    def there(self, topic: str, *offsets: int) -> dict[int, int | None]:
        """Return where each group goes on on the target."""
        found = committed_all(self.replica.target_client, topic, map(self._name, offsets))
        return {offset: found[self._name(offset)].get(0, (None, ""))[0] for offset in offsets}

    def _name(self, offset: int) -> str:
        return f"{self.replica.name}-{offset}"


@pytest.fixture
def groups(replica: Replica, capsys: pytest.CaptureFixture[str]) -> Groups:
    return Groups(replica, capsys)


def test_a_dead_lettered_record_holds_up_no_group_no_checkpoint_and_no_offset_sync(groups: Groups) -> None:
    """It is not in the copy; who would read it next reads the one behind it."""
    replica = groups.replica
    alias, letters = f"e-{replica.name}", f"{replica.name}-letters"
    replica.configure(
        source={"alias": alias},
        on_bad_record=f"dead_letter:{letters}",
        topics={"sync_configs": False},
        mirrormaker={"checkpoints": True, "offset_syncs": True, "checkpoint_interval": "1s"},
    )
    topic = replica.topic()
    replica.target_topic(topic, 1, {"max.message.bytes": "50000"})
    for _ in range(2):
        replica.source.plain(topic, 0, replica.source.records(3))
        replica.source.batch_of_size(topic, 0, 60_000)
    theirs = replica.source_records(topic)
    kept = [offset for offset, seen in theirs.items() if len(seen.value or b"") < 50_000]
    assert len(kept) == len(theirs) - 2
    every = range(max(theirs) + 2)
    groups.commit(topic, *every)
    replica.copy()
    ours = list(replica.target_records(topic))
    assert len(replica.target_records(letters)) == 2
    groups.run("apply", DONE)
    for offset, position in groups.there(topic, *every).items():
        assert position is not None, offset
        assert unread(ours, position) == unread(kept, offset), offset
    replica.copy()
    for written in (checkpoints_topic(alias), offset_syncs_topic(alias)):
        assert read_records(replica.target_client, written), written


def test_before_a_handlers_first_record_no_group_is_moved(groups: Groups) -> None:
    """Nothing says yet that its output will be where the group would be put."""
    replica = groups.replica
    replica.configure(**handler_keys("same"))
    topic = replica.topic()
    replica.copy()
    replica.source.plain(topic, 0, replica.source.records(10))
    groups.commit(topic, 0, 5)
    found = groups.run("apply", OPERATOR)
    assert {entry["code"] for entry in found.values()} == {"NOT_COVERED"}
    assert "handler" in found[5]["reason"]
    replica.copy()
    groups.run("apply", DONE)
    assert groups.there(topic, 0, 5) == {0: 0, 5: 5}


def test_lost_progress_leaves_what_the_map_knows(groups: Groups) -> None:
    """As ``translate`` answers; where the map ends nobody knows how far the copy is."""
    replica = groups.replica
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    replica.source.plain(topic, 0, replica.source.records(5))
    admin, group = AdminClient(replica.target_client), names.progress_group(replica.name)
    admin.delete_consumer_groups([group])[group].result(_TIMEOUT_S)
    groups.commit(topic, 4, 10, 12)
    found = groups.run("apply", OPERATOR)
    assert groups.there(topic, 4, 10, 12) == {4: 4, 10: 10, 12: None}
    assert found[12]["code"] == "NOT_COVERED"
    assert "covers 0 to 10" in found[12]["reason"]
