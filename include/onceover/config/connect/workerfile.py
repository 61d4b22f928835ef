"""What a Connect worker's own configuration says about topics, group and guarantees. Pure.

Only what a migration depends on is read; a worker's file has a hundred other keys, which are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from onceover.config import values
from onceover.config.faults import Invalid
from onceover.config.mirrormaker.mm2_security import ENV_PROVIDER, translate_client

_TOPIC: Final = values.matching(
    re.compile(r"[A-Za-z0-9._-]{1,249}"), "not a topic's name", "as in the workers' own file"
)
_GROUP: Final = values.text
_SUPPORT: Final = values.choice("disabled", "preparing", "enabled")
_EXACTLY_ONCE: Final = "exactly.once.source.support"
# Every partition of an offsets topic is read at each start of a worker: thousands are a typing error.
_PARTITIONS: Final = values.whole(1, 10_000)
_FLUSH: Final = values.whole(1, 86_400_000)


def _replication(text: str) -> int:
    """Return the factor; -1 takes the broker's default, as Connect does."""
    return -1 if text.strip() == "-1" else int(values.whole(1, 100)(text.strip()))


def _lower(parse: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: parse(text.strip().lower())


def _stripped(parse: Callable[[str], object]) -> Callable[[str], object]:
    return lambda text: parse(text.strip())


# Keys that are read, each with what checks its value.
WORKER_KEYS: Final[Mapping[str, Callable[[str], object]]] = {
    "group.id": _stripped(_GROUP),
    "offset.storage.topic": _stripped(_TOPIC),
    "config.storage.topic": _stripped(_TOPIC),
    "status.storage.topic": _stripped(_TOPIC),
    _EXACTLY_ONCE: _lower(_SUPPORT),
    "offset.storage.partitions": _stripped(_PARTITIONS),
    "offset.storage.replication.factor": _replication,
    "offset.flush.interval.ms": _stripped(_FLUSH),
}
_REQUIRED: Final = ("group.id", "offset.storage.topic", "config.storage.topic")
# How a client authenticates; the rest of a worker's file is about other things.
_CLIENT_KEYS: Final = re.compile(r"bootstrap\.servers|security\.protocol|sasl\..*|ssl\..*")
# Without these a client cannot stand in for the worker's; tuning may be left out. With no protocol, one that
# is none, it would go unprotected.
_NEEDED: Final = re.compile(
    r"security\.protocol|sasl\.jaas\.config(\.tokenauth)?|ssl\.(truststore|keystore)\..*|ssl\.key\.password"
)
_PROVIDER: Final = "refers to a config provider"
_REFERENCE: Final = "${"
_LOGIN_FILES: Final = {
    "ssl.certificate.location": "ssl.keystore.location",
    "sasl.kerberos.keytab": "sasl.jaas.config",
}
_ON_WORKERS: Final = "names a file of the workers' machines that it logs in with"


@dataclass(frozen=True)
class WorkerSettings:
    """What all workers of a Connect cluster have in common.

    Args:
        group_id: their group, and the beginning of their tasks' transactional ids.
        offsets_topic: where source offsets of all connectors are, the global topic.
        config_topic: where connectors and tasks are; ``status_topic`` where their states are, if known.
        exactly_once: ``exactly.once.source.support`` is ``enabled``; ``preparing`` is not.
    """

    group_id: str
    offsets_topic: str
    config_topic: str
    status_topic: str | None
    exactly_once: bool


def worker_settings(properties: Mapping[str, str]) -> WorkerSettings:
    """Return the settings of properties that are in order."""
    return WorkerSettings(
        group_id=properties["group.id"],
        offsets_topic=properties["offset.storage.topic"],
        config_topic=properties["config.storage.topic"],
        status_topic=properties.get("status.storage.topic"),
        exactly_once=properties.get(_EXACTLY_ONCE) == "enabled",
    )


def check_worker(properties: Mapping[str, str]) -> tuple[dict[str, str], list[tuple[str, Invalid]]]:
    """Return the properties with the keys that are read in normal form, and what is wrong, by key.

    No message shows a value. What is not given stays so: Connect's defaults are looked at nowhere.
    """
    checked = dict(properties)
    faults = [
        (key, Invalid("is required", f"add {key}, as in the workers' own file"))
        for key in _REQUIRED
        if key not in properties
    ]
    for key, parse in WORKER_KEYS.items():
        if key not in properties:
            continue
        try:
            checked[key] = str(parse(properties[key]))
        except Invalid as error:
            faults.append((key, error))
    return checked, faults


def client_of(
    alias: str, properties: Mapping[str, str], *, ours: bool
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the librdkafka keys that stand in for a worker's or connector's own client settings.

    The second part names Java keys that cannot be read here and without which no connection is likely:
    Java key stores, secrets that a config provider holds.

    Args:
        ours: they are a file's that somebody has named here, and ``${env:NAME}`` in it is one of our
            variables. In a connector's it is one of the workers': whoever may write one names the servers as
            well, and would be sent what our environment holds.
    """
    java = {key: value for key, value in properties.items() if _CLIENT_KEYS.fullmatch(key)}
    theirs = {} if ours else {key: value for key, value in java.items() if _REFERENCE in value}
    known = {key: value for key, value in java.items() if key not in theirs}
    translated = translate_client(alias, known, literal=True)
    dropped = [*translated.dropped, *((key, f"{_PROVIDER} of the workers") for key in theirs)]
    missing = [
        (key, reason) for key, reason in dropped if _NEEDED.fullmatch(key) or reason.startswith(_PROVIDER)
    ]
    return translated.client, missing


def logins_in_files(role: str, connector: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the Java keys with which a connector's own settings log in by a file, and why that is not read.

    It lies on the workers' machines. At the same place here may be somebody else's key, and who may write a
    connector would have Onceover log in with it, where they say.
    """
    client, _ = client_of("connector", role_properties({}, role, connector), ours=False)
    return [(java, _ON_WORKERS) for key, java in _LOGIN_FILES.items() if key in client]


def with_variables(worker: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return a worker's settings with each ``${env:NAME}`` read that is set, before anything of others' is
    laid over them."""
    return {
        key: ENV_PROVIDER.sub(lambda found: environ.get(found[1], found[0]), value)
        for key, value in worker.items()
    }


def principal_of(client: Mapping[str, str]) -> str | None:
    """Return how brokers name the owner of these librdkafka keys, None where a certificate says it."""
    protocol = client.get("security.protocol", "PLAINTEXT").upper()
    if protocol == "PLAINTEXT":
        return "User:ANONYMOUS"
    name = client.get("sasl.username") if protocol.startswith("SASL_") else None
    return f"User:{name}" if name else None


def role_properties(worker: Mapping[str, str], role: str, connector: Mapping[str, str]) -> dict[str, str]:
    """Return the Java settings of a connector's own ``producer``, ``consumer`` or ``admin`` client.

    As Connect layers them (KIP-458): the worker's, those with the role's prefix, the connector's overrides.
    """
    own, override = f"{role}.", f"{role}.override."
    return {
        **{key: value for key, value in worker.items() if _CLIENT_KEYS.fullmatch(key)},
        **{key[len(own) :]: value for key, value in worker.items() if key.startswith(own)},
        **{key[len(override) :]: value for key, value in connector.items() if key.startswith(override)},
    }
