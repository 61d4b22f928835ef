"""A flow's planned switchover, from its file to the operation."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from onceover.audit.compare.sides import Sides
from onceover.audit.course.content import audit_content
from onceover.audit.course.local import LocalWorkers
from onceover.backoff import Deadline, Patience
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import load_flow
from onceover.config.patterns import matcher
from onceover.drills.abort import Aborted, LeftFence, abort
from onceover.drills.journal import DrillJournal
from onceover.drills.leaving.fences import (
    COMMAND,
    LiftedFences,
    check_not_carried_over,
    left_behind,
)
from onceover.drills.leaving.words import await_word, give_word
from onceover.drills.looks.clients import look
from onceover.drills.modes import PLANNED, check_mode
from onceover.drills.rehearsing.remains import Removal
from onceover.drills.switching.common import SwitchoverParts
from onceover.drills.switching.failback import FlowBetween, LedBack, check_leads_back
from onceover.drills.switching.lettingin import denied
from onceover.drills.switching.switchover import (
    BoundNotes,
    Switchover,
    SwitchoverRequest,
    check_turns_back,
)
from onceover.drills.switching.tail import TailCompared
from onceover.drills.switching.wayback import WayBack
from onceover.errors import OnceoverError
from onceover.groups.apply import GroupSync
from onceover.groups.decide import Allowed
from onceover.kafka.ports import Cluster
from onceover.lead.leader import Leader
from onceover.planning.operation import Pause
from onceover.seeding.plan import Choice
from onceover.state import names
from onceover.state.fencing import fence
from onceover.state.read import read_layout
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.layout import Layout
from onceover.topics.scope import explain, in_scope
from onceover.wiring.audit import AuditRequest, keep_verified, prepare, record_bytes
from onceover.wiring.failovers.drills import (
    about_drill,
    both,
    drill_journal,
    drills_dir,
    dry_run,
    enrolled_of,
    keep_report,
    objectives_of,
)
from onceover.wiring.failovers.fences import (
    fence_makers,
    in_the_way,
    kept_off,
    let_in,
    let_in_at_once,
    switching_command,
)
from onceover.wiring.failovers.seeding import SeedingOptions, seeder
from onceover.wiring.flows import identity, login, opened, rules
from onceover.wiring.groups import GroupRequest, group_sync
from onceover.wiring.status import read_status

# No topic can be called so.
_NO_TOPIC: Final = "/"
# A source that is half dead is asked all the same; nobody waits for it.
_GLANCE_S: Final = 3.0
# Of the 30 s that its groups may take: where one partition has no leader the others' groups are moved.
_PLACES_S: Final = 8.0


@dataclass(frozen=True)
class SwitchoverOptions:
    """What a person types.

    Args:
        mode: ``planned`` or ``unplanned``.
        topics: anchored regular expressions over source topics, none for all.
        take_over: move groups that somebody else has committed for on the target.
        whatever_is_lost: of an unplanned one: what is approved holds however the source is when it is done.
        started_by: who wants it, for the report; None for the user that runs it.
    """

    mode: str = PLANNED
    topics: Sequence[str] = ()
    take_over: bool = False
    whatever_is_lost: bool = False
    started_by: str | None = None


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
    flow: Flow, source: Cluster, target: Cluster, options: SwitchoverOptions, pause: Pause
) -> Iterator[Switchover]:
    """Yield what switches a flow's topics over.

    Raises:
        UsageError: an expression is none, an option means nothing in this mode, or the flow the other way is
            not in order.
    """
    check_mode(options.mode, whatever_is_lost=options.whatever_is_lost)
    reverse = None if flow.switchover.reverse is None else reverse_flow(flow, flow.switchover.reverse)
    spec = flow.switchover
    check_not_carried_over(options.mode, spec.fence, spec.deny, sync_acls=flow.topics.sync_acls)
    with drill_journal(flow, target, pause) as journal:
        how = fence_makers(flow, source, journal, "plan", pause)[spec.fence]().how
        redirect = f"{spec.command[0]} redirect" if spec.redirect == COMMAND else "a person, who confirms it"
        yield Switchover(
            lambda drill: _parts(flow, source, target, journal, reverse, drill, options, pause),
            SwitchoverRequest(
                options.mode,
                matcher("--topics", options.topics),
                how,
                redirect,
                spec.reverse,
                options.whatever_is_lost,
            ),
            journal,
            partial(keep_report, drills_dir(flow)),
            objectives_of(flow),
            about_drill(flow, f"{options.mode} switchover: clients are moved", options.started_by),
            flow.state.replication_factor,
        )


def confirm_step(flow: Flow, step: str, pause: Pause, *, by: str | None = None) -> dict[str, Any]:
    """Write a person's word into the journal that a step of the drill that runs was done by hand.

    Args:
        by: who says so; None for whoever runs this.

    Raises:
        UsageError: NOT_CONFIRMED, no drill of the flow is running.
        Retriable: the target is away.
    """
    asked = {"fence": flow.switchover.fence, "redirect": flow.switchover.redirect}[step]
    with opened(flow, both) as (_, target), drill_journal(flow, target, pause) as journal:
        return give_word(journal, flow.flow, step, asked, by or login())


def abort_drill(flow: Flow, pause: Pause, *, if_dead: bool = False) -> Aborted:
    """End the flow's drill that runs, or take away what is left of one that died.

    Args:
        if_dead: leave one alone that runs.

    Raises:
        NeedsOperator: PAST_RETURN, it is a switchover that has promoted its topics.
        Retriable: it does not end in time, or a cluster is away.
    """
    with opened(flow, both) as (source, target), drill_journal(flow, target, pause) as journal:

        def left() -> set[str]:
            # Read as late as it can be: a drill may promote while it is asked to end.
            enrolled, chain = _still_over(flow, source, target), journal.read()
            check_turns_back(flow.flow, chain, enrolled)
            return left_behind(chain, enrolled, leads_back=flow.switchover.reverse is not None)

        def promoted() -> set[str]:
            return {e.source for e in enrolled_of(flow, target) if e.is_promoted}

        def lift(drill: str, topics: Collection[str], deadline: Deadline) -> Mapping[str, Any]:
            lifted = LiftedFences(fence_makers(flow, source, journal, drill, pause))
            return lifted.lift(BoundNotes(journal, drill), topics, deadline)

        left_fence = LeftFence(left, promoted, partial(fence, target, names.leader_id(flow.flow)), lift)
        removal = Removal(flow.flow, source, target)
        return abort(journal, removal, left_fence, flow.flow, pause, if_dead=if_dead)


def _parts(
    flow: Flow,
    source: Cluster,
    target: Cluster,
    journal: DrillJournal,
    reverse: Flow | None,
    drill: str,
    options: SwitchoverOptions,
    pause: Pause,
) -> SwitchoverParts:
    spec, groups = flow.switchover, GroupRequest(allowed=Allowed(take_over=options.take_over))
    makers = fence_makers(flow, source, journal, drill, pause)
    return SwitchoverParts(
        flow=flow.flow,
        source=source,
        target=target,
        look=lambda: dry_run(flow, groups).document(),
        glance=lambda: read_status(flow, patience_s=_GLANCE_S),
        selects=flow.groups.selects,
        scope=lambda: list(in_scope(source.retry(source.topics), rules(flow))),
        groups=lambda: _groups(flow, source, target, groups, options.mode),
        audit=lambda topics: _audited(flow, source, target, topics),
        leader=lambda: Leader(identity(flow), _Recorded(flow, source, target), target),
        fence=makers[spec.fence](),
        lifted=LiftedFences(makers),
        denied=lambda copies: denied(target, copies, _denied_by_us(reverse, options.mode)),
        let_in=_letting_in(reverse, options.mode, pause),
        in_the_way=lambda copies: None if reverse is None else in_the_way(reverse, copies),
        redirect=_redirect(flow, journal, drill, pause),
        clients=look,
        reverse=None if reverse is None else _way_back(flow, reverse, target).place,
        back=spec.reverse,
        led_back=lambda: frozenset[str]() if reverse is None else led_back(flow, reverse, target).copies,
        gone_back=lambda: copies_gone_back(flow, reverse, source, target),
        handled=flow.handler is not None,
        whatever_is_lost=options.whatever_is_lost,
        quiet_s=spec.quiet_ms / 1000,
        pause=pause,
    )


@contextmanager
def _groups(
    flow: Flow, source: Cluster, target: Cluster, request: GroupRequest, mode: str
) -> Iterator[GroupSync]:
    """Yield what puts the flow's groups in place; in an unplanned one the source's silence has an end."""
    with ExitStack() as stack:
        giving = source if mode == PLANNED else stack.enter_context(source.hasty(_PLACES_S))
        yield stack.enter_context(group_sync(flow, giving, target, request))


def _denied_by_us(reverse: Flow | None, mode: str) -> Callable[[], Collection[tuple[str, str]]]:
    """Return what tells which DENYs on the target a planned switchover lifts itself."""
    return partial(kept_off, reverse) if reverse is not None and mode == PLANNED else tuple


def _letting_in(
    reverse: Flow | None, mode: str, pause: Pause
) -> Callable[[Sequence[str]], Mapping[str, Any]]:
    """Return what lets clients write where they come to; its journal is where they come from."""
    if reverse is None:
        return lambda _: {}
    if mode == PLANNED:
        return lambda copies: let_in(reverse, copies, pause)
    return lambda copies: let_in_at_once(reverse, copies, pause, _GLANCE_S)


def led_back(flow: Flow, reverse: Flow, target: Cluster, *, patience: Patience | None = None) -> LedBack:
    """Return what the flow the other way has taken in: what stands on our source of that is no loss.

    Args:
        patience: with the source; None for as long as it takes.
    """
    there = enrolled_of(flow, target)
    with opened(reverse, both) as (_, source):
        if patience is not None:
            source.patience = patience
        back = enrolled_of(reverse, source)
        promoted = [each.target for each in back if each.is_promoted]
        here = source.retry(lambda: source.topics(promoted)) if promoted else {}
        led = LedBack.of(there, back, {name: info.topic_id for name, info in here.items()})
    missing = led.missing([each.target for each in there if each.is_promoted])
    left = target.retry(lambda: target.topics(missing)) if missing else {}
    return replace(led, deleted=frozenset(missing).difference(left))


def copies_gone_back(flow: Flow, reverse: Flow | None, source: Cluster, target: Cluster) -> Collection[str]:
    """Return the copies that clients have gone back with; a source that is silent is not waited for.

    Raises:
        Retriable: the source is away.
    """
    if reverse is None:
        return ()
    with source.hasty(_GLANCE_S) as asked:
        # Before those who would wait for it.
        asked.cluster_id()
    return led_back(flow, reverse, target, patience=Patience(_GLANCE_S)).gone


def _still_over(flow: Flow, source: Cluster, target: Cluster) -> list[Enrolment]:
    """Return the flow's topics, but for those that clients have gone back to, as far as anybody tells."""
    enrolled, name, gone = enrolled_of(flow, target), flow.switchover.reverse, set[str]()
    if name is not None and any(each.is_promoted for each in enrolled):
        # Whoever is kept off waits for this: it goes on without what cannot be asked.
        with suppress(OnceoverError):
            gone.update(copies_gone_back(flow, reverse_flow(flow, name), source, target))
    return [each for each in enrolled if each.target not in gone]


def _redirect(
    flow: Flow, journal: DrillJournal, drill: str, pause: Pause
) -> Callable[[Sequence[str], Deadline], Mapping[str, Any]]:
    if flow.switchover.redirect == COMMAND:
        return partial(switching_command(flow, drill).run, "redirect")
    return lambda _, deadline: await_word(journal, flow.flow, drill, pause, "redirect", deadline)


def _audited(flow: Flow, source: Cluster, target: Cluster, topics: Sequence[str]) -> TailCompared:
    """Compare what is behind the verified watermarks, and raise them."""
    request = AuditRequest(tuple(re.escape(topic) for topic in topics))
    workers = LocalWorkers(Sides(source, target, record_bytes=record_bytes(flow)))
    seen = audit_content(prepare(flow, source, target, request), workers)
    keep_verified(flow, target, seen)
    return TailCompared.of(seen)


def between_of(flow: Flow) -> FlowBetween:
    """Return between which clusters a flow copies."""
    return FlowBetween(flow.flow, flow.source.alias, flow.target.alias)


def reverse_flow(flow: Flow, name: str) -> Flow:
    """Return the flow the other way: the file of that name beside the flow's own, or among all flows.

    Raises:
        UsageError: it is not in order, or not the other way.
    """
    beside = flow.path.with_name(f"{name}{flow.path.suffix}")
    found = load_flow(beside if beside.is_file() else name)
    check_leads_back(between_of(flow), between_of(found)._replace(flow=name))
    return found


def behind(flow: Flow, copies: Collection[str]) -> SeedingOptions:
    """Return the seeding by which the flow the other way begins right behind the promotion of copies."""
    topics = "|".join(map(re.escape, sorted(copies))) or _NO_TOPIC
    return SeedingOptions(f"promoted:{flow.path}", Choice(replace=True), topics)


def _way_back(flow: Flow, reverse: Flow, target: Cluster) -> WayBack:
    which = rules(flow)

    def layout() -> Layout | None:
        with opened(reverse, both) as (_, there):
            return read_layout(there, reverse.flow)

    return WayBack(
        flow.flow,
        reverse.flow,
        lambda topic: explain(topic, which).target_topic,
        lambda: led_back(flow, reverse, target),
        layout,
        lambda copies: opened(reverse, partial(seeder, request=behind(flow, copies))),
    )
