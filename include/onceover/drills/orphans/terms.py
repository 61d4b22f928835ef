"""Where everything is, and what has to be known of topics before they may be deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onceover.drills.orphans.looks import TopicShape
from onceover.drills.orphans.positions import PositionsOnlyHere


@dataclass(frozen=True)
class OrphanPlace:
    """Where everything is.

    Args:
        flow: its name.
        source: alias of the old source; ``target`` of where the copies were promoted.
        topic: that they are exported to; ``file`` likewise.
        back: the flow the other way, None where the flow file names none.
    """

    flow: str
    source: str
    target: str
    topic: str
    file: Path
    back: str | None


@dataclass(frozen=True)
class RebuildTerms:
    """What has to be known of topics before they may be deleted.

    Args:
        shapes: how each topic is made, to be made so again.
        untaken: why the flow the other way would not copy a topic back as it is, by topic.
        factor: how many replicas the export has; None where the target's default decides that yet.
        positions: of groups, that would be deleted with the topics and stand nowhere else.
        forgets: tells whether a person has given up a group's positions.
    """

    shapes: Mapping[str, TopicShape]
    untaken: Mapping[str, str]
    factor: int | None
    positions: PositionsOnlyHere = field(default_factory=PositionsOnlyHere)
    forgets: Callable[[str], bool] = lambda _: False
