"""A person's word counts only while somebody alive waits for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onceover.backoff import Deadline
from onceover.drills import chain as chains
from onceover.drills.leaving.words import await_word, give_word
from onceover.errors import NeedsOperator, UsageError
from tests.unit.drills.test_switching import written

BEGUN = ("d1", chains.BEGUN, {"mode": "planned"})
WAITS = ("d1", chains.STEP, {"step": "fence", "state": "running"})


def journal(*entries: Any, alive: bool = True) -> Any:
    said: list[Any] = []
    return SimpleNamespace(
        read=lambda: written(*entries),
        is_alive=lambda _: alive,
        append=lambda *entry: said.append(entry),
        said=said,
    )


@pytest.mark.parametrize("alive", [True, False])
def test_a_drill_that_was_killed_hears_nobody(*, alive: bool) -> None:
    """Whoever confirms would think that it goes on; the next run asks anew."""
    waiting = journal(BEGUN, WAITS, alive=alive)
    if alive:
        assert give_word(waiting, "orders-dr", "fence", "person", "ann")["drill"] == "d1"
        assert len(waiting.said) == 1
        return
    with pytest.raises(UsageError, match="no sign of life") as caught:
        give_word(waiting, "orders-dr", "fence", "person", "ann")
    assert (caught.value.code, waiting.said) == ("NOT_CONFIRMED", [])


def test_a_drill_that_somebody_ends_while_it_waits_says_so() -> None:
    """And not that nobody has confirmed: a late word is no way out of it."""
    asked: Any = ("d1", chains.ABORT, {})
    with pytest.raises(NeedsOperator) as caught:
        await_word(journal(BEGUN, WAITS, asked), "f", "d1", lambda _: False, "fence", Deadline(5.0))
    assert caught.value.code == "DRILL_ABORTED"
    with pytest.raises(NeedsOperator) as caught:
        await_word(journal(BEGUN, WAITS), "f", "d1", lambda _: False, "fence", Deadline(0.0))
    assert caught.value.code == "NOT_CONFIRMED"
