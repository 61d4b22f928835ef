"""What has to be so for a switchover to go on, and the error where it is not. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from onceover.drills.codes import DrillCode
from onceover.drills.switching.tail import TailCompared
from onceover.errors import NeedsOperator
from onceover.kafka.ports import TopicInfo
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.state.records.enrolment import Enrolment

_NAMED: Final = 3


def check_same(
    flow: str, live: Iterable[Enrolment], here: Mapping[str, TopicInfo], there: Mapping[str, TopicInfo]
) -> None:
    """Tell whether both sides' topics are still those that are copied.

    Args:
        live: the topics' records; ``here`` and ``there`` the topics of source and target as they are now.

    Raises:
        NeedsOperator: LOG_CHANGED.
    """
    for each in live:
        known = (here, each.source, each.source_id), (there, each.target, each.target_id)
        if any(name not in topics or topics[name].topic_id != ours for topics, name, ours in known):
            raise NeedsOperator(
                f"{each.source}, or its copy {each.target}, is another topic than the flow has copied",
                code=DrillCode.LOG_CHANGED,
                where=each.source,
                resolve=f"{commands.command('status', flow)} names the way out",
            )


def check_denied(target: str, denies: Sequence[str]) -> None:
    """Tell whether clients could not write on the target although they are brought there.

    Raises:
        NeedsOperator: TARGET_DENIES.
    """
    if denies:
        raise NeedsOperator(
            f"{len(denies)} ACLs would keep clients off the copies: {denies[0]}",
            code=DrillCode.TARGET_DENIES,
            where=target,
            resolve="remove them, or leave these topics out with `--topics`",
        )


def check_scope(planned: Collection[str], copied: Collection[str], new: Iterable[str]) -> None:
    """Tell whether the topics are still those that were planned.

    Args:
        planned: source topics; ``copied`` those that are copied now.
        new: that have come into the flow's filter since.

    Raises:
        NeedsOperator: SCOPE_CHANGED.
    """
    gone, more = sorted(set(planned) - set(copied)), sorted(new)
    if gone or more:
        raise NeedsOperator(
            f"the flow's topics are others than were planned: {', '.join([*gone, *more][:_NAMED])}",
            code=DrillCode.SCOPE_CHANGED,
            expected=f"{len(planned)} topics, all of them copied",
            seen=f"{len(gone)} of them not, {len(more)} new ones",
            resolve="plan again; `--topics` names those that are wanted",
        )


def check_stops(flow: str, target: str, copies: Collection[str], stopped: Iterable[TopicPartition]) -> None:
    """Tell whether every partition of the copies is written to.

    Raises:
        NeedsOperator: COPY_STOPPED.
    """
    named = sorted(tp for tp in stopped if tp.topic in copies)
    if named:
        raise NeedsOperator(
            f"the flow has stopped at {', '.join(map(str, named[:_NAMED]))}",
            code=DrillCode.COPY_STOPPED,
            where=target,
            resolve=f"{commands.command('status', flow)} names the way out of each",
        )


def check_audited(flow: str, found: TailCompared) -> None:
    """Tell whether an audit has found the copies right; what has expired can be compared by nobody.

    Raises:
        NeedsOperator: COPY_DIFFERS.
    """
    if found.different:
        raise NeedsOperator(
            f"{found.different} records of the copies are not as they should be",
            code=DrillCode.COPY_DIFFERS,
            resolve=f"{commands.command('audit', flow)} names them; do not switch over",
        )
    if found.gone:
        raise NeedsOperator(
            f"{found.gone} offsets of the copies cannot be compared, and not for their age: {found.why}",
            code=DrillCode.COPY_DIFFERS,
            resolve=f"{commands.command('audit', flow)} tells why; do not switch over",
        )
