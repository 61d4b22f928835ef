"""The files of one run of a Spark job: what it reports, and what it prints.

Invariant: no two runs write the same file. Two runs of one flow overlap while the newer one takes over, and
each has to be judged by its own words. A report is there as a whole, or it is none.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

from onceover.clock import stamp

log = logging.getLogger(__name__)

# Beside the run that begins: enough to look back on what a night of starts has said.
KEPT_RUNS: Final = 10
# Its list of files is tidied every ten batches of minutes each.
_SPARK_TIDIES_WITHIN_S: Final = 86_400.0
# As long as a report of many topics is.
_REPORT_BYTES: Final = 64 << 10
_RUN: Final = re.compile(r"([a-z]+)-[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")


def own_report(report: Path) -> Path:
    """Return where one run reports: beside ``report``, under a name that tells kind, time and run."""
    return report.with_name(f"{report.stem}-{stamp()}-{uuid.uuid4().hex[:8]}{report.suffix}")


def write_report(path: Path, document: Mapping[str, Any]) -> None:
    """Report, as the last thing that a driver does.

    Where that cannot be done its exit code tells the most of it, and what it has printed the reason.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1), encoding="utf-8")
        # On the same disk, mostly.
        sys.stdout.flush()
    except OSError as error:
        log.error("the report cannot be written: %s", error)  # noqa: TRY400 - no traceback is needed


def read_report(path: Path) -> dict[str, Any] | None:
    """Return what a driver has reported; None where there is nothing, or not the whole of it."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def refused(report: Path) -> str | None:
    """Return why a driver cannot have reported there, in the words of the operating system: a disk is full.

    To be asked before the run's scratch is removed, which makes room again; its JVM may have done so by
    now, and then what it has printed tells (``ended.judge``).

    Returns:
        None where it has reported, or was able to; or there is no folder, as nothing was started.
    """
    if not report.parent.is_dir() or read_report(report) is not None:
        return None
    try:
        with NamedTemporaryFile(dir=report.parent) as file:
            file.write(bytes(_REPORT_BYTES))
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return None


def is_run(name: str) -> bool:
    """Tell whether it is the name of a run, as ``own_report`` makes them, without a suffix."""
    return _RUN.fullmatch(name) is not None


def forget_old_runs(report: Path) -> None:
    """Remove what all but the newest ``KEPT_RUNS`` other runs of the same kind have left beside ``report``.

    Airflow's tasks remove the report that they have read; who is killed does not, and the command line leaves
    report and output for people to read. So each driver that starts looks, whoever has started it.

    Args:
        report: of the run that begins, as ``own_report`` names it; any other name has nothing removed.
    """
    own = _RUN.fullmatch(report.stem)
    if own is None:
        return
    runs: dict[str, list[Path]] = {}
    for path in report.parent.glob("*"):
        name = _RUN.fullmatch(path.stem)
        if name is not None and name[1] == own[1] and path.stem != report.stem:
            runs.setdefault(path.stem, []).append(path)
    # By what was written last, and not by name: a run that lasts for days prints on.
    for old in sorted(runs.values(), key=_written_ns, reverse=True)[KEPT_RUNS:]:
        for path in old:
            path.unlink(missing_ok=True)


def _written_ns(paths: list[Path]) -> int:
    newest = 0
    for path in paths:
        # Another driver that starts may have removed it.
        with suppress(FileNotFoundError):
            newest = max(newest, path.stat().st_mtime_ns)
    return newest


def prune_receipts(folder: Path, kept_s: float, now_s: float | None = None) -> int:
    """Remove receipts of all runs that are older than that, and what is left of runs without any.

    They are a projection of the offset map, which keeps no more: the table is bounded by what is copied in
    that time, however long a flow runs, and however often it was started.

    Args:
        folder: a folder for each run.
        kept_s: as the map's retention. Spark forgets its files after that time, at its next tidying up; only
            a day later they go.
        now_s: seconds since 1970; None for now.

    Returns:
        How many files were removed.
    """
    oldest_s = (time.time() if now_s is None else now_s) - kept_s - _SPARK_TIDIES_WITHIN_S
    removed = 0
    for run in [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []:
        parts = [path for path in run.iterdir() if path.is_file()]
        old = [path for path in parts if path.stat().st_mtime < oldest_s]
        if len(old) == len(parts) and _newest_s(run) < oldest_s:
            shutil.rmtree(run, ignore_errors=True)
        else:
            for path in old:
                path.unlink(missing_ok=True)
        removed += len(old)
    return removed


def _newest_s(run: Path) -> float:
    """Return when something was written to a run's folder last: a run may have had nothing to write yet."""
    return max(path.stat().st_mtime for path in (run, *run.rglob("*")))
