"""The folders of a flow's audits: the evidence of the last ones.

Invariant: only an audit that wrote something counts, and makes an older one go. Contents of records are in
none that Airflow's web server shows.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from onceover.audit.codes import AuditCode
from onceover.audit.report.unwritten import unwritten
from onceover.clock import stamp

# What is below the first is served to everybody who is logged in to Airflow, as drills' reports are.
_SERVED: Final = "audit"
_WITH_PAYLOAD: Final = "audit-payload"
_SHOWN: Final = frozenset({_SERVED, "drills"})
_KEEP_RUNS: Final = 10
_ANSWER: Final = "answer.json"
_ANSWERED: Final = ("verdict", "started_ms", "since", "topics", "complete")


def runs_folder(flow_home: Path, *, show_payload: bool) -> Path:
    """Return where the folders of a flow's audits are: those that show contents of records lie apart.

    Args:
        flow_home: ``ONCEOVER_HOME/<flow>``.
    """
    return flow_home / (_WITH_PAYLOAD if show_payload else _SERVED)


def is_served(path: Path, home: Path) -> bool:
    """Tell whether a file would be shown to everybody who is logged in to Airflow.

    Args:
        home: ``ONCEOVER_HOME``.
    """
    found, base = path.resolve(), home.resolve()
    # Of any flow: the folder's name is what the web server goes by.
    return found.is_relative_to(base) and bool(_SHOWN & {*found.relative_to(base).parts[1:2]})


@contextmanager
def run_folder(runs: Path) -> Iterator[Path]:
    """Make a folder for the files of one audit, and remove those of old ones.

    A folder into which nothing was written is removed at the end, however that comes.

    Args:
        runs: where the folders of all audits of the flow are; it is made where it is not there.
    """
    runs.mkdir(parents=True, exist_ok=True)
    _forget_old(runs)
    made = runs / f"{stamp()}-{secrets.token_hex(3)}"
    made.mkdir()
    try:
        yield made
    finally:
        if _is_empty(made):
            made.rmdir()


def keep_answer(made: Path, told: Mapping[str, Any]) -> None:
    """Write beside an audit's report what the next audits say of it.

    Raises:
        UsageError: it cannot be written.
        NeedsOperator: there is no room for it.
    """
    path = made / _ANSWER
    try:
        path.write_text(json.dumps({name: told[name] for name in _ANSWERED}), encoding="utf-8")
    except OSError as error:
        raise unwritten(AuditCode.REPORT, "answer for later reports", path, told, error) from error


def earlier_audits(made: Path, html: Path) -> list[dict[str, Any]]:
    """Return what earlier audits of the flow answered, the newest first, and where their reports are.

    Args:
        made: folder of this one; ``html`` where its report will be: what is linked from there is no path.
    """
    found = []
    beside = html.absolute().parent == made.absolute()
    for run in sorted((path for path in made.parent.iterdir() if path.name < made.name), reverse=True):
        try:
            told = json.loads((run / _ANSWER).read_text(encoding="utf-8"))
            answer = {name: told[name] for name in _ANSWERED}
        except (OSError, ValueError, LookupError, TypeError):
            # Of an older release, of one that has ended early, or no audit's at all.
            continue
        page = run / "report.html"
        link = f"../{run.name}/{page.name}" if beside and page.is_file() else None
        found.append({**answer, "run": run.name, "link": link})
    return found


def _forget_old(runs: Path) -> None:
    """Leave the newest audits that wrote something, and room for one more.

    An empty folder belongs to an audit that runs now, or to one that was killed: it goes once it is older
    than all that are kept.
    """
    found = sorted(path for path in runs.iterdir() if path.is_dir())
    kept = [path for path in found if not _is_empty(path)][1 - _KEEP_RUNS :]
    if len(kept) == _KEEP_RUNS - 1:
        for old in found[: found.index(kept[0])]:
            shutil.rmtree(old)


def _is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())
