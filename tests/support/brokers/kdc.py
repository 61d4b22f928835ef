"""A real KDC (MIT Kerberos) on loopback, with files of its own: the machine's are left alone."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from onceover_lab.embed.ports import LOOPBACK, PortReservation
from tests.support.session.wait import wait_until

REALM = "ONCEOVER.TEST"
_START_S = 30.0
_CLIENT = """\
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
ticket_lifetime = {life}
[realms]
{realm} = {{
  kdc = {host}:{port}
}}
"""
_SERVER = """\
[realms]
{realm} = {{
  database_name = {home}/principal
  key_stash_file = {home}/stash
  kdc_listen = {host}:{port}
  kdc_tcp_listen = {host}:{port}
}}
"""


@dataclass(frozen=True)
class Kdc:
    """A running one. Two krb5.conf lead to it: tickets of clients end soon, those of brokers do not."""

    home: Path
    client_config: Path
    broker_config: Path
    environ: dict[str, str]

    def add(self, principal: str, keytab: str) -> Path:
        """Create a principal with new keys, which are put into a key table."""
        path = self.home / keytab
        self._admin(f"addprinc -randkey {principal}")
        self.renew(principal, path)
        return path

    def renew(self, principal: str, keytab: Path) -> None:
        """Give a principal new keys: the old ones are not valid any more."""
        self._admin(f"ktadd -k {keytab} {principal}")

    def _admin(self, command: str) -> None:
        tool = _tool("kadmin.local")
        subprocess.run([tool, "-r", REALM, "-q", command], env=self.environ, check=True, capture_output=True)


def _tool(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        raise FileNotFoundError(f"{name}: run scripts/kerberos")
    return found


@contextmanager
def running_kdc(home: Path) -> Iterator[Kdc]:
    """Let one serve while the block runs."""
    home.mkdir(parents=True)
    reservation = PortReservation()
    values = {"realm": REALM, "host": LOOPBACK, "port": reservation.port, "home": home}
    client, broker, server = (home / name for name in ("krb5.conf", "broker.conf", "kdc.conf"))
    client.write_text(_CLIENT.format(life="10s", **values))
    broker.write_text(_CLIENT.format(life="1d", **values))
    server.write_text(_SERVER.format(**values))
    environ = {**os.environ, "KRB5_CONFIG": str(client), "KRB5_KDC_PROFILE": str(server)}
    create = [_tool("kdb5_util"), "-r", REALM, "create", "-s", "-P", "of-this-test"]
    subprocess.run(create, env=environ, check=True, capture_output=True)
    process = subprocess.Popen([_tool("krb5kdc"), "-n", "-r", REALM], env=environ)
    try:
        wait_until(lambda: _answers(reservation.port), _START_S, "the KDC answers")
        yield Kdc(home, client, broker, environ)
    finally:
        process.terminate()
        process.wait()
        reservation.release()


def _answers(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), 1).close()
    except OSError:
        return False
    return True
