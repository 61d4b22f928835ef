"""Connect files: each way to get one wrong is one line with file, key and fix, and shows no secret."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from onceover.config.clients.resolve import ClientConfig
from onceover.config.connect.connectclients import ROLES, ResolvedConnect, resolve_connect
from onceover.config.connect.connectfile import ConnectKeys, connect_home, find_connect_files, load_connect
from onceover.config.connect.workerfile import WORKER_KEYS
from onceover.config.faults import BadConfig
from onceover.errors import UsageError
from tests.unit.config.conftest import ENVIRON, SECRET

PROJECT = Path(__file__).parents[3]
DOCS = (PROJECT / "docs" / "connectors.md").read_text()
WORKER = {"group.id": "workers", "offset.storage.topic": "offsets", "config.storage.topic": "configs"}
PROPERTIES = """\
# a worker's own file holds much more
bootstrap.servers=127.0.0.1:19092
group.id=workers
offset.storage.topic=offsets
config.storage.topic=configs
status.storage.topic=states
exactly.once.source.support=ENABLED
offset.storage.partitions=5
key.converter=org.apache.kafka.connect.json.JsonConverter
"""
SCRAM = (
    "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
    "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
    f'username="worker" password="{SECRET}";\n'
)
CLIENT = {"client": {"bootstrap.servers": "a:1"}}
Writer = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    """Write a good Connect file with ``changes`` (None removes a key)."""

    def write(changes: dict[str, Any] | None = None, properties: str | None = None) -> Path:
        document: dict[str, Any] = {
            "connect": "flights",
            "rest": ["http://127.0.0.1:8083"],
            "worker": WORKER,
            "kafka": {"client": {"bootstrap.servers": "${EAST}"}},
            **(changes or {}),
        }
        path = tmp_path / "flights.yaml"
        path.write_text(yaml.safe_dump({key: value for key, value in document.items() if value is not None}))
        if properties is not None:
            (tmp_path / "worker.properties").write_text(properties)
        return path

    return write


def resolved(path: Path, **environ: str) -> ResolvedConnect:
    environment = {**ENVIRON, **environ}
    return resolve_connect(load_connect(path, environ=environment), environ=environment)


def fault_of(action: Callable[[], object]) -> str:
    with pytest.raises(BadConfig) as raised:
        action()
    error = raised.value
    assert error.exit_code == 2
    assert SECRET not in repr((str(error), error.as_dict(), error.__cause__, error.__context__))
    return str(error)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("unknown key", {"workers": 1}, 'workers: unknown key; did you mean "worker"?'),
    ("nested unknown key", {"rest_auth": {"connection": "c", "pasword": "x"}}, 'mean "password"?'),
    ("below a name", {"connectors": {"c": {"kafka": CLIENT, "kafca": {}}}}, "c.kafca: unknown key"),
    ("name", {"connect": "Flights"}, "connect: not a valid name, seen Flights; lower-case"),
    ("no name", {"connect": None}, "connect: is required; e.g. connect: flights"),
    ("no worker", {"rest": []}, "rest: expected a list of addresses; name every worker"),
    ("one text", {"rest": "http://a:1"}, "rest: expected a list of addresses"),
    ("no scheme", {"rest": ["127.0.0.1:8083"]}, "rest: entry 1 is not the address of a worker; write http://"),
    ("secret in it", {"rest": ["http://a:1", f"http://u:{SECRET}@a:1"]}, "rest: entry 2 is not the address"),
    ("twice", {"rest": ["http://a:1", "http://a:1/"]}, "rest: names a worker twice; remove one"),
    ("no settings", {"worker": None}, "worker_config: the workers' settings are needed"),
    ("no cluster", {"kafka": None}, "kafka: is required without worker_config"),
    ("two ways", {"kafka": {**CLIENT, "connection": "k"}}, "kafka.connection: exactly one of client,"),
    ("refused key", {"kafka": {"client": {**CLIENT["client"], "acks": "1"}}}, "kafka.client.acks: refused:"),
    ("variable", {"kafka": {"client": {"bootstrap.servers": "${NO}"}}}, "environment variable NO is not set"),
    ("worker key", {"worker": {**WORKER, "offset.storage.topik": "x"}}, '"offset.storage.topic"'),
    ("support", {"worker": {**WORKER, "exactly.once.source.support": SECRET}}, "one of: disabled,"),
    ("partitions", {"worker": {**WORKER, "offset.storage.partitions": 0}}, "expected a whole number from 1"),
    ("literal", {"rest_auth": {"username": "u", "password": SECRET}}, 'a secret stands in the file'),
    ("half", {"rest_auth": {"username": "u"}}, "rest_auth: username and password, or a"),
    ("both", {"rest_auth": {"connection": "c", "username": "u", "password": "${PASSWORD}"}}, "is needed"),
    ("unset", {"rest_auth": {"username": "u", "password": "${NO}"}}, "rest_auth.password: the environment"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "told"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_one_fault_gives_one_line_with_key_and_fix(write: Writer, changes: dict[str, Any], told: str) -> None:
    """Nothing is opened, and nothing that may be a secret is repeated."""
    path = write(changes)
    line = fault_of(lambda: load_connect(path, environ=ENVIRON))
    assert line.startswith(str(path))
    assert told in line
    assert "\n" not in line


def test_an_unknown_name_is_answered_with_the_nearest_one(write: Writer) -> None:
    """A stem is looked for in the directory of Connect files."""
    folder = write().parent
    environ = {**ENVIRON, "ONCEOVER_CONNECT": str(folder)}
    assert load_connect("flights", environ=environ).connect == "flights"
    assert [path.stem for path in find_connect_files(environ)] == ["flights"]
    line = fault_of(lambda: load_connect("fligths", environ=environ))
    assert 'holds no Connect file "fligths"; did you mean "flights"?' in line
    assert "ONCEOVER_CONNECT" in fault_of(lambda: load_connect("x", environ={"ONCEOVER_CONNECT": "/nowhere"}))


def test_an_empty_file_is_answered_with_the_page_that_explains_it(tmp_path: Path) -> None:
    """Not with the flow file's."""
    (tmp_path / "empty.yaml").write_text("")
    line = fault_of(lambda: load_connect(tmp_path / "empty.yaml"))
    assert line.endswith("expected keys with values, found none; see docs/connectors.md")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """Both the Connect file and what it names."""
    assert "no.yaml: cannot be read: No such file" in fault_of(lambda: load_connect(tmp_path / "no.yaml"))


def test_files_of_a_run_are_kept_by_name(write: Writer) -> None:
    """Beside the flows', in a directory of their own."""
    file = load_connect(write(), environ=ENVIRON)
    assert connect_home(file, {"ONCEOVER_HOME": "/h"}) == Path("/h/connect/flights")


# ---- what the file names


def test_the_workers_own_file_says_everything(write: Writer) -> None:
    """Its path is relative to the Connect file; keys that do not matter are left alone."""
    access = resolved(
        write({"worker": None, "kafka": None, "worker_config": "worker.properties"}, PROPERTIES)
    )
    worker = access.worker
    assert (worker.group_id, worker.offsets_topic, worker.config_topic, worker.status_topic) == (
        "workers", "offsets", "configs", "states",
    )  # fmt: skip
    assert worker.exactly_once
    assert access.properties["offset.storage.partitions"] == "5"
    assert access.properties["exactly.once.source.support"] == "enabled"
    assert "offset.storage.replication.factor" not in access.properties
    assert dict(access.kafka.properties) == {"bootstrap.servers": "127.0.0.1:19092"}


@pytest.mark.parametrize(("support", "is_on"), [("enabled", True), ("preparing", False), (None, False)])
def test_exactly_once_is_on_where_it_is_enabled(write: Writer, support: str | None, is_on: bool) -> None:
    """While it is only prepared, tasks write as without it."""
    worker = {**WORKER, **({"exactly.once.source.support": support} if support else {})}
    assert resolved(write({"worker": worker})).worker.exactly_once is is_on


def test_keys_of_the_connect_file_win_over_the_workers_file(write: Writer) -> None:
    """For what a config provider fills in on the worker."""
    path = write({"worker": {"group.id": "other"}, "worker_config": "worker.properties"}, PROPERTIES)
    assert resolved(path).worker.group_id == "other"


def test_the_workers_login_is_used_where_it_can_be_read(write: Writer) -> None:
    """A JAAS line becomes user and password, and is shown nowhere."""
    file = {"worker": None, "kafka": None, "worker_config": "worker.properties"}
    access = resolved(write(file, PROPERTIES + SCRAM))
    assert access.kafka.properties["sasl.username"] == "worker"
    assert access.kafka.properties["sasl.password"] == SECRET
    assert SECRET not in repr((access, access.kafka, access.file, access.rest, access.worker))


def test_a_login_with_kerberos_is_read_and_may_be_named(write: Writer) -> None:
    """The workers' own keytab, or another one."""
    login = (
        "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=broker\n"
        "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
        'keyTab="/etc/worker.keytab" principal="worker@REALM";\n'
    )
    file = {"worker": None, "kafka": None, "worker_config": "worker.properties"}
    expected = {
        "bootstrap.servers": "127.0.0.1:19092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "broker",
        "sasl.kerberos.principal": "worker@REALM",
        "sasl.kerberos.keytab": "/etc/worker.keytab",
    }
    assert dict(resolved(write(file, PROPERTIES + login)).kafka.properties) == expected
    assert dict(resolved(write({"kafka": {"client": expected}})).kafka.properties) == expected


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("ssl.truststore.location=/etc/trust.jks\nsecurity.protocol=SSL\n", "Java key stores are not read"),
        ("sasl.jaas.config=${file:/etc/s:j}\nsecurity.protocol=SASL_SSL\n", "refers to a config provider"),
    ],
)
def test_a_login_that_cannot_be_read_has_to_be_named(write: Writer, more: str, told: str) -> None:
    """Nothing is guessed: the Connect file says how to reach the cluster then."""
    file = {"worker": None, "kafka": None, "worker_config": "worker.properties"}
    path = write(file, PROPERTIES + more)
    line = fault_of(lambda: resolved(path))
    assert told in line
    assert "name how Onceover reaches this cluster under kafka:" in line
    assert resolved(write({**file, "kafka": {"client": {"bootstrap.servers": "a:1"}}})).kafka


@pytest.mark.parametrize("protocol", ["TLS", SECRET])
def test_a_protocol_that_is_none_is_refused_and_not_plain_text(write: Writer, protocol: str) -> None:
    """By its file and key, with what is allowed; and so is a connector's own."""
    file = {"worker": None, "kafka": None, "worker_config": "worker.properties"}
    path = write(file, f"{PROPERTIES}security.protocol={protocol}\n")
    line = fault_of(lambda: resolved(path))
    assert f"{path.parent / 'worker.properties'}: security.protocol: not a valid value; one of: PLAIN" in line
    own = {"name": "c", "producer.override.security.protocol": protocol}
    with pytest.raises(UsageError) as raised:
        resolved(write()).role_client("producer", own)
    assert "its producer's security.protocol not a valid value; one of: PLAINTEXT, SSL" in str(raised.value)
    assert SECRET not in str(raised.value)


def test_settings_that_are_missing_are_named_one_by_one(write: Writer) -> None:
    """With the file in which they were looked for."""
    file = {"worker": None, "kafka": None, "worker_config": "worker.properties"}
    lines = fault_of(lambda: resolved(write(file, "bootstrap.servers=a:1\ngroup.id=g\n"))).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["offset.storage.topic", "config.storage.topic"]
    assert all("worker.properties" in line for line in lines)


def test_a_missing_worker_file_is_named(write: Writer) -> None:
    """One message, exit code 2."""
    assert "gone.properties: cannot be read" in fault_of(
        lambda: resolved(write({"worker_config": "gone.properties"}))
    )


def test_the_workers_user_comes_from_the_environment(write: Writer) -> None:
    """Written as variables, or as an Airflow Connection of type http in both of its forms."""
    path = write({"rest_auth": {"username": "ann", "password": "${PASSWORD}"}, "rest_ca": "ca.pem"})
    rest = resolved(path).rest
    assert rest.auth is not None
    assert (rest.auth.username, rest.auth.password) == ("ann", SECRET)
    assert rest.ca == path.parent / "ca.pem"
    assert SECRET not in repr(rest)
    path = write({"rest_auth": {"connection": "connect_rest"}})
    for text in (
        json.dumps({"conn_type": "HTTP", "host": "elsewhere", "login": "ann", "password": "p/ w"}),
        "https://ann:p%2F%20w@elsewhere:1/",
    ):
        auth = resolved(path, AIRFLOW_CONN_CONNECT_REST=text).rest.auth
        assert auth is not None
        assert (auth.username, auth.password) == ("ann", "p/ w")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "AIRFLOW_CONN_CONNECT_REST is not set"),
        (f'{{"conn_type": "kafka", "password": "{SECRET}"}}', "is not a Connection of type http"),
        (f'{{"conn_type": "http", "password": "{SECRET}"}}', "has no login or no password"),
        (f"{{{SECRET}", "is not valid JSON"),
    ],
)
def test_a_connection_that_does_not_fit_is_named(write: Writer, text: str | None, told: str) -> None:
    """By its variable, never by what is in it."""
    path = write({"rest_auth": {"connection": "connect_rest"}})
    environ = {} if text is None else {"AIRFLOW_CONN_CONNECT_REST": text}
    assert told in fault_of(lambda: resolved(path, **environ))


# ---- where a connector keeps its offsets

OTHER = {f"{role}.override.bootstrap.servers": "other:9092" for role in ("producer", "consumer", "admin")}


def test_a_connector_keeps_its_offsets_where_the_workers_do(write: Writer) -> None:
    """Unless its producer goes elsewhere; a different login alone is the connector's, not ours."""
    access = resolved(write())
    assert access.offsets_client("c", {}) is access.kafka
    assert access.offsets_client("c", {"producer.override.sasl.jaas.config": SECRET}) is access.kafka
    same = {key: f"{ENVIRON['EAST']}" for key in OTHER}
    assert access.offsets_client("c", same) is access.kafka


def test_overrides_name_another_cluster(write: Writer) -> None:
    """Servers and login of its producer, as Connect layers them over the worker's."""
    file = {"worker": None, "kafka": None, "worker_config": "worker.properties"}
    access = resolved(write(file, PROPERTIES + SCRAM + "producer.sasl.mechanism=SCRAM-SHA-256\n"))
    client = access.offsets_client("c", OTHER)
    assert client.properties["bootstrap.servers"] == "other:9092"
    assert client.properties["sasl.mechanism"] == "SCRAM-SHA-256"
    assert client.properties["sasl.password"] == SECRET
    plain = {**OTHER, "producer.override.security.protocol": "PLAINTEXT"}
    with pytest.raises(UsageError, match=r"has no effect with security\.protocol PLAINTEXT"):
        access.offsets_client("c", plain)


def test_clients_that_disagree_are_refused(write: Writer) -> None:
    """It would write its offsets to one cluster and read them from another."""
    access = resolved(write())
    with pytest.raises(UsageError, match="its clients name different Kafka servers") as raised:
        access.offsets_client("c", {"producer.override.bootstrap.servers": "other:9092"})
    assert raised.value.code == "OVERRIDES_DISAGREE"
    assert "producer: other:9092" in str(raised.value.seen)
    longer = {key: "other:9092, third:9092" for key in OTHER}
    assert access.offsets_client("c", {**longer, "producer.override.bootstrap.servers": "third:9092"})


def test_a_login_that_a_config_provider_holds_is_named_in_the_connect_file(write: Writer) -> None:
    """Told as such; with the entry in place it is used."""
    hidden = {**OTHER, "producer.override.sasl.jaas.config": "${file:/etc/secrets:jaas}"}
    with pytest.raises(UsageError, match=r"sasl\.jaas\.config refers to a config provider") as raised:
        resolved(write()).offsets_client("my.source", hidden)
    assert "connectors.my.source.kafka" in str(raised.value.resolve)
    named = {"my.source": {"kafka": {"client": {"bootstrap.servers": "other:9092", "client.id": "us"}}}}
    client = resolved(write({"connectors": named})).offsets_client("my.source", hidden)
    assert client.properties["client.id"] == "us"


def login(user: str, password: str) -> str:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return f'{module} required username="{user}" password="{password}";'


def told(reach: Callable[[], ClientConfig]) -> str:
    """Return everything that a client would be connected with, or why there is none."""
    try:
        return repr(dict(reach().properties))
    except UsageError as error:
        return str(error)


@pytest.mark.parametrize(
    "reference", ["${PASSWORD}", "${env:PASSWORD}", "${env:x:PASSWORD}", r"$\{PASSWORD}", r"\${PASSWORD}"]
)
@pytest.mark.parametrize("role", ["producer", "consumer", "admin"])
@pytest.mark.parametrize("key", ["sasl.jaas.config", "bootstrap.servers"])
def test_a_connector_is_not_sent_what_our_environment_holds(
    write: Writer, role: str, reference: str, key: str
) -> None:
    """It names the servers as well: who may create one would read Airflow's keys off a listener of theirs."""
    theirs = {
        "bootstrap.servers": "evil:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login("u", "p"),
        key: login("u", reference) if key == "sasl.jaas.config" else f"{reference}.evil:9092",
    }
    config = {f"{each}.override.bootstrap.servers": theirs["bootstrap.servers"] for each in ROLES}
    config |= {f"{role}.override.{name}": value for name, value in theirs.items()} | {"name": "c"}
    access = resolved(write())
    assert SECRET not in told(lambda: access.offsets_client("c", config))
    assert SECRET not in told(lambda: access.role_client(role, config))


@pytest.mark.parametrize(
    "theirs",
    [
        {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "/etc/onceover/client.pem",
        },
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "GSSAPI",
            "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
            'principal="onceover@EXAMPLE" keyTab="/etc/onceover/onceover.keytab";',
        },
    ],
)
def test_a_connector_does_not_choose_among_the_keys_of_this_machine(
    write: Writer, theirs: dict[str, str]
) -> None:
    """The file that it means is the workers'; the one at that place here may be another flow's login."""
    config = OTHER | {f"{role}.override.{key}": each for role in ROLES for key, each in theirs.items()}
    access = resolved(write())
    for reach in (access.offsets_client, lambda _, config: access.role_client("consumer", config)):
        with pytest.raises(UsageError, match="names a file of the workers' machines"):
            reach("c", {**config, "name": "c"})
    file = {"worker": None, "kafka": None, "worker_config": "worker.properties"}
    if "ssl.keystore.type" in theirs:
        named = "".join(f"{key}={value}\n" for key, value in theirs.items())
        found = resolved(write(file, PROPERTIES + named)).role_client("producer", {"name": "c"})
        assert found.properties["ssl.certificate.location"] == "/etc/onceover/client.pem"


def test_the_workers_own_file_names_our_variables(write: Writer) -> None:
    """Somebody has put it here, for this; what it stands for holds for clients of connectors, too."""
    file = {"worker": None, "kafka": None, "worker_config": "worker.properties"}
    jaas = f"sasl.jaas.config={login('u', '${env:PASSWORD}')}\n"
    text = f"{PROPERTIES}security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{jaas}"
    access = resolved(write(file, text))
    assert access.kafka.properties["sasl.password"] == SECRET
    assert access.role_client("producer", {"name": "c"}).properties["sasl.password"] == SECRET


# ---- what is written about it


def test_the_docs_name_every_key_and_no_other() -> None:
    """A key that is added or renamed has to be documented; so do the workers' keys that are read."""
    table = DOCS.split("| key | default | values |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `([a-z_]+)[^`]*` \|", table, re.MULTILINE)
    assert sorted(rows) == sorted(ConnectKeys.model_fields)
    assert all(f"`{key}`" in DOCS for key in WORKER_KEYS)


def test_the_example_in_the_docs_is_in_order(tmp_path: Path) -> None:
    """With the variable that it reads set."""
    path = tmp_path / "flights.yaml"
    path.write_text(DOCS.split("```yaml\n")[1].split("```")[0])
    assert load_connect(path, environ={"CONNECT_PASSWORD": SECRET}).connect == "flights"


def test_the_shipped_example_is_in_order() -> None:
    """And says what the containers' Connect has."""
    environ = {"ONCEOVER_CONNECT_REST": "http://127.0.0.1:8083", "ONCEOVER_EAST": "127.0.0.1:19092"}
    path = PROJECT / "include" / "connect" / "flights.yaml"
    access = resolve_connect(load_connect(path, environ=environ), environ=environ)
    lines = (PROJECT / "docker" / "connect.properties").read_text().splitlines()
    contained = dict(line.split("=", 1) for line in lines if "=" in line)
    told = {key: value for key, value in contained.items() if key in WORKER_KEYS}
    assert {key: access.properties.get(key) for key in told} == told
