"""A fence is lifted once it is agreed what is written behind it: lifted for nothing it does not come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from onceover.errors import NeedsOperator
from onceover.planning.plan import Change, Refusal
from onceover.seeding.codes import SeedingCode
from onceover.seeding.origins import FlowClusters, seats_of
from onceover.seeding.plan import SeatedTopic, SeedOffset, SeedOffsets
from tests.unit.seeding.seedscene import SeedScene

LET_IN = Change("let in", "writers of a on west", "kept off by flow there", "free", "")


@dataclass
class Fenced:
    """An origin behind a fence, which says at each look what it is told to, the last thing again and again.

    ``events``: the looks, and that the fence was lifted, in order.
    """

    says: list[Callable[[SeatedTopic], SeedOffset | Refusal]]
    events: list[str] = field(default_factory=list)

    def read(self, place: FlowClusters, topics: Sequence[SeatedTopic]) -> SeedOffsets:
        self.events.append("look")
        say = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        answers = {seat.source: say(topic) for topic in topics for seat in seats_of([topic])}
        return SeedOffsets(
            {tp: answer for tp, answer in answers.items() if isinstance(answer, SeedOffset)},
            {tp: answer for tp, answer in answers.items() if isinstance(answer, Refusal)},
        )

    def changes(self) -> Sequence[Change]:
        return [] if "lifted" in self.events else [LET_IN]

    def prepare(self, place: FlowClusters) -> None:
        self.events.append("lifted")


def promoted(_: SeatedTopic) -> SeedOffset:
    return SeedOffset(40, "where the copy ended", "none")


def skipping(_: SeatedTopic) -> SeedOffset:
    return SeedOffset(60, "somewhere else", "skip", 20)


def orphans(topic: SeatedTopic) -> Refusal:
    return Refusal(f"{topic.source.name}:0", SeedingCode.ORPHANS, "it holds more", "see what it is")


@pytest.fixture
def scene(tmp_path: Path) -> SeedScene:
    made = SeedScene(tmp_path)
    made.east.make_topic("a", 1)
    made.grow("a", 100)
    return made


def test_a_second_look_that_refuses_everything_leaves_the_fence(scene: SeedScene) -> None:
    origin = Fenced([promoted, orphans])
    outcome = scene.seeder(origin).apply(scene.caller)
    assert origin.events == ["look", "look"]
    assert ([r.code for r in outcome.waiting], outcome.written, outcome.exit_code) == (["ORPHANS"], 0, 3)
    assert scene.progress() == {} and scene.enrolled() == {}
    assert scene.shown[-1].refused == tuple(outcome.waiting)


def test_so_does_one_that_would_write_something_else(scene: SeedScene) -> None:
    origin = Fenced([promoted, skipping])
    with pytest.raises(NeedsOperator) as raised:
        scene.seeder(origin).apply(scene.caller)
    assert (raised.value.code, origin.events) == ("PLAN_CHANGED", ["look", "look"])
    assert scene.progress() == {}


def test_what_is_written_was_looked_at_behind_the_fence_once_more(scene: SeedScene) -> None:
    """What may come by then, or was hidden until then, counts."""
    origin = Fenced([promoted])
    outcome = scene.seeder(origin).apply(scene.caller)
    assert origin.events == ["look", "look", "lifted", "look"]
    assert (outcome.written, scene.progress()) == (1, {"a:0": 40})
    done = [line for line in (scene.home / "seed.jsonl").read_text().splitlines() if '"done"' in line]
    assert sum('"let in"' in line for line in done) == 1


def test_a_last_look_that_refuses_is_told(scene: SeedScene) -> None:
    origin = Fenced([promoted, promoted, orphans])
    outcome = scene.seeder(origin).apply(scene.caller)
    assert origin.events == ["look", "look", "lifted", "look"]
    assert ([r.code for r in outcome.waiting], outcome.written) == (["ORPHANS"], 0)
    assert scene.progress() == {}
