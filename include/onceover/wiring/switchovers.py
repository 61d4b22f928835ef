"""A flow's planned switchover, from its file to the operation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from onceover.audit.compare.sides import Sides
from onceover.audit.course.local import LocalWorkers
from onceover.audit.model import Side
from onceover.backoff import Deadline
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import load_flow
from onceover.drills import chain as chains
from onceover.drills.abort import Aborted, LeftFence, abort
from onceover.drills.clients import look
from onceover.drills.codes import DrillCode
from onceover.drills.journal import DrillJournal
from onceover.drills.rehearsing.remains import Removal
from onceover.drills.switching.common import SwitchoverParts, TailCompared
from onceover.drills.switching.course import PLANNED
from onceover.drills.switching.fences import AclFence, CommandFence, Fence, PersonFence, UserCommand
from onceover.drills.switching.switchover import (
    BoundNotes,
    Switchover,
    SwitchoverRequest,
    unfinished_of,
)
from onceover.errors import NeedsOperator, UsageError
from onceover.kafka.admin.acls import AclAdmin
from onceover.kafka.ports import Cluster
from onceover.lead.leader import Leader
from onceover.planning import commands
from onceover.planning.operation import Caller, Pause, Planned
from onceover.seeding.plan import Choice
from onceover.state.read import read_flow_state, read_layout
from onceover.state.records.enrolment import Enrolment
from onceover.topics.scope import explain
from onceover.wiring.audit import AuditRequest, audit_content, keep_verified, prepare, record_bytes
from onceover.wiring.drills import (
    about_drill,
    both,
    drill_journal,
    drills_dir,
    dry_run,
    keep_report,
    login,
    matcher,
)
from onceover.wiring.flows import identity, opened, rules
from onceover.wiring.groups import GroupRequest, group_sync
from onceover.wiring.seeding import Seeding, seeder
from onceover.wiring.status import read_status

EVERYBODY: Final = "User:*"
_COMMAND: Final = "command"
_ACLS: Final = "acls"
_LOOK_S: Final = 0.5
# A source that is half dead is asked all the same; nobody waits for it.
_GLANCE_S: Final = 3.0


@dataclass(frozen=True)
class SwitchoverWish:
    """What a person types.

    Args:
        mode: ``planned`` or ``unplanned``.
        topics: anchored regular expressions over source topics, none for all.
    """

    mode: str = PLANNED
    topics: Sequence[str] = ()


@dataclass(frozen=True)
class _Recorded:
    """The source, as the flow's state has it on record: it may not answer any more."""

    flow: Flow
    source: Cluster
    target: Cluster

    def cluster_id(self) -> str:
        """Return the id that the flow was started with."""
        layout = read_layout(self.target, self.flow.flow)
        return self.source.cluster_id() if layout is None else layout.source_cluster_id


@contextmanager
def switchover(
    flow: Flow, source: Cluster, target: Cluster, wish: SwitchoverWish, pause: Pause
) -> Iterator[Switchover]:
    """Yield what switches a flow's topics over.

    Raises:
        UsageError: an expression is none, or the flow the other way is not in order.
    """
    reverse = None if flow.switchover.reverse is None else _reverse_flow(flow, flow.switchover.reverse)
    with drill_journal(flow, target, pause) as journal:
        spec = flow.switchover
        fence = _fence(flow, source, journal, "plan", pause)
        redirect = f"{spec.command[0]} redirect" if spec.redirect == _COMMAND else "a person, who confirms it"
        yield Switchover(
            lambda drill: _parts(flow, source, target, journal, reverse, drill, pause),
            SwitchoverRequest(wish.mode, matcher("--topics", wish.topics), fence.how, redirect, spec.reverse),
            journal,
            partial(keep_report, drills_dir(flow)),
            flow.objectives.rto_ms,
            about_drill(flow, f"{wish.mode} switchover: clients are moved"),
            flow.state.replication_factor,
        )


def confirm_step(flow: Flow, step: str, pause: Pause) -> dict[str, Any]:
    """Write a person's word into the journal that a step of the drill that runs was done by hand.

    Raises:
        UsageError: NOT_CONFIRMED, no drill of the flow is running.
        Retriable: the target is away.
    """
    with opened(flow, both) as (_, target), drill_journal(flow, target, pause) as journal:
        running = chains.running(journal.read())
        if running is None:
            raise UsageError(
                f"no drill of flow {flow.flow} is running",
                code=DrillCode.NOT_CONFIRMED,
                resolve=f"{commands.command('drill', 'status', flow.flow)} shows the last ones",
            )
        who = login()
        journal.append(running.drill, chains.CONFIRMED, {"step": step, "by": who})
        return {"flow": flow.flow, "drill": running.drill, "step": step, "by": who}


def abort_drill(flow: Flow, pause: Pause) -> Aborted:
    """End the flow's drill that runs, or take away what is left of one that died.

    Raises:
        NeedsOperator: PAST_RETURN, it is a switchover that has promoted its topics.
        Retriable: it does not end in time, or a cluster is away.
    """
    with opened(flow, both) as (source, target), drill_journal(flow, target, pause) as journal:
        enrolled = _enrolled(flow, target)
        unfinished = unfinished_of(journal.read(), enrolled)
        if unfinished is not None:
            raise NeedsOperator(
                f"switchover {unfinished[0]} has passed the point of no return: its copies are promoted",
                code=DrillCode.PAST_RETURN,
                where=f"flow {flow.flow}",
                resolve=f"{commands.command('drill', 'run', flow.flow, '--mode', 'planned')} goes on with it",
            )
        fence = LeftFence(
            lambda: chains.fenced(journal.read()) - {e.source for e in enrolled if e.is_promoted},
            lambda drill, topics, deadline: _fence(flow, source, journal, drill, pause).lift(
                BoundNotes(journal, drill), topics, deadline
            ),
        )
        return abort(journal, Removal(flow.flow, source, target), fence, flow.flow, pause)


def _enrolled(flow: Flow, target: Cluster) -> list[Enrolment]:
    return list(target.retry(lambda: read_flow_state(target, flow.flow)).enrolled.values())


def _parts(
    flow: Flow,
    source: Cluster,
    target: Cluster,
    journal: DrillJournal,
    reverse: Flow | None,
    drill: str,
    pause: Pause,
) -> SwitchoverParts:
    spec = flow.switchover
    return SwitchoverParts(
        flow=flow.flow,
        source=source,
        target=target,
        look=lambda: dry_run(flow).document(),
        glance=lambda: read_status(flow, patience_s=_GLANCE_S),
        selects=flow.groups.selects,
        scope=lambda: _in_scope(flow, source),
        groups=lambda: group_sync(flow, source, target, GroupRequest()),
        audit=lambda topics: _audited(flow, source, target, topics),
        leader=lambda: Leader(identity(flow), _Recorded(flow, source, target), target),
        fence=_fence(flow, source, journal, drill, pause),
        redirect=_redirect(flow, journal, drill, pause),
        clients=look,
        reverse=None if reverse is None else partial(_reversed, flow, reverse),
        lifts=spec.fence == _ACLS and EVERYBODY in spec.deny,
        handled=flow.handler is not None,
        quiet_s=spec.quiet_ms / 1000,
        pause=pause,
    )


def _fence(flow: Flow, source: Cluster, journal: DrillJournal, drill: str, pause: Pause) -> Fence:
    spec = flow.switchover
    if spec.fence == _ACLS:
        return AclFence(AclAdmin(source), spec.deny)
    if spec.fence == _COMMAND:
        return CommandFence(_command(flow, drill))
    return PersonFence(partial(_confirmed, flow, journal, drill, pause))


def _redirect(
    flow: Flow, journal: DrillJournal, drill: str, pause: Pause
) -> Callable[[Sequence[str], Deadline], Mapping[str, Any]]:
    if flow.switchover.redirect == _COMMAND:
        return partial(_command(flow, drill).run, "redirect")
    return lambda _, deadline: _confirmed(flow, journal, drill, pause, "redirect", deadline)


def _command(flow: Flow, drill: str) -> UserCommand:
    facts = {
        "ONCEOVER_FLOW": flow.flow,
        "ONCEOVER_DRILL": drill,
        "ONCEOVER_SOURCE": flow.source.alias,
        "ONCEOVER_TARGET": flow.target.alias,
    }
    return UserCommand(
        flow.switchover.command, facts, lambda: drills_dir(flow).absolute() / drill, flow.path.parent
    )


def _confirmed(
    flow: Flow, journal: DrillJournal, drill: str, pause: Pause, step: str, deadline: Deadline
) -> Mapping[str, Any]:
    """Wait until a person says that a step is done."""
    how = commands.command("drill", "confirm", flow.flow, step)
    late = NeedsOperator(
        f"nobody has confirmed {step}",
        code=DrillCode.NOT_CONFIRMED,
        where=f"drill {drill}",
        resolve=f"{how} does, while the drill waits",
    )
    while True:
        chain = journal.read()
        word = chains.confirmed(chain, drill, step)
        if word is not None:
            return {"by": str(word.said.get("by")), "at_ms": word.at_ms}
        if chains.is_asked_to_end(chain, drill) or deadline.passed:
            raise late
        pause(_LOOK_S)


def _in_scope(flow: Flow, source: Cluster) -> list[str]:
    which = rules(flow)
    topics = source.retry(source.topics)
    return [
        name for name, info in topics.items() if explain(name, which, is_internal=info.is_internal).inside
    ]


def _audited(flow: Flow, source: Cluster, target: Cluster, topics: Sequence[str]) -> TailCompared:
    """Compare what is behind the verified watermarks, and raise them."""
    request = AuditRequest(tuple(re.escape(topic) for topic in topics))
    workers = LocalWorkers(Sides(source, target, record_bytes=record_bytes(flow)))
    seen = audit_content(prepare(flow, source, target, request), workers)
    keep_verified(flow, target, seen)
    return TailCompared(
        records=sum(each.records(Side.SOURCE) for each in seen.partitions),
        different=sum(each.by_kind.total() for each in seen.partitions),
        unverifiable=sum(gap.offsets for each in seen.partitions for gap in each.unverifiable),
    )


def _reverse_flow(flow: Flow, name: str) -> Flow:
    """Return the flow the other way: the file of that name beside the flow's own, or among all flows."""
    beside = flow.path.with_name(f"{name}{flow.path.suffix}")
    found = load_flow(beside if beside.is_file() else name)
    if (found.source.alias, found.target.alias) != (flow.target.alias, flow.source.alias):
        raise UsageError(
            f"flow {name} is not the other way of flow {flow.flow}",
            code=DrillCode.SWITCHOVER_UNSET,
            where="switchover.reverse",
            expected=f"from {flow.target.alias} to {flow.source.alias}",
            seen=f"from {found.source.alias} to {found.target.alias}",
            resolve="correct switchover.reverse, or the aliases in one of both files",
        )
    return found


def _reversed(flow: Flow, reverse: Flow, topics: Sequence[str]) -> Mapping[str, Any]:
    """Place the flow the other way behind the promotion; return what was written.

    Raises:
        NeedsOperator: some of it is refused.
    """
    which = rules(flow)
    copies = sorted(explain(topic, which).target_topic for topic in topics)
    wish = Seeding(f"promoted:{flow.path}", Choice(replace=True), "|".join(map(re.escape, copies)))
    with opened(reverse, partial(seeder, request=wish)) as seeding:
        outcome = seeding.apply(Caller(_shown_already))
    if outcome.waiting:
        first = outcome.waiting[0]
        raise NeedsOperator(
            f"flow {reverse.flow} cannot go on behind the promotion: {first.object}: {first.message}",
            code=first.code,
            resolve=first.resolve,
        )
    return {"flow": reverse.flow, "positions": outcome.written, "start_it": commands.replicate(reverse.flow)}


def _shown_already(_: Planned) -> None:
    """The drill's own plan was approved; this one is a part of it."""
