"""Whether the copy goes back as far as the old source does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.drills.orphans.looks import OrphanLook
from onceover.drills.orphans.proof import CleanupPolicies, CopyProver
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


def expired(
    start: int | None,
    answer: Translation | OnceoverError,
    here: str | None = "delete",
    there: str | None = "delete",
) -> str | None:
    sides = cast(Any, SimpleNamespace(alias="west"))
    prover = CopyProver("f", sides, sides, cast(Translator, Map(answer)))
    return prover._expired(LOOK, A0, start, CleanupPolicies(here, there))


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


@pytest.mark.parametrize("start", [0, 6])
@pytest.mark.parametrize(
    ("here", "there", "part"),
    [
        ("delete", "compact", "is compacted"),
        ("delete", "compact,delete", "is compacted"),
        (None, "compact", "is compacted"),
        ("delete", None, "whether its copy on west is compacted is not known"),
    ],
)
def test_a_copy_that_may_be_compacted_away_is_not_known_to_be_whole(
    start: int, here: str | None, there: str | None, part: str
) -> None:
    """Compaction removes records and leaves the log's start where it is."""
    assert part in (expired(start, Translated(6), here, there) or "")


@pytest.mark.parametrize(("here", "there"), [("compact", "compact"), ("compact,delete", "delete")])
def test_a_copy_that_is_compacted_as_the_topic_is_is_whole(here: str, there: str) -> None:
    """Of either the newest record of each key counts."""
    assert expired(0, Translated(6), here, there) is None


def test_what_goes_back_as_far_is_whole() -> None:
    """Where nothing has ever expired the map is not asked."""
    assert expired(6, Translated(6)) is None
    assert expired(0, UsageError("not asked")) is None
