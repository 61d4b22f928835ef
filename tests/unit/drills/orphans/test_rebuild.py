"""What the journal of drills says of topics that were to be rebuilt."""

from __future__ import annotations

from typing import Any

from onceover.drills import chain as chains
from onceover.drills.orphans.looks import TopicShape
from onceover.drills.orphans.rebuild import unmade_topics

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
