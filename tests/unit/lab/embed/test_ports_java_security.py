"""Ports stay reserved, Java is recognised, credentials stay private."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from cryptography import x509

from onceover.errors import UsageError
from onceover.process import java as java_module
from onceover.process.java import find_java, parse_version
from onceover_lab.embed.datadir import new_id
from onceover_lab.embed.mirrormaker import render_mm2_properties
from onceover_lab.embed.ports import LOOPBACK, PortReservation, choose_port, configured_port
from onceover_lab.embed.security import Mechanism, Security, make_certificates


def listener(port: int) -> socket.socket:
    """Return a socket that listens the way Java does."""
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((LOOPBACK, port))
    server.listen()
    return server


def test_reserved_port_lets_the_broker_listen_and_nobody_else_choose_it() -> None:
    """The kernel gives no second reservation of the same port, but Java can listen beside ours."""
    reservations = [PortReservation() for _ in range(200)]
    try:
        assert len({reservation.port for reservation in reservations}) == 200
        listener(reservations[0].port).close()
        # After a broker stopped, the next start binds again.
        listener(reservations[0].port).close()
    finally:
        for reservation in reservations:
            reservation.release()


def test_port_in_use_is_refused_by_name() -> None:
    """A configured port with a listener is a usage error that says which."""
    free = PortReservation()
    with listener(free.port), pytest.raises(UsageError, match=f"port {free.port} is not free"):
        PortReservation(free.port)
    free.release()


@pytest.mark.parametrize(("text", "expected"), [("", None), ("1", 1), ("65535", 65535)])
def test_configured_port_is_read(text: str, expected: int | None) -> None:
    """Empty means not configured."""
    assert configured_port("east", {"ONCEOVER_EAST_PORT": text}) == expected


def test_last_port_is_taken_again_unless_somebody_else_has_it() -> None:
    """Then any free one is, which is said; a configured one wins over both."""
    notes: list[str] = []
    held = PortReservation()
    last = held.port
    held.release()
    assert choose_port("airflow", last, {}, notes.append) == last
    assert notes == []
    with listener(last):
        assert choose_port("airflow", last, {}, notes.append) is None
    assert notes == [f"port {last} of airflow is taken by another program: airflow has a new one"]
    assert choose_port("airflow", last, {"ONCEOVER_AIRFLOW_PORT": "7"}, notes.append) == 7
    assert choose_port("airflow", None, {}, notes.append) is None


@pytest.mark.parametrize("text", ["0", "65536", "-1", "kafka", "1.5"])
def test_wrong_port_is_refused(text: str) -> None:
    """The error names the variable."""
    with pytest.raises(UsageError, match="ONCEOVER_WEST_PORT"):
        configured_port("west", {"ONCEOVER_WEST_PORT": text})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15', (17, "17.0.15")),
        ('openjdk version "21" 2023-09-19', (21, "21")),
        ('java version "1.8.0_402"', (8, "8.0_402")),
        ("command not found", None),
    ],
)
def test_java_version_is_recognised(text: str, expected: tuple[int, str] | None) -> None:
    """Old and new numbering, releases without a minor number, and no Java at all."""
    assert parse_version(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("java.base@17.0.15\njava.compiler@17.0.15\n", (17, "17.0.15")),
        ("java.base@21\n", (21, "21")),
        ("java.base@22-ea\n", (22, "22-ea")),
        ("java.logging@17.0.15\n", None),
        ("Unrecognized option: --list-modules\n", None),
    ],
)
def test_java_version_is_that_of_its_base_module(text: str, expected: tuple[int, str] | None) -> None:
    """One question tells version and modules; a Java that knows no modules is asked for its version."""
    assert parse_version(text) == expected


def test_unusable_java_is_listed_with_the_command_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A too old Java is not taken; the error says what was seen and what to do."""
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setattr(java_module, "_candidates", lambda: iter([old]))
    monkeypatch.setattr(java_module, "install_command", lambda: "install java")
    find_java.cache_clear()

    with pytest.raises(
        UsageError, match=r"seen: .*bin/java: version 11\.0\.2; to resolve: run: install java"
    ):
        find_java()

    find_java.cache_clear()


def test_java_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a variable of Java's own is the reason, installing another one would not help."""
    java = find_java().executable
    monkeypatch.setattr(java_module, "_candidates", lambda: iter([java]))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:NoSuchFlag")
    find_java.cache_clear()
    with pytest.raises(UsageError) as caught:
        find_java()
    find_java.cache_clear()
    assert "NoSuchFlag" in str(caught.value.seen)
    assert caught.value.resolve == "correct JAVA_TOOL_OPTIONS, or unset it"


def test_secrets_do_not_show() -> None:
    """repr names the users, never the passwords; each instance has its own."""
    one, two = Security("PLAIN"), Security("PLAIN")

    assert one.password not in repr(one)
    assert one.admin_password not in repr(one)
    assert one.password != two.password


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"])
def test_client_properties_are_for_the_right_user(mechanism: Mechanism) -> None:
    """The admin's differ from the ordinary user's, both speak SASL_SSL and trust the CA."""
    security = Security(mechanism)
    user = security.client_properties(Path("/ca"))
    admin = security.client_properties(Path("/ca"), admin=True)

    assert user["security.protocol"] == admin["security.protocol"] == "SASL_SSL"
    assert user["sasl.mechanism"] == mechanism
    assert user["ssl.ca.location"] == "/ca"
    assert user != admin


def test_server_certificate_is_for_loopback_and_kept(tmp_path: Path) -> None:
    """It names 127.0.0.1, its key is private, and a restart of the cluster finds the same one."""
    files = make_certificates(tmp_path)
    before = files.keystore.read_bytes()

    server = x509.load_pem_x509_certificates(before)[0]
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == [LOOPBACK]
    assert files.keystore.stat().st_mode & 0o077 == 0
    assert make_certificates(tmp_path) == files
    assert files.keystore.read_bytes() == before


def test_new_id_has_kafkas_form() -> None:
    """22 characters, no leading dash: the storage tool would take it for an option."""
    ids = [new_id() for _ in range(500)]

    assert {len(text) for text in ids} == {22}
    assert not any(text.startswith("-") for text in ids)


def test_mirrormaker_copies_one_way_and_settings_win() -> None:
    """Only source to target is enabled; a caller's setting replaces ours."""
    text = render_mm2_properties("s:1", "t:2", ["a", "b.*"], {"replication.factor": "3"})
    settings = dict(line.split(" = ") for line in text.splitlines())

    assert settings["source->target.topics"] == "a,b.*"
    assert settings["target->source.enabled"] == "false"
    assert settings["target.bootstrap.servers"] == "t:2"
    assert settings["replication.factor"] == "3"
