"""Logins that need a package of their own: what is said without it, and what a KDC's answers mean."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from onceover.errors import OnceoverError, Retriable, UsageError
from onceover.kafka.link.kerberos import KerberosLogin
from onceover.kafka.link.tokens import TokenProvider

CLIENT = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}
AWS = {"sasl.oauthbearer.method": "aws_iam", "sasl.oauthbearer.aws.region": "eu-west-1"}

# A module of the package, although it is written like a class.
SIGNER = "aws_msk_iam_sasl_signer.MSKAuthTokenProvider"


class GSSError(Exception):
    """As the package's own."""

    def __init__(self, min_code: int) -> None:
        super().__init__("said the KDC")
        self.min_code = min_code


def put(monkeypatch: pytest.MonkeyPatch, signer: Any) -> None:
    monkeypatch.setitem(sys.modules, SIGNER.partition(".")[0], SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, SIGNER, signer)


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)


def test_kerberos_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "gssapi")
    with pytest.raises(UsageError) as caught:
        KerberosLogin(CLIENT, "b")
    assert caught.value.code == "NO_KERBEROS" and "onceover[kerberos]" in str(caught.value.resolve)


def test_amazon_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, SIGNER)
    with pytest.raises(UsageError) as caught:
        TokenProvider(AWS).token()
    assert caught.value.code == "NO_SIGNER" and "pip install" in str(caught.value.resolve)


@pytest.mark.parametrize(
    ("min_code", "kind"),
    [
        (2529639068, Retriable),  # KRB5_KDC_UNREACH, as GSSAPI hands it on: unsigned
        (2529638919, UsageError),  # KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN
        (39756037, UsageError),
    ],
)
def test_kdc_that_is_away_is_an_outage_and_one_that_says_no_is_not(
    monkeypatch: pytest.MonkeyPatch, min_code: int, kind: type[OnceoverError]
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise GSSError(min_code)

    name = SimpleNamespace(canonicalize=lambda _: None)
    package = SimpleNamespace(
        Name=lambda *_: name,
        NameType=SimpleNamespace(hostbased_service=1, kerberos_principal=2),
        MechType=SimpleNamespace(kerberos=1),
        Credentials=refuse,
        SecurityContext=refuse,
        exceptions=SimpleNamespace(GSSError=GSSError),
    )
    monkeypatch.setitem(sys.modules, "gssapi", package)
    with pytest.raises(kind) as caught:
        KerberosLogin({**CLIENT, "sasl.kerberos.principal": "c", "sasl.kerberos.keytab": "/k"}, "broker-1")
    assert caught.value.where == "kafka@broker-1"


def test_amazons_token_lives_as_long_as_its_signer_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """In milliseconds there, in seconds here; the region is the cluster's."""
    asked: list[str] = []

    class Provider:
        @staticmethod
        def generate_auth_token(region: str) -> tuple[str, int]:
            asked.append(region)
            return "aHR0cHM6Ly9rYWZrYQ", 4_000_000_000_000

    put(monkeypatch, Provider)
    provider = TokenProvider(AWS)
    assert [provider.current(), provider.current()] == [("aHR0cHM6Ly9rYWZrYQ", 4_000_000_000.0)] * 2
    assert asked == ["eu-west-1"]


def test_amazons_signer_that_finds_no_keys_is_for_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its exceptions quote what they were given: only their kind is repeated."""

    class Provider:
        @staticmethod
        def generate_auth_token(_: str) -> tuple[str, int]:
            raise ValueError("AKIDEXAMPLE")

    put(monkeypatch, Provider)
    with pytest.raises(UsageError) as caught:
        TokenProvider(AWS).token()
    assert (caught.value.code, caught.value.seen) == ("NO_TOKEN", "ValueError")
    assert "AKID" not in str(caught.value)
