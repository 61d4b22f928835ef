"""Where configuration files are, and reading them. A name is a file's stem in the kind's directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onceover
from onceover.advice import nearest_fix
from onceover.config import values
from onceover.config.document import FLOW_FILE_PAGE, Document, parse_yaml
from onceover.config.faults import BadConfig, Fault

FLOWS_VARIABLE: Final = "ONCEOVER_FLOWS"
CONNECT_VARIABLE: Final = "ONCEOVER_CONNECT"
_SUFFIXES: Final = (".yaml", ".yml")
# A configuration file is a page of text; anything larger is the wrong file.
_MAX_FILE_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class ConfigKind:
    """One kind of configuration files.

    Args:
        noun: what a message calls one, such as ``flow file``.
        variable: environment variable that names the directory.
        folder: name of the directory beside the installed package, where the variable is not set.
        page: of the docs that explains them.
    """

    noun: str
    variable: str
    folder: str
    page: str

    def directory(self, environ: Mapping[str, str]) -> Path:
        """Return where the files of this kind are."""
        named = environ.get(self.variable)
        return Path(named).absolute() if named else Path(onceover.__file__).parent.parent / self.folder

    def find(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the files of the directory by name; where no variable names one, an absent one has none.

        Files whose stem is no valid name are left out: what editors and archives leave behind (``._x.yaml``),
        or what nobody could type.

        Raises:
            UsageError: the directory cannot be read.
        """
        return [path for path in self._files(environ) if values.NAME.fullmatch(path.stem)]

    def misnamed(self, environ: Mapping[str, str]) -> list[Path]:
        """Return those that are left out for their name, hidden ones apart: somebody misses them.

        Raises:
            UsageError: the directory cannot be read.
        """
        files = (path for path in self._files(environ) if not values.NAME.fullmatch(path.stem))
        return [path for path in files if not path.name.startswith(".")]

    def _files(self, environ: Mapping[str, str]) -> list[Path]:
        folder = self.directory(environ)
        try:
            if folder.is_dir():
                return sorted(
                    path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file()
                )
        except OSError as error:
            fix = f"let this user read the directory, or set {self.variable} to another one"
            raise BadConfig([Fault(str(folder), "", f"cannot be read ({error.strerror})", fix)]) from None
        if environ.get(self.variable):
            # A name that was mistyped, or a mount that is gone: without files, all would be in order.
            seen, fix = f"{self.variable} names it, and it is no directory", f"correct {self.variable}"
            raise BadConfig([Fault(str(folder), "", seen, f"{fix}, or see to the directory")])
        return []

    def locate(self, ref: str | Path, environ: Mapping[str, str]) -> Path:
        """Return the file that ``ref`` names: a stem, or a path.

        Raises:
            UsageError: the directory cannot be read, holds no such file (names the nearest one), or two of
                that name.
        """
        if isinstance(ref, Path) or os.sep in ref or ref.endswith(_SUFFIXES):
            return Path(ref).absolute()
        found = self.find(environ)
        files = {path.stem: path for path in found}
        if ref in files:
            self._check_only(ref, [path.name for path in found if path.stem == ref], files[ref])
            return files[ref]
        folder = self.directory(environ)
        raise BadConfig([Fault(str(folder), "", f'holds no {self.noun} "{ref}"', self._meant(ref, files))])

    def _meant(self, ref: str, files: Mapping[str, Path]) -> str:
        here = next((ref + suffix for suffix in _SUFFIXES if os.path.isfile(ref + suffix)), None)
        if here is not None:
            return f"name it by its path: .{os.sep}{here}"
        if files:
            return nearest_fix(ref, files)
        # The folder may be one of an installation, where nobody keeps files.
        return f"name a {self.noun} by its path, or set {self.variable} to its directory"

    def _check_only(self, ref: str, names: list[str], path: Path) -> None:
        if len(names) > 1:
            fault = Fault(
                str(path.parent), "", f'holds "{ref}" twice: {", ".join(names)}', "remove one of them"
            )
            raise BadConfig([fault])

    def read(self, path: Path) -> tuple[bytes, Document, list[Fault]]:
        """Return the file's bytes, its keys, and duplicate keys as faults.

        Raises:
            UsageError: it cannot be read, or is no YAML.
        """
        content = read_bytes(path, self.noun)
        document, faults = parse_yaml(decoded(content, path), str(path), self.page, as_written=_is_login)
        if document is None:
            raise BadConfig(faults)
        return content, document, faults


def read_bytes(path: Path, noun: str) -> bytes:
    """Return the content of a file.

    Raises:
        UsageError: it cannot be read, or is larger than any ``noun``.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        fault = Fault(str(path), "", f"cannot be read: {error.strerror}", f"name a {noun}")
        raise BadConfig([fault]) from error
    if len(content) > _MAX_FILE_BYTES:
        raise BadConfig([Fault(str(path), "", "is larger than 1 MiB", f"name a {noun}")])
    return content


def decoded(content: bytes, path: Path) -> str:
    """Return the text of a file.

    Raises:
        UsageError: it is none.
    """
    try:
        return content.decode()
    except UnicodeDecodeError:
        fault = Fault(str(path), "", "is not UTF-8 text", "save it as UTF-8")
    # Outside the handler: an exception's context would carry the file, which may hold a password.
    raise BadConfig([fault])


def by_line(faults: list[Fault]) -> list[Fault]:
    """Return the faults as they come in the file; of a value that cannot be read, nothing else."""
    first: dict[tuple[int, str, str], Fault] = {}
    for fault in faults:
        # Of the file as a whole there may be several.
        first.setdefault((fault.line or 0, fault.key, "" if fault.key else fault.problem), fault)
    return [first[place] for place in sorted(first)]


def _is_login(path: tuple[str, ...]) -> bool:
    """Tell whether a key is a client's or a login's; a handler's arguments may be called like these."""
    return len(path) > 1 and path[-2] in ("client", "rest_auth") and path[0] != "handler_args"


FLOW_FILES: Final = ConfigKind("flow file", FLOWS_VARIABLE, "flows", FLOW_FILE_PAGE)
CONNECT_FILES: Final = ConfigKind("Connect file", CONNECT_VARIABLE, "connect", "docs/connectors.md")
