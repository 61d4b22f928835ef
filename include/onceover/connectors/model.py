"""What moving a connector's source offsets (KIP-618) speaks of. Immutable, without I/O.

Offsets are bytes from the first read to the last write: Kafka Connect finds a key by its bytes only, and the
same JSON written in another order of fields is another key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple

from onceover import exitstatus
from onceover.planning.approval import ApprovablePlan
from onceover.planning.plan import Change, Refusal
from onceover.shown import lined

SOURCE: Final = "source"
# Of a connector whose plugin the worker that answers does not have.
UNKNOWN_TYPE: Final = "unknown"
OFFSETS_TOPIC_KEY: Final = "offsets.storage.topic"
RUNNING: Final = "RUNNING"
STOPPED: Final = "STOPPED"
PAUSED: Final = "PAUSED"
FAILED_STATE: Final = "FAILED"
UNASSIGNED: Final = "UNASSIGNED"


class RawOffset(NamedTuple):
    """One record of an offsets topic."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None


class OffsetKey(NamedTuple):
    """A key that Connect, or KIP-618's migration, wrote.

    Args:
        connector: its name.
        partition: the source partition as JSON text, as it stands in the key; None for a sentinel.
    """

    connector: str
    partition: str | None

    @property
    def is_sentinel(self) -> bool:
        """True for the record that says "migrated, and there was nothing to copy"."""
        return self.partition is None


class Isolation(StrEnum):
    """How a topic is read, in the words of Kafka's consumers."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


@dataclass(frozen=True)
class ConnectorOffsets:
    """The latest value of every key of one connector in one offsets topic.

    Args:
        connector: whose.
        topic: where it was read.
        isolation: how.
        values: by key, None where the latest record is a tombstone; sentinels are left out.
        chosen: the partition that each value was read in.
        places: every partition that holds a record of the key.
        conflicts: keys of several partitions whose latest values differ.
        sentinels: keys of sentinels that have a value.
        end_offsets: how far each partition was read.
        taken_at_ms: when the read began.
    """

    connector: str
    topic: str
    isolation: Isolation
    values: Mapping[bytes, bytes | None]
    chosen: Mapping[bytes, int] = field(default_factory=dict)
    places: Mapping[bytes, tuple[int, ...]] = field(default_factory=dict)
    conflicts: frozenset[bytes] = frozenset()
    sentinels: frozenset[bytes] = frozenset()
    end_offsets: Mapping[int, int] = field(default_factory=dict)
    taken_at_ms: int = 0

    @property
    def offsets(self) -> dict[bytes, bytes]:
        """The values that are there, without tombstones."""
        return {key: value for key, value in self.values.items() if value is not None}

    @property
    def duplicates(self) -> dict[bytes, tuple[int, ...]]:
        """Keys that are in more than one partition: which of them a worker believes is left to chance."""
        return {key: places for key, places in self.places.items() if len(places) > 1}


class TaskState(NamedTuple):
    """A task as the workers report it; ``trace`` of a failed one."""

    id: int
    state: str
    worker: str
    trace: str | None = None


@dataclass(frozen=True)
class ConnectorState:
    """A connector as the workers report it.

    Args:
        name: its name.
        type: ``source`` or ``sink``; ``unknown`` where no worker that answers has its plugin.
        state: ``RUNNING``, ``PAUSED``, ``STOPPED``, ``FAILED``, ``UNASSIGNED`` or ``RESTARTING``.
        tasks: those that have a status.
        config: as it was put; may hold secrets, so it is not part of ``repr``.
        trace: of a failed connector.
    """

    name: str
    type: str
    state: str
    tasks: tuple[TaskState, ...] = ()
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    trace: str | None = None

    @property
    def offsets_topic(self) -> str | None:
        """The topic that it is configured with."""
        return self.config.get(OFFSETS_TOPIC_KEY) or None

    def own_topic(self, shared: str) -> str | None:
        """Return its topic unless it is the shared one: to name that is the same as naming none."""
        return None if self.offsets_topic == shared else self.offsets_topic

    @property
    def is_stopped(self) -> bool:
        """True when it is stopped and no worker has a task of it.

        A task that is UNASSIGNED has been ended by its worker, and one that is FAILED has ended by itself, as
        that of a frozen worker does that was fenced; written behind the leader's removal of it, the status
        stays for ever (both seen on 4.3.0 under load).
        """
        return self.state == STOPPED and all(task.state in (UNASSIGNED, FAILED_STATE) for task in self.tasks)

    @property
    def has_failed(self) -> bool:
        """True when it, or one of its tasks, has failed; what is stopped has none that could."""
        if self.state == STOPPED:
            return False
        return FAILED_STATE in (self.state, *(task.state for task in self.tasks))

    def config_with(self, topic: str | None) -> dict[str, str]:
        """Return its configuration with another topic of its own; None for the shared one."""
        config = {key: value for key, value in self.config.items() if key != OFFSETS_TOPIC_KEY}
        return config if topic is None else {**config, OFFSETS_TOPIC_KEY: topic}


@dataclass(frozen=True)
class WorkerFacts:
    """The Connect cluster as it is now.

    Args:
        version: of the workers; the lowest where they differ.
        kafka_cluster_id: the Kafka cluster of their internal topics.
        group_id: of the workers.
        offsets_topic: the shared offsets topic; ``config_topic`` their configurations.
        exactly_once: whether ``exactly.once.source.support`` is ``enabled``.
        says_mode: whether the Connect file says so at all, one way or the other.
        workers: REST address of each worker that answered.
        doubtful: members' own addresses that cannot be reached from here, so that nothing shows which of the
            named ones they are.
        connect: what commands call it: the name of its file.
    """

    version: str
    kafka_cluster_id: str
    group_id: str
    offsets_topic: str
    config_topic: str
    exactly_once: bool
    workers: tuple[str, ...]
    doubtful: tuple[str, ...] = ()
    says_mode: bool = True
    connect: str = field(kw_only=True)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What deserves a look."""
        if not self.doubtful:
            return ()
        return (
            f"members of its group are at {', '.join(self.doubtful)}, which do not answer here: see to it "
            "that `rest` names each of them once, one named twice would hide another",
        )

    @property
    def isolation(self) -> Isolation:
        """How the workers read the shared offsets topic (measured: without exactly-once, also what was
        aborted)."""
        return Isolation.READ_COMMITTED if self.exactly_once else Isolation.READ_UNCOMMITTED

    def document(self) -> dict[str, Any]:
        """Return it as it is printed."""
        return {
            "version": self.version,
            "kafka_cluster_id": self.kafka_cluster_id,
            "group_id": self.group_id,
            "offsets_topic": self.offsets_topic,
            "config_topic": self.config_topic,
            "exactly_once": self.exactly_once,
            "workers": list(self.workers),
            "warnings": list(self.warnings),
        }


# ---- what comes out


@dataclass(frozen=True)
class ConnectorPlan:
    """What is planned for one connector.

    Args:
        name: of the connector; ``topic`` of its own offsets topic.
        from_topic: where its offsets are now.
        offsets: how many are to be copied; ``stale`` how many keys of ``topic`` are removed.
        changes: in their order.
        refusals: preconditions that do not hold: with one that blocks, nothing of it is done.
        warnings: what deserves a look.
        notes: what is good to know.
        outage_s: about how long it stands still, None where it does not, or does so anyway.
        snapshot: how far a snapshot of its system is, in words; None where nothing says so.
    """

    name: str
    from_topic: str | None
    topic: str | None
    offsets: int = 0
    stale: int = 0
    changes: tuple[Change, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    outage_s: float | None = None
    snapshot: str | None = None

    @property
    def blocked(self) -> bool:
        """True when nothing of it is done."""
        return any(refusal.blocks for refusal in self.refusals)

    def document(self) -> dict[str, Any]:
        """Return it as it is printed."""
        return {
            "connector": self.name,
            "from_topic": self.from_topic,
            "topic": self.topic,
            "offsets": self.offsets,
            "stale": self.stale,
            "blocked": self.blocked,
            "outage_s": self.outage_s,
            "snapshot": self.snapshot,
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, kw_only=True)
class MigrationPlan(ApprovablePlan):
    """A plan for connectors of one Connect cluster, whose name stands where other plans name a flow.

    Args:
        worker: the Connect cluster as it was seen.
        connectors: one for each connector that was asked for.
    """

    worker: WorkerFacts
    connectors: tuple[ConnectorPlan, ...]

    @classmethod
    def of(
        cls, operation: str, connect: str, worker: WorkerFacts, connectors: tuple[ConnectorPlan, ...]
    ) -> MigrationPlan:
        """Return the plan that holds the connectors' changes and refusals."""
        return cls(
            operation=operation,
            flow=connect,
            worker=worker,
            connectors=connectors,
            changes=tuple(c for plan in connectors if not plan.blocked for c in plan.changes),
            refused=tuple(r for plan in connectors for r in plan.refusals),
        )

    @property
    def counts(self) -> dict[str, Any]:
        """Names, ids and counts."""
        return {
            "connect": self.flow,
            "operation": self.operation,
            "connectors": [plan.name for plan in self.connectors],
            "plan_id": self.plan_id,
            "changes": len(self.changes),
            "refused": [plan.name for plan in self.connectors if plan.blocked],
        }

    @property
    def warnings(self) -> tuple[str, ...]:
        """What deserves a look, each with what it is about."""
        own = (f"{plan.name}: {text}" for plan in self.connectors for text in plan.warnings)
        return (*(f"{self.flow}: {text}" for text in self.worker.warnings), *own)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is good to know, likewise."""
        return tuple(f"{plan.name}: {text}" for plan in self.connectors for text in plan.notes)

    @property
    def title(self) -> str:
        """First line of the text."""
        return f"{self.operation} of Connect cluster {self.flow}"

    def document(self) -> dict[str, Any]:
        """Return the plan's JSON."""
        # Every plan has a `flow`; here it is the Connect cluster's name, which `connect` says, too.
        return super().document() | {
            "connect": self.flow,
            "worker": self.worker.document(),
            "connectors": [plan.document() for plan in self.connectors],
        }

    def describe(self) -> str:
        """Return the plan as text."""
        notes = [f"  {each}" for each in self.notes]
        warnings = [f"  warning {each}" for each in self.warnings]
        return lined([*super().describe().split("\n"), *notes, *warnings])


class EndState(Enum):
    """How it ended for one connector, with its exit code."""

    DONE = ("done", exitstatus.OK)
    UNVERIFIABLE = ("unverifiable", exitstatus.PERSON)
    REFUSED = ("refused", exitstatus.PERSON)
    UNFINISHED = ("unfinished", exitstatus.PERSON)
    FAILED = ("failed", exitstatus.VIOLATED)
    FENCED = ("fenced", exitstatus.FENCED)
    RETRIABLE = ("retriable", exitstatus.TEMPORARY)

    @property
    def label(self) -> str:
        """The word that is printed."""
        return str(self.value[0])

    @property
    def exit_code(self) -> int:
        """What the command line returns for it."""
        return int(self.value[1])


@dataclass(frozen=True)
class ConnectorOutcome:
    """What became of one connector.

    Args:
        name: of the connector.
        outcome: the verdict.
        message: what was done or seen; for a person.
        error: ``as_dict`` of the error that ended it, None without one.
        facts: what was counted.
    """

    name: str
    outcome: EndState
    message: str
    error: Mapping[str, str | None] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def left(self, how: str, state: str | None, *, unfinished: bool = False) -> ConnectorOutcome:
        """Return it with the state in which the connector was left.

        Args:
            how: for a person; ``state`` in the workers' word, None where it is not known.
            unfinished: it is not what it was: what looks like a refusal came too late to be one.
        """
        late = unfinished and self.outcome is EndState.REFUSED
        outcome = EndState.UNFINISHED if late else self.outcome
        facts = {**self.facts, "state": state}
        return replace(self, outcome=outcome, message=f"{self.message}; {how}", facts=facts)

    @property
    def refusal(self) -> Refusal:
        """It as something that is not done."""
        error = self.error or {}
        code, resolve = error.get("code"), error.get("resolve")
        message = f"{self.outcome.label}: {self.message}"
        return Refusal(self.name, code or self.outcome.name, message, resolve or "see the report")

    def document(self) -> dict[str, Any]:
        """Return it as it is printed."""
        return {
            "connector": self.name,
            "outcome": self.outcome.label,
            "message": self.message,
            "error": self.error,
            **self.facts,
        }


@dataclass(frozen=True)
class Report:
    """What became of all connectors of one run; ``operation`` as in the plan."""

    operation: str
    connect: str
    outcomes: tuple[ConnectorOutcome, ...]

    @property
    def exit_code(self) -> int:
        """The worst of the connectors'."""
        return exitstatus.worst(outcome.outcome.exit_code for outcome in self.outcomes)

    @property
    def waiting(self) -> tuple[Refusal, ...]:
        """What is not done, or not shown to be, of each connector."""
        return tuple(each.refusal for each in self.outcomes if each.outcome.exit_code)

    @property
    def counts(self) -> dict[str, Any]:
        """Names, ids and counts."""
        return {
            "connect": self.connect,
            "connectors": [each.name for each in self.outcomes],
            "outcomes": [each.outcome.label for each in self.outcomes],
        }

    def document(self) -> dict[str, Any]:
        """Return the report's JSON."""
        return {
            "operation": self.operation,
            "connect": self.connect,
            "connectors": [outcome.document() for outcome in self.outcomes],
        }

    def describe(self) -> str:
        """Return the report as text."""
        return lined(f"  {each.name}: {each.outcome.label}: {each.message}" for each in self.outcomes)
