"""Where the pages of audits and drills are: on disk, and under Airflow's web server."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

PREFIX: Final = "/onceover"
FRAME: Final = "frame.js"
# Folders of a flow's pages, by what they are called in an address.
FOLDERS: Final = {"audits": "audit", "drills": "drills"}
# In the address of a DAG: names the flow that its form is to be opened with.
FLOW_QUERY: Final = "onceover_flow"


def pages_folder(home: Path, kind: str, flow: str, run: str) -> Path:
    """Return where an audit or a drill left its files.

    Args:
        home: ``ONCEOVER_HOME``.
        kind: ``audits`` or ``drills``.
        flow: name of the flow.
        run: name of the audit's or drill's own folder.
    """
    return home / flow / FOLDERS[kind] / run


def page_link(home: Path, page: str | None) -> str:
    """Return the address of a page on Airflow's host, empty where it is none of ours.

    Args:
        home: ``ONCEOVER_HOME``.
        page: path of the file; None for none.
    """
    path = None if page is None else Path(page)
    if path is None or not path.is_relative_to(home):
        return ""
    flow, folder, *rest = path.relative_to(home).parts
    kind = next((kind for kind, name in FOLDERS.items() if name == folder), None)
    if kind is None or len(rest) < 2:
        return ""
    return "/".join((base_path() + PREFIX, kind, flow, *rest))


def base_path() -> str:
    """Return the path of Airflow's own address, without a slash at its end: empty unless it has a prefix."""
    from airflow.configuration import conf

    return urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
