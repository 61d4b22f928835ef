"""A MirrorMaker 2 file becomes flow files; nothing of it is lost in silence, no secret repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from onceover.config.faults import BadConfig
from onceover.config.flow.load import load_flow
from onceover.config.mirrormaker.mm2 import Mm2Import, import_mm2
from onceover.config.properties import parse_properties
from tests.unit.config.conftest import SECRET

BASE = """
clusters = east, west
east.bootstrap.servers = e1:9092, e2:9092
west.bootstrap.servers = w1:9092
east->west.enabled = true
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
"""
FULL = (
    BASE
    + f"""
east->west.topics = orders.*, flights
east->west.topics.exclude = .*-tmp
groups = app-.*
groups.blacklist = app-old
tasks.max = 4
refresh.topics.interval.seconds = 10
sync.topic.acls.enabled = false
sync.topic.configs.enabled = false
offset-syncs.topic.replication.factor = 3
east.consumer.auto.offset.reset = latest
east.security.protocol = SASL_SSL
east.sasl.mechanism = SCRAM-SHA-512
east.sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="mirror" password="{SECRET};\\\\"x";
east.ssl.truststore.location = /etc/kafka/trust.jks
east.ssl.truststore.password = {SECRET}
west.exactly.once.source.support = enabled
dedicated.mode.enable.internal.rest = true
east->west.producer.linger.ms = 50
east.consumer.isolation.level = read_committed
something.odd = {SECRET}
west->east.enabled = false
west->east.topics = back
"""
)


def _import(text: str) -> Mm2Import:
    result = import_mm2(text, Path("mm2.properties"))
    assert SECRET not in repr(result)
    return result


def _flow(text: str) -> dict[str, Any]:
    (flow,) = _import(text).flows
    data: dict[str, Any] = yaml.safe_load(flow.text)
    return data


def test_every_translatable_setting_reaches_the_flow_file() -> None:
    """The most specific value wins, as in MirrorMaker 2."""
    assert _flow(FULL) == {
        "flow": "east-to-west",
        "source": {
            "alias": "east",
            "client": {
                "bootstrap.servers": "e1:9092,e2:9092",
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "mirror",
                "sasl.password": "${ONCEOVER_EAST_SASL_PASSWORD}",
            },
        },
        "target": {"alias": "west", "client": {"bootstrap.servers": "w1:9092"}},
        "topics": {
            "include": ["orders.*", "flights"],
            "exclude": [".*-tmp"],
            "naming": "identity",
            "start": "latest",
            "discovery_interval": "10s",
            "sync_configs": False,
            "sync_acls": False,
        },
        "lanes": 4,
        "delivery": "exactly_once",
        "groups": {"include": ["app-.*"], "exclude": ["app-old"]},
        "state": {"replication_factor": 3},
    }


def test_checkpoints_and_heartbeats_are_written_as_mirrormaker_was_told() -> None:
    """Told nothing, MirrorMaker 2 writes both; we do not, and say so."""
    told = """
emit.checkpoints.enabled = true
emit.checkpoints.interval.seconds = 30
east->west.emit.heartbeats.enabled = false
"""
    assert _flow(BASE + told)["mirrormaker"] == {
        "checkpoints": True,
        "checkpoint_interval": "30s",
        "heartbeats": False,
    }
    assert not any("heartbeats" in note for note in _import(BASE + told).notes)
    assert any("mirrormaker.heartbeats" in note for note in _import(BASE).notes)
    half = _import(f"{BASE}emit.checkpoints.interval.seconds = 30")
    only = [note for note in half.notes if "writes" in note]
    assert [note.rpartition(".")[2] for note in only] == ["checkpoints", "heartbeats"]


def test_every_setting_is_translated_or_listed_with_a_reason() -> None:
    """What is neither in the flow nor in the list would be lost in silence."""
    result = _import(FULL)
    assert {entry.key for entry in result.no_counterpart} == {
        "east.ssl.truststore.location",
        "east.ssl.truststore.password",
        "dedicated.mode.enable.internal.rest",
        "east->west.producer.linger.ms",
        "east.consumer.isolation.level",
        "something.odd",
        "west->east.enabled",
        "west->east.topics",
    }
    assert all(entry.reason for entry in result.no_counterpart)
    reasons = {entry.key: entry.reason for entry in result.no_counterpart}
    assert "keytool" in reasons["east.ssl.truststore.location"]
    assert "ONCEOVER_EAST_SASL_PASSWORD" in result.notes[0]


@pytest.mark.parametrize(
    ("setting", "delivery"),
    [
        ("west.exactly.once.source.support = enabled", "exactly_once"),
        ("exactly.once.source.support = preparing", "at_least_once"),
        ("exactly.once.source.support = DISABLED", "at_least_once"),
        ("transaction.producer = true", "exactly_once"),
        ("transaction.producer = false", "at_least_once"),
    ],
)
def test_the_delivery_that_mirrormaker_was_told_is_kept(setting: str, delivery: str) -> None:
    """KIP-618's switch, or KIP-656's; without either, the flow file's default is better than theirs."""
    assert _flow(f"{BASE}{setting}\n")["delivery"] == delivery
    assert "delivery" not in _flow(BASE)


@pytest.mark.parametrize(
    ("setting", "start"),
    [
        ("east.consumer.auto.offset.reset = latest", "latest"),
        ("east->west.consumer.auto.offset.reset = latest", "latest"),
        ("east->west.source.consumer.auto.offset.reset = latest", "latest"),
        ("east->west.source.consumer.auto.offset.reset=latest\neast.consumer.auto.offset.reset=x", "latest"),
        ("east.consumer.auto.offset.reset=latest\neast->west.consumer.auto.offset.reset=earliest", "latest"),
        ("consumer.auto.offset.reset = latest", None),
        ("auto.offset.reset = latest", None),
        ("west.consumer.auto.offset.reset = latest", None),
        ("source.consumer.auto.offset.reset = latest", None),
    ],
)
def test_a_flow_starts_at_the_end_only_where_mirrormaker_would(setting: str, start: str | None) -> None:
    """Where it does not look, `latest` meant nothing; here it would leave out what it has copied."""
    result = _import(f"{BASE}{setting}\n")
    assert yaml.safe_load(result.flows[0].text)["topics"].get("start") == start
    reasons = {entry.reason for entry in result.no_counterpart}
    assert any("where MirrorMaker 2 does not look" in reason for reason in reasons) is (start is None)


def test_what_is_said_of_another_cluster_does_not_count() -> None:
    """Its workers are the target's, its filters the pair's or everybody's."""
    other = """
east.exactly.once.source.support = disabled
exactly.once.source.support = enabled
west.topics = back
east.tasks.max = 9
"""
    flow = _flow(BASE + other)
    assert (flow["delivery"], flow["topics"]["include"], flow.get("lanes")) == ("exactly_once", [".*"], None)


def test_the_written_file_is_in_order(tmp_path: Path) -> None:
    """What the import makes, the check accepts once the variable is set."""
    (flow,) = _import(FULL).flows
    path = tmp_path / "east-to-west.yaml"
    path.write_text(flow.text)
    loaded = load_flow(path, environ={"ONCEOVER_EAST_SASL_PASSWORD": SECRET})
    assert (loaded.flow, loaded.lanes, loaded.topics.start) == ("east-to-west", 4, "latest")


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("topics = \\\\p{Alpha}+", "topics.include"),
        ("topics = ${file:/etc/mm2:topics}", "topics.include"),
        ("topics =", "topics.include"),
        ("topics.exclude = secret-(.*", "topics.exclude"),
        ("topics.blacklist = secret-(.*", "topics.exclude"),
        ("groups = (a", "groups.include"),
        ("groups.exclude = (a", "groups.exclude"),
        ("replication.policy.class = com.example.Custom", "topics.naming"),
    ],
)
def test_what_is_copied_and_how_it_is_called_is_never_a_default_where_it_was_told_otherwise(
    tmp_path: Path, setting: str, fault: str
) -> None:
    """Left out, it would mean all topics, all groups or other names: a file that says so is not in order."""
    (flow,) = _import(f"{BASE}{setting}\n").flows
    path = tmp_path / "east-to-west.yaml"
    path.write_text(flow.text)
    with pytest.raises(BadConfig) as raised:
        load_flow(path)
    assert {each.key for each in raised.value.faults} == {fault}


@pytest.mark.parametrize("setting", ["topics.exclude", "topics.blacklist", "east->west.topics.exclude"])
def test_what_mirrormaker_leaves_out_by_default_is_left_out(tmp_path: Path, setting: str) -> None:
    """Unless it is told what to leave out, which takes the default's place."""
    flow = _flow(BASE)
    assert flow["topics"]["exclude"] == [r"mm2.*\.internal", r".*\.replica", "__.*"]
    assert any("Kafka 3" in note and "topics.exclude" in note for note in _import(BASE).notes)
    path = tmp_path / "east-to-west.yaml"
    path.write_text(_import(BASE).flows[0].text)
    assert load_flow(path).topics.exclude == tuple(flow["topics"]["exclude"])
    told = f"{BASE}{setting} = .*-tmp\n"
    assert _flow(told)["topics"]["exclude"] == [".*-tmp"]
    assert not any("Kafka 3" in note for note in _import(told).notes)


@pytest.mark.parametrize(
    "key",
    [
        "source.consumer.security.protocol",
        "consumer.sasl.mechanism",
        "producer.ssl.protocol",
        "source.cluster.bootstrap.servers",
        "target.admin.sasl.jaas.config",
        "producer.override.security.protocol",
    ],
)
def test_a_client_of_one_pair_alone_is_listed_with_where_it_goes(key: str) -> None:
    """MirrorMaker does look there; a flow file has one client for each side."""
    (entry,) = _import(f"{BASE}east->west.{key} = {SECRET}\n").no_counterpart
    assert (entry.key, entry.value) == (f"east->west.{key}", "(not shown)")
    assert "source.client or target.client of east-to-west" in entry.reason
    (other,) = _import(f"{BASE}west->east.{key} = {SECRET}\n").no_counterpart
    assert "no enabled pair" in other.reason


def test_of_clients_that_differ_each_side_takes_the_one_that_copies() -> None:
    """The source is read by its consumer, the target is written by its producer; the others are listed."""
    text = BASE
    for alias in ("east", "west"):
        for role, protocol in (("consumer", "SSL"), ("producer", "SASL_SSL"), ("admin", "PLAINTEXT")):
            text += f"{alias}.{role}.security.protocol = {protocol}\n"
    flow = _flow(text)
    assert flow["source"]["client"]["security.protocol"] == "SSL"
    assert flow["target"]["client"]["security.protocol"] == "SASL_SSL"
    reasons = {entry.key: entry.reason for entry in _import(text).no_counterpart}
    assert reasons.keys() == {
        f"{alias}.{role}.security.protocol"
        for alias, roles in (("east", ("producer", "admin")), ("west", ("consumer", "admin")))
        for role in roles
    }
    assert "east.consumer.security.protocol is taken" in reasons["east.admin.security.protocol"]
    same = text.replace("SASL_SSL", "SSL").replace("PLAINTEXT", "SSL")
    assert not _import(same).no_counterpart


def test_of_a_policy_of_ones_own_nobody_says_that_it_is_the_default() -> None:
    """How it names copies is not known."""
    result = _import(f"{BASE}replication.policy.class = com.example.Custom\n")
    assert not any("default policy" in note for note in result.notes)


def test_the_default_policy_becomes_prefix_and_says_so() -> None:
    """MirrorMaker 2 renames topics unless told otherwise; importing must not change that in silence."""
    text = BASE.replace("replication.policy.class", "#")
    assert _flow(text)["topics"]["naming"] == "prefix"
    assert "naming: prefix" in " ".join(_import(text).notes)


def test_an_alias_that_a_flow_file_cannot_hold_is_said_with_what_it_means_for_the_copies() -> None:
    """They are not MirrorMaker's, whose names begin otherwise."""
    text = "clusters = eu.west, us\neu.west->us.enabled = true"
    (flow,) = _import(text).flows
    assert yaml.safe_load(flow.text)["source"]["alias"] == "eu-west"
    (note,) = (note for note in _import(text).notes if "names topics" in note)
    assert "copies are called eu-west.<topic>, beside MirrorMaker's" in note


@pytest.mark.parametrize(
    ("setting", "theirs"),
    [("replication.policy.separator = -", "-"), ("east->west.replication.policy.separator=", "")],
)
def test_a_separator_of_ones_own_is_said_with_what_it_means_for_the_copies(setting: str, theirs: str) -> None:
    """Names begin otherwise, as with an alias that no flow file holds."""
    text = BASE.replace("replication.policy.class", "#") + setting
    (note,) = (note for note in _import(text).notes if "names topics" in note)
    assert f"names topics east{theirs}<topic>, and no flow file" in note
    assert "copies are called east.<topic>, beside MirrorMaker's" in note


@pytest.mark.parametrize("aliases", [("eu_1", "eu-1"), ("East", "east"), ("a.b", "a-b")])
def test_two_pairs_that_would_be_one_flow_are_refused(aliases: tuple[str, str]) -> None:
    """One file would be written for both, and one of the sources never copied."""
    one, other = aliases
    text = f"clusters = {one}, {other}, us\n{one}->us.enabled = true\n{other}->us.enabled = true"
    with pytest.raises(BadConfig, match=f"{one}->us and {other}->us would be one flow"):
        import_mm2(text, Path("mm2.properties"))


@pytest.mark.parametrize(
    ("policies", "warned"),
    [
        ("", True),
        ("west->east.replication.policy.class = DefaultReplicationPolicy", True),
        ("replication.policy.class = DefaultReplicationPolicy", False),
    ],
)
def test_two_enabled_directions_make_two_flows_and_a_warning_where_names_are_kept(
    policies: str, warned: bool
) -> None:
    """Both with identity naming would copy in a circle; two that rename are what prefixes are for."""
    result = _import(f"{BASE}west->east.enabled = true\n{policies}\n")
    assert [flow.name for flow in result.flows] == ["east-to-west", "west-to-east"]
    assert ("start one of the two flows" in " ".join(result.notes)) is warned


def test_a_cluster_that_is_named_twice_is_one() -> None:
    """As for MirrorMaker, whose clusters are a set."""
    assert len(_import(BASE.replace("east, west", "east, west, east")).flows) == 1
    with pytest.raises(BadConfig, match="names fewer than two clusters"):
        _import("clusters = a, a\na->a.enabled = true")


SECURITY: list[tuple[str, dict[str, str]]] = [
    (
        "sasl.jaas.config=security.plain.PlainLoginModule required username='u' password=p;",
        {"sasl.username": "u", "sasl.password": "${ONCEOVER_EAST_SASL_PASSWORD}"},
    ),
    (
        'sasl.jaas.config=x.PlainLoginModule required username="${env:U}" password="${env:PW}";',
        {"sasl.username": "${U}", "sasl.password": "${PW}"},
    ),
    (
        'sasl.jaas.config=x.OAuthBearerLoginModule required clientId="c" clientSecret="s" scope="k";',
        {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "c",
            "sasl.oauthbearer.client.secret": "${ONCEOVER_EAST_SASL_OAUTHBEARER_CLIENT_SECRET}",
            "sasl.oauthbearer.scope": "k",
        },
    ),
    (
        'sasl.jaas.config=x.OAuthBearerLoginModule required clientId="c" extension_pool="p" extension_a="b";',
        {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "c",
            "sasl.oauthbearer.extensions": "pool=p,a=b",
        },
    ),
    (
        'sasl.jaas.config=x.Krb5LoginModule required useKeyTab=true keyTab="/k" principal="c@R";',
        {"sasl.kerberos.keytab": "/k", "sasl.kerberos.principal": "c@R"},
    ),
    (
        "sasl.jaas.config=x.Krb5LoginModule required useTicketCache=true serviceName=kafka2;",
        {"sasl.kerberos.service.name": "kafka2"},
    ),
    (
        "sasl.mechanism=GSSAPI\neast.sasl.kerberos.service.name=kafka2",
        {"sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka2"},
    ),
    ("ssl.truststore.type=PEM\neast.ssl.truststore.location=/ca.pem", {"ssl.ca.location": "/ca.pem"}),
    (
        "ssl.keystore.type=pem\neast.ssl.keystore.location=/c.pem\neast.ssl.key.password=p",
        {
            "ssl.certificate.location": "/c.pem",
            "ssl.key.location": "/c.pem",
            "ssl.key.password": "${ONCEOVER_EAST_SSL_KEY_PASSWORD}",
        },
    ),
    ("ssl.endpoint.identification.algorithm=", {"ssl.endpoint.identification.algorithm": "none"}),
]


@pytest.mark.parametrize(("text", "expected"), SECURITY)
def test_java_security_becomes_librdkafka_keys(text: str, expected: dict[str, str]) -> None:
    """Logins are read from JAAS, PEM stores from their files, secrets become variables."""
    client = _flow(f"{BASE}east.{text}")["source"]["client"]
    assert {key: value for key, value in client.items() if key != "bootstrap.servers"} == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"sasl.jaas.config={SECRET}", "no login we can read"),
        ("sasl.kerberos.kinit.cmd=x", "got by the library"),
        ("sasl.jaas.config=${file:/s.properties:jaas}", "config provider"),
        (f"ssl.keystore.password={SECRET}", "openssl pkcs12"),
        ("ssl.cipher.suites=x", "no librdkafka counterpart"),
        ("sasl.login.callback.handler.class=x", "names a Java class"),
        ("sasl.mechanism=AWS_MSK_IAM", "sasl.oauthbearer.method: aws_iam"),
        ("sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;", "aws.region"),
    ],
)
def test_security_that_cannot_be_translated_is_listed(text: str, reason: str) -> None:
    """With what to do instead, and without the value."""
    (entry,) = _import(f"{BASE}east.{text}").no_counterpart
    assert entry.key == "east." + text.partition("=")[0]
    assert entry.value == "(not shown)"
    assert reason in entry.reason


LOGIN = "x.OAuthBearerLoginModule required clientId=c "
BY_NAME = f"LoginModule required username=u password={SECRET}"
UNSECURED = "unsecuredLoginStringClaim_sub"


@pytest.mark.parametrize(
    ("login", "named", "reason"),
    [
        (f"{LOGIN}extension_pool=p extension_auth=x", "extension_auth", "name=value"),
        (f'{LOGIN}extension_pool=p extension_list="{SECRET},b"', "extension_list", "name=value"),
        (
            f"{LOGIN}extension_pool=p unsecuredLoginStringClaim_sub={SECRET}",
            "unsecuredLoginStringClaim_sub",
            "",
        ),
        (
            f"x.PlainLoginModule required username=u password={SECRET} other={SECRET}",
            "other",
            "no counterpart",
        ),
        (
            f"x.ScramLoginModule required username=u password={SECRET} tokenauth=true",
            "tokenauth",
            "delegation",
        ),
    ],
)
def test_options_of_a_login_that_cannot_be_taken_over_are_listed(login: str, named: str, reason: str) -> None:
    """Each by its name and without its value; the others stay."""
    result = _import(f"{BASE}east.sasl.jaas.config={login};")
    (entry,) = result.no_counterpart
    assert entry.key == f"east.sasl.jaas.config.{named}"
    assert reason in entry.reason
    client = yaml.safe_load(result.flows[0].text)["source"]["client"]
    assert client.get("sasl.oauthbearer.extensions") == ("pool=p" if "extension_pool" in login else None)


def test_what_may_be_a_secret_in_an_extension_is_a_variable() -> None:
    result = _import(f"{BASE}east.sasl.jaas.config={LOGIN}extension_pool=p extension_apiToken={SECRET};")
    client = yaml.safe_load(result.flows[0].text)["source"]["client"]
    variable = "ONCEOVER_EAST_SASL_OAUTHBEARER_EXTENSIONS_APITOKEN"
    assert client["sasl.oauthbearer.extensions"] == f"pool=p,apiToken=${{{variable}}}"
    assert any(variable in note for note in result.notes)


def test_lines_of_a_value_are_no_names_of_settings() -> None:
    """A private key whose lines are not continued: each of them is a key to who reads properties."""
    lines = [f"{SECRET.replace('-', '')}{number}/+x" for number in range(3)]
    begin = "east.ssl.keystore.key=-----BEGIN PRIVATE KEY-----"
    result = _import("\n".join([BASE, begin, *lines, "-----END PRIVATE KEY-----"]))
    (entry,) = result.no_counterpart
    assert (entry.key, entry.value) == ("…", "(not shown)")


def test_a_protocol_that_a_config_provider_holds_is_no_plain_text() -> None:
    """Left out it would be PLAINTEXT; a variable that is not set is refused."""
    result = _import(f"{BASE}east.security.protocol = ${{file:/s.properties:protocol}}")
    client = yaml.safe_load(result.flows[0].text)["source"]["client"]
    assert client["security.protocol"] == "${ONCEOVER_EAST_SECURITY_PROTOCOL}"
    assert any("ONCEOVER_EAST_SECURITY_PROTOCOL" in note for note in result.notes)


def test_a_setting_of_all_clusters_reaches_both() -> None:
    """MirrorMaker 2 lets client settings stand without a cluster's name."""
    flow = _flow(BASE + "security.protocol = SSL\nwest.security.protocol = PLAINTEXT")
    assert [flow[side]["client"]["security.protocol"] for side in ("source", "target")] == [
        "SSL",
        "PLAINTEXT",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "clusters: names fewer than two clusters; write clusters = east, west"),
        ("clusters = a", "clusters: names fewer than two"),
        (
            "connector.class = MirrorSourceConnector\nsource.cluster.alias = a",
            "as in dedicated mode; a connector's own file is not read",
        ),
        ("clusters = a, b\na->b.enabled=false", "no pair of clusters is enabled; write a->b.enabled = true"),
        (f"clusters = a, b\nx={SECRET}\\u1", "line 2: "),
        (
            f"{BASE}consumer.security.protocol = TLS",
            "consumer.security.protocol: not a valid value; one of: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        (f"{BASE}security.protocol = {SECRET}", "security.protocol: not a valid value; one of: "),
    ],
)
def test_a_file_that_makes_no_flow_is_refused(text: str, words: str) -> None:
    """The file is named, and what is missing from it."""
    with pytest.raises(BadConfig) as raised:
        import_mm2(text, Path("mm2.properties"))
    assert str(raised.value).startswith("mm2.properties: ")
    assert words in str(raised.value)
    assert SECRET not in repr((str(raised.value), raised.value.__context__))


def test_a_value_out_of_range_is_listed_not_guessed() -> None:
    """A broken expression or number does not become a broken flow file."""
    result = _import(BASE + "tasks.max = 100\ntopics = (a")
    assert {entry.key for entry in result.no_counterpart} == {"tasks.max", "topics"}
    assert len(parse_properties(BASE)) == 5
