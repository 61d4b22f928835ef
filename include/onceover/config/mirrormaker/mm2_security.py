"""Client settings of Java programs (MirrorMaker 2, Connect) as librdkafka keys. Pure.

A password leaves the file only where the caller says that the keys are used and not written; otherwise
its place is taken by ``${NAME}``, and the name is noted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from onceover.config.clients.keys import ALLOWED, is_secret
from onceover.config.clients.rules import check_properties
from onceover.config.faults import Invalid

PROTOCOL: Final = "security.protocol"
# Same name and meaning in Java and in librdkafka.
_SAME: Final = (
    "bootstrap.servers",
    PROTOCOL,
    "sasl.mechanism",
    "sasl.kerberos.service.name",
    "sasl.oauthbearer.token.endpoint.url",
    "ssl.key.password",
    "client.id",
)
_PEM: Final = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_JAAS: Final = "sasl.jaas.config"
_JAAS_LOGIN: Final = re.compile(r"\s*([\w.]+)\s+(?:required|requisite|sufficient|optional)\b(.*)", re.DOTALL)
_JAAS_OPTION: Final = re.compile(
    r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)
# KIP-342, as Java's login names them.
_EXTENSION: Final = "extension_"
_EXTENSIONS: Final = "sasl.oauthbearer.extensions"
# Of a name: what it names may be one.
SECRET_WORD: Final = re.compile(
    r"password|secret|jaas|token|credential|keystore|truststore|\.key\b|user", re.IGNORECASE
)
_OAUTH_MODULE: Final = "OAuthBearerLoginModule"
_BY_PASSWORD: Final = {"username": "sasl.username", "password": "sasl.password"}
_LOGINS: Final[Mapping[str, Mapping[str, str]]] = {
    "PlainLoginModule": _BY_PASSWORD,
    "ScramLoginModule": _BY_PASSWORD,
    _OAUTH_MODULE: {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    },
    "Krb5LoginModule": {
        "principal": "sasl.kerberos.principal",
        "keyTab": "sasl.kerberos.keytab",
        "serviceName": "sasl.kerberos.service.name",
    },
}
# Of Krb5LoginModule: how Java goes about what the library does by itself, with a keytab or the ticket cache.
_MEANINGLESS: Final = (
    "useKeyTab",
    "storeKey",
    "useTicketCache",
    "renewTGT",
    "refreshKrb5Config",
    "doNotPrompt",
    "isInitiator",
    "debug",
)
_NO_OPTION: Final = "has no counterpart in a flow file"
_OTHER_OPTIONS: Final = {
    "tokenauth": "logs in with a delegation token, which Onceover does not; name a user of its own",
}
# Amazon's own, of the package aws-msk-iam-auth.
_IAM: Final = "AWS_MSK_IAM"
_IAM_MODULE: Final = "IAMLoginModule"
_IAM_FIX: Final = (
    "is Amazon's own login: set sasl.mechanism: OAUTHBEARER, sasl.oauthbearer.method: aws_iam and "
    "sasl.oauthbearer.aws.region"
)
ENV_PROVIDER: Final = re.compile(r"\$\{env:(?:[^:{}]*:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_PROVIDER: Final = re.compile(r"\$\{[^{}]*\}")
_TRUST_FIX: Final = (
    "Java key stores are not read: export with `keytool -exportcert -rfc -keystore FILE -alias NAME "
    "-file ca.pem`, then set ssl.ca.location"
)
_KEY_FIX: Final = (
    "Java key stores are not read: export with `keytool -importkeystore ... -deststoretype PKCS12`, then "
    "`openssl pkcs12 -in FILE -out client.pem`, and set ssl.certificate.location and ssl.key.location"
)


@dataclass
class ClientTranslation:
    """Client keys of one cluster; ``dropped`` holds (Java key, reason) of what was not translated.

    With ``literal`` secrets stay as they are, and the keys may not be shown to anybody.
    """

    literal: bool = False
    client: dict[str, str] = field(default_factory=dict, repr=False)
    variables: dict[str, str] = field(default_factory=dict)
    dropped: list[tuple[str, str]] = field(default_factory=list)


def translate_client(alias: str, java: Mapping[str, str], *, literal: bool = False) -> ClientTranslation:
    """Return the librdkafka keys for the ``java`` client settings of cluster ``alias``.

    Args:
        alias: becomes part of the names of variables.
        literal: keep secrets as they are, for keys that are used in this process and not written.
    """
    result = ClientTranslation(literal=literal)
    for key, value in java.items():
        plain = ENV_PROVIDER.sub(r"${\1}", value)
        is_elsewhere = _PROVIDER.search(ENV_PROVIDER.sub("", value))
        if is_elsewhere and key == PROTOCOL and not literal:
            # Left out, it would be PLAINTEXT.
            result.client[key] = _as_variable(result, alias, key)
        elif is_elsewhere:
            result.dropped.append(
                (key, "refers to a config provider; set the librdkafka key to ${NAME} instead")
            )
        elif key == "sasl.mechanism" and plain.strip() == _IAM:
            result.dropped.append((key, _IAM_FIX))
        elif key in _SAME or key in _PEM:
            _put(result, alias, _PEM.get(key, key), plain)
        elif key == "ssl.endpoint.identification.algorithm":
            result.client[key] = plain.strip() or "none"
        elif key == _JAAS:
            _jaas(result, alias, plain)
        elif key.startswith(("ssl.truststore.", "ssl.keystore.")):
            _store(result, java, key, plain)
        else:
            result.dropped.append((key, reason_for(key)))
    _drop_refused(result)
    return result


def reason_for(key: str) -> str:
    """Return why a Java client setting has no counterpart."""
    if key.startswith("sasl.kerberos."):
        return "tickets are got by the library, as krb5.conf says"
    if key.startswith("sasl.") and "callback" in key:
        return "names a Java class; for OAUTHBEARER set sasl.oauthbearer.method: oidc and its keys"
    if key.startswith(("ssl.", "sasl.")):
        return (
            "has no librdkafka counterpart that Onceover accepts; docs/flow-file.md lists the accepted keys"
        )
    return "clients are tuned by Onceover itself (transaction, limits)"


def _put(result: ClientTranslation, alias: str, key: str, value: str) -> None:
    """Set ``key``; a secret that stands in the file is replaced by a variable of its own."""
    if not result.literal and is_secret(key) and not re.fullmatch(r"\$\{\w+\}", value):
        value = _as_variable(result, alias, key)
    result.client[key] = value


def _as_variable(result: ClientTranslation, alias: str, key: str, said: str | None = None) -> str:
    """Return the reference to a variable of its own, which is said to hold ``said``, or else ``key``."""
    name = f"ONCEOVER_{alias}_{key}".upper().replace(".", "_").replace("-", "_")
    result.variables[name] = said or key
    return f"${{{name}}}"


def _jaas(result: ClientTranslation, alias: str, value: str) -> None:
    match = _JAAS_LOGIN.match(value)
    module = match.group(1).rpartition(".")[2] if match else ""
    options = _options(match.group(2)) if match else {}
    wanted = _LOGINS.get(module, {})
    if module == _OAUTH_MODULE:
        result.client["sasl.oauthbearer.method"] = "oidc"
        _extensions(result, alias, options)
    for option, text in options.items() if wanted else ():
        if option in wanted and text:
            _put(result, alias, wanted[option], text)
        elif not (option in (*wanted, *_MEANINGLESS) or option.startswith(_EXTENSION)):
            result.dropped.append((f"{_JAAS}.{option}", _OTHER_OPTIONS.get(option, _NO_OPTION)))
    if module == _IAM_MODULE:
        result.dropped.append((_JAAS, _IAM_FIX))
    elif not wanted:
        result.dropped.append((_JAAS, "is no login we can read; set sasl.username and sasl.password"))
    elif not options:
        result.dropped.append(
            (_JAAS, "no user name or password could be read; set sasl.username and sasl.password")
        )


def _extensions(result: ClientTranslation, alias: str, options: Mapping[str, str]) -> None:
    """Set what is sent beside a token; what may be a secret by its name becomes a variable."""
    pairs = []
    for option, text in options.items():
        if not option.startswith(_EXTENSION):
            continue
        name = option.removeprefix(_EXTENSION)
        try:
            ALLOWED[_EXTENSIONS].check(f"{name}=variable" if "${" in text else f"{name}={text}")
        except Invalid as error:
            result.dropped.append((f"{_JAAS}.{option}", f"{error.problem}; {error.fix}"))
            continue
        if not result.literal and "${" not in text and SECRET_WORD.search(name):
            text = _as_variable(result, alias, f"{_EXTENSIONS}.{name}", f"{name} of {_EXTENSIONS}")
        pairs.append(f"{name}={text}")
    if pairs:
        result.client[_EXTENSIONS] = ",".join(pairs)


def _options(text: str) -> dict[str, str]:
    found = {}
    for name, double, single, bare in _JAAS_OPTION.findall(text):
        found[name] = re.sub(r"\\(.)", r"\1", double or single) or bare
    return found


def _store(result: ClientTranslation, java: Mapping[str, str], key: str, value: str) -> None:
    family = "ssl.truststore" if key.startswith("ssl.truststore.") else "ssl.keystore"
    is_pem = java.get(f"{family}.type", "JKS").strip().upper() == "PEM"
    if key == f"{family}.location" and is_pem:
        if family == "ssl.truststore":
            result.client["ssl.ca.location"] = value
        else:
            # Kafka keeps certificate and key of a PEM key store in one file; both keys may name it.
            result.client["ssl.certificate.location"] = value
            result.client["ssl.key.location"] = value
    elif key != f"{family}.type" or not is_pem:
        result.dropped.append((key, _TRUST_FIX if family == "ssl.truststore" else _KEY_FIX))


def _drop_refused(result: ClientTranslation) -> None:
    """Drop values that the flow file would refuse (a broken address, say), with the reason."""
    for key, value in list(result.client.items()):
        if "${" in value:
            continue
        try:
            result.client[key] = ALLOWED[key].check(value)
        except Invalid as error:
            del result.client[key]
            result.dropped.append((key, f"{error.problem}; {error.fix}"))


def still_missing(client: Mapping[str, str]) -> list[str]:
    """Return what ``client`` lacks or contradicts, for the notes; references count as given."""
    _, faults = check_properties(client)
    return [
        f"{fault.key}: {fault.problem}; {fault.fix}"
        for fault in faults
        if "${" not in client.get(fault.key, "")
    ]
