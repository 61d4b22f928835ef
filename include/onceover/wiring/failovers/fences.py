"""Fences of switchovers from the flow files: made as the file says, lifted as the journal says."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from onceover.acls.cover import applies
from onceover.acls.sync import is_open
from onceover.backoff import Deadline, Patience
from onceover.config.flow.flowfile import Flow
from onceover.drills import chain as chains
from onceover.drills.chain import JournalEntry
from onceover.drills.codes import DrillCode
from onceover.drills.journal import DrillJournal
from onceover.drills.switching.fences import (
    ACLS,
    COMMAND,
    PERSON,
    AclFence,
    CommandFence,
    Fence,
    LiftedFences,
    PersonFence,
    UserCommand,
)
from onceover.drills.switching.switchover import BoundNotes
from onceover.errors import NeedsOperator, Retriable, UsageError
from onceover.kafka.admin.acls import DENY, AclAdmin
from onceover.kafka.ports import Cluster
from onceover.planning import commands
from onceover.planning.background import in_background
from onceover.planning.operation import Pause, wait
from onceover.wiring.failovers.drills import both, drill_journal, drills_dir
from onceover.wiring.flows import opened

log = logging.getLogger(__name__)

_LOOK_S: Final = 0.5
_LIFT_S: Final = 60.0
# Of a lift that works on a cluster that answers; a cluster that does not is not waited for so long.
_WORKS_S: Final = 10.0
_WRITING: Final = ("WRITE", "ALL")


def fence_makers(
    flow: Flow, source: Cluster, journal: DrillJournal, drill: str, pause: Pause
) -> dict[str, Callable[[], Fence]]:
    """Return what makes fences, by their kind, as far as the flow file says how."""
    acls = AclAdmin(source)
    makers: dict[str, Callable[[], Fence]] = {
        ACLS: lambda: AclFence(acls, flow.switchover.deny, lambda standing: is_open(acls, standing)),
        PERSON: lambda: PersonFence(partial(confirmed, flow, journal, drill, pause)),
    }
    if flow.switchover.command:
        makers[COMMAND] = lambda: CommandFence(switching_command(flow, drill))
    return makers


def denied(target: Cluster, reverse: Flow | None, copies: Sequence[str]) -> list[str]:
    """Return the DENYs that would keep clients off the copies, but for those that we lift ourselves.

    Who may not ask, or has no authorizer to ask, has none that we know of.
    """
    try:
        standing = AclAdmin(target).topic_acls()
    except (UsageError, NeedsOperator) as error:
        log.debug("whether %s denies clients something is not known: %s", target.alias, error)
        return []
    ours = set() if reverse is None else _kept_off(reverse)
    return [
        str(acl)
        for acl in sorted(standing)
        if acl.permission == DENY
        and acl.operation in _WRITING
        and any(applies(acl, copy) and (copy, acl.principal) not in ours for copy in copies)
    ]


def _kept_off(reverse: Flow) -> set[tuple[str, str]]:
    """Return whom the flow the other way has kept off its source, our target, by ACLs."""
    with opened(reverse, both) as (_, target), drill_journal(reverse, target, wait) as journal:
        return chains.fenced(journal.read()).get(ACLS, set())


def let_in(
    flow: Flow,
    topics: Collection[str],
    pause: Pause,
    *,
    which: Callable[[Sequence[JournalEntry]], set[str]] = chains.fenced_topics,
    patience: Patience | None = None,
) -> Mapping[str, Any]:
    """Lift what a flow's switchovers have made of fences on its source, where some of these topics have one.

    Args:
        which: the topics that are meant, given the flow's journal.
        patience: with the flow's target, which holds the journal; None for as long as it takes.

    Raises:
        NeedsOperator: DRILL_RUNS, a drill of that flow is running; or a fence of a kind that is unknown.
        Retriable: a cluster is away.
    """
    with opened(flow, both) as (source, target), drill_journal(flow, target, pause) as journal:
        if patience is not None:
            target.patience = patience
        found = which(journal.read()) & set(topics)
        if not found:
            return {}
        # As a drill of its own in that flow's journal: one that runs there is not disturbed.
        drill = f"back-{secrets.token_hex(6)}"
        journal.begin(drill, {"mode": "abort"})
        with journal.heartbeat(drill):
            try:
                # Another drill of that flow may have lifted some since.
                found &= which(journal.read())
                lifted = LiftedFences(fence_makers(flow, source, journal, drill, pause))
                evidence = lifted.lift(BoundNotes(journal, drill), found, Deadline(_LIFT_S))
            finally:
                journal.append(drill, chains.ENDED, {"result": "removed"})
    return {"let_in": evidence}


def let_in_at_once(flow: Flow, topics: Collection[str], pause: Pause, patience_s: float) -> Mapping[str, Any]:
    """Do the same, and wait for nobody: what hangs goes on by itself, or ends with the process.

    Args:
        patience_s: how long the cluster with the flow's journal may leave us without an answer.

    Raises:
        As ``let_in``; Retriable: it is not done yet.
    """
    lifting = in_background(lambda: let_in(flow, topics, pause, patience=Patience(patience_s)))
    try:
        return lifting.result(patience_s + _WORKS_S)
    except TimeoutError:
        raise Retriable(
            f"it takes longer than {patience_s + _WORKS_S:.0f} s", where=flow.target.alias
        ) from None


def switching_command(flow: Flow, drill: str) -> UserCommand:
    facts = {
        "ONCEOVER_FLOW": flow.flow,
        "ONCEOVER_DRILL": drill,
        "ONCEOVER_SOURCE": flow.source.alias,
        "ONCEOVER_TARGET": flow.target.alias,
    }
    return UserCommand(
        flow.switchover.command, facts, lambda: drills_dir(flow).absolute() / drill, flow.path.parent
    )


def confirmed(
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
    log.warning("waiting for a person: %s, once that is done", how)
    while True:
        chain = journal.read()
        word = chains.confirmed(chain, drill, step)
        if word is not None:
            return {"by": str(word.said.get("by")), "at_ms": word.at_ms}
        if chains.is_asked_to_end(chain, drill) or deadline.passed:
            raise late
        pause(_LOOK_S)
