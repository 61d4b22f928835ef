"""What the journal of drills says of topics that were to be rebuilt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.drills import chain as chains
from onceover.drills.orphans import rebuild
from onceover.drills.orphans.looks import OrphanLook, TopicShape
from onceover.drills.orphans.positions import PositionOnlyHere, PositionsOnlyHere
from onceover.drills.orphans.rebuild import TopicRebuild, unmade_topics
from onceover.drills.orphans.tally import OrphanTally
from onceover.errors import NeedsOperator
from onceover.model import TopicPartition

SHAPE = TopicShape("id", 3, 2, {"retention.ms": "-1", "min.insync.replicas": "2"})


def chain(*said: dict[str, Any], what: str = chains.STEP) -> list[chains.JournalEntry]:
    entries: list[chains.JournalEntry] = []
    for number, each in enumerate(said):
        entries.append(chains.next_entry(entries, "d", what, number, each))
    return entries


def deleting(topic: str) -> dict[str, Any]:
    return {"step": "delete", "topic": topic, **SHAPE.document(), "state": "running"}


def test_what_was_to_be_deleted_is_made_again_as_it_was() -> None:
    """Until somebody says that it was; whether it is gone the cluster tells."""
    assert unmade_topics(chain(deleting("a"), deleting("b"))) == {"a": SHAPE, "b": SHAPE}
    done = {"step": "delete", "topic": "a", "state": "done"}
    assert unmade_topics(chain(deleting("a"), done)) == {"a": SHAPE}
    made = {"step": "create", "topic": "a", "state": "done"}
    assert unmade_topics(chain(deleting("a"), done, made)) == {}
    assert unmade_topics(chain(deleting("a"), made, deleting("a"))) == {"a": SHAPE}
    kept = {"step": "delete", "topic": "a", "state": "kept"}
    assert unmade_topics(chain(deleting("a"), kept)) == {}


def test_other_entries_say_nothing_of_it() -> None:
    """Those of earlier releases have not kept how a topic was made."""
    older = {"step": "delete", "topic": "a", "partitions": 3, "offsets": 9, "state": "running"}
    assert unmade_topics(chain(older, {"step": "export", "state": "done"}, {"topic": 5})) == {}
    assert unmade_topics(chain({**deleting("a"), "config": None})) == {}
    assert unmade_topics(chain(deleting("a"), what=chains.ENDED)) == {}


def look_of(topic: str) -> OrphanLook:
    return OrphanLook(TopicPartition(topic, 0), f"id of {topic}", 0, 9, 9, 5, OrphanTally())


class Asked:
    """Both sides, their flows and their groups, which count how often they are asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, topics: Sequence[str]) -> None:
        self.looks = {topic: [look_of(topic)] for topic in topics}
        self.counts: Counter[str] = Counter()
        self.order: list[str] = []
        self.cut = 5
        self.only_here: dict[str, list[PositionOnlyHere]] = {}
        self.left_here: set[str] = set()
        monkeypatch.setattr(
            rebuild, "_unchanged", lambda watch, _: self.asked(f"ends of {len(watch.topics)}")
        )
        monkeypatch.setattr(rebuild, "shapes_of", lambda _, names: {name: self.shape(name) for name in names})
        monkeypatch.setattr(rebuild, "Admin", lambda _: SimpleNamespace(try_create=lambda *_, **__: {}))

    def asked(self, what: str) -> None:
        self.counts[what] += 1

    def shape(self, topic: str) -> TopicShape:
        return TopicShape(f"id of {topic}", 1, 3, {})

    def again(self, topics: Collection[str]) -> tuple[OrphanLook, ...]:
        self.asked("flows")
        return tuple(replace(look_of(topic), cut=self.cut) for topic in topics)

    def positions(self, _: object) -> PositionsOnlyHere:
        self.asked("groups")
        return PositionsOnlyHere(self.only_here)

    def untaken(self, topics: Collection[str]) -> dict[str, str]:
        self.asked("flow back")
        return {topic: "its handler would change it" for topic in self.left_here & set(topics)}

    def rebuild(self) -> TopicRebuild:
        parts: Any = SimpleNamespace(
            topics=SimpleNamespace(source=SimpleNamespace(alias="east"), again=self.again),
            export=SimpleNamespace(factor=lambda: 3, place=SimpleNamespace(topic="export")),
            positions=SimpleNamespace(read=self.positions),
            plan=SimpleNamespace(
                flow="f",
                forgotten=frozenset(),
                view=SimpleNamespace(copy_of=lambda tp: tp),
                place=SimpleNamespace(back="back"),
            ),
            caller=SimpleNamespace(pause=lambda _: self.asked("pauses")),
        )
        return TopicRebuild(
            parts.topics,
            parts.export,
            None,
            parts.positions,
            self.untaken,
            parts.plan,
            cast(Any, None),
            "d",
            parts.caller,
            2.0,
        )


def test_many_topics_are_asked_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every group of a cluster, every flow's state and a pause for each of them would take hours."""
    asked = Asked(monkeypatch, [f"t{number}" for number in range(120)])
    ready = asked.rebuild().ready(asked.looks)
    assert [topic for topic, _ in ready] == list(asked.looks)
    assert asked.counts.pop("flow back") == 3
    assert asked.counts == {"ends of 50": 2, "ends of 20": 1, "pauses": 3, "flows": 3, "groups": 3}


def test_what_was_asked_is_good_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is slow to delete asks again."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    asked, met = Asked(monkeypatch, ["a", "b", "c"]), []
    for topic, shape in asked.rebuild().ready(asked.looks):
        met.append((topic, shape.topic_id))
        clock[0] += 6.0
    assert met == [(topic, f"id of {topic}") for topic in "abc"]
    assert asked.counts["groups"] == 2


def test_one_that_has_to_stay_keeps_those_that_are_asked_for_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of them is deleted, and it is named."""
    asked = Asked(monkeypatch, ["a", "b"])
    asked.only_here = {"b": [PositionOnlyHere("billing", "b", ((0, 4),))]}
    with pytest.raises(NeedsOperator, match="billing") as caught:
        next(asked.rebuild().ready(asked.looks))
    assert caught.value.where == "b"
    asked.only_here, asked.cut = {}, 6
    with pytest.raises(NeedsOperator, match="a stays"):
        next(asked.rebuild().ready(asked.looks))
    asked.cut, asked.left_here = 5, {"b"}
    with pytest.raises(NeedsOperator, match="b: it stays, because flow back would not copy it anew"):
        next(asked.rebuild().ready(asked.looks))
