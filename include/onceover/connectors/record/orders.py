"""Whose order it is that the workers have written down. Pure.

Invariant: of several orders none is called this run's unless it cannot be anybody else's, or all are alike
and no more than the run has sent. The workers' records do not say who asked, but every command that they
take writes exactly one: also one that they seemed not to take, and that was sent again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onceover.ages import exact_text
from onceover.connectors.model import OFFSETS_TOPIC_KEY, PAUSED, STOPPED
from onceover.connectors.offsets.configtopic import STARTED, TARGET, ConfigRecords, Order
from onceover.connectors.record.commands import asking_command
from onceover.connectors.record.manifest import Manifest


@dataclass(frozen=True)
class OrderOwners:
    """Whose the orders since a run's last look are, once it has given one itself.

    Args:
        own: the run's, several where it had to send its command again; none where nobody can tell which.
        others: all orders but those.
        displaced: what somebody else asked for last, where the run's came behind it and asked for something
            else.
    """

    own: tuple[Order, ...]
    others: tuple[Order, ...]
    displaced: Order | None = None


def share(since: Sequence[Order], wanted: Any, known: Collection[int] = (), sent: int = 1) -> OrderOwners:
    """Return whose orders these are.

    Args:
        since: in the order in which they were written; some of them may be the run's.
        wanted: what it asked for: a state, or a configuration.
        known: offsets of orders that are not its, because another run has noted them as its own, or this
            run has before.
        sent: how many times the workers may have taken it.
    """
    own = alike(since, wanted, known)
    strangers = [order for order in since if order not in own and order.offset not in known]
    # Beside somebody who asks for something else one of several may be that one's as well.
    if not own or len(own) > sent or (len(own) > 1 and strangers):
        return OrderOwners((), tuple(since))
    others = tuple(order for order in since if order not in own)
    last = others[-1] if others and since[-1] in own else None
    return OrderOwners(
        own, others, last if last is not None and last.asked not in (None, own[-1].asked) else None
    )


def alike(since: Sequence[Order], wanted: Any, known: Collection[int] = ()) -> tuple[Order, ...]:
    """Return the orders that ask for what a run wants, and may be its; arguments as of ``share``."""
    open_ = [order for order in since if order.offset not in known and order.asked is not None]
    same = tuple(order for order in open_ if order.asked == wanted)
    if not same and isinstance(wanted, Mapping):
        # In whichever form the workers have written it: what it changes is the topic.
        topic = wanted.get(OFFSETS_TOPIC_KEY)
        same = tuple(order for order in open_ if order.asked.get(OFFSETS_TOPIC_KEY) == topic)
    return same


def told(orders: Sequence[Order]) -> str:
    """Return orders in words; of a configuration nothing, which may hold secrets."""
    return ", ".join(f"{_word(order)} at {exact_text(order.at_ms)}" for order in orders)


def _word(order: Order) -> str:
    if order.asked is None:
        return "its deletion"
    return order.asked if isinstance(order.asked, str) else "another configuration"


def asked_for(state: str) -> str:
    """Return the word of the configuration topic for what a connector does."""
    return state if state in (STOPPED, PAUSED) else STARTED


def standing(records: ConfigRecords, manifest: Manifest | None, url: str) -> str:
    """Return who made a connector stand still that a run has brought, or would bring, to something else.

    Empty where none has, and where the run's own order is the last one.

    Args:
        manifest: of the newest run.
        url: of a worker.
    """
    if manifest is None or manifest.left is None or not manifest.overtaken(records):
        return ""
    name, asked = manifest.connector, records.target(manifest.connector)
    if asked not in (STOPPED, PAUSED) or asked == manifest.initial_state:
        return ""
    orders = records.since(name, TARGET, manifest.left.get(TARGET))
    at = f" at {exact_text(orders[-1].at_ms)}" if orders else ""
    way = f"to let it run: `{asking_command(url, name, asked_for(manifest.initial_state))}`"
    # The run may have had to send it several times.
    if manifest.asking == asked and all(order.asked == asked for order in orders):
        return (
            f"{asked} was asked for{at}, by the run that was interrupted as it was about to ask for that, "
            f"or by somebody else, which nobody can tell: it stays so; {way}"
        )
    return f"somebody has asked for {asked}{at}, no known run of this tool: it stays so; {way}"
