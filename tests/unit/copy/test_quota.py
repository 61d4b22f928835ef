"""A quota of the target decides how fast a lane copies, and never ends a transaction."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from onceover.copy.loop import CopySettings, Until
from onceover.copy.quota import Quota
from onceover.copy.waits import Waits, slowed_note
from onceover.errors import MustReset
from onceover.kafka.ports import Acknowledged, Outgoing
from onceover.state import names
from onceover.stops.aside import Troubles
from tests.unit.copy.batches import answer, stored
from tests.unit.copy.loop import MAP, ME, STATE, A, B, FakeProducer, Setting
from tests.unit.stops.test_aside import Clock


@dataclass
class Throttled(FakeProducer):
    """Tells after each request with data how long to wait, and takes down data that came before that."""

    pause_after_s: float = 0.03
    too_early: int = 0
    unanswered: int = 0
    most_unanswered: int = 0

    def send(self, batches: Sequence[Outgoing]) -> None:
        if batches[0].target.topic not in (MAP, STATE):
            self.too_early += self.pause_s > 0
            self.muted_until_s = time.monotonic() + self.pause_after_s
            self.unanswered += 1
            self.most_unanswered = max(self.most_unanswered, self.unanswered)
        super().send(batches)

    def make_room(self) -> list[Acknowledged]:
        self.unanswered = min(self.unanswered, 3)
        return super().make_room()

    def drain(self) -> list[Acknowledged]:
        self.unanswered = 0
        return super().drain()


def lane(producer: Throttled) -> Setting:
    """Return a loop over four batches of each partition in one answer."""
    batches = [stored(n * 20, 20) for n in range(4)]
    script = [[(A, answer(batches, lso=80)), (B, answer(batches, partition=1, lso=80))]]
    return Setting(script, producer, settings=CopySettings(60.0, 1 << 30, None))


def test_the_transaction_ends_where_the_target_asks_for_a_pause_and_the_pause_comes_after_it() -> None:
    """Within it, the rest would come after the target has ended it: nothing would ever get through."""
    producer = Throttled()
    made = lane(producer)
    records = made.run({A: 80, B: 80})
    assert sum(r.records for r in records) == 160
    assert producer.too_early == 0 and producer.most_unanswered == 1
    data = [what for what in producer.log if what in ("send data", "commit")]
    assert data[::2] == ["send data"] * len(data[::2]) and set(data[1::2]) == {"commit"}


def test_requests_become_as_small_as_the_quota_wants_but_hold_a_batch() -> None:
    """The others have their turn in the next one."""
    producer = Throttled(pause_after_s=0.02)
    made = lane(producer)
    made.loop.quota.most_bytes = 1
    made.run({A: 80, B: 80})
    assert producer.data() == [(tp, n * 20) for n in range(4) for tp in (A, B)]
    assert len(producer.committed) == 8


def test_a_task_that_is_over_does_not_wait_for_the_quota() -> None:
    """However long the pause is: what is not sent is left to the next task."""
    producer = Throttled(pause_after_s=600.0)
    made = lane(producer)
    until = Until(time.monotonic() + 60)

    def look() -> None:
        until.stopped = bool(producer.committed)

    made.look_around = look
    [records] = list(made.loop.run(until))
    assert {r.source: r.source_end for r in records} == {A: 20, B: 20}
    assert len(producer.committed) == 1


def test_what_was_learned_survives_a_transaction_that_was_lost_for_it() -> None:
    """Several requests were under way when the first answer came."""
    producer = Throttled(fail_at="drain", pause_after_s=100.0)
    made = lane(producer)
    with pytest.raises(MustReset):
        made.run({A: 80, B: 80})
    assert made.loop.quota.wait_s > 90 and made.loop.quota.most_bytes is not None


def test_the_note_is_taken_back_although_nothing_is_copied_any_more() -> None:
    """The quota was lifted, and the source is quiet."""
    clock = Clock()
    made = lane(Throttled(pause_after_s=0.0))
    made.loop.quota = Quota(clock=clock)
    made.loop.quota.told(30.0, 1000)
    clock.now_s += 31
    waits = Waits(ME.generation)
    written: list[list[str]] = []

    def asked(_: object) -> dict[str, dict[str, object] | None]:
        others = slowed_note(ME, "west") if made.loop.quota.slows else {}
        changes = waits.changes(Troubles(), {}, (), others)
        if changes:
            written.append([f"{key} {note and note['code']}" for key, note in changes.items()])
        return changes

    made.loop._account.waits = asked
    until = Until(time.monotonic() + 60)

    def look() -> None:
        if made.loop.partitions[A].committed == 80:
            clock.now_s += 1000
        until.stopped = len(written) == 2

    made.look_around = look
    list(made.loop.run(until))
    key = names.quota_key(ME.lane)
    assert written == [[f"{key} TARGET_QUOTA"], [f"{key} None"]]


def test_as_much_is_sent_as_is_paid_for_in_some_seconds() -> None:
    """At most twice as much as before, and any amount again once there is no pause."""
    clock = Clock()
    quota = Quota(clock=clock)
    quota.told(100.0, 6_000_000)
    assert quota.most_bytes == 300_000 and quota.wait_s == 100.0
    quota.told(99.99, 6_000_000)
    assert quota.most_bytes == 300_000, "the same answer, looked at again"
    clock.now_s += 100
    assert quota.wait_s == 0.0
    quota.told(1.0, 300_000)
    assert quota.most_bytes == 600_000
    clock.now_s += 1
    quota.passed(10_000)
    assert quota.most_bytes == 600_000, "a small transaction says nothing"
    for _ in range(12):
        quota.passed(quota.most_bytes or 1 << 40)
    assert quota.most_bytes is None


def test_a_pause_in_a_transaction_without_data_says_nothing_about_how_much_to_send() -> None:
    """It is made, and counts; but with one byte at a time the lane would begin anew."""
    quota = Quota(clock=Clock())
    quota.told(5.0, 0)
    assert (quota.most_bytes, quota.wait_s, quota.slows) == (None, 5.0, True)
    quota.told(50.0, 3_000_000)
    quota.told(500.0, 0)
    assert (quota.most_bytes, quota.wait_s) == (300_000, 500.0)


def test_it_is_worth_a_note_when_it_is_long_or_comes_again() -> None:
    """One short burst is nobody's business, nor is what was a minute ago."""
    clock = Clock()
    quota = Quota(clock=clock)
    assert not quota.slows
    for _ in range(3):
        assert not quota.slows
        quota.told(1.0, 1000)
        clock.now_s += 2
    assert quota.slows
    clock.now_s += 61
    assert not quota.slows
    quota.told(1.0, 1000)
    assert not quota.slows, "what was before is forgotten"
    clock.now_s += 2
    quota.told(20.0, 1000)
    assert quota.slows
