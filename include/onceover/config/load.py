"""Find, read and check flow files. All faults of a file come in one error, one line each."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import onceover
from onceover.config.check import check_document
from onceover.config.document import parse_yaml
from onceover.config.faults import BadConfig, Fault, nearest_fix
from onceover.config.flowfile import Flow

FLOWS_VARIABLE: Final = "ONCEOVER_FLOWS"
HOME_VARIABLE: Final = "ONCEOVER_HOME"
_SUFFIXES: Final = (".yaml", ".yml")
# A flow file is a page of text; anything larger is the wrong file.
_MAX_FILE_BYTES: Final = 1 << 20


def load_flow(ref: str | Path, *, environ: Mapping[str, str] | None = None) -> Flow:
    """Return the flow that ``ref`` names: a file's stem in the flows directory, or a path.

    Connections and client files are not opened: that happens where the flow connects.

    Raises:
        UsageError: the file is missing or not in order; every fault has a line of its own.
    """
    environment = os.environ if environ is None else environ
    path = _locate(ref, environment)
    content = _read(path)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise BadConfig([Fault(str(path), "", "is not UTF-8 text", "save it as UTF-8")]) from None
    document, faults = parse_yaml(text, str(path))
    if document is None:
        raise BadConfig(faults)
    data, found = check_document(document, path, environment)
    faults = sorted(faults + found, key=lambda fault: (fault.line or 0, fault.key))
    if faults:
        raise BadConfig(faults)
    return Flow.model_validate({**data, "path": path, "sha256": hashlib.sha256(content).hexdigest()})


def flows_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return ``ONCEOVER_FLOWS``, else ``flows`` beside the installed package."""
    environment = os.environ if environ is None else environ
    named = environment.get(FLOWS_VARIABLE)
    return Path(named).absolute() if named else Path(onceover.__file__).parent.parent / "flows"


def find_flow_files(environ: Mapping[str, str] | None = None) -> list[Path]:
    """Return the flow files of the flows directory by name; an absent directory has none."""
    folder = flows_dir(environ)
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())


def onceover_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return ``ONCEOVER_HOME`` (default ``./var``), absolute: workers run in other directories."""
    environment = os.environ if environ is None else environ
    return Path(environment.get(HOME_VARIABLE) or "var").absolute()


def run_dir(flow: Flow | str, environ: Mapping[str, str] | None = None) -> Path:
    """Return where the files of a flow's runs live: ``ONCEOVER_HOME/<flow>``."""
    return onceover_home(environ) / (flow if isinstance(flow, str) else flow.flow)


def _locate(ref: str | Path, environ: Mapping[str, str]) -> Path:
    if isinstance(ref, Path) or os.sep in ref or ref.endswith(_SUFFIXES):
        return Path(ref).absolute()
    files = {path.stem: path for path in find_flow_files(environ)}
    if ref in files:
        return files[ref]
    folder = flows_dir(environ)
    fix = (
        nearest_fix(ref, files)
        if files
        else f"put a flow file there, or set {FLOWS_VARIABLE} to its directory"
    )
    raise BadConfig([Fault(str(folder), "", f'holds no flow file "{ref}"', fix)])


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            content = stream.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        fault = Fault(str(path), "", f"cannot be read: {error.strerror}", "name a flow file")
        raise BadConfig([fault]) from error
    if len(content) > _MAX_FILE_BYTES:
        raise BadConfig([Fault(str(path), "", "is larger than 1 MiB", "name a flow file")])
    return content
