"""A journal of drills that has lost its end, to an unclean election or as a disk was put back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from onceover.drills import chain as chains
from onceover.drills import journal as module
from onceover.drills.journal import DrillJournal
from onceover.errors import NeedsOperator, Retriable
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog
from tests.unit.drills.journals import journal

FENCE: Final = {"kind": "acls", "marks": [["orders", "User:shop"]]}


def begun(drill: DrillJournal, log: FakeLog) -> int:
    """Begin a drill that keeps somebody off; return where the log ended before it did."""
    drill.begin("d1", {})
    end = log.end
    drill.append("d1", chains.FENCED, FENCE)
    return end


def by_signs_of_life(drill: DrillJournal, beats: int = 9) -> None:
    """Make the log as long again."""
    for _ in range(beats):
        drill._log.mark()


@pytest.mark.parametrize("beats", [0, 9], ids=["at once", "as long again by signs of life"])
def test_a_drill_writes_what_its_journal_has_lost_once_more(
    west: FakeCluster, log: FakeLog, tmp_path: Path, beats: int
) -> None:
    """Behind entries that are gone it would go on as if they stood there: the chain is damaged for all."""
    with journal(west, tmp_path / "here") as drill, journal(west, tmp_path / "there") as other:
        log.lose_end(begun(drill, log))
        by_signs_of_life(other, beats)
        drill.append("d1", "step", {"step": "drain"})
        assert [each.what for each in other.read()] == ["begun", "fenced", "step"]
        assert chains.fenced(other.read()) == {"acls": {("orders", "User:shop")}}


def test_whoever_comes_behind_a_killed_one_knows_what_its_machine_has_kept(
    west: FakeCluster, log: FakeLog, tmp_path: Path
) -> None:
    """Writers that it keeps off would be kept off for ever: nobody else tells of them."""
    with journal(west, tmp_path) as killed:
        log.lose_end(begun(killed, log))
    with journal(west, tmp_path) as drill, journal(west, tmp_path / "elsewhere") as other:
        assert chains.fenced_topics(drill.read()) == {"orders"}
        assert chains.fenced_topics(other.read()) == set(), "nothing tells of it there"
        drill.append("d1", chains.ENDED, {"result": "died"})
        assert [each.what for each in other.read()] == ["begun", "fenced", "ended"]


def test_a_journal_that_was_deleted_is_not_brought_back(
    west: FakeCluster, log: FakeLog, tmp_path: Path
) -> None:
    """Somebody has done so, as they were told to: what stood there is damaged, or over."""
    with journal(west, tmp_path) as killed:
        begun(killed, log)
    log.lose_end(0)
    with journal(west, tmp_path) as drill:
        assert drill.read() == []
        drill.begin("d2", {})
        assert [each.drill for each in drill.read()] == ["d2"]


def test_what_somebody_else_has_written_since_is_what_counts(
    west: FakeCluster, log: FakeLog, tmp_path: Path
) -> None:
    """Another one has ended the drill behind the end that was left."""
    with journal(west, tmp_path / "here") as drill, journal(west, tmp_path / "there") as other:
        log.lose_end(begun(drill, log))
        other.append("d1", chains.ENDED, {"result": "died"})
        with pytest.raises(Exception, match="was taken for dead"):
            drill.append("d1", "step", {})
        assert [each.what for each in other.read()] == ["begun", "ended"]


@pytest.mark.parametrize("what", ["changed", "said", "torn", "not ours"])
def test_a_file_that_does_not_follow_tells_nothing(
    west: FakeCluster, log: FakeLog, tmp_path: Path, what: str
) -> None:
    with journal(west, tmp_path) as killed:
        log.lose_end(begun(killed, log))
    file = tmp_path / "d1" / "journal.jsonl"
    first, second = file.read_text().splitlines()
    if what == "changed":
        second = json.dumps({**json.loads(second), "before": chains.BEGINNING})
    if what == "said":
        second = second.replace("User:shop", "User:else")
    second = {"torn": second[:-9], "not ours": "[7]"}.get(what, second)
    file.write_text(f"{first}\n{second}\n")
    with journal(west, tmp_path) as drill:
        assert [each.what for each in drill.read()] == ["begun"]


def test_of_a_journal_that_is_whole_no_file_is_asked(west: FakeCluster, log: FakeLog, tmp_path: Path) -> None:
    """Nor is one that is damaged whole because a file is there."""
    with journal(west, tmp_path) as drill:
        begun(drill, log)
        known = drill.read()
    shutil.rmtree(tmp_path / "d1")
    with journal(west, tmp_path) as again:
        assert again.read() == known
        log.batches = [each for each in log.batches if b"entry/000000000001" not in each.raw]
    with journal(west, tmp_path) as damaged, pytest.raises(NeedsOperator, match="not as it was written"):
        damaged.read()


def test_a_drill_does_not_go_on_behind_what_somebody_else_wrote_and_the_journal_has_lost(
    west: FakeCluster, log: FakeLog, tmp_path: Path
) -> None:
    """It has read it, and its own last entry stands: the next one would hold the hash of one that is gone."""
    with journal(west, tmp_path / "here") as drill, journal(west, tmp_path / "there") as other:
        begun(drill, log)
        end = log.end
        other.append("d1", chains.STEP, {"step": "of another"})
        assert len(drill.read()) == 3
        log.lose_end(end)
        by_signs_of_life(other)
        drill.append("d1", chains.STEP, {"step": "drain"})
    with journal(west, tmp_path / "elsewhere") as reader:
        assert [each.said.get("step") for each in reader.read()] == [None, None, "drain"]


def test_an_entry_whose_answer_was_lost_is_kept_and_looked_for_like_any_other(
    west: FakeCluster, log: FakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands there, as the next try finds; the same crash may take it away behind that."""
    write, answers = module.write_last, [Retriable("the answer was lost")]

    def written(*args: Any) -> int:
        offset = write(*args)
        if answers:
            raise answers.pop()
        return offset

    with journal(west, tmp_path / "here") as drill:
        drill.begin("d1", {})
        end = log.end
        monkeypatch.setattr(module, "write_last", written)
        drill.append("d1", chains.FENCED, FENCE)
        log.lose_end(end)
        by_signs_of_life(drill)
        drill.append("d1", chains.STEP, {"step": "drain"})
    with journal(west, tmp_path / "elsewhere") as reader:
        assert [each.what for each in reader.read()] == ["begun", "fenced", "step"]


def test_who_has_only_read_so_far_writes_behind_what_is_there_by_now(
    west: FakeCluster, log: FakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look and its first entry it has waited for signs of life of the other one."""
    monkeypatch.setattr(module, "SILENT_S", 0.0)
    with journal(west, tmp_path / "here") as drill, journal(west, tmp_path / "there") as other:
        end = begun(other, log)
        running = chains.running(drill.read())
        assert running is not None
        log.lose_end(end)
        by_signs_of_life(other)
        drill.end_dead(running)
    with journal(west, tmp_path / "elsewhere") as reader:
        assert [each.what for each in reader.read()] == ["begun", "ended"]
