"""What a lane needs of its dead-letter topic before it copies: nothing, until there is a record for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from onceover.errors import MustReset, OnceoverError, UsageError
from onceover.handling.lanehandler import LaneHandler
from onceover.kafka.each import Each
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.model import TopicPartition
from tests.unit.kafka.scenes import batch
from tests.unit.kafka.scenes import target as fake_target

SOURCE = TopicPartition("t", 5)
LETTERS = TopicInfo("letters", UUID(int=1), {n: PartitionInfo(1, 0) for n in range(3)}, is_internal=False)
GONE: Each[str, TopicInfo] = Each()
HIDDEN: Each[str, TopicInfo] = Each({}, {"letters": UsageError("error 29")})


def opened(*answers: Each[str, TopicInfo]) -> LaneHandler:
    """Return what sessions know that the target has answered so."""
    lane_handler = LaneHandler("f", "east", dead_letter="letters")
    for answer in answers:
        target: Any = SimpleNamespace(each_topic=lambda _, answer=answer: answer)
        lane_handler.open(target)
    return lane_handler


def partition(lane_handler: LaneHandler) -> TopicPartition:
    letter = lane_handler.dead_letter_of(SOURCE, UUID(int=7))
    assert letter is not None
    return letter.target


def test_letters_go_to_the_partition_of_the_same_rest() -> None:
    """As many as the topic has; asked anew for each session."""
    assert partition(opened(Each({"letters": LETTERS}))) == TopicPartition("letters", 2)
    assert partition(opened(GONE, Each({"letters": LETTERS}))) == TopicPartition("letters", 2)


def test_without_a_dead_letter_topic_nobody_is_asked() -> None:
    """Plain flows pay nothing."""
    lane_handler = LaneHandler()
    lane_handler.open(None)  # pyrefly: ignore[bad-argument-type]
    assert lane_handler.dead_letter_of(SOURCE, UUID(int=7)) is None


@pytest.mark.parametrize("answer", [GONE, HIDDEN])
def test_a_dead_letter_topic_that_is_away_holds_up_nobody_who_needs_none(
    answer: Each[str, TopicInfo],
) -> None:
    """Before, every partition of the lane waited for it, or ended; whoever needs it will learn why."""
    assert partition(opened(answer)) == TopicPartition("letters", 0)
    assert partition(opened(Each({"letters": LETTERS}), answer)) == TopicPartition("letters", 0)


@pytest.mark.parametrize(("answer", "kind"), [(GONE, MustReset), (HIDDEN, UsageError)])
def test_whoever_sends_a_letter_there_learns_that_it_is_about_the_letters(
    answer: Each[str, TopicInfo], kind: type[OnceoverError]
) -> None:
    """From the producer: by that the lane finds whose record it is."""
    target: Any = fake_target()
    producer = TransactionalProducer(target, "id", timeout_ms=1000)
    assert producer.init()
    target.each_topic = lambda _: answer
    letter = partition(opened(answer))
    with pytest.raises(kind) as caught:
        producer.send([batch(letter)])
    assert caught.value.partitions == (letter,)
