"""Whether clients may write where they come to: what denies it, and the way out of our own fences."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from onceover.acls.cover import applies
from onceover.backoff import Deadline
from onceover.drills import chain as chains
from onceover.drills.chain import JournalEntry
from onceover.drills.journal import DrillJournal
from onceover.drills.leaving.fences import Fence, LiftedFences, Mark, denials, unknown_fence
from onceover.drills.switching.switchover import BoundNotes
from onceover.errors import NeedsOperator, UsageError
from onceover.kafka.admin.acls import DENY, AclAdmin
from onceover.kafka.ports import Cluster

log = logging.getLogger(__name__)

_LIFT_S: Final = 60.0
_WRITING: Final = ("WRITE", "ALL")


def denied(target: Cluster, copies: Sequence[str], ours: Callable[[], Collection[Mark]]) -> list[str]:
    """Return the DENYs that would keep clients off the copies, but for those that we lift ourselves.

    Who may not ask, or has no authorizer to ask, has none that we know of.

    Args:
        ours: returns the topics and principals that our own fences deny; asked where there is an authorizer.
    """
    try:
        standing = AclAdmin(target).topic_acls()
    except (UsageError, NeedsOperator) as error:
        log.debug("whether %s denies clients something is not known: %s", target.alias, error)
        return []
    # To the letter: what somebody else denies them stands when ours is lifted, however like it it is.
    lifted = denials(ours())
    return [
        str(acl)
        for acl in sorted(standing)
        if acl.permission == DENY
        and acl.operation in _WRITING
        and acl not in lifted
        and any(applies(acl, copy) for copy in copies)
    ]


def in_the_way(journal: DrillJournal, topics: Collection[str], known: Collection[str]) -> str | None:
    """Return the drill of a flow that ``let_in`` would have to wait for; None without one, or where nobody is
    kept off these topics.

    Args:
        known: the kinds of fences that can be lifted.

    Raises:
        NeedsOperator: SWITCHOVER_UNSET, ``let_in`` could not lift one of them.
        Retriable: a cluster is away.
    """
    chain = journal.read()
    kinds = chains.fenced_kinds(chain, topics)
    for kind, named in kinds.items():
        if kind not in known:
            raise unknown_fence(kind, named)
    running = chains.running(chain)
    if running is None or not kinds:
        return None
    return running.drill if journal.is_alive(running.drill) else None


def let_in(
    journal: DrillJournal,
    topics: Collection[str],
    which: Callable[[Sequence[JournalEntry]], set[str]],
    makers: Callable[[str], Mapping[str, Callable[[], Fence]]],
) -> Mapping[str, Any]:
    """Lift what a flow's switchovers have made of fences on its source, where some of these topics have one.

    Args:
        journal: of that flow.
        which: the topics that are meant, given the journal.
        makers: return what makes that flow's fences, by their kind, for a drill.

    Raises:
        NeedsOperator: DRILL_RUNS, a drill of that flow is running; or a fence of a kind that is unknown.
        Retriable: a cluster is away.
    """
    found = which(journal.read()) & set(topics)
    if not found:
        return {}
    # As a drill of its own in that flow's journal: one that runs there is not disturbed.
    drill = f"back-{secrets.token_hex(6)}"
    journal.begin(drill, {"mode": chains.ABORT_MODE})
    with journal.heartbeat(drill):
        try:
            # Another drill of that flow may have lifted some since.
            found &= which(journal.read())
            evidence = LiftedFences(makers(drill)).lift(BoundNotes(journal, drill), found, Deadline(_LIFT_S))
        finally:
            journal.append(drill, chains.ENDED, {"result": chains.DrillResult.REMOVED})
    return {"let_in": evidence}
