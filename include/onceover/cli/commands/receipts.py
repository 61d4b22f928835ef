"""``onceover receipts``: the table of what was copied, made anew from the offset map."""

from __future__ import annotations

import argparse
import shutil
from typing import Final

from onceover.cli.terminal.output import CommandResult
from onceover.config.flow.load import load_flow, run_dir
from onceover.errors import UsageError
from onceover.kafka.ports import Cluster
from onceover.planning import commands
from onceover.positions.index import read_map
from onceover.state.committed import told_beside
from onceover.state.read import read_layout, read_run
from onceover.state.records.layout import never_started
from onceover.wiring.flows import open_clusters

_FOLDER: Final = "rebuilt"


def rebuild(args: argparse.Namespace) -> CommandResult:
    """Write the table beside the old one, then swap them.

    Raises:
        UsageError: the flow was never started, or runs; its query ends when its own folder is gone.
        NotNow: its state is told as of before what has copied: whether it runs is not known.
    """
    # Arrow takes a third of a second to load: not for every other command.
    import pyarrow.parquet as pq

    from onceover.spark import receipts

    flow = load_flow(args.flow)
    table = run_dir(flow) / "receipts"
    fresh = table.with_name("receipts.new")
    rows = records = 0
    source, target = open_clusters(flow)
    with source, target:
        _check_idle(target, flow.flow)
        shutil.rmtree(fresh, ignore_errors=True)
        (fresh / _FOLDER).mkdir(parents=True)
        with pq.ParquetWriter(fresh / _FOLDER / "receipts.parquet", receipts.ARROW_SCHEMA) as writer:
            for group in read_map(target, flow.flow):
                if group:
                    writer.write_batch(receipts.rows(flow.flow, group, transactions=0))
                    rows += len(group)
                    records += sum(record.records for record in group)
        # Reading took its time.
        _check_idle(target, flow.flow)
        shutil.rmtree(table, ignore_errors=True)
        fresh.replace(table)
    document = {"flow": flow.flow, "path": str(table), "map_records": rows, "records": records}
    return CommandResult(document, f"{table}: {records} records in {rows} transactions and partitions")


def _check_idle(target: Cluster, flow: str) -> None:
    if read_layout(target, flow, told_beside(target, flow)) is None:
        raise never_started(flow, target.alias)
    run = read_run(target, flow)
    if run.lives:
        raise UsageError(
            f"flow {flow} is copied by a run on {run.host}, which writes to the table",
            expected="a flow that does not run",
            resolve=f"{commands.command('stop', flow)}, make the table anew, and start it again",
        )
