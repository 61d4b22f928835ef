"""What an old source holds alone behind an unplanned switchover, from a flow file to the operation."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import run_dir
from onceover.drills.orphans.export import OrphanExport, OrphanParts
from onceover.drills.orphans.exported import OrphanTopic
from onceover.drills.orphans.files import path_in
from onceover.drills.orphans.plan import OrphanPlace
from onceover.drills.orphans.survey import OrphanReader
from onceover.kafka.ports import Cluster
from onceover.planning.operation import Pause
from onceover.wiring.drills import drill_journal, login, matcher
from onceover.wiring.flows import journal_of

ORPHANS: Final = "orphans"


@dataclass(frozen=True)
class OrphanWish:
    """What a person types.

    Args:
        topics: anchored regular expressions over source topics, none for all that were promoted.
        rebuild: delete topics with orphans behind the export, so that they are copied anew.
    """

    topics: Sequence[str] = ()
    rebuild: bool = False


@contextmanager
def orphan_export(
    flow: Flow, source: Cluster, target: Cluster, wish: OrphanWish, pause: Pause
) -> Iterator[OrphanExport]:
    """Yield what exports the orphans of a flow's old source.

    Raises:
        UsageError: an expression is none.
    """
    topic = OrphanTopic(target, flow.flow, flow.source.alias, flow.state.replication_factor)
    folder = run_dir(flow) / ORPHANS
    back = flow.switchover.reverse
    place = OrphanPlace(
        flow.flow, flow.source.alias, flow.target.alias, topic.place.topic, path_in(folder), back
    )
    handled = flow.handler is not None
    reader = OrphanReader(flow.flow, source, target, matcher("--topics", wish.topics), handled)
    with drill_journal(flow, target, pause) as journal:
        parts = OrphanParts(
            source=source,
            reader=reader,
            topic=topic,
            place=place,
            folder=folder,
            drills=journal,
            journal=journal_of(flow, ORPHANS),
            quiet_s=flow.switchover.quiet_ms / 1000,
            about={"by": login(), "host": socket.gethostname()},
        )
        yield OrphanExport(parts, rebuild=wish.rebuild)
