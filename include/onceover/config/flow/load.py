"""Find, read and check flow files. All faults of a file come in one error, one line each."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from onceover.config import values
from onceover.config.faults import BadConfig, Fault
from onceover.config.files import FLOW_FILES, by_line
from onceover.config.flow.check import check_document
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.namesakes import NameClash, clash_of, name_said
from onceover.config.home import onceover_home, variables
from onceover.errors import UsageError

log = logging.getLogger(__name__)


def load_flow(ref: str | Path, *, environ: Mapping[str, str] | None = None) -> Flow:
    """Return the flow that ``ref`` names, as ``locate_flow`` has it.

    Connections and client files are not opened: that happens where the flow connects.

    Raises:
        UsageError: the file is missing or not in order; every fault has a line of its own. Or it was named by
            its stem, and another file of the directory is the flow's.
    """
    path = locate_flow(ref, variables(environ))
    return load_listed(path, environ) if path.stem == ref else _load(path, environ)


def locate_flow(ref: str | Path, environ: Mapping[str, str]) -> Path:
    """Return the file that ``ref`` names: its path, its stem, or else the flow that it alone says it is.

    Messages, alerts and pages call a flow by its own name, and the commands that they name have to work.

    Raises:
        UsageError: the flows directory cannot be read, or holds no such file, or two of that name.
    """
    try:
        return FLOW_FILES.locate(ref, environ)
    except BadConfig:
        said = [path for path in FLOW_FILES.find(environ) if name_said(path) == ref]
        if len(said) != 1:
            raise
        return said[0]


def is_found(name: str, path: Path) -> bool:
    """Tell whether a flow's name leads to this file."""
    try:
        return locate_flow(name, variables()).samefile(path)
    except (UsageError, OSError):
        return False


def load_listed(path: Path, environ: Mapping[str, str] | None = None) -> Flow:
    """Return the flow of one of ``listed_flow_files``, as if its stem had been named.

    Raises:
        UsageError: as ``load_flow``, or nobody could name the file.
    """
    if not values.NAME.fullmatch(path.stem):
        fault = Fault(str(path), "", "its name cannot be a flow's", f"rename it: {values.NAME_RULE}")
        raise BadConfig([fault])
    clash = listed_clash(path, environ)
    if clash is not None and clash.is_refused:
        raise clash.error()
    return _load(path, environ)


def _load(path: Path, environ: Mapping[str, str] | None) -> Flow:
    content, document, faults = FLOW_FILES.read(path)
    data, found = check_document(document, path, variables(environ))
    faults = by_line(faults + found)
    if faults:
        raise BadConfig(faults)
    return Flow.model_validate({**data, "path": path, "sha256": hashlib.sha256(content).hexdigest()})


def listed_clash(path: Path, environ: Mapping[str, str] | None = None) -> NameClash | None:
    """Return which files of the flows directory say the same name as ``path``, where that is one of them.

    None where nobody can read the directory: that is for those to say who look for files in it.
    """
    try:
        files = FLOW_FILES.find(variables(environ))
    except UsageError:
        return None
    return clash_of(path, files) if path in files else None


def say_clash(flow: Flow) -> None:
    """Say in the log that another file of the flows directory is for the flow that is being started."""
    clash = listed_clash(flow.path)
    if clash is not None:
        log.warning("%s", clash.error())


def read_keys(path: Path) -> dict[str, Any]:
    """Return a flow file's keys as they are written, unchecked.

    Raises:
        UsageError: it cannot be read, or is no YAML that a flow file may be.
    """
    return FLOW_FILES.read(path)[1].data


def flows_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return ``ONCEOVER_FLOWS``, else ``flows`` beside the installed package."""
    return FLOW_FILES.directory(variables(environ))


def find_flow_files(environ: Mapping[str, str] | None = None) -> list[Path]:
    """Return the flow files of the flows directory by name; an absent one has none, unless it was named.

    Raises:
        UsageError: the directory cannot be read, or ``ONCEOVER_FLOWS`` names none.
    """
    return FLOW_FILES.find(variables(environ))


def listed_flow_files(environ: Mapping[str, str] | None = None) -> list[Path]:
    """Return them and those whose name nobody could type: for who shows all files, and what is wrong."""
    environment = variables(environ)
    return sorted([*FLOW_FILES.find(environment), *FLOW_FILES.misnamed(environment)])


# In the folder of the flow's runs: who its driver is, for people and for whoever has to find it.
DRIVER_NOTE: Final = "driver.json"


def run_dir(flow: Flow | str, environ: Mapping[str, str] | None = None) -> Path:
    """Return where the files of a flow's runs live: ``ONCEOVER_HOME/<flow>``."""
    return onceover_home(environ) / (flow if isinstance(flow, str) else flow.flow)
