"""Everything that is read of a flow for ``status``: values, and what an error of a cluster stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onceover.errors import OnceoverError, Retriable, UsageError
from onceover.exitstatus import PERSON, TEMPORARY, USAGE
from onceover.model import TopicPartition
from onceover.operate.deadletters import DeadLetterCount
from onceover.operate.statusread import FlowFacts, SourceLogs, TargetLogs
from onceover.stops.record import Stop
from onceover.topics.scope import Rules


@dataclass(kw_only=True)
class StatusSide:
    """One cluster of a flow; ``error`` says why something of it is not known.

    ``heard_ms``: of the source, when it has answered the flow's driver last.
    """

    alias: str
    cluster_id: str | None = None
    error: OnceoverError | None = None
    heard_ms: int | None = None

    def document(self) -> dict[str, Any]:
        """Return the ``source`` or ``target`` object."""
        error = None if self.error is None else {**self.error.as_dict(), "exit": exit_of_error(self.error)}
        heard = {"heard_ms": self.heard_ms}
        return {"alias": self.alias, "cluster_id": self.cluster_id, "error": error, **heard}


@dataclass(kw_only=True)
class StatusFacts:
    """Everything that was read of one flow.

    Args:
        flow: its name.
        now_ms: the time, in ms since 1970.
        rules: which topics are in; None where nobody asked.
        state: what its state says; None when the target does not answer.
        judged: why partitions may not go on, by the evidence of now; by source partition.
        newest: the newest generation that has written progress; 0 where nothing tells of one.
        missing: first offset that is missing, of partitions in scope that are not enrolled.
        oldest_ms: timestamp of the first record that is missing, by source partition; None where what is
            missing are markers and aborted records alone. One that is behind and not there is not known.
        dead_letters: None for a flow that has no such topic.
    """

    flow: str
    now_ms: float
    source: StatusSide
    target: StatusSide
    rules: Rules | None = None
    state: FlowFacts | None = None
    here: SourceLogs = field(default_factory=SourceLogs)
    there: TargetLogs = field(default_factory=TargetLogs)
    newest: int = 0
    judged: Mapping[TopicPartition, Stop] = field(default_factory=dict)
    missing: Mapping[TopicPartition, int] = field(default_factory=dict)
    oldest_ms: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    last_commit_ms: int | None = None
    dead_letters: DeadLetterCount | None = None

    @property
    def told_generation(self) -> int | None:
        """The newest generation that the state shows, 0 for none; None where that cannot be read."""
        if self.state is None or (self.state.layout is None and self.state.problems):
            return None
        return 0 if self.state.layout is None else self.state.layout.generation

    @property
    def is_shortened(self) -> bool:
        """Whether the state is told as of before what has copied: nobody knows who leads."""
        told = self.told_generation
        return told is not None and told < self.newest


def exit_of_error(error: OnceoverError) -> int:
    """Return the exit code that an error of a cluster or a file stands for."""
    if isinstance(error, Retriable):
        return TEMPORARY
    return USAGE if isinstance(error, UsageError) else PERSON


def since_s(now_ms: float, at_ms: int | None) -> float | None:
    """Return how long ago something was, None where that is not known: a record may have no time (-1)."""
    return None if at_ms is None or at_ms < 0 else round(max(0.0, (now_ms - at_ms) / 1000), 3)
