"""Resolve how a cluster is reached, in the process that connects.

The result holds secrets. It shows none when printed or logged and refuses to be pickled, so that
it cannot travel through Spark: workers resolve their own.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from onceover.config.clients.clusterspec import ClusterSpec
from onceover.config.clients.connection import NotGiven, read_connection, variable_of
from onceover.config.clients.keys import shown_client_key, shown_value
from onceover.config.clients.rules import check_properties
from onceover.config.codes import ConfigCode
from onceover.config.document import parse_yaml, substitute
from onceover.config.faults import BadConfig, Fault, Invalid
from onceover.config.home import variables
from onceover.config.properties import parse_properties
from onceover.kafka.link.login import Login

log = logging.getLogger(__name__)

# Room for a long chain of certificates as PEM text; anything larger is the wrong file.
_MAX_CLIENT_FILE_BYTES: Final = 1 << 20
_NO_KEY: Final = (
    "write a key that docs/flow-file.md lists; of a certificate or a private key name the file: "
    "ssl.certificate.location, ssl.key.location"
)
# Where engines of containers mount secrets, on an ordinary machine nobody but root can put anything.
MOUNTED_SECRETS: Final = Path("/run/secrets")


class Properties(Mapping[str, str]):
    """Checked librdkafka keys; reads like a dict, prints without secrets."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Properties({self.redacted()})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "client properties hold secrets and do not travel: call resolve_client where they are used"
        )

    def redacted(self) -> dict[str, str]:
        """Return the keys with ``***`` in place of every secret."""
        return {key: shown_value(key, value) for key, value in self._values.items()}


@dataclass(frozen=True)
class ClientConfig:
    """How to reach one cluster. ``str`` and ``repr`` show no secret."""

    alias: str
    properties: Mapping[str, str]
    login: Login = field(default_factory=Login, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", Properties(self.properties))

    def redacted(self) -> dict[str, str]:
        """Return the client's keys for logs and reports, secrets as ``***``."""
        return {key: shown_value(key, value) for key, value in self.properties.items()}


class FileClient(ClientConfig):
    """A client whose file is read anew when it has changed: passwords are replaced while a flow runs.

    A file that is not in order at the moment changes nothing, is said once, and is looked at again each time:
    what was the matter may pass without another word in it, as a mode does.
    """

    def __init__(self, alias: str, path: Path, read: Callable[[], Mapping[str, str]]) -> None:
        stamp = _stamp(path)
        own = {"alias": alias, "login": Login(), "_path": path, "_read": read, "_said": None}
        for name, value in own.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_known", (stamp, Properties(read())))

    @property
    def properties(self) -> Mapping[str, str]:  # pyrefly: ignore[bad-override]  # frozen: nobody sets it
        """The keys as they stand in the file now, all of one version of it."""
        stamp, found = self._known
        # Before the file is read: a change behind this look is seen by the next one.
        now = _stamp(self._path)
        if now != stamp:
            try:
                found = Properties(self._read())
            except BadConfig as error:
                self._say(str(error))
            else:
                object.__setattr__(self, "_known", (now, found))
                object.__setattr__(self, "_said", None)
        return found

    def _say(self, problem: str) -> None:
        if problem != self._said:
            log.warning("the changed client file is not in order; the last good one stays: %s", problem)
            object.__setattr__(self, "_said", problem)

    def __reduce__(self) -> NoReturn:
        self._known[1].__reduce__()

    _path: Path
    _read: Callable[[], Mapping[str, str]]
    _known: tuple[object, Properties]
    _said: str | None


def _stamp(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    # The inode, too: a mounted secret is replaced by a link to another file, of any age.
    return status.st_mtime_ns, status.st_size, status.st_ino


def resolve_client(
    spec: ClusterSpec, *, where: str, environ: Mapping[str, str] | None = None
) -> ClientConfig:
    """Read and check the client of ``spec``; that of a client file follows what is written there later.

    Parameters:
        where: named in messages, e.g. ``flights-dr.yaml: source``.
        environ: read instead of the process's environment.

    Raises:
        UsageError: every fault in one error: variable or Connection missing, client file not
            private, a key refused, keys that contradict each other. No message shows a value.
    """
    environment = variables(environ)
    if spec.client_file is not None:
        return FileClient(spec.alias, spec.client_file, lambda: _checked(spec, where, environment))
    return ClientConfig(spec.alias, _checked(spec, where, environment))


def literal_client(alias: str, values: Mapping[str, str], *, where: str) -> ClientConfig:
    """Check the client of keys that somebody else has chosen, such as a connector's: nothing in them is read
    as one of our variables.

    Raises:
        UsageError: as :func:`resolve_client`.
    """
    return ClientConfig(alias, _in_order(values, where, "client"))


def _checked(spec: ClusterSpec, where: str, environment: Mapping[str, str]) -> dict[str, str]:
    origin = _origin(spec)
    try:
        raw = _read(spec, environment)
    except Invalid as error:
        code = ConfigCode.NO_CONNECTION if isinstance(error, NotGiven) else ConfigCode.BAD_CONFIG
        fault = Fault(where, origin, error.problem, error.fix, code=code)
    else:
        return _in_order(raw, where, origin)
    # Outside the handler: an exception's context must not carry text from the client's file.
    raise BadConfig([fault])


def _in_order(raw: Mapping[str, Any], where: str, origin: str) -> dict[str, str]:
    checked, faults = check_properties(raw)
    if not faults:
        return checked
    raise BadConfig(
        Fault(where, f"{origin}: {shown_client_key(key) or '…'}", problem, fix)
        for key, problem, fix in faults
    )


def _origin(spec: ClusterSpec) -> str:
    if spec.connection is not None:
        return f"connection {spec.connection} ({variable_of(spec.connection)})"
    return f"client_file {spec.client_file}" if spec.client_file is not None else "client"


def _read(spec: ClusterSpec, environ: Mapping[str, str]) -> dict[str, Any]:
    if spec.connection is not None:
        return read_connection(spec.connection, environ)
    if spec.client_file is not None:
        return _read_client_file(spec.client_file)
    return {key: substitute(value, environ) for key, value in (spec.client or {}).items()}


def _read_client_file(path: Path) -> dict[str, Any]:
    text = _read_private(path)
    if path.suffix in (".yaml", ".yml"):
        document, faults = parse_yaml(text, str(path), as_written=lambda _: True)
        if faults or document is None:
            fault = faults[0]
            raise Invalid(f"line {fault.line or 1}: {fault.problem}", fault.fix)
        for key in document.data:
            _check_key(key, document.line_of((key,)))
        return document.data
    if path.suffix != ".properties":
        raise Invalid("the file is neither .yaml nor .properties", "rename it after what it holds")
    values: dict[str, Any] = {}
    for key, value, line in parse_properties(text):
        _check_key(key, line)
        if key in values:
            raise Invalid(f"line {line}: {shown_client_key(key)} is given twice", "remove one")
        values[key] = value
    return values


def _check_key(key: str, line: int | None) -> None:
    """Refuse what no client has as a key: it may be a part of a secret, and is not repeated."""
    if shown_client_key(key) is None:
        raise Invalid(f"line {line}: begins with no key of a client", _NO_KEY)


def _read_private(path: Path) -> str:
    """Read a file of secrets. What was checked is what is read: both use one descriptor."""
    try:
        # Non-blocking: opening a FIFO would otherwise wait for a writer before it can be refused.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            check_private(os.fstat(descriptor), path)
            with open(descriptor, "rb", closefd=False) as stream:
                content = stream.read(_MAX_CLIENT_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Invalid(f"cannot be read: {error.strerror}", "check the path and who owns the file") from None
    if len(content) > _MAX_CLIENT_FILE_BYTES:
        raise Invalid("is larger than 1 MiB", "name the file that holds the client keys")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Invalid("is not UTF-8 text", "save it as UTF-8") from None


def check_private(status: os.stat_result, path: Path) -> None:
    """Look whether a file of secrets is its owner's alone, as far as that is in anybody's hand.

    One that is root's may be read by its group, as libpq has it: another user can be let in by nothing else,
    and Kubernetes lets a pod's user in by its group. What is mounted below ``/run/secrets`` may be read by
    all: an engine without swarm mounts files with the mode and the owner that they have, whatever the user in
    the container is, and nobody else is in there.

    Raises:
        Invalid: somebody else may change it, or may read it for no such reason; or it is no file.
    """
    if not stat.S_ISREG(status.st_mode):
        raise Invalid("is not a regular file", "name a file that holds the client keys")
    allowed = 0o640 if status.st_uid == 0 else 0o600
    if path.resolve().is_relative_to(MOUNTED_SECRETS):
        allowed = 0o644
    mode = stat.S_IMODE(status.st_mode)
    if mode & ~allowed:
        raise Invalid(
            f"has mode {mode:04o}, so others may read or change its secrets",
            f"run: chmod 600 {path}; or, as a secret of its container, mount it below {MOUNTED_SECRETS}",
        )
