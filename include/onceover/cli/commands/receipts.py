"""``onceover receipts``: the table of what was copied, made anew from the offset map."""

from __future__ import annotations

import argparse
import shutil
from typing import Final

from onceover.cli.terminal.output import CommandResult
from onceover.config.flow.load import load_flow, run_dir
from onceover.positions.index import read_map
from onceover.wiring.flows import open_clusters

_FOLDER: Final = "rebuilt"


def rebuild(args: argparse.Namespace) -> CommandResult:
    """Write the table beside the old one, then swap them. Do not run it while the flow copies."""
    # Arrow takes a third of a second to load: not for every other command.
    import pyarrow.parquet as pq

    from onceover.spark import receipts

    flow = load_flow(args.flow)
    table = run_dir(flow) / "receipts"
    fresh = table.with_name("receipts.new")
    shutil.rmtree(fresh, ignore_errors=True)
    (fresh / _FOLDER).mkdir(parents=True)
    rows = records = 0
    source, target = open_clusters(flow)
    with (
        source,
        target,
        pq.ParquetWriter(fresh / _FOLDER / "receipts.parquet", receipts.ARROW_SCHEMA) as writer,
    ):
        for group in read_map(target, flow.flow):
            if group:
                writer.write_batch(receipts.rows(flow.flow, group, transactions=0))
                rows += len(group)
                records += sum(record.records for record in group)
    shutil.rmtree(table, ignore_errors=True)
    fresh.replace(table)
    document = {"flow": flow.flow, "path": str(table), "map_records": rows, "records": records}
    return CommandResult(document, f"{table}: {records} records in {rows} transactions and partitions")
