"""Putting a connector's offsets back where a resumed connector has gone back behind them."""

from __future__ import annotations

from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import ConnectorOutcome, EndState
from onceover.connectors.moving.run import ConnectorRun
from onceover.connectors.moving.watching import OffsetProgress
from onceover.connectors.offsets.keys import named
from onceover.connectors.record.manifest import WENT_ON
from onceover.connectors.steps import StepName, reached
from onceover.errors import NeedsOperator


def restore(run: ConnectorRun, seen: OffsetProgress) -> ConnectorOutcome:
    """Stop a connector that went back, and put offsets and configuration back as the manifest has them.

    Connect writes each offset to the shared topic too: both are restored. Where anything has gone on from
    the manifest's offsets, nothing is restored: records behind it are written already, and to go back to
    the manifest would repeat them.

    Raises:
        NeedsOperator: WENT_ON_ELSEWHERE, as just said; the connector stays stopped.
    """
    reached(StepName.RESTORE)
    run.stop_and_fence()
    access, config, values = run.context.access, run.view.state.config, run.manifest.values
    topics = {run.manifest.to_topic, run.manifest.from_topic}
    own = [access.own_site(config, topic) for topic in sorted(topics - {access.global_topic})]
    sites = [*own, *access.return_sites(config)]
    run.end_own_transactions(*sites)
    # A key that the manifest does not have began after it: to remove it would repeat what it has counted.
    advanced = set(seen.back) - values.keys()
    for site in sites:
        now = access.scan(site).snapshot(run.name)
        advanced.update(OffsetProgress.between(values, now).advanced)
    if advanced:
        run.note(WENT_ON)
        went = f"went back on {named(seen.back)}" if seen.back else "has lost offsets before it was resumed"
        raise NeedsOperator(
            f"{run.name} {went} and has gone on from, or deleted, {named(advanced)}",
            code=ConnectorCode.WENT_ON_ELSEWHERE,
            where=run.name,
            expected="no offset lower than the one before it",
            seen=f"{len(seen.back)} lower, {len(advanced)} newer or deleted",
            resolve="it is stopped: decide for each source partition which offset is right (the manifest has "
            "those before), write it raw, resume it, then run again: it is judged from there on",
        )
    for site in sites:
        run.overwrite([site], values)
    run.configure(run.manifest.former)
    lowered = len(seen.back)
    return run.finish(
        EndState.FAILED,
        f"{lowered} of its offsets went back after it was resumed ({named(seen.back)}): it is stopped, its "
        "offsets and its configuration are as before; records it wrote meanwhile are repeated",
        seen,
    )
