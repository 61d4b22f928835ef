"""The journal of drills: nothing can be changed, removed or put in between unnoticed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.drills import chain as chains
from onceover.drills.chain import ChainReader, JournalEntry, next_entry, running
from onceover.drills.history import DrillHistory
from onceover.errors import NeedsOperator


def chain_of(*said: tuple[str, str]) -> list[JournalEntry]:
    """Return a journal of (drill, what)."""
    chain: list[JournalEntry] = []
    for number, (drill, what) in enumerate(said):
        chain.append(next_entry(chain, drill, what, 1000 + number, {"step": "copy", "number": number}))
    return chain


def values(chain: list[JournalEntry]) -> dict[str, Any]:
    return {entry.key: entry.to_json() for entry in chain}


STORY = chain_of(("a", "begun"), ("a", "step"), ("a", "ended"), ("b", "begun"), ("b", "step"), ("b", "abort"))


def test_what_was_written_is_read() -> None:
    """In the order of the numbers, beside what is no entry; a new journal is empty."""
    assert ChainReader().read({"alive": {"count": 3}, **values(STORY)}, "journal") == STORY
    assert ChainReader().read({}, "journal") == []


@given(st.integers(0, len(STORY) - 2))
def test_an_entry_that_is_missing_is_noticed(at: int) -> None:
    """But for the last one: the file beside it has that."""
    left = values(STORY)
    del left[STORY[at].key]
    with pytest.raises(NeedsOperator, match="not as it was written"):
        ChainReader().read(left, "journal")


@given(
    st.sampled_from(STORY),
    st.sampled_from(["drill", "what", "at_ms", "said", "before", "number", "v"]),
    st.one_of(st.none(), st.integers(), st.text(max_size=5), st.just({}), st.just([])),
)
def test_an_entry_that_was_changed_is_noticed(entry: JournalEntry, name: str, value: object) -> None:
    """Whichever it was, and whatever stands there now; the last one's own words are behind nothing yet."""
    left = values(STORY)
    changed = {**left[entry.key], name: value}
    told = entry is STORY[-1] and name in ("drill", "what", "at_ms", "said")
    if changed == left[entry.key] or told:
        return
    left[entry.key] = changed
    with pytest.raises(NeedsOperator) as caught:
        ChainReader().read(left, "journal")
    assert caught.value.code == "JOURNAL_DAMAGED"


def test_what_was_read_once_is_not_proven_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry is read before the next one is written: a drill of thousands of steps would take hours."""
    chain, reader = chain_of(*(("d1", chains.STEP) for _ in range(50))), ChainReader()
    known = values(chain[:40])
    assert reader.read(known, "t") == chain[:40]
    proven: list[int] = []
    real = JournalEntry.from_json

    def read(value: Any) -> JournalEntry:
        proven.append(value["number"])
        return real(value)

    monkeypatch.setattr(JournalEntry, "from_json", read)
    assert reader.read({**known, **values(chain[40:])}, "t") == chain
    assert proven == list(range(41, 51))


@pytest.mark.parametrize("at", [3, 39])
def test_what_was_read_once_and_is_another_now_is_noticed(at: int) -> None:
    """Also where only what was written behind it is new, or it is gone."""
    chain, reader = chain_of(*(("d1", chains.STEP) for _ in range(50))), ChainReader()
    known = values(chain[:40])
    reader.read(known, "t")
    key = chain[at].key
    for other in ({**known, key: {**known[key], "at_ms": 7}}, {k: v for k, v in known.items() if k != key}):
        with pytest.raises(NeedsOperator, match="not as it was written"):
            reader.read({**other, **values(chain[40:])}, "t")
    assert reader.read(known, "t") == chain[:40]


def test_one_drill_runs_until_it_has_ended() -> None:
    """Whoever ends it; what is asked of it does not end it."""
    assert running(STORY[:2]) == STORY[0]
    assert running(STORY[:3]) is None
    assert running(STORY) == STORY[3]
    assert chains.is_asked_to_end(STORY, "b")
    assert not chains.is_asked_to_end(STORY, "a")


def test_the_history_shows_the_newest_first() -> None:
    """With what became of each; what only took something away is no drill."""
    chain = [*STORY, next_entry(STORY, "abort-1", "begun", 2000, {"mode": "abort"})]
    told = DrillHistory("orders", chain, 10_000).document()
    assert [(each["drill"], each["step"], each["asked_to_end"]) for each in told["drills"]] == [
        ("b", "copy", True),
        ("a", "copy", False),
    ]
    assert told["hash"] == chain[-1].hash
    assert "not ended, at step copy" in DrillHistory("orders", STORY, 10_000).describe()
    assert "no drill" in DrillHistory("orders", [], 0).describe()
