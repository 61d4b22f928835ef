"""A copy whose processes were killed is started again at once, by whoever started it. Pure.

Nobody is asked meanwhile: a scheduler that tries the task again needs several seconds to notice, to wait and
to start. It stays behind this: what is killed again and again is an error that somebody has to hear of.
"""

from __future__ import annotations

import re
from typing import Final

# At once after an accident; a process that dies of something lasting gives it a moment to pass.
_PAUSES_S: Final = (0.0, 2.0, 8.0)
RESTARTS: Final = len(_PAUSES_S)
# A run that lasted so long was well: what ended it is a new story.
_HEALTHY_S: Final = 600.0
_WITHOUT_END: Final = re.compile("forever|caught-up")


class Restarts:
    """What follows when a run's processes were killed.

    Args:
        until: when the run is to end. One for a time is left to its caller: started again it would be longer.
        most: in a row.
    """

    def __init__(self, until: str, most: int = RESTARTS) -> None:
        self.most = min(most, RESTARTS) if _WITHOUT_END.fullmatch(until) else 0
        self.number = 0
        # In all.
        self.made = 0

    def pause_s(self, ran_s: float) -> float | None:
        """Count a run that was killed; return how long to wait before the next, None to give up.

        Args:
            ran_s: how long it had run.
        """
        if ran_s >= _HEALTHY_S:
            self.number = 0
        if self.number >= self.most:
            return None
        self.number += 1
        self.made += 1
        return _PAUSES_S[self.number - 1]
