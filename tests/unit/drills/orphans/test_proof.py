"""Whether the copy goes back as far as the old source does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.drills.orphans.looks import OrphanLook
from onceover.drills.orphans.proof import CopyProver
from onceover.errors import OnceoverError, UsageError
from onceover.model import TopicPartition
from onceover.positions.translate import Translator
from onceover.wire.offsetlookup import NotCovered, Translated, Translation

A0 = TopicPartition("a", 0)
LOOK = OrphanLook(A0, "id", 4, 20, 20, 10)


class Map:
    """What the offset map says of the first offset of the old source."""

    def __init__(self, answer: Translation | OnceoverError) -> None:
        self._answer = answer

    def to_target(self, source: TopicPartition, offset: int) -> Translation:
        assert (source, offset) == (A0, LOOK.start)
        if isinstance(self._answer, OnceoverError):
            raise self._answer
        return self._answer


def expired(start: int | None, answer: Translation | OnceoverError) -> str | None:
    sides = cast(Any, SimpleNamespace(alias="west"))
    return CopyProver("f", sides, sides, cast(Translator, Map(answer)))._expired(LOOK, A0, start)


@pytest.mark.parametrize(
    ("start", "answer", "part"),
    [
        (7, Translated(6), "what has expired there stands here alone"),
        (7, NotCovered(None, None), "the offset map does not tell"),
        (None, Translated(6), "does not answer"),
    ],
)
def test_what_is_not_known_to_be_there_is_not(
    start: int | None, answer: Translation | OnceoverError, part: str
) -> None:
    assert part in (expired(start, answer) or "")


def test_what_goes_back_as_far_is_whole() -> None:
    """Where nothing has ever expired the map is not asked."""
    assert expired(6, Translated(6)) is None
    assert expired(0, UsageError("not asked")) is None
