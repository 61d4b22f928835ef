"""What an old source holds alone behind an unplanned switchover, from a flow file to the operation."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import run_dir
from onceover.config.patterns import matcher
from onceover.drills.orphans.export import OrphanExport, OrphanParts
from onceover.drills.orphans.exporttopic import OrphanTopic
from onceover.drills.orphans.files import path_in
from onceover.drills.orphans.positions import PositionReader
from onceover.drills.orphans.promoted import PromotedTopics
from onceover.drills.orphans.refusals import check_forgotten, untaken_by
from onceover.drills.orphans.terms import OrphanPlace
from onceover.drills.orphans.view import OrphanReader
from onceover.kafka.ports import Cluster
from onceover.planning.operation import Pause
from onceover.positions.translate import Translator
from onceover.topics.scope import explain
from onceover.wiring.failovers.drills import drill_journal
from onceover.wiring.failovers.switchovers import reverse_flow
from onceover.wiring.flows import journal_of, login, rules

ORPHANS: Final = "orphans"


@dataclass(frozen=True)
class OrphanOptions:
    """What a person types.

    Args:
        topics: anchored regular expressions over source topics, none for all that were promoted.
        rebuild: delete topics with orphans behind the export, so that they are copied anew.
        forget: anchored regular expressions over groups whose positions may go with these topics although
            they stand nowhere else.
        started_by: who wants it, for the report; None for the user that runs it.
        besides: source topics that are left alone, although they were asked for.
    """

    topics: Sequence[str] = ()
    rebuild: bool = False
    forget: Sequence[str] = ()
    started_by: str | None = None
    besides: Collection[str] = ()


@contextmanager
def orphan_export(
    flow: Flow, source: Cluster, target: Cluster, options: OrphanOptions, pause: Pause
) -> Iterator[OrphanExport]:
    """Yield what exports the orphans of a flow's old source.

    Raises:
        UsageError: an expression is none, or of no use; the flow the other way is not in order.
    """
    check_forgotten(forgets=bool(options.forget), rebuild=options.rebuild)
    forgets = matcher("--forget-group", options.forget) or (lambda _: False)
    topic = OrphanTopic(target, flow.flow, flow.source.alias, flow.state.replication_factor)
    folder = run_dir(flow) / ORPHANS
    back = flow.switchover.reverse
    untaken = partial(_untaken, flow)
    # A file that is not in order is said before anything is looked at.
    untaken(())
    place = OrphanPlace(
        flow.flow, flow.source.alias, flow.target.alias, topic.place.topic, path_in(folder), back
    )
    handled, which = flow.handler is not None, rules(flow)
    with (
        Translator(target, flow.flow, run_dir(flow), handled=handled) as translator,
        drill_journal(flow, target, pause) as journal,
    ):
        topics = PromotedTopics(
            flow.flow,
            source,
            target,
            translator,
            lambda info: explain(info.name, which, is_internal=info.is_internal).inside,
            _wanted(options),
            handled,
        )
        parts = OrphanParts(
            source=source,
            reader=OrphanReader(source, topics),
            topic=topic,
            untaken=untaken,
            positions=PositionReader(source, target),
            place=place,
            folder=folder,
            drills=journal,
            journal=journal_of(flow, ORPHANS),
            quiet_s=flow.switchover.quiet_ms / 1000,
            about={"by": options.started_by or login(), "host": socket.gethostname()},
        )
        yield OrphanExport(parts, rebuild=options.rebuild, forgets=forgets)


def _wanted(options: OrphanOptions) -> Callable[[str], bool] | None:
    wanted, besides = matcher("--topics", options.topics), options.besides
    if not besides:
        return wanted
    return lambda topic: topic not in besides and (wanted is None or wanted(topic))


def _untaken(flow: Flow, topics: Collection[str]) -> dict[str, str]:
    """Return why the flow the other way, as its file is now, would not copy topics back as they are.

    Raises:
        UsageError: its file is not in order.
    """
    if flow.switchover.reverse is None:
        return untaken_by(None, topics, handled=False)
    back = reverse_flow(flow, flow.switchover.reverse)
    return untaken_by(rules(back), topics, handled=back.handler is not None)
