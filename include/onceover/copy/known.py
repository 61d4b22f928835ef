"""What a lane has found out, kept over its resets and from one of its tasks to the next in the same process.

Invariant: hints only (G4). Losing them costs time, such as a patience that begins anew; a new run begins with
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from onceover.copy.quota import Quota
from onceover.copy.reading import Throttle
from onceover.copy.returns import Returns
from onceover.copy.suspects import Suspects
from onceover.errors import OnceoverError, Unanswered
from onceover.kafka.codes import KafkaCode
from onceover.kafka.link.login import Login
from onceover.model import TopicPartition
from onceover.resume.told import CoordinatorRest
from onceover.stops.aside import FAILING, OUTAGE, Troubles, TroubleSide, policy_of
from onceover.stops.requests import asked_to_look_again


@dataclass
class GivenUp:
    """How many transactions a lane has given up: those on record, by whichever process and run, and its own.

    The count on record never falls. What was given up last before a process or a run ends may not be in it.
    """

    _on_record: int = 0
    _untold: int = 0
    # What was written last, and how many of the untold it holds.
    _written: tuple[int, int] | None = None

    def stands_at(self, count: int) -> None:
        """Begin a session with what is on record: committed, by whoever had the lane before."""
        if self._written is not None and count >= self._written[0]:
            self._untold -= self._written[1]
        self._on_record, self._written = count, None

    def another(self) -> None:
        """Count one more; its session ends with it."""
        self._untold += 1

    def untold(self) -> int | None:
        """Return the count to be written with the next transaction; None where it is on record."""
        if self._written is not None or not self._untold:
            return None
        self._written = (self._on_record + self._untold, self._untold)
        return self._written[0]


@dataclass
class Known:
    """What one lane of one run knows. Not thread-safe.

    Args:
        troubles: what keeps partitions from being copied.
        suspects: who may be the reason why transactions fail.
        throttle: the bandwidth that was used.
        quota: what the target's lets through.
        rest: for how long the progress group's coordinator is to be left alone.
        returns: which records have come back.
        given_up: how many transactions were given up.
        logins: at source and target; they have worked, otherwise the run would not have begun.
    """

    troubles: Troubles = field(default_factory=Troubles)
    suspects: Suspects = field(default_factory=Suspects)
    throttle: Throttle = field(default_factory=Throttle)
    quota: Quota = field(default_factory=Quota)
    rest: CoordinatorRest = field(default_factory=CoordinatorRest)
    returns: Returns = field(default_factory=Returns)
    given_up: GivenUp = field(default_factory=GivenUp)
    logins: tuple[Login, Login] = field(default_factory=lambda: (Login(worked=True), Login(worked=True)))
    # With the time: a person who was too early asks again, under the same key.
    _requests: frozenset[tuple[str, int]] = frozenset()

    def asked(self, requests: Mapping[str, Any]) -> set[str]:
        """Return the keys of requests to look again that were not there the last time.

        Args:
            requests: what stands in the state now.
        """
        now = asked_to_look_again(requests)
        fresh, self._requests = now - self._requests, now
        return {key for key, _ in fresh}

    def forget(self, tp: TopicPartition) -> None:
        """Begin anew with a partition, because somebody asked for it."""
        self.troubles.forget(tp)
        self.suspects.forget(tp)
        self.returns.asked(tp)

    def failed(self, involved: Collection[TopicPartition], error: OnceoverError) -> bool:
        """Note that a transaction failed, and nobody says why; tell whether it is one partition's trouble."""
        found = self.suspects.failed(involved, answered=not isinstance(error, Unanswered))
        if found.alone is None:
            return False
        policy = OUTAGE
        if found.compared:
            # A partition of the offset map, say: why it fails is known then, and how long that may take.
            known = error.code in (KafkaCode.NO_LEADER, KafkaCode.FEW_REPLICAS)
            policy = policy_of(TroubleSide.COPY, error) if known else FAILING
        self.troubles.note(found.alone, TroubleSide.COPY, error, policy)
        return found.compared

    def failed_at(self, involved: Collection[TopicPartition], error: OnceoverError) -> None:
        """Note that a transaction failed for a target partition that any of these may have written.

        Whoever fails so alone is the one: with what the error names, nothing has to be compared.
        """
        alone = self.suspects.failed(involved).alone
        if alone is not None:
            self.troubles.note(alone, TroubleSide.TARGET, error)

    def passed(self, through: Iterable[TopicPartition]) -> None:
        """Note that a transaction was committed that moved these partitions on."""
        if self.suspects:
            self.suspects.passed(through)
        if self.troubles:
            for tp in through:
                self.troubles.passed(tp, TroubleSide.TARGET)
                self.troubles.passed(tp, TroubleSide.COPY)


class Knowledge:
    """What the lanes know whose tasks this process has seen. Not thread-safe."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str, int], Known] = {}

    def of(self, flow: str, run: str, lane: int) -> Known:
        """Return what earlier tasks of the lane found out here; of the flow's older runs nothing is kept."""
        self._lanes = {key: known for key, known in self._lanes.items() if key[0] != flow or key[1] == run}
        return self._lanes.setdefault((flow, run, lane), Known())
