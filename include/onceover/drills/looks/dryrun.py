"""What a failover now would cost, and what stands in its way: from live clusters, changing nothing. Pure.

It is put together from the status, the plan for topics, the plan for groups and a look at who uses the
source, each as its own command has it. Invariant: what could not be looked at is named and never counted as
in order; a loss that nobody can know is null, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from onceover.advice import advised
from onceover.ages import age_text
from onceover.drills.looks.clients import ClientsSeen
from onceover.errors import OnceoverError
from onceover.exitstatus import PERSON, TEMPORARY, worst
from onceover.groups.plan import GroupPlan
from onceover.kafka.codes import KafkaCode
from onceover.operate.states import CopyState
from onceover.operate.statusfacts import exit_of_error
from onceover.planning.plan import Refusal
from onceover.shown import lined
from onceover.topics.sync import SyncPlan


class TopicLoss(NamedTuple):
    """What of one topic is on the source alone.

    Args:
        offsets: source offsets that are not copied, markers of transactions among them; None for unknown.
        seconds: age of the oldest record on the source alone, of open transactions where there is no other;
            None for unknown.
        open_offsets: behind an open transaction: not readable yet, and lost with it; None for unknown.
    """

    topic: str
    offsets: int | None
    seconds: float | None
    open_offsets: int | None


class GroupCost(NamedTuple):
    """What a failover would mean for one group.

    Args:
        repeats: records that it would read again, by offsets; ``skips`` that it would never read.
        not_copied: offsets that it has read on the source, and that are not on the target.
        left: partitions whose position is not put in place, with the reason.
    """

    group: str
    repeats: int
    skips: int
    not_copied: int
    left: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What was found.

    Args:
        flow: its name.
        status: its entry of ``status``; None where not even that could be read.
        drift: what its topics, configuration and ACLs lack.
        groups: where its groups would go on.
        clients: who uses its topics on the source.
        problems: why a part could not be looked at, by part.
    """

    flow: str
    checked_at_ms: int
    status: Mapping[str, Any] | None = None
    drift: SyncPlan | None = None
    groups: GroupPlan | None = None
    clients: ClientsSeen | None = None
    problems: Mapping[str, OnceoverError] = field(default_factory=dict)

    @property
    def losses(self) -> list[TopicLoss] | None:
        """What would be lost, by source topic; topics of which nothing would be are left out.

        None for not known: the target tells which partitions are copied, and the source which are not yet.
        """
        told = self.status
        if told is None or told["error"] is not None:
            return None
        unread = any(told[side]["error"] is not None for side in ("source", "target"))
        if unread and not told["partitions"]:
            return None
        return losses_of(told["partitions"])

    @property
    def costs(self) -> list[GroupCost]:
        """What it would mean for the groups; those that go on exactly where they were are left out."""
        return costs_of(self.groups) if self.groups else []

    @property
    def needs(self) -> list[dict[str, Any]]:
        """What waits for somebody before a failover: code, message and way out of each, and whether a
        switchover has to wait for it, too."""
        needs: list[dict[str, Any]] = [
            {**need, "exit": _exit(need["code"], need["exit"]), "blocks": True}
            for need in (self.status or {}).get("needs", ())
        ]
        plans = [plan for plan in (self.drift, self.groups) if plan is not None]
        for plan in plans:
            needs += [_need(refusal, plan.exit_code) for refusal in plan.refused if refusal.blocks]
        if self.groups is not None:
            # A switchover asks nobody about groups, and leaves none alone: somebody has to say so before. It
            # looks for itself, as what it puts in place is planned anew.
            left = self.groups.misplaced(lambda row: row.goes_unasked)
            needs += [_need(refusal, TEMPORARY if refusal.passes else PERSON) for refusal in left]
        if self.drift is not None:
            needs += [_need(refusal, self.drift.exit_code) for refusal in self.drift.unfollowed]
        told: dict[tuple[str, str], dict[str, Any]] = {}
        for need in needs:
            told.setdefault((need["code"], need["message"]), need)
        return list(told.values())

    @property
    def exit_code(self) -> int:
        """0 when everything is in order; otherwise as the worst of its parts: 3 somebody has to decide, 5 run
        it again."""
        codes = [need["exit"] for need in self.needs]
        codes += [plan.exit_code for plan in (self.drift, self.groups) if plan is not None]
        unseen = () if self.clients is None else self.clients.unseen
        codes += [_exit_of(error) for error in (*self.problems.values(), *unseen)]
        return worst(codes)

    def document(self) -> dict[str, Any]:
        """Return its JSON."""
        losses = self.losses
        return {
            "flow": self.flow,
            "mode": "dry-run",
            "checked_at_ms": self.checked_at_ms,
            "ready": self.exit_code == 0,
            "needs": self.needs,
            "losses": None if losses is None else [loss._asdict() for loss in losses],
            "groups": [{**cost._asdict(), "left": dict(cost.left)} for cost in self.costs],
            "drift": None if self.drift is None else [change.document() for change in self.drift.changes],
            "clients": None if self.clients is None else self.clients.document(),
            "problems": {
                part: {**error.as_dict(), "exit": _exit_of(error)} for part, error in self.problems.items()
            },
            "status": None if self.status is None else self.status["state"],
            "verified": None if self.status is None else self.status["verified"],
        }

    def describe(self) -> str:
        """Return it as text."""
        lines = [f"failover of flow {self.flow}, if it were now:"]
        lost = self.losses
        lines += (
            ["lost: not known"] if lost is None else _section("lost", [_loss(each) for each in lost], True)
        )
        lines += _section("groups", [_cost(each) for each in self.costs], self.groups is not None)
        drift = [] if self.drift is None else [line for c in self.drift.changes for line in c.describe()]
        lines += _section("topics that differ", drift, self.drift is not None)
        if self.clients is not None:
            lines += [f"who uses {self.clients.alias}:", *self.clients.describe()]
        lines += [f"not looked at: {part}: {error}" for part, error in self.problems.items()]
        lines += [f"first: {advised(need)}" for need in self.needs]
        if self.status is not None and self.status["state"] == CopyState.PROMOTED:
            lines.append("nothing is left to fail over: a switchover has given every copy to clients")
        lines.append("ready" if self.exit_code == 0 else "not ready; nothing was changed")
        return lined(lines)


def _exit(code: str, told: int) -> int:
    """Return what a part stands for: somebody has to grant a right, whichever part it is missing for."""
    return PERSON if code == KafkaCode.NOT_AUTHORIZED else told


def _exit_of(error: OnceoverError) -> int:
    return _exit(error.code, exit_of_error(error))


def _need(refusal: Refusal, exit_code: int) -> dict[str, Any]:
    return {
        "code": refusal.code,
        "message": f"{refusal.object}: {refusal.message}",
        "resolve": refusal.resolve,
        "exit": exit_code,
        "blocks": refusal.blocks,
    }


def losses_of(partitions: Iterable[Mapping[str, Any]]) -> list[TopicLoss]:
    """Return what of each topic is on the source alone, from ``partitions`` of a status."""
    by_topic: dict[str, list[Mapping[str, Any]]] = {}
    for partition in partitions:
        # A topic that is refused beside its copy has none that are not copied.
        if partition.get("partitions") == 0:
            continue
        by_topic.setdefault(partition["topic"], []).append(partition)
    found = []
    for topic, each in sorted(by_topic.items()):
        lags, ages = [p["lag_offsets"] for p in each], [age for p in each if (age := _age(p)) is not None]
        waiting = [p["open_offsets"] for p in each]
        loss = TopicLoss(
            topic,
            None if None in lags else sum(lags),
            max(ages) if len(ages) == len(each) else None,
            None if None in waiting else sum(waiting),
        )
        if loss.offsets != 0 or loss.open_offsets:
            found.append(loss)
    return found


def _age(partition: Mapping[str, Any]) -> float | None:
    """Return how old the oldest record is that a partition of the source holds alone, None for unknown."""
    hidden = partition["lag_offsets"] == 0 and partition["open_offsets"]
    age: float | None = partition["oldest_open_s" if hidden else "oldest_missing_s"]
    return age


def costs_of(plan: GroupPlan) -> list[GroupCost]:
    """Return what a plan for groups means for each of them."""
    by_group: dict[str, list[Any]] = {}
    for row in plan.rows:
        by_group.setdefault(row.group, []).append(row)
    found = []
    for group, rows in sorted(by_group.items()):
        cost = GroupCost(
            group,
            sum(row.decision.records or 0 for row in rows if row.decision.risk == "repeat"),
            sum(row.decision.records or 0 for row in rows if row.decision.risk == "skip"),
            sum(row.facts.uncopied or 0 for row in rows),
            {str(row.facts.giving): row.decision.reason for row in rows if row.decision.code},
        )
        if cost.repeats or cost.skips or cost.not_copied or cost.left:
            found.append(cost)
    return found


def _section(heading: str, lines: Sequence[str], is_known: bool) -> list[str]:
    if not is_known:
        return []
    return [f"{heading}:", *lines] if lines else [f"{heading}: nothing"]


def _loss(loss: TopicLoss) -> str:
    offsets = "an unknown number of offsets" if loss.offsets is None else f"{loss.offsets:,} offsets"
    age = "of unknown age" if loss.seconds is None else f"the oldest of them {age_text(loss.seconds)} old"
    opened = f"; {loss.open_offsets:,} more behind open transactions" if loss.open_offsets else ""
    return f"  {loss.topic}: {offsets}, {age}{opened}"


def _cost(cost: GroupCost) -> str:
    said = [
        f"{text} {number:,} offsets"
        for text, number in (
            ("would repeat", cost.repeats),
            ("would skip", cost.skips),
            ("has read, where nothing is copied,", cost.not_copied),
        )
        if number
    ]
    said += [f"left alone at {where}: {why}" for where, why in cost.left.items()]
    return f"  {cost.group}: {'; '.join(said)}"
