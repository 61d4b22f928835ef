"""A person's word that a step of a switchover was done by hand: given into the journal, and waited for.

Invariant: a word is taken only while the step is waited for: nobody's earlier word counts for a later step.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onceover.backoff import Deadline
from onceover.drills import chain as chains
from onceover.drills.chain import JournalEntry
from onceover.drills.codes import DrillCode
from onceover.drills.course import drill_aborted
from onceover.drills.journal import DrillJournal
from onceover.drills.leaving.fences import PERSON
from onceover.errors import NeedsOperator, UsageError
from onceover.planning import commands
from onceover.planning.operation import Pause

log = logging.getLogger(__name__)

_LOOK_S: Final = 0.5


def give_word(journal: DrillJournal, flow: str, step: str, asked: str, by: str) -> dict[str, Any]:
    """Write that a step of the drill that runs was done by hand; return what was written.

    Args:
        journal: of ``flow``.
        step: ``fence`` or ``redirect``.
        asked: who does it, as the flow file says.
        by: whose word it is.

    Raises:
        UsageError: NOT_CONFIRMED, no drill of the flow is running, or alive, or it waits for no such word.
        Retriable: the target is away.
    """
    chain = journal.read()
    running = chains.running(chain)
    if running is None:
        raise UsageError(
            f"no drill of flow {flow} is running",
            code=DrillCode.NOT_CONFIRMED,
            resolve=f"{commands.command('drill', 'status', flow)} shows the last ones",
        )
    check_waits(chain, running.drill, flow, step, asked)
    if not journal.is_alive(running.drill):
        raise UsageError(
            f"drill {running.drill} gives no sign of life: nobody hears that anybody is done with {step}",
            code=DrillCode.NOT_CONFIRMED,
            resolve=f"run it again, or {commands.command('drill', 'abort', flow)}; it asks anew",
        )
    journal.append(running.drill, chains.CONFIRMED, {"step": step, "by": by})
    return {"flow": flow, "drill": running.drill, "step": step, "by": by}


def check_waits(chain: Sequence[JournalEntry], drill: str, flow: str, step: str, asked: str) -> None:
    """Refuse a word that the drill does not wait for: it would count for a later step. Pure.

    Args:
        drill: the one that runs; ``flow``, ``step`` and ``asked`` as of ``give_word``.

    Raises:
        UsageError: NOT_CONFIRMED.
    """
    steps = [each.said for each in chains.of_drill(chain, drill) if each.what == chains.STEP]
    now = steps[-1] if steps else {}
    if (now.get("step"), now.get("state")) == (step, "running") and asked == PERSON:
        return
    raise UsageError(
        f"drill {drill} does not wait for anybody to {step}",
        code=DrillCode.NOT_CONFIRMED,
        expected=f"step {step}, running, of a flow with switchover.{step}: person",
        seen=f"step {now.get('step')}, {now.get('state')}, and {asked}",
        resolve=f"{commands.command('drill', 'status', flow)} tells which step it is at",
    )


def await_word(
    journal: DrillJournal, flow: str, drill: str, pause: Pause, step: str, deadline: Deadline
) -> Mapping[str, Any]:
    """Wait until a person says that a step of ``drill`` is done; return who, and when.

    Raises:
        NeedsOperator: NOT_CONFIRMED, nobody does in time; DRILL_ABORTED, somebody wants the drill to end.
        Retriable: the target is away.
    """
    how = commands.command("drill", "confirm", flow, step)
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
        if chains.is_asked_to_end(chain, drill):
            raise drill_aborted()
        if deadline.passed:
            raise late
        pause(_LOOK_S)
