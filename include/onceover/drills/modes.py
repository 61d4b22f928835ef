"""The two kinds of switchovers, as the journal tells them apart, what means nothing in one, and the steps
that others than their course know by name. Pure."""

from typing import Final

from onceover.errors import UsageError

PLANNED: Final = "planned"
UNPLANNED: Final = "unplanned"
# What a person may do, and then says so.
BY_HAND: Final = ("fence", "redirect")
# The step that nothing leads back behind.
PROMOTE: Final = "promote"


def check_mode(mode: str, *, whatever_is_lost: bool) -> None:
    """Refuse to have losses approved where there are none.

    Raises:
        UsageError: a planned one is to be done whatever is lost.
    """
    if whatever_is_lost and mode == PLANNED:
        raise UsageError(
            "--whatever-is-lost means nothing with --mode planned: nothing is lost",
            resolve="leave it out, or name another mode",
        )
