"""Secrets reach the job's environment, and nothing else."""

from __future__ import annotations

import os

import pytest

from onceover_airflow.access.secrets import environment, secret_texts

PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n9w0BAQEFAASCBKcwggSj\n-----END PRIVATE KEY-----\n"
JAAS = 'org.apache.kafka.ScramLoginModule required username="app" password="hidden-in-jaas";'


def test_secrets_are_found_whole_and_in_parts() -> None:
    """A log may show one line of a key, or the password inside a JAAS text."""
    found = set(
        secret_texts(
            {
                "bootstrap.servers": "broker:9092",
                "sasl.password": "hidden-password",
                "ssl.key.pem": PEM,
                "sasl.jaas.config": JAAS,
                "ssl.key.password": "",
            }
        )
    )
    assert {
        "hidden-password",
        PEM,
        "MIIEvQIBADANBgkqhkiG",
        "9w0BAQEFAASCBKcwggSj",
        JAAS,
        "hidden-in-jaas",
    } <= found
    assert not {"broker:9092", "", "-----BEGIN PRIVATE KEY-----"} & found


def test_values_of_unknown_keys_count_as_secrets() -> None:
    """A mistyped key holds the same password."""
    assert list(secret_texts({"sasl.pasword": "hidden-password"})) == ["hidden-password"]


def test_plain_settings_are_shown() -> None:
    """Masking "true" or a host name would make every log unreadable."""
    assert list(secret_texts({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"})) == []


def test_environment_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables are set inside, and as before outside, also after an error."""
    monkeypatch.setenv("ONCEOVER_TEST_KEPT", "before")

    def fail() -> None:
        with environment({"ONCEOVER_TEST_KEPT": "inside", "ONCEOVER_TEST_NEW": "inside"}):
            assert os.environ["ONCEOVER_TEST_KEPT"] == os.environ["ONCEOVER_TEST_NEW"] == "inside"
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert os.environ["ONCEOVER_TEST_KEPT"] == "before"
    assert "ONCEOVER_TEST_NEW" not in os.environ
