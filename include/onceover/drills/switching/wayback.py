"""Making the flow the other way go on behind a promotion.

Invariant: it is said to go on only once its state says that it copies all that was promoted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from onceover.drills.switching.common import shown_already
from onceover.drills.switching.failback import LedBack, check_all_led_back
from onceover.errors import NeedsOperator
from onceover.planning import commands
from onceover.planning.operation import Caller
from onceover.seeding.apply import Seeder
from onceover.state.records.layout import Layout


@dataclass(frozen=True)
class WayBack:
    """Two flows, each the other way of the other one.

    Args:
        flow: the one that was switched over; ``back`` the other one.
        copy_of: returns the copy of a source topic.
        led_back: tells what ``back`` has taken in.
        layout: reads the layout of ``back``.
        seeder: opens what has ``back`` begin behind the promotion of copies.
    """

    flow: str
    back: str
    copy_of: Callable[[str], str]
    led_back: Callable[[], LedBack]
    layout: Callable[[], Layout | None]
    seeder: Callable[[Sequence[str]], AbstractContextManager[Seeder]]

    def place(self, topics: Sequence[str]) -> Mapping[str, Any]:
        """Have ``back`` begin behind the promotion of source topics; return what was written.

        Raises:
            NeedsOperator: some of it is refused, or it does not take all of them in.
        """
        start_it = commands.replicate(self.back)
        then = commands.lead_back(self.back, self.flow)
        promoted = {self.copy_of(topic) for topic in topics}
        led = self.led_back()
        copies = led.missing(promoted)
        if not copies:
            check_all_led_back(self.back, promoted, led, then)
            return {"flow": self.back, "positions": 0, "start_it": start_it}
        layout = self.layout()
        runs = layout is not None and layout.may_run
        with self.seeder(copies) as seeding:
            outcome = seeding.apply(Caller(shown_already))
        if outcome.waiting:
            first = outcome.waiting[0]
            raise NeedsOperator(
                f"flow {self.back} cannot go on behind the promotion: {first.object}: {first.message}",
                code=first.code,
                resolve=first.resolve,
            )
        check_all_led_back(self.back, promoted, self.led_back(), then)
        return {"flow": self.back, "positions": outcome.written, "start_it": start_it, "ended": runs}
