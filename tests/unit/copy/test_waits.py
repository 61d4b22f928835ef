"""What `status` is told about partitions that wait: seen again and again, once, and taken back in time."""

from __future__ import annotations

from onceover.copy.waits import Waits
from onceover.errors import MustReset
from onceover.model import TopicPartition
from onceover.state import names
from onceover.stops.aside import FAILING, Troubles, TroubleSide
from tests.unit.stops.test_aside import Clock

A = TopicPartition("t", 0)
TARGETS = {A: TopicPartition("copy", 0)}
KEY = names.wait_key("copy", 0)
LOST = MustReset("error 47")


def waiting(tries: int, side: TroubleSide = TroubleSide.COPY) -> Troubles:
    """Return trouble that was seen so often."""
    troubles = Troubles(clock=Clock())
    for _ in range(tries):
        troubles.note(A, side, LOST)
    return troubles


def test_one_bad_moment_is_not_told() -> None:
    """It happens."""
    assert Waits(3).changes(waiting(1), TARGETS) == {}


def test_what_is_seen_again_is_told_once_with_its_reason() -> None:
    """Written again at every commit it would only fill the state."""
    waits, troubles = Waits(3), waiting(2)
    told = waits.changes(troubles, TARGETS)
    note = told[KEY]
    assert note is not None and (note["object"], note["generation"]) == ("t:0", 3)
    assert "transactions" in note["message"] and "error 47" in note["message"]
    assert waits.changes(troubles, TARGETS) == {}


def test_it_is_taken_back_with_the_transaction_that_moves_the_partition() -> None:
    """Not behind it: that may be the last one for hours."""
    waits, troubles = Waits(3), waiting(2)
    waits.changes(troubles, TARGETS)
    assert waits.changes(troubles, TARGETS, [A]) == {KEY: None}
    assert waits.changes(Troubles(), TARGETS) == {}


def test_what_an_earlier_session_wrote_is_taken_back() -> None:
    """Another process may have been there."""
    assert Waits(3, [KEY]).changes(Troubles(), TARGETS) == {KEY: None}
    assert Waits(3, [KEY]).changes(waiting(2), TARGETS) == {}


def test_a_stop_takes_its_note_back() -> None:
    """One reason is enough."""
    clock = Clock()
    troubles, waits = Troubles(clock=clock), Waits(3)
    told = []
    while troubles.lasting(A, TroubleSide.COPY) is None:
        told.append(set(waits.changes(troubles, TARGETS)))
        troubles.note(A, TroubleSide.COPY, LOST, FAILING)
        clock.now_s += 50
    assert told == [set(), set(), {KEY}, set()]
    assert waits.changes(troubles, TARGETS) == {KEY: None}
