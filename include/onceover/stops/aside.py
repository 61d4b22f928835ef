"""Partitions that cannot be copied for the moment: when each is tried again, and when that is over. Pure.

Invariant: waiting for one partition takes nothing from the others, and nothing is tried for ever: what does
not pass within its patience is told to a person, with the error that was seen last. Only a partition that
nobody leads is waited for without end, and the offset map, which the run makes anew; both come back by
themselves, and `status` tells.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from onceover.errors import MustReset, NotNow, OnceoverError, Retriable, UsageError
from onceover.kafka.codes import KafkaCode
from onceover.model import TopicPartition
from onceover.stops.codes import WaitCode


class TroubleSide(StrEnum):
    """Where the trouble is. COPY: transactions with the partition fail, and nobody says why."""

    SOURCE = "source"
    TARGET = "target"
    COPY = "copy"


@dataclass(frozen=True)
class WaitPolicy:
    """How a kind of trouble is waited for.

    Args:
        patience_s: from then on it is lasting.
        first_s: pause before the first new try; it doubles up to ``cap_s``.
        free: tries at the beginning that need no pause.
        old_s: seen last for so long before the next try was due, it counts no longer.
    """

    patience_s: float
    first_s: float
    cap_s: float
    free: int = 0
    # A partition is tried again as soon as it may be. What was not seen for so long behind that has passed,
    # also where nobody could tell.
    old_s: float = 60.0

    @property
    def is_endless(self) -> bool:
        """True for what is waited for without end; the time does not count for other trouble either."""
        return math.isinf(self.patience_s)

    def pause_s(self, tries: int) -> float:
        """Return the pause after so many tries in vain."""
        number = tries - self.free - 1
        # Long after the cap, the power would be too large for a float.
        return 0.0 if number < 0 else min(self.cap_s, self.first_s * 2 ** min(number, 30))


# A grant takes a moment until every broker knows it; asked for longer, the answer stays the same.
RIGHTS = WaitPolicy(3.0, 0.2, 1.0)
# Leaders move within a second, or within the half minute that a controller needs to notice a dead broker.
PASSING = WaitPolicy(60.0, 0.1, 5.0)
# Its leader does not answer at all. Mostly another one is elected soon; networks come back by themselves.
SILENT = WaitPolicy(600.0, 0.1, 5.0)
# Known to no table, or to be lasting: once more, in case that a broker was just being restarted.
UNKNOWN = WaitPolicy(10.0, 0.5, 5.0)
# A high watermark trails the log for a moment after a change of leaders, and so do brokers what a topic is.
TOO_SHORT = WaitPolicy(5.0, 0.2, 0.2)
# Each try ends it, unless its partition is without a leader once more in that very moment.
LEFT_OPEN = WaitPolicy(10.0, 0.2, 2.0, free=1)
# The log has changed: what is there now is looked at without delay, and mostly says what to do.
CHANGED = WaitPolicy(10.0, 0.5, 5.0, free=1)
LEADERLESS = WaitPolicy(float("inf"), 0.1, 5.0)
# On the target every try costs the lane's open transaction, its other partitions' work among it.
WRITING = WaitPolicy(60.0, 5.0, 60.0, free=2)
# Short while brokers are started one after the other; each may take minutes.
REPLICAS = WaitPolicy(600.0, 5.0, 60.0, free=2)
# Nobody knows why its transactions fail; each try may cost as long as one may be open, and where several
# partitions fail, a round of their tries takes minutes.
FAILING = WaitPolicy(120.0, 1.0, 30.0, free=1, old_s=600.0)
# Nothing gets through for others either: an outage, which is nobody's own.
OUTAGE = WaitPolicy(float("inf"), 0.1, 5.0, old_s=600.0)
# However long a pause is: one bad moment proves nothing.
_LEAST_TRIES = 3
# What may lie between two tries beside the pause.
_LONGEST_TRY_S = 60.0


def policy_of(side: TroubleSide, error: OnceoverError) -> WaitPolicy:
    """Return how long an error is waited for."""
    if isinstance(error, UsageError):
        return RIGHTS
    if error.code in (KafkaCode.NO_LEADER, WaitCode.MAP_MISSING):
        return LEADERLESS
    if error.code == KafkaCode.FEW_REPLICAS:
        return REPLICAS
    if isinstance(error, Retriable) and not isinstance(error, NotNow):
        return SILENT
    if isinstance(error, NotNow | MustReset):
        return WRITING if side is TroubleSide.TARGET else PASSING
    return UNKNOWN


@dataclass
class Trouble:
    """What keeps a partition from being copied; kinds may take turns, and are one trouble.

    Args:
        error: as it was seen last.
        policy: of that kind of error.
        at_s: when it was seen last, by the monotonic clock.
        tries: how often it was seen.
        counted: how often it was of a kind whose waiting has an end.
        waited_s: how long it has been seen, without the time before an error of a kind without an end.
        longest_s: the longest patience of the kinds that were met.
        begun_s: ``waited_s`` when a kind was met first.
        position: committed source offset of the partition meanwhile, None while it is not known.
        in_use: seen while it was read or written, and not only by looking at it.
        doubts: how many looks in a row have spoken against it; ``doubted_s`` is ``waited_s`` at the first.
    """

    error: OnceoverError
    policy: WaitPolicy
    at_s: float
    tries: int = 0
    counted: int = 0
    waited_s: float = 0.0
    longest_s: float = 0.0
    begun_s: dict[WaitPolicy, float] = field(default_factory=dict)
    position: int | None = None
    in_use: bool = False
    doubts: int = 0
    doubted_s: float = 0.0

    def seen(self, error: OnceoverError, policy: WaitPolicy, now_s: float) -> None:
        """Note that it was seen (again), of whatever kind."""
        if not policy.is_endless:
            # Elsewhere for long, it proves no more than somebody who tried all the time.
            self.waited_s += min(now_s - self.at_s, policy.cap_s + _LONGEST_TRY_S) if self.tries else 0.0
            self.counted += 1
            self.longest_s = max(self.longest_s, policy.patience_s)
            self.begun_s.setdefault(policy, self.waited_s)
        self.error, self.policy, self.at_s, self.tries = error, policy, now_s, self.tries + 1

    @property
    def next_s(self) -> float:
        """When the partition may be tried again."""
        return self.at_s + self.policy.pause_s(self.tries if self.policy.is_endless else self.counted)

    def is_old(self, now_s: float) -> bool:
        """Tell whether it was not seen for so long that it counts no longer."""
        return now_s - self.next_s > self.policy.old_s

    @property
    def is_lasting(self) -> bool:
        """True when it was seen for so long that a person has to know.

        That is the longest patience of the kinds that took turns; the newest kind has its own in any case.
        """
        if self.policy.is_endless or self.counted < _LEAST_TRIES:
            return False
        own_s = self.waited_s - self.begun_s[self.policy]
        return self.waited_s >= self.longest_s and own_s >= self.policy.patience_s

    def doubt(self) -> bool:
        """Count what was just seen as a look; tell whether looks in a row have said so for long enough."""
        self.doubted_s = self.doubted_s if self.doubts else self.waited_s
        self.doubts += 1
        return self.doubts >= _LEAST_TRIES and self.waited_s - self.doubted_s >= TOO_SHORT.patience_s


@dataclass
class Troubles:
    """What is known of the troubles of a lane's partitions. Not thread-safe.

    To be kept over the lane's resets, and from one of its tasks to the next: a patience may be longer than a
    task is, and would begin anew each time. Another process may have had the lane in between: what is old, or
    of another position, says nothing about now.

    Args:
        clock: the monotonic clock.
    """

    clock: Callable[[], float] = time.monotonic
    _found: dict[tuple[TopicPartition, TroubleSide], Trouble] = field(default_factory=dict)

    def note(
        self,
        tp: TopicPartition,
        side: TroubleSide,
        error: OnceoverError,
        policy: WaitPolicy | None = None,
        *,
        in_use: bool = True,
    ) -> None:
        """Take down what was seen now of a source partition or its counterpart.

        Args:
            policy: how to wait for it, where the error alone does not tell.
            in_use: False when the partition was only looked at.
        """
        now_s, policy = self.clock(), policy or policy_of(side, error)
        trouble = self._seen(tp, side)
        if trouble is None:
            trouble = self._found[tp, side] = Trouble(error, policy, now_s)
        trouble.seen(error, policy, now_s)
        trouble.in_use |= in_use

    def lasting(self, tp: TopicPartition, side: TroubleSide) -> OnceoverError | None:
        """Return the error that does not pass; None while there is none, or it may pass."""
        trouble = self._seen(tp, side)
        return trouble.error if trouble is not None and trouble.is_lasting else None

    def doubt(self, tp: TopicPartition, side: TroubleSide, error: OnceoverError) -> bool:
        """Take down that a look speaks against a partition; tell whether that lasts.

        That is so long that no broker is just behind. Whatever else the partition meets, and how patient one
        is with that, makes no difference.
        """
        self.note(tp, side, error, TOO_SHORT, in_use=False)
        return self._found[tp, side].doubt()

    def is_due(self, tp: TopicPartition) -> bool:
        """Tell whether a partition may be tried (again) now."""
        now_s = self.clock()
        return all(trouble.next_s <= now_s for trouble in self.of(tp).values())

    def will_end(self, tp: TopicPartition) -> bool:
        """Tell whether a partition in trouble will go on or stop before long."""
        return all(trouble.policy is not LEADERLESS for trouble in self.of(tp).values())

    def __bool__(self) -> bool:
        """True when there is any; asked for every answer, so that a lane without trouble pays nothing."""
        return bool(self._found)

    def of(self, tp: TopicPartition) -> dict[TroubleSide, Trouble]:
        """Return what is noted of a partition."""
        return {side: seen for side in TroubleSide if (seen := self._seen(tp, side)) is not None}

    def has(self, tp: TopicPartition, side: TroubleSide) -> bool:
        """Tell whether something is noted."""
        return self._seen(tp, side) is not None

    def _seen(self, tp: TopicPartition, side: TroubleSide) -> Trouble | None:
        trouble = self._found.get((tp, side))
        return None if trouble is None or trouble.is_old(self.clock()) else trouble

    def stands_at(self, tp: TopicPartition, position: int) -> None:
        """Note a partition's committed position; forget what was seen of it at another one, which is over."""
        for side, trouble in self.of(tp).items():
            if trouble.position is None:
                trouble.position = position
            elif trouble.position != position:
                self.passed(tp, side)

    def looks_well(self, tp: TopicPartition) -> None:
        """Forget what was seen by looking only: an idle partition would never pass any other way."""
        for side, trouble in self.of(tp).items():
            trouble.doubts = 0
            if not trouble.in_use:
                self.passed(tp, side)

    def passed(self, tp: TopicPartition, side: TroubleSide) -> None:
        """Forget it: it works again."""
        self._found.pop((tp, side), None)

    def forget(self, tp: TopicPartition) -> None:
        """Begin anew with a partition: somebody asked for it, or it is stopped, which is on record."""
        for side in TroubleSide:
            self.passed(tp, side)
