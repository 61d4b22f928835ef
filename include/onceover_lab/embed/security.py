"""Security of an embedded cluster's client listener, for trials of SASL_SSL and ACLs.

Invariant: a password reaches a file with mode 0600 or a request to the broker, never a command line,
a log or a repr.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from onceover_lab.embed.config import CLIENT_LISTENER, CONTROLLER_LISTENER, INTERNAL_LISTENER
from onceover_lab.embed.ports import LOOPBACK

Mechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"]
CERTIFICATE_DAYS: Final = 365
_MODULES: Final[Mapping[str, str]] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}


def _new_password() -> str:
    # Hexadecimal: no character that a properties file or a JAAS line would read as syntax.
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Security:
    """SASL, over TLS, on the client listener, with one ordinary user and one superuser.

    ``authorizer`` switches Kafka's StandardAuthorizer on: without ACLs the ordinary user may do
    nothing. Without ``encrypted`` it is SASL alone: a handshake costs a broker 4 to 11 ms of CPU.
    OAUTHBEARER uses Kafka's validator for unsecured tokens: for tests only.
    """

    mechanism: Mechanism
    username: str = "onceover"
    password: str = field(default_factory=_new_password, repr=False)
    admin_username: str = "admin"
    admin_password: str = field(default_factory=_new_password, repr=False)
    authorizer: bool = False
    encrypted: bool = True

    @property
    def is_scram(self) -> bool:
        return self.mechanism.startswith("SCRAM-")

    def users(self) -> dict[str, str]:
        """Return passwords by user name."""
        return {self.username: self.password, self.admin_username: self.admin_password}

    def client_properties(self, ca_path: Path, *, admin: bool = False) -> dict[str, str]:
        """Return librdkafka's keys for the ordinary user, or for the superuser."""
        name = self.admin_username if admin else self.username
        properties = {"security.protocol": self._protocol, "sasl.mechanism": self.mechanism}
        if self.encrypted:
            properties["ssl.ca.location"] = str(ca_path)
        if self.mechanism == "OAUTHBEARER":
            token = {
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": f"principal={name}",
            }
            return {**properties, **token}
        return {**properties, "sasl.username": name, "sasl.password": self.users()[name]}

    def broker_properties(self, keystore: Path) -> dict[str, str]:
        """Return the broker settings that put this security on the client listener."""
        listener = f"listener.name.{CLIENT_LISTENER.lower()}"
        properties = {
            "listener.security.protocol.map": (
                f"{CLIENT_LISTENER}:{self._protocol},{INTERNAL_LISTENER}:PLAINTEXT,{CONTROLLER_LISTENER}:PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": self.mechanism,
            f"{listener}.{self.mechanism.lower()}.sasl.jaas.config": self._jaas(),
        }
        if self.encrypted:
            properties[f"{listener}.ssl.keystore.type"] = "PEM"
            properties[f"{listener}.ssl.keystore.location"] = str(keystore)
        if self.authorizer:
            properties["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            # ANONYMOUS is whoever comes through the plain-text listeners: the brokers themselves.
            properties["super.users"] = f"User:{self.admin_username};User:ANONYMOUS"
        return properties

    @property
    def _protocol(self) -> str:
        return "SASL_SSL" if self.encrypted else "SASL_PLAINTEXT"

    def _jaas(self) -> str:
        options = ""
        if self.mechanism == "PLAIN":
            options = "".join(f' user_{name}="{password}"' for name, password in self.users().items())
        elif self.mechanism == "OAUTHBEARER":
            options = f' unsecuredLoginStringClaim_sub="{self.admin_username}"'
        return f"{_MODULES[self.mechanism]} required{options};"


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files of a private certificate authority and the server certificate it signed."""

    ca: Path
    keystore: Path


def make_certificates(directory: Path) -> Certificates:
    """Create a CA and a server certificate for loopback in ``directory``; existing ones are kept."""
    files = Certificates(ca=directory / "ca.pem", keystore=directory / "server.pem")
    if files.ca.exists() and files.keystore.exists():
        return files
    # Imported here: only secured trial clusters need it, and it takes a while to load.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)

    def certificate(subject: str, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "onceover trial CA")]))
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            # Clocks of containers differ by a little; a certificate from the future is refused.
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=CERTIFICATE_DAYS))
        )

    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = certificate("onceover trial CA", ca_key.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(LOOPBACK))]
    server = certificate("localhost", key.public_key()).add_extension(
        x509.SubjectAlternativeName(names), critical=False
    )
    pem = serialization.Encoding.PEM
    ca_pem = ca.sign(ca_key, hashes.SHA256()).public_bytes(pem)
    server_pem = server.sign(ca_key, hashes.SHA256()).public_bytes(pem)
    key_pem = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write_private(files.keystore, key_pem + server_pem + ca_pem)
    write_private(files.ca, ca_pem)
    return files


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, replacing an existing one.

    In one step: whoever reads it, also after a crash, finds the old content or the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
