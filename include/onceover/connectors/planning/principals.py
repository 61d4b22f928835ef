"""What a connector's own clients may do with the topic that it is to use, asked before anything is stopped.

Brokers say of nobody but the one who asks what he may do. So each client is asked as itself where its login
can be read here, and looked up in the cluster's ACLs otherwise; what neither tells is said in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final

from onceover.connectors.planning.access import OffsetsTopic
from onceover.connectors.rights import may_on_new_topic, named_principal
from onceover.connectors.settings import RoleClient
from onceover.errors import OnceoverError
from onceover.kafka.admin.acls import ALLOW, DENY, EVERY_TOPIC, PREFIXED, Acl, AclAdmin, NoAuthorizer
from onceover.kafka.admin.topicfacts import topic_facts
from onceover.kafka.codes import KafkaCode
from onceover.kafka.ports import ClientSettings, Cluster
from onceover.planning.plan import Refusal

# Librdkafka keys and values, sorted.
Login = tuple[tuple[str, str], ...]
OpenAs = Callable[[ClientSettings], Cluster]
# Of each client, what tasks fail without: to commit offsets, to read them, to find the topic's end.
_NEEDS: Final[Mapping[str, str]] = {"producer": "WRITE", "consumer": "READ", "admin": "DESCRIBE"}
_IMPLIES_DESCRIBE: Final = ("READ", "WRITE", "DELETE", "ALTER")
# Workers may be the only ones who reach their brokers by the addresses in their configuration.
_PATIENCE_S: Final = 5.0


@dataclass(frozen=True)
class Rights:
    """What is known of a connector's clients: what they lack, and what nobody can tell here."""

    refusals: tuple[Refusal, ...] = ()
    doubts: tuple[str, ...] = ()


def connector_rights(
    connector: str,
    site: OffsetsTopic,
    clients: list[RoleClient],
    silent: MutableMapping[Login, str],
    open_as: OpenAs,
) -> Rights:
    """Return whether a connector's own clients may use a topic. Changes nothing.

    Args:
        site: the topic, whether it exists or not; reached as ourselves.
        clients: of the connector.
        silent: why logins cannot be used here, as far as it was tried: none is tried twice.
        open_as: reaches the cluster as one of these clients.
    """
    try:
        acls = AclAdmin(site.cluster).topic_acls()
    except NoAuthorizer:
        return Rights()
    except OnceoverError:
        acls = frozenset()
    refusals, doubts = [], {}
    for client in clients:
        may, reason = _asked(client, site.topic, silent, open_as)
        if may is None and client.principal is not None:
            may = may_by_acls(acls, client.principal, _NEEDS[client.role], site.topic)
        if may is None:
            doubts[client.role] = reason
        elif not may:
            refusals.append(_refusal(connector, client, site))
    return Rights(tuple(refusals), tuple(_doubt(site, doubts)))


def may_by_acls(acls: frozenset[Acl], principal: str, operation: str, topic: str) -> bool | None:
    """Tell what a cluster's ACLs say of one operation; None where they do not settle it.

    A principal without any ACL of its own may be a super user, who needs none; and a topic that no ACL
    speaks of may be everybody's (``allow.everyone.if.no.acl.found``).
    """
    spoken_of = [acl for acl in acls if _covers(acl, topic)]
    here = [acl for acl in spoken_of if acl.principal in (principal, "User:*")]
    granting = {operation, "ALL", *(_IMPLIES_DESCRIBE if operation == "DESCRIBE" else ())}
    if any(a.permission == DENY and a.host == "*" and a.operation in (operation, "ALL") for a in here):
        return False
    if any(acl.permission == ALLOW and acl.operation in granting for acl in here):
        return True
    return False if spoken_of and any(acl.principal == principal for acl in acls) else None


def _covers(acl: Acl, topic: str) -> bool:
    if acl.pattern == PREFIXED:
        return topic.startswith(acl.name)
    return acl.name in (topic, EVERY_TOPIC)


def _asked(
    client: RoleClient, topic: str, silent: MutableMapping[Login, str], open_as: OpenAs
) -> tuple[bool | None, str]:
    """Ask as the client itself; return what it may, or why that is not known."""
    if client.settings is None:
        return None, client.reason
    login = tuple(sorted(client.settings.properties.items()))
    if login in silent:
        return None, silent[login]
    whole = open_as(client.settings)
    try:
        with whole, whole.hasty(_PATIENCE_S) as cluster:
            return _may(cluster, topic, _NEEDS[client.role]), ""
    except OnceoverError as error:
        who = client.principal or named_principal(client.settings)
        silent[login] = f"asking as {who} failed: {error.message}"
        return None, silent[login]


def _may(cluster: Cluster, topic: str, operation: str) -> bool:
    try:
        exists = topic in cluster.retry(lambda: cluster.topics([topic]))
        if exists:
            return operation in cluster.retry(lambda: topic_facts(cluster, topic)).operations
    except OnceoverError as error:
        if error.code == KafkaCode.NOT_AUTHORIZED:
            return False
        raise
    # Who may not even describe it was told so.
    return operation == "DESCRIBE" or may_on_new_topic(cluster, topic, operation)


def _refusal(connector: str, client: RoleClient, site: OffsetsTopic) -> Refusal:
    who = f"its {client.role} ({client.principal or 'whose principal its login tells'})"
    return Refusal(
        connector,
        KafkaCode.NOT_AUTHORIZED,
        f"{who} may not {_NEEDS[client.role]} topic {site}: it would fail with its offsets there",
        "grant it; `connectors acls` lists what every principal needs",
    )


def _doubt(site: OffsetsTopic, reasons: Mapping[str, str]) -> Iterator[str]:
    if reasons:
        clients, why = " and ".join(reasons), "; ".join(dict.fromkeys(reasons.values()))
        yield (
            f"whether its {clients} may use {site} is not known here ({why}): "
            "`connectors acls` lists what they need"
        )
