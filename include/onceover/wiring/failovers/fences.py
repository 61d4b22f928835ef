"""Fences of switchovers from the flow files: made as the file says, lifted as the journal says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from onceover.acls.sync import is_open
from onceover.backoff import Patience
from onceover.config.flow.flowfile import Flow
from onceover.drills import chain as chains
from onceover.drills.chain import JournalEntry
from onceover.drills.journal import DrillJournal
from onceover.drills.leaving.fences import (
    ACLS,
    COMMAND,
    PERSON,
    AclFence,
    CommandFence,
    Fence,
    PersonFence,
    UserCommand,
)
from onceover.drills.leaving.words import await_word
from onceover.drills.switching import lettingin
from onceover.errors import Retriable
from onceover.kafka.admin.acls import AclAdmin
from onceover.kafka.ports import Cluster
from onceover.planning.background import in_background
from onceover.planning.operation import Pause, wait
from onceover.wiring.failovers.drills import both, drill_journal, drills_dir
from onceover.wiring.flows import opened

# Of a lift that works on a cluster that answers; a cluster that does not is not waited for so long.
_WORKS_S: Final = 10.0


def fence_makers(
    flow: Flow, source: Cluster, journal: DrillJournal, drill: str, pause: Pause
) -> dict[str, Callable[[], Fence]]:
    """Return what makes fences, by their kind, as far as the flow file says how."""
    acls = AclAdmin(source)
    makers: dict[str, Callable[[], Fence]] = {
        ACLS: lambda: AclFence(acls, flow.switchover.deny, lambda standing: is_open(acls, standing)),
        PERSON: lambda: PersonFence(partial(await_word, journal, flow.flow, drill, pause)),
    }
    if flow.switchover.command:
        makers[COMMAND] = lambda: CommandFence(switching_command(flow, drill))
    return makers


def kept_off(reverse: Flow) -> set[tuple[str, str]]:
    """Return whom the flow the other way has kept off its source, our target, by ACLs, of which topics."""
    with opened(reverse, both) as (_, target), drill_journal(reverse, target, wait) as journal:
        return chains.fenced(journal.read()).get(ACLS, set())


def in_the_way(reverse: Flow, topics: Collection[str]) -> str | None:
    """Return the drill of a flow that has to be over before its fences of these topics can be lifted.

    Raises:
        As ``lettingin.in_the_way``.
    """
    with opened(reverse, both) as (source, target), drill_journal(reverse, target, wait) as journal:
        known = fence_makers(reverse, source, journal, "look", wait)
        return lettingin.in_the_way(journal, topics, known)


def let_in(
    flow: Flow,
    topics: Collection[str],
    pause: Pause,
    *,
    which: Callable[[Sequence[JournalEntry]], set[str]] = chains.fenced_topics,
    patience: Patience | None = None,
) -> Mapping[str, Any]:
    """Lift a flow's fences, as ``lettingin.let_in`` does, with that flow's own clients.

    Args:
        which: of the topics are meant, given that flow's journal.
        patience: with the flow's target, which holds the journal; None for as long as it takes.

    Raises:
        As ``lettingin.let_in``.
    """
    with opened(flow, both) as (source, target), drill_journal(flow, target, pause) as journal:
        if patience is not None:
            target.patience = patience
        return lettingin.let_in(
            journal, topics, which, lambda drill: fence_makers(flow, source, journal, drill, pause)
        )


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
