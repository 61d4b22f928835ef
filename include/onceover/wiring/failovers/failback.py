"""The way back behind a switchover, from the flow files: which flow leads back, and what it takes in."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from onceover.config.flow.flowfile import Flow
from onceover.config.patterns import matcher
from onceover.drills.switching.failback import LedBack, check_all_led_back, copies_to_bring_back, named_back
from onceover.drills.switching.switchover import unfinished_of
from onceover.planning.operation import wait
from onceover.seeding.apply import Seeder
from onceover.wiring.failovers.drills import both, drill_journal, enrolled_of
from onceover.wiring.failovers.seeding import seeder
from onceover.wiring.failovers.switchovers import behind, between_of, led_back, reverse_flow
from onceover.wiring.flows import opened


def way_back(flow: Flow) -> Flow:
    """Return the flow that leads back what a switchover of ``flow`` has promoted.

    Raises:
        UsageError: SWITCHOVER_UNSET, the flow file names none, or it is not the other way.
    """
    return reverse_flow(flow, named_back(between_of(flow), flow.switchover.reverse))


def promoted_copies(flow: Flow, patterns: Sequence[str] = ()) -> list[str]:
    """Return the copies that a switchover of the flow has promoted, as they are called on its target.

    Args:
        patterns: anchored regular expressions over source topics, none for all.

    Raises:
        UsageError: NOTHING_CHOSEN, there are none; or an expression is none.
    """
    wanted = matcher("--topics", patterns)
    with opened(flow, both) as (_, target):
        return copies_to_bring_back(between_of(flow), enrolled_of(flow, target), wanted)


def what_is_led_back(flow: Flow, reverse: Flow) -> LedBack:
    """Return what the flow the other way has taken in of what a switchover of ``flow`` has promoted."""
    with opened(flow, both) as (_, target):
        return led_back(flow, reverse, target)


def check_led_back(flow: Flow, reverse: Flow, copies: Collection[str]) -> bool:
    """Refuse to go on while the flow the other way has not taken in all promoted copies.

    Returns:
        Whether it copies some of them; clients have gone back with those that it does not copy any more.

    Raises:
        NeedsOperator: SWITCHOVER_UNSET or NOT_READY, it has not.
    """
    led = what_is_led_back(flow, reverse)
    check_all_led_back(reverse.flow, copies, led, "start it again")
    return not led.gone.issuperset(copies)


def gone_back(flow: Flow, reverse: Flow) -> frozenset[str]:
    """Return the source topics that clients have gone back to, behind a switchover of the flow back."""
    with opened(flow, both) as (_, target):
        gone = led_back(flow, reverse, target).gone
        return frozenset(each.source for each in enrolled_of(flow, target) if each.target in gone)


def went_back(flow: Flow, reverse: Flow, copies: Collection[str]) -> bool:
    """Tell whether clients have gone back with all promoted copies, and no switchover is left unfinished."""
    if not what_is_led_back(flow, reverse).gone.issuperset(copies):
        return False
    with opened(reverse, both) as (_, target), drill_journal(reverse, target, wait) as journal:
        return unfinished_of(journal.read(), enrolled_of(reverse, target)) is None


@contextmanager
def way_back_seeder(flow: Flow, reverse: Flow, copies: Collection[str]) -> Iterator[Seeder]:
    """Yield what lets the flow the other way begin behind the promotion, where it has not begun yet.

    Args:
        copies: that were promoted; those that it copies already, or that clients have gone back with, are
            left as they are.
    """
    missing = what_is_led_back(flow, reverse).missing(copies)
    with opened(reverse, partial(seeder, request=behind(flow, missing))) as seeding:
        yield seeding
