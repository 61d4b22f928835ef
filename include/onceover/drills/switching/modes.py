"""The two kinds of switchovers, as the journal tells them apart."""

from typing import Final

PLANNED: Final = "planned"
UNPLANNED: Final = "unplanned"
