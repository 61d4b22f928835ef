"""SASL GSSAPI: Kerberos logins, through the machine's MIT Kerberos (the extra ``kerberos``).

Invariant: tickets are got, and got anew before they run out, with the keytab as it is then: nothing runs out
while a flow runs, and a keytab may be replaced. They are kept in memory: no KDC is asked for each login.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

from kafka.net.sasl.gssapi import SaslMechanismGSSAPI

from onceover.errors import OnceoverError, Retriable, UsageError
from onceover.kafka.codes import KafkaCode

MECHANISM: Final = "GSSAPI"
_SERVICE: Final = "kafka"
# KRB5KDC_ERR_SVC_UNAVAILABLE, KRB5_KDC_UNREACH, KRB5_REALM_CANT_RESOLVE, as signed 32-bit numbers.
_KDC_AWAY: Final = frozenset({-1765328355, -1765328228, -1765328230})
_BITS: Final = 32


class KerberosLogin(SaslMechanismGSSAPI):
    """One login at a broker.

    Args:
        properties: librdkafka keys: service name, principal and keytab.
        host: of the broker, as the client reaches it; its service has a principal for it.

    Raises:
        UsageError: the extra is not installed, or Kerberos refuses us.
        Retriable: no KDC answers.
    """

    def __init__(self, properties: Mapping[str, str], host: str) -> None:
        gssapi = _library()
        service = f"{properties.get('sasl.kerberos.service.name', _SERVICE)}@{host}"
        try:
            target = gssapi.Name(service, gssapi.NameType.hostbased_service)
            self.gssapi_name = target.canonicalize(gssapi.MechType.kerberos)
            # Brokers compare it with whom the ticket is for.
            self.auth_id = ""
            self._is_done = self._is_authenticated = False
            self._client_ctx = gssapi.SecurityContext(
                name=self.gssapi_name,
                creds=_credentials(gssapi, properties),
                mech=gssapi.MechType.kerberos,
                usage="initiate",
            )
            self._next_token = self._client_ctx.step(None)
        except gssapi.exceptions.GSSError as error:
            raise _refused(service, error) from error


def _credentials(gssapi: Any, properties: Mapping[str, str]) -> Any:
    """Return whom the configuration names, out of its keytab; without one, whoever has a ticket."""
    principal, keytab = properties.get("sasl.kerberos.principal"), properties.get("sasl.kerberos.keytab")
    name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
    # Not the machine's cache, which is somebody else's; one for all logins of this process.
    store = {"client_keytab": keytab, "ccache": f"MEMORY:onceover-{principal}"} if keytab else None
    return gssapi.Credentials(name=name, usage="initiate", store=store)


def _library() -> Any:
    try:
        return importlib.import_module("gssapi")
    except ImportError as error:
        raise UsageError(
            "Kerberos logins need the package gssapi, which is not installed",
            code=KafkaCode.NO_KERBEROS,
            seen=str(error),
            resolve="install onceover[kerberos], on Spark's executors, too; it is built against MIT Kerberos "
            "(libkrb5-dev on Debian)",
        ) from error


def _refused(service: str, error: Any) -> OnceoverError:
    """Tell a KDC that is away from one that says no."""
    minor = error.min_code - (1 << _BITS) if error.min_code >= 1 << (_BITS - 1) else error.min_code
    if minor in _KDC_AWAY:
        return Retriable(
            "no Kerberos ticket: no KDC answers",
            where=service,
            seen=str(error),
            resolve="check that the KDC of krb5.conf is up, then run again",
        )
    return UsageError(
        "no Kerberos ticket",
        code=KafkaCode.NO_TICKET,
        where=service,
        seen=str(error),
        resolve="check sasl.kerberos.principal, .keytab and .service.name, krb5.conf, and that the service "
        "has a principal for this host",
    )
