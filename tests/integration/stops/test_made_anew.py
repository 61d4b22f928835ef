"""A topic that was made anew makes the old offset map void, for each of its partitions (G5, G7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from onceover.config.home import HOME_VARIABLE
from onceover.state import names
from tests.support.flows.groups import commit, offset_of
from tests.support.flows.replica import Replica, delete_topics

DONE, OPERATOR = 0, 3
OLD, NEW = 10, 6
_TIMEOUT_S = 30.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals and indexes of the test's own."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "var"))


class Case:
    """A topic of two partitions that was copied and then made anew on one side; the first one is reseeded."""

    def __init__(self, replica: Replica, capsys: pytest.CaptureFixture[str], side: str) -> None:
        self.replica = replica
        self._capsys = capsys
        self.topic = replica.topic(partitions=2)
        self.group = f"{replica.name}-reader"
        self._fill(OLD)
        replica.copy()
        client = replica.source_client if side == "source" else replica.target_client
        maker = replica.source if side == "source" else replica.target
        delete_topics(client, [self.topic])
        maker.create_topic(self.topic, 2)
        if side == "source":
            self._fill(NEW)
        replica.copy()
        self.repair("reseed", 0)

    def _fill(self, records: int) -> None:
        for partition in range(2):
            self.replica.source.plain(self.topic, partition, self.replica.source.records(records))

    def run(self, *arguments: str, expect: int = DONE) -> dict[str, Any]:
        code, document = self.replica.command(self._capsys, *arguments)
        assert code == expect, document
        return document

    def repair(self, kind: str, partition: int, *more: str) -> None:
        flow = str(self.replica.flow.path)
        self.run("partition", kind, flow, f"{self.topic}:{partition}", *more, "--apply")

    def covered(self, partition: int, *offsets: int, to: str = "target") -> dict[int, int | None]:
        """Return what some offsets translate to; None for one that is not covered."""
        wanted = [f"{self.topic}:{partition}", *map(str, offsets), "--to", to]
        document = self.run("translate", str(self.replica.flow.path), *wanted)
        return {answer["offset"]: answer.get("translated") for answer in document["answers"]}

    def move(self, committed: int, *, expect: int, back: bool = False) -> int | None:
        """Move a group of partition 1 that has committed there; return where it goes on."""
        sides = [self.replica.source_client, self.replica.target_client]
        here, there = reversed(sides) if back else sides
        commit(here, self.group, self.topic, {1: committed})
        direction = "failback" if back else "failover"
        options = ("--group", self.group, "--direction", direction)
        self.run("groups", "apply", str(self.replica.flow.path), *options, expect=expect)
        return offset_of(there, self.group, self.topic, 1)

    def lose_progress(self) -> None:
        admin, group = AdminClient(self.replica.target_client), names.progress_group(self.replica.name)
        admin.delete_consumer_groups([group])[group].result(_TIMEOUT_S)

    def seeded(self, origin: str) -> dict[str, str | int]:
        """Return what a plan says of each partition: the offset, or the code of a refusal."""
        code, document = self.replica.command(
            self._capsys, "seed", "plan", str(self.replica.flow.path), "--from", origin
        )
        assert code in (DONE, OPERATOR), document
        found = {c["object"]: c["to"] for c in document["changes"] if c["what"] == "position"}
        return found | {refusal["object"]: refusal["code"] for refusal in document["refused"]}


def test_a_partition_that_nobody_has_repaired_is_not_translated_nor_seeded_from_the_old_map(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """The neighbour's reseed has renewed what the flow knows of the topic."""
    case = Case(replica, capsys, "source")
    one, two = f"{case.topic}:0", f"{case.topic}:1"
    for lost in (False, True):
        if lost:
            case.lose_progress()
        assert case.covered(1, 0, 5) == {0: None, 5: None}
        assert case.covered(1, 0, 5, to="source") == {0: None, 5: None}
        assert case.move(5, expect=OPERATOR) is None
    replica.copy()
    assert case.seeded("map") == {one: 0, two: "MAP_STALE"}


def test_a_partition_that_was_skipped_forward_is_translated_from_there_on(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    case = Case(replica, capsys, "source")
    case.repair("skip-to", 1, "2")
    assert case.covered(1, 0, 1) == {0: None, 1: None}
    assert case.covered(1, 4, to="source") == {4: None}
    replica.copy()
    (first, *_), last = [o for o in replica.target_records(case.topic, 1) if o >= OLD], NEW
    assert case.covered(1, 1, 2, 3, last) == {1: None, 2: first, 3: first + 1, last: first + last - 2}
    assert case.covered(1, 4, first, to="source") == {4: None, first: 2}
    assert case.move(1, expect=OPERATOR) is None
    assert case.move(3, expect=DONE) == first + 1


def test_into_a_copy_that_was_made_anew_nothing_is_translated_before_it_is_copied(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both partitions are copied anew, and the progress is lost as well."""
    case = Case(replica, capsys, "target")
    for lost in (False, True):
        if lost:
            case.lose_progress()
        assert case.covered(1, 5, OLD) == {5: None, OLD: None}
    assert case.seeded("map") == {f"{case.topic}:0": 0, f"{case.topic}:1": 0}
    case.run("seed", "apply", str(replica.flow.path), "--from", "map")
    assert case.move(5, expect=DONE) == 0
    replica.copy()
    replica.assert_same()
    assert case.covered(1, 5, OLD) == {5: 5, OLD: OLD}
    assert case.move(5, expect=DONE) == 5
