"""The journal: complete lines, in order, on disk before the next effect."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceover.errors import NeedsOperator, Retriable, UsageError
from onceover.planning.journal import Journal
from onceover.planning.plan import Change, Plan, Refusal

CREATE = Change("create topic", "orders", None, "3 partitions", "copy of orders")
GROW = Change("add partitions", "flights", 2, 4, "flights has 4 partitions")
PLAN = Plan(operation="topics", flow="f", changes=(CREATE, GROW))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_was_planned_done_refused_and_failed_is_told(tmp_path: Path) -> None:
    """Each line says when, which plan, which change, and how it ended."""
    path = tmp_path / "f" / "journal" / "topics.jsonl"

    def away() -> None:
        with Journal(path) as journal, journal.applying(PLAN):
            journal.done(CREATE)
            journal.refused([Refusal("flights", "NOT_AUTHORIZED", "no", "grant it")])
            raise Retriable("west is away")

    with pytest.raises(Retriable):
        away()
    told = lines(path)
    assert [line["outcome"] for line in told] == ["planned", "planned", "done", "refused", "failed"]
    assert [line["change"] and line["change"]["object"] for line in told] == [
        "orders", "flights", "orders", None, None,
    ]  # fmt: skip
    assert {(line["operation"], line["plan_id"]) for line in told} == {("topics", PLAN.plan_id)}
    assert told[3]["error"]["code"] == "NOT_AUTHORIZED"
    assert told[4]["error"]["message"] == "west is away"
    assert [line["at_ms"] for line in told] == sorted(line["at_ms"] for line in told)


def test_what_was_applied_to_its_end_has_not_failed(tmp_path: Path) -> None:
    """Nor has what somebody interrupts: it may or may not have happened, as with a kill."""
    path = tmp_path / "topics.jsonl"
    with Journal(path) as journal, journal.applying(PLAN):
        journal.done(CREATE)
    with pytest.raises(KeyboardInterrupt), Journal(path) as journal, journal.applying(PLAN):
        raise KeyboardInterrupt
    assert [line["outcome"] for line in lines(path)] == ["planned", "planned", "done", "planned", "planned"]


def test_a_later_run_appends(tmp_path: Path) -> None:
    """Nothing that was told is ever lost."""
    path = tmp_path / "topics.jsonl"
    for _ in range(2):
        with Journal(path) as journal:
            journal.planned(PLAN)
    assert len(lines(path)) == 4


def test_half_a_line_of_a_killed_process_spoils_only_itself(tmp_path: Path) -> None:
    """The next run begins a line of its own."""
    path = tmp_path / "topics.jsonl"
    path.write_text('{"at_ms": 1}\n{"at_ms": 2, "chan')
    with Journal(path) as journal:
        journal.planned(PLAN)
    first, broken, *rest = path.read_text().splitlines()
    assert (first, broken) == ('{"at_ms": 1}', '{"at_ms": 2, "chan')
    assert [json.loads(line)["outcome"] for line in rest] == ["planned", "planned"]


def test_an_empty_plan_leaves_no_file(tmp_path: Path) -> None:
    """Looking changes nothing, not even on the own disk."""
    with Journal(tmp_path / "f" / "topics.jsonl") as journal:
        journal.planned(Plan(operation="topics", flow="f"))
        journal.refused([])
    assert list(tmp_path.iterdir()) == []


def test_every_line_is_on_disk_when_the_call_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fsync after each write: a power failure later loses nothing that was told."""
    events: list[str] = []
    write, sync = os.write, os.fsync

    def written(descriptor: int, data: bytes) -> int:
        events.append("write")
        return write(descriptor, data)

    def synced(descriptor: int) -> None:
        events.append("fsync")
        sync(descriptor)

    monkeypatch.setattr(os, "write", written)
    monkeypatch.setattr(os, "fsync", synced)
    with Journal(tmp_path / "topics.jsonl") as journal:
        journal.planned(PLAN)
        journal.done(CREATE)
    assert events == ["write", "fsync", "write", "fsync"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Before anything is done: the plan is written first."""
    (tmp_path / "f").write_text("a file where a directory should be")
    path = tmp_path / "f" / "topics.jsonl"
    with Journal(path) as journal, pytest.raises(UsageError, match="journal cannot be written") as caught:
        journal.planned(PLAN)
    assert caught.value.where == str(path)


class Full:
    """A disk that has no room any more behind so many lines."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self._room, self._write = room, os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, descriptor: int, data: bytes) -> int:
        self._room -= data.count(b"\n")
        if self._room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._write(descriptor, data)


@pytest.mark.parametrize("what", ["done", "refused", "planned anew"])
def test_a_disk_that_fills_up_behind_the_first_change_is_no_bad_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Exit code 2 says that nothing was changed."""
    Full(monkeypatch, room=2)
    with Journal(tmp_path / "topics.jsonl") as journal:
        journal.planned(PLAN)
        tell: dict[str, Callable[[], None]] = {
            "done": lambda: journal.done(CREATE),
            "refused": lambda: journal.refused([Refusal("flights", "NOT_AUTHORIZED", "no", "grant it")]),
            # Behind a seizure, which ends a running copy, or the first round of ``topics apply``.
            "planned anew": lambda: journal.planned(PLAN),
        }
        with pytest.raises(NeedsOperator, match="No space left") as caught:
            tell[what]()
    assert (caught.value.code, caught.value.where) == ("JOURNAL", str(tmp_path / "topics.jsonl"))


def test_a_full_disk_does_not_hide_what_has_ended_the_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fenced by a newer one, say: who is told of the disk alone makes room, and does the same again."""
    Full(monkeypatch, room=2)
    with (
        pytest.raises(Retriable, match="west is away"),
        Journal(tmp_path / "topics.jsonl") as journal,
        journal.applying(PLAN),
    ):
        raise Retriable("west is away")
    assert "No space left" in caplog.text and "west is away" in caplog.text


def test_others_may_not_write_it(tmp_path: Path) -> None:
    """A journal that anybody could change proves nothing."""
    path = tmp_path / "topics.jsonl"
    with Journal(path) as journal:
        journal.planned(PLAN)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
