"""Clients are resolved from three places, checked whole, and never show a secret."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import pickle
import ssl
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from onceover.config.clients.clusterspec import ClusterSpec
from onceover.config.clients.keys import ALLOWED, REFUSED, SYNONYMS
from onceover.config.clients.resolve import ClientConfig, check_private, resolve_client
from onceover.config.faults import BadConfig, Invalid
from onceover.config.flow.load import load_flow
from onceover.config.flow.sides import resolve_clients
from onceover_lab.embed.security import make_certificates
from tests.unit.config.conftest import ENVIRON, SECRET, FlowWriter

PRIVATE = {
    "bootstrap.servers": "a:1, b:2",
    "security.protocol": "sasl_ssl",
    "sasl.mechanisms": "scram-sha-512",
    "sasl.username": "copier",
    "sasl.password": SECRET,
    "ssl.certificate.pem": "-----BEGIN CERTIFICATE-----",
    "ssl.key.pem": f"-----BEGIN {SECRET}",
    "ssl.key.password": SECRET,
}


def _connection(text: str) -> ClientConfig:
    spec = ClusterSpec(alias="west", connection="kafka_target")
    return resolve_client(spec, where="f.yaml: target", environ={"AIRFLOW_CONN_KAFKA_TARGET": text})


def _json(**fields: Any) -> str:
    return json.dumps({"conn_type": "kafka", **fields})


def _faults(resolve: Callable[[], object]) -> list[str]:
    with pytest.raises(BadConfig) as raised:
        resolve()
    error = raised.value
    assert SECRET not in repr((str(error), error.as_dict(), error.__cause__, error.__context__))
    return str(error).splitlines()


def test_inline_keys_are_normalised() -> None:
    """Every caller sees one spelling: capitals, no blanks, sasl.mechanism."""
    spec = ClusterSpec(
        alias="east", client={**PRIVATE, "sasl.password": "${PASSWORD}", "socket.timeout.ms": 15000}
    )
    client = resolve_client(spec, where="f.yaml: source", environ=ENVIRON)
    assert client.alias == "east"
    assert client.properties["bootstrap.servers"] == "a:1,b:2"
    assert client.properties["security.protocol"] == "SASL_SSL"
    assert client.properties["sasl.mechanism"] == "SCRAM-SHA-512"
    assert client.properties["sasl.password"] == SECRET
    assert client.properties["socket.timeout.ms"] == "15000"
    assert "sasl.mechanisms" not in client.properties


@pytest.mark.parametrize(
    "password",
    ["0123456", "007", "1_000", "1:30", "3.10", "0x1F", "+1", "yes", "off", "1e3", "2024-01-01"],
)
def test_a_clients_values_are_those_that_stand_in_its_file(tmp_path: Path, password: str) -> None:
    """YAML 1.1 has numbers to base 8 and 60, dates, and words for true: none of them is a login."""
    path = tmp_path / "client.yaml"
    lines = [
        f"{key}: {PRIVATE[key]}" for key in ("bootstrap.servers", "security.protocol", "sasl.mechanisms")
    ]
    lines += [f"sasl.username: {password}", f"sasl.password: {password}"]
    path.write_text("\n".join(lines))
    path.chmod(0o600)
    spec = ClusterSpec(alias="east", client_file=str(path))
    client = resolve_client(spec, where="f.yaml: source", environ={})
    assert (client.properties["sasl.username"], client.properties["sasl.password"]) == (password, password)


def test_so_are_those_that_stand_in_a_flow_file(write_flow: FlowWriter) -> None:
    """A handler's arguments are what YAML has them for, whatever they are called."""
    east = "bootstrap.servers: a:1, security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.username: 0123"
    text = f"""flow: orders-dr
source: {{alias: east, client: {{{east}, sasl.password: "${{PASSWORD}}", client.id: 1_0}}}}
target: {{alias: west, client: {{bootstrap.servers: "b:1"}}}}
topics: {{include: [orders]}}
handler: m:Class
handler_args: {{client: {{size: 0x1F}}}}
"""
    flow = load_flow(write_flow(text), environ=ENVIRON)
    properties = resolve_clients(flow, ENVIRON)[0].properties
    assert (properties["sasl.username"], properties["client.id"]) == ("0123", "1_0")
    assert flow.handler_args == {"client": {"size": 31}}


@pytest.mark.parametrize(
    ("written", "taken"),
    [("30_000", "30000"), ("3_0_0_0_0", "30000"), ("030000", "30000"), ("30000", "30000")],
)
def test_a_client_s_number_may_be_written_in_groups(written: str, taken: str, write_flow: FlowWriter) -> None:
    """As YAML reads one, which a flow file's clients were read by before."""
    changes = {"source": {"client": {"bootstrap.servers": "a:1", "socket.timeout.ms": written}}}
    flow = load_flow(write_flow(changes), environ=ENVIRON)
    assert resolve_clients(flow, ENVIRON)[0].properties["socket.timeout.ms"] == taken
    text = _json(extra={"bootstrap.servers": "a:1", "socket.timeout.ms": written})
    assert _connection(text).properties["socket.timeout.ms"] == taken


@pytest.mark.parametrize(
    "written", ["_30000", "30000_", "30__000", "30,000", "0x7530", "8:20:00", "1_0", "300_001", "٣٠٠٠٠"]
)
def test_anything_else_is_no_number_of_a_client(written: str) -> None:
    """To another base it may be meant otherwise than it is read."""
    text = _json(extra={"bootstrap.servers": "a:1", "socket.timeout.ms": written})
    (line,) = _faults(lambda: _connection(text))
    assert "socket.timeout.ms: out of range" in line and "a whole number from 10000 to 300000" in line


def test_no_way_of_showing_a_client_shows_a_secret() -> None:
    """Printing, logging and reports redact; pickling and copying into plain data are refused."""
    client = _connection(_json(extra=PRIVATE))
    shown = (repr(client), str(client), f"{client.properties}", str(client.redacted()), repr(vars(client)))
    assert not [text for text in shown if SECRET in text]
    assert client.redacted()["sasl.password"] == "***"
    assert client.redacted()["ssl.certificate.pem"] == "(PEM)"
    assert client.redacted()["sasl.username"] == "copier"
    for leak in (pickle.dumps, copy.deepcopy, dataclasses.asdict):
        with pytest.raises(TypeError, match="do not travel"):
            leak(client)


def test_a_token_endpoint_is_shown_without_what_it_is_asked_by() -> None:
    """Some want a key of their own there."""
    extra = {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "copier",
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.token.endpoint.url": f"https://login/token?code={SECRET}",
    }
    client = _connection(_json(extra=extra))
    shown = client.redacted()
    assert shown["sasl.oauthbearer.token.endpoint.url"] == "https://login/token?…"
    assert SECRET not in f"{client!r} {client.properties!r} {shown}"
    assert client.properties["sasl.oauthbearer.token.endpoint.url"].endswith(SECRET)


@pytest.mark.parametrize(
    "text",
    [
        _json(extra=PRIVATE),
        _json(extra=json.dumps(PRIVATE)),
        "kafka://?" + urlencode(PRIVATE),
        "kafka:///?" + urlencode({"__extra__": json.dumps(PRIVATE)}),
    ],
    ids=["json", "json in json", "uri query", "uri extra"],
)
def test_every_form_of_an_airflow_connection_is_read(text: str) -> None:
    """JSON and URI, as Airflow writes and reads them."""
    assert _connection(text).properties["sasl.password"] == SECRET


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "AIRFLOW_CONN_KAFKA_TARGET is not set, so the Connection cannot be read; export AIRFLOW_CONN"),
        (f"{{{SECRET}", "is not valid JSON"),
        (SECRET, "is neither JSON nor a URI"),
        (f"kafka://[{SECRET}", "is neither JSON nor a URI"),
        (f"postgres://u:{SECRET}@h/db", "is not a Connection of type kafka"),
        (f"kafka://u:{SECRET}@h:1?bootstrap.servers=a:1", "has host, login, password, port outside extra"),
        (_json(password=SECRET, extra={"a": "b"}), "has password outside extra"),
        (_json(), "has no client keys in extra"),
        (_json(extra=f"[{SECRET}"), "has no client keys in extra"),
        (_json(extra={**PRIVATE, "group.id": "g"}), "group.id: refused: progress is kept"),
        (_json(extra={**PRIVATE, "sasl.username": "ann\0x"}), "sasl.username: holds a NUL character"),
        (_json(extra={**PRIVATE, "sasl.password": f"{SECRET}\ud83d"}), "sasl.password: holds half of a char"),
        (_json(extra={**PRIVATE, "error_cb": "os.system"}), "error_cb: refused: would run code"),
        (_json(extra={**PRIVATE, "sasl.password": {"x": SECRET}}), "sasl.password: expected a single value"),
    ],
)
def test_a_bad_connection_names_the_variable_and_no_value(text: str, words: str) -> None:
    """The variable is the whole secret: nothing of it is repeated."""
    (line,) = _faults(lambda: _connection(text))
    assert line.startswith("f.yaml: target: connection kafka_target (AIRFLOW_CONN_KAFKA_TARGET): ")
    assert words in line


@pytest.mark.parametrize("key", ["ssl.ca.pem", "https.ca.pem"])
def test_names_beside_an_authority_s_certificate_may_have_any_characters(tmp_path: Path, key: str) -> None:
    """As `openssl x509 -text` and lists of authorities have them; TLS would refuse all of it."""
    authority = make_certificates(tmp_path).ca.read_text()
    oidc = {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "i"}
    oidc |= {"sasl.oauthbearer.client.secret": SECRET, "sasl.oauthbearer.token.endpoint.url": "https://h/t"}
    extra = {"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    client = _connection(_json(extra={**extra, **oidc, key: f"# Z\u00fcrich\n{authority}"}))
    ssl.create_default_context(cadata=client.properties[key])


def test_a_connection_that_is_not_given_is_no_broken_file(write_flow: FlowWriter) -> None:
    """It has a code of its own; where something else is wrong beside it, that is to be corrected first."""
    source, target = ({"client": None, "connection": name} for name in ("a", "b"))
    flow = load_flow(write_flow({"source": source, "target": target}), environ=ENVIRON)
    with pytest.raises(BadConfig) as caught:
        resolve_clients(flow, ENVIRON)
    assert (caught.value.code, len(caught.value.faults)) == ("NO_CONNECTION", 2)
    assert pickle.loads(pickle.dumps(caught.value)).code == "NO_CONNECTION"  # noqa: S301 - our own
    with pytest.raises(BadConfig) as caught:
        resolve_clients(flow, {**ENVIRON, "AIRFLOW_CONN_A": "{"})
    assert caught.value.code == "bad_config"


def test_name_that_no_shell_can_export_is_set_in_front_of_the_command() -> None:
    """Ids with hyphens are usual; `export AIRFLOW_CONN_KAFKA-TARGET=...` is an error in every shell."""
    with pytest.raises(BadConfig, match=r"write env 'AIRFLOW_CONN_KAFKA-TARGET=\{"):
        resolve_client(ClusterSpec(alias="west", connection="kafka-target"), where="f", environ={})


def _write(path: Path, text: str | bytes, mode: int = 0o600) -> ClusterSpec:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return ClusterSpec(alias="west", client_file=str(path))


def _resolve(spec: ClusterSpec) -> ClientConfig:
    return resolve_client(spec, where="f.yaml: target", environ={})


@pytest.mark.parametrize("mode", [0o600, 0o400])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.properties", "bootstrap.servers = a:1\nclient.id=${X}"),
        ("c.yaml", 'bootstrap.servers: "a:1"\nclient.id: "${X}"'),
        # As an editor of Windows saves it.
        ("c.properties", "\ufeffbootstrap.servers = a:1\r\nclient.id=${X}\r\n"),
        ("c.yaml", '\ufeffbootstrap.servers: "a:1"\r\nclient.id: "${X}"'),
    ],
)
def test_a_private_client_file_is_read_as_it_stands(tmp_path: Path, name: str, text: str, mode: int) -> None:
    """Both formats; ${...} in it is no reference, because passwords may look like that."""
    client = _resolve(_write(tmp_path / name, text, mode))
    assert dict(client.properties) == {"bootstrap.servers": "a:1", "client.id": "${X}"}


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o644, 0o660, 0o700, 0o602])
def test_a_client_file_open_to_others_is_refused_with_the_command(tmp_path: Path, mode: int) -> None:
    """Nothing of it is read."""
    path = tmp_path / "c.properties"
    (line,) = _faults(lambda: _resolve(_write(path, f"sasl.password={SECRET}", mode)))
    assert line.startswith(f"f.yaml: target: client_file {path}: has mode {mode:04o}")
    assert f"run: chmod 600 {path}; " in line
    assert line.endswith("or, as a secret of its container, mount it below /run/secrets")


OWN, ROOT = 50000, 0


@pytest.mark.parametrize(
    ("path", "owner", "mode"),
    [
        # A Secret's volume in a pod with fsGroup, at its strictest; one with a mode of its own.
        ("/etc/onceover/clients/..data/west.properties", ROOT, 0o440),
        ("/etc/onceover/west.properties", ROOT, 0o640),
        # A file secret of an engine, and a Secret's volume as it comes.
        ("/run/secrets/west.properties", 1000, 0o444),
        ("/run/secrets/onceover/west.properties", ROOT, 0o644),
    ],
)
def test_a_client_file_is_taken_as_engines_hand_secrets_over(path: str, owner: int, mode: int) -> None:
    """To a user whom nothing else lets in; read by nobody who is not meant to."""
    check_private(_status(owner, mode), Path(path))


@pytest.mark.parametrize(
    ("path", "owner", "mode"),
    [
        # Somebody's own file: who else is in its group is the machine's affair.
        ("/etc/onceover/west.properties", OWN, 0o640),
        ("/etc/onceover/west.properties", ROOT, 0o644),
        ("/etc/onceover/west.properties", ROOT, 0o460),
        ("/run/secrets/west.properties", ROOT, 0o646),
        ("/run/secrets/west.properties", OWN, 0o664),
        ("/run/secrets/../../etc/onceover/west.properties", OWN, 0o644),
        ("/run/secrets-of-mine/west.properties", OWN, 0o644),
    ],
)
def test_a_client_file_that_others_read_or_change_for_no_reason_is_refused(
    path: str, owner: int, mode: int
) -> None:
    """Wherever it is, nobody else may write it; a place that looks like an engine's is none."""
    with pytest.raises(Invalid, match=f"has mode {mode:04o}"):
        check_private(_status(owner, mode), Path(path))


def _status(owner: int, mode: int) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("c.yaml", f"a: [{SECRET}", "not valid YAML"),
        ("c.yaml", f"a: 1\na: {SECRET}", "line 2: the key is given twice"),
        ("c.properties", f"debug=1\ndebug={SECRET}", "line 2: debug is given twice"),
        ("c.properties", f"ssl.key.pem=-----BEGIN\n{SECRET}\n", "line 2: begins with no key of a client"),
        ("c.properties", f"sasl.password=\n{SECRET}", "line 2: begins with no key of a client"),
        ("c.yaml", f"sasl.password:\n{SECRET}: 1", "line 2: begins with no key of a client"),
        ("c.properties", f"a={SECRET}\\u1", "line 1: \\u without"),
        ("c.properties", SECRET.encode() + b"\xff", "is not UTF-8 text"),
        ("c.properties", "a=" + "x" * (1 << 20), "is larger than 1 MiB"),
        ("c.txt", SECRET, "neither .yaml nor .properties"),
    ],
)
def test_a_broken_client_file_is_named_without_its_text(
    tmp_path: Path, name: str, text: str | bytes, words: str
) -> None:
    """The file holds secrets: only its path, the line and the key are repeated."""
    (line,) = _faults(lambda: _resolve(_write(tmp_path / name, text)))
    assert str(tmp_path / name) in line
    assert words in line


@pytest.mark.parametrize("broken", [f"sasl.password{SECRET}", f"ssl.key.pem-----BEGIN{SECRET}"])
def test_a_key_that_runs_into_its_value_is_named_without_it(tmp_path: Path, broken: str) -> None:
    """The separator was forgotten."""
    lines = _faults(lambda: _resolve(_write(tmp_path / "c.properties", f"bootstrap.servers=a:1\n{broken}")))
    assert [line for line in lines if "…: not a client key that Onceover accepts" in line]


def test_a_connection_s_key_that_may_be_a_value_is_not_repeated() -> None:
    """Of one that is a client's, though not ours, the name is told: somebody has to remove it."""
    first, second = _faults(
        lambda: _connection(_json(extra={"bootstrap.servers": "a:1", SECRET: "x", "api.version.request": 1}))
    )
    assert ": …: not a client key" in first and "api.version.request: not a client key" in second


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    """A FIFO without writer does not block, a directory and a missing file are named."""
    fifo = tmp_path / "c.properties"
    os.mkfifo(fifo, 0o600)
    for path, words in (
        (fifo, "not a regular file"),
        (tmp_path, "not a regular file"),
        (tmp_path / "x", "No such file"),
    ):
        spec = ClusterSpec(alias="west", client_file=str(path))
        (line,) = _faults(lambda spec=spec: _resolve(spec))
        assert words in line


def test_both_clusters_are_resolved_and_all_faults_reported(write_flow: FlowWriter) -> None:
    """A fault of the source does not hide one of the target."""
    changes = {side: {"client": None, "connection": f"kafka_{side}"} for side in ("source", "target")}
    flow = load_flow(write_flow(changes), environ={})
    lines = _faults(lambda: resolve_clients(flow, {}))
    assert [name in line for name, line in zip(("KAFKA_SOURCE", "KAFKA_TARGET"), lines, strict=True)] == [
        True,
        True,
    ]


def test_one_cluster_under_two_connections_is_refused(write_flow: FlowWriter) -> None:
    """Copying a cluster onto itself is found however the cluster is named."""
    flow = load_flow(write_flow({"target": {"client": None, "connection": "c"}}), environ=ENVIRON)
    same = {**ENVIRON, "AIRFLOW_CONN_C": _json(extra={"bootstrap.servers": "x:9,localhost:19092"})}
    (line,) = _faults(lambda: resolve_clients(flow, same))
    assert "copy a cluster onto itself" in line
    other = {**ENVIRON, "AIRFLOW_CONN_C": _json(extra={"bootstrap.servers": "127.0.0.1:19093"})}
    assert [client.alias for client in resolve_clients(flow, other)] == ["east", "west"]


def test_no_key_is_both_accepted_and_refused() -> None:
    """The two lists are disjoint, and synonyms lead to accepted keys."""
    assert not ALLOWED.keys() & REFUSED.keys()
    assert set(SYNONYMS.values()) <= ALLOWED.keys()


def test_a_client_file_is_followed_while_a_flow_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A new password is there for the next connection; half of a file, or none, changes nothing."""
    path = tmp_path / "c.properties"
    client = _resolve(_write(path, "bootstrap.servers=a:1\nclient.id=old"))
    before = client.properties
    _write(path, f"bootstrap.servers=a:1\nsasl.password={SECRET}")
    assert client.properties is before
    assert SECRET not in caplog.text and "client_file" in caplog.text
    path.unlink()
    assert client.properties is before
    _write(tmp_path / "next", "bootstrap.servers=a:1\nclient.id=new")
    (tmp_path / "next").replace(path)
    assert client.properties["client.id"] == "new"
    assert client.properties is client.properties
    assert before["client.id"] == "old"


def test_a_client_file_is_read_once_it_is_private_although_nobody_writes_it_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Copied there with the usual mode, and met so: the message asks for chmod, and that has to be enough."""
    path = tmp_path / "c.properties"
    client = _resolve(_write(path, "bootstrap.servers=a:1\nclient.id=old"))
    _write(path, "bootstrap.servers=a:1\nclient.id=new", 0o644)
    assert client.properties["client.id"] == "old"
    assert client.properties["client.id"] == "old"
    assert caplog.text.count("chmod 600") == 1
    path.chmod(0o600)
    assert client.properties["client.id"] == "new"


def test_a_followed_client_shows_no_secret_and_does_not_travel(tmp_path: Path) -> None:
    """As the others."""
    text = "".join(f"{key}={value}\n" for key, value in PRIVATE.items())
    client = _resolve(_write(tmp_path / "c.properties", text))
    assert SECRET not in f"{client!r} {client} {client.redacted()} {vars(client)}"
    for leak in (pickle.dumps, copy.deepcopy, dataclasses.asdict):
        with pytest.raises(TypeError, match="do not travel"):
            leak(client)
