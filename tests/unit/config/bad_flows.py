"""Ways to get one thing in a flow file wrong, and what the answer has to name."""

from __future__ import annotations

from datetime import date
from typing import Any

from tests.unit.config.conftest import SECRET

SASL = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "u",
    "sasl.password": "${PASSWORD}",
}


OIDC = {
    "security__protocol": "SASL_SSL",
    "sasl__mechanism": "OAUTHBEARER",
    "sasl__oauthbearer__method": "oidc",
    "sasl__oauthbearer__client__id": "copier",
    "sasl__oauthbearer__client__secret": "${PASSWORD}",
    "sasl__oauthbearer__token__endpoint__url": "https://idp/token",
}


def _source(**keys: Any) -> dict[str, Any]:
    return {"source": {"client": {name.replace("__", "."): value for name, value in keys.items()}}}


# (what is wrong, changes to the good file, key named, words of the problem, words of the fix)
ONE_FAULT: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("unknown key", {"lane": 2}, "lane", "unknown key", 'did you mean "lanes"?'),
    ("unknown key, nothing near", {"qqq": 2}, "qqq", "unknown key", "valid here: delivery, flow"),
    ("unknown nested key", {"limits": {"memory": "8MiB"}}, "limits.memory", "unknown", '"memory_per_lane"'),
    ("attribute name for key", {"path": "/x"}, "path", "unknown key", "valid here"),
    ("bad flow name", {"flow": "Orders_DR"}, "flow", "seen Orders_DR", "lower-case letters"),
    *(
        (f"flow called {name}", {"flow": name}, "flow", "a folder in ONCEOVER_HOME", "choose another name")
        for name in ("airflow", "clusters", "connect", "demo")
    ),
    ("flow name too long", {"flow": "a" * 101}, "flow", "not a valid flow name", "at most 100"),
    ("topics is a list", {"topics": ["orders"]}, "topics", "expected keys with values", "indented lines"),
    ("no topics", {"topics": {"include": []}}, "topics.include", "is empty", "name at least one topic"),
    ("spaces", {"topics": {"include": ["a", " b "]}}, "topics.include", "entry 2 begins or ends with", "'b'"),
    ("broken expression", {"topics": {"include": ["a", "b("]}}, "topics.include", "entry 2", "backslash"),
    ("text for a list", {"topics": {"include": "orders"}}, "topics.include", "seen orders", "write a list"),
    (
        "start without zone",
        {"topics": {"start": "timestamp:2026-01-01T00:00:00"}},
        "topics.start",
        "no zone",
        "its zone",
    ),
    ("start unknown", {"topics": {"start": "newest"}}, "topics.start", "seen newest", "earliest, latest"),
    (
        "start no time",
        {"topics": {"start": "timestamp:soon"}},
        "topics.start",
        "not an ISO time",
        "2026-01-01",
    ),
    (
        "duration without unit",
        {"transaction": {"max_interval": 500}},
        "transaction.max_interval",
        "seen 500",
        "500ms",
    ),
    (
        "interval too long",
        {"transaction": {"max_interval": "11s"}},
        "transaction.max_interval",
        "after 15s",
        "10ms to 10s",
    ),
    (
        "interval too short",
        {"transaction": {"max_interval": "9ms"}},
        "transaction.max_interval",
        "range",
        "10ms to",
    ),
    ("size in MB", {"transaction": {"max_bytes": "64MB"}}, "transaction.max_bytes", "seen 64MB", "MiB"),
    (
        "little memory",
        {"limits": {"memory_per_lane": "7MiB"}},
        "limits.memory_per_lane",
        "hold a fetch",
        "8MiB",
    ),
    ("no lanes", {"lanes": 0}, "lanes", "from 1 to 64, seen 0", "e.g. 1"),
    ("lanes true", {"lanes": True}, "lanes", "whole number", "e.g."),
    (
        "more lanes than slots",
        {"lanes": 3, "spark": {"master": "local[2]"}},
        "spark.master",
        "2 slots",
        '"local"',
    ),
    ("short tasks", {"spark": {"task_length": "4s"}}, "spark.task_length", "out of range", "5s to"),
    ("unknown master", {"spark": {"master": "mesos://x"}}, "spark.master", "seen mesos://x", "spark://"),
    ("bad schedule", {"schedules": {"audit": "daily"}}, "schedules.audit", "seen daily", "@daily"),
    (
        "minute 61",
        {"schedules": {"replicate": "61 * * * *"}},
        "schedules.replicate",
        "out of range), seen 61 * * * *",
        "0 3 * * *",
    ),
    (
        "day never",
        {"schedules": {"audit": "0 0 30 2 *"}},
        "schedules.audit",
        "never comes), seen 0 0",
        "@daily",
    ),
    (
        "cron of six",
        {"schedules": {"audit": "0 * * * * *"}},
        "schedules.audit",
        "not a schedule, seen",
        "@daily",
    ),
    (
        "drawn cron",
        {"schedules": {"audit": "R * * * *"}},
        "schedules.audit",
        "not a schedule, seen",
        "@daily",
    ),
    ("bad objective", {"objectives": {"rpo": "none"}}, "objectives.rpo", "seen none", "0 records"),
    (
        "yes for true",
        {"topics": {"sync_configs": "yep"}},
        "topics.sync_configs",
        "true or false",
        "without quotes",
    ),
    ("unknown delivery", {"delivery": "twice"}, "delivery", "seen twice", "at_least_once"),
    ("unknown naming", {"topics": {"naming": "suffix"}}, "topics.naming", "seen suffix", "identity"),
    (
        "dead letter into a copied topic",
        {"on_bad_record": "dead_letter:orders", "topics": {"include": ["orders.*"]}},
        "on_bad_record",
        "orders is a topic that the flow itself copies to",
        "exclude it in topics.exclude",
    ),
    (
        "dead letter into an internal topic",
        {"on_bad_record": "dead_letter:__bad"},
        "on_bad_record",
        "an internal topic",
        "choose a name",
    ),
    (
        "argument without its variable",
        {"handler": "a.b:c", "handler_args": {"key": "${NOT_SET_ANYWHERE}"}},
        "handler_args.key",
        "NOT_SET_ANYWHERE is not set",
        "export NOT_SET_ANYWHERE",
    ),
    (
        "argument that JSON does not know",
        {"handler": "a.b:c", "handler_args": {"since": date(2026, 1, 1)}},
        "handler_args.since",
        "JSON does not know",
        "in quotes",
    ),
    (
        "args without handler",
        {"handler_args": {"a": SECRET}},
        "handler_args",
        "without a handler",
        "name a handler",
    ),
    ("no way to connect", {"source": {"client": None}}, "source", "exactly one of", "add one"),
    (
        "two ways",
        {"source": {"connection": "c"}},
        "source.connection",
        "client and connection",
        "remove the others",
    ),
    ("client is a text", {"source": {"client": SECRET}}, "source.client", "keys with values", "{key: value}"),
    ("same alias", {"target": {"alias": "east"}}, "target.alias", "the source's alias", "different names"),
    (
        "same cluster",
        {"target": {"client": {"bootstrap.servers": "x:1,LOCALHOST:19092"}}},
        "target.client.bootstrap.servers",
        "onto itself",
        "different clusters",
    ),
    (
        "variable unset",
        _source(bootstrap__servers="${NOPE}"),
        "source.client.bootstrap.servers",
        "NOPE is not set",
        "export NOPE",
    ),
    ("variable unset elsewhere", {"lanes": "${LANES}"}, "lanes", "LANES is not set", "export LANES"),
    ("no variable name", {"flow": "${a-b}"}, "flow", "name of a variable", "${NAME}"),
    (
        "no servers",
        _source(bootstrap__servers=None),
        "source.client.bootstrap.servers",
        "single value",
        "commas",
    ),
    (
        "no port",
        _source(bootstrap__servers="a:1,b"),
        "source.client.bootstrap.servers",
        "server 2 of 2",
        '"host:port"',
    ),
    (
        "a variable that is set to nothing",
        _source(bootstrap__servers="a:1,.kafka:9092"),
        "source.client.bootstrap.servers",
        "server 2 of 2",
        '"host:port"',
    ),
    (
        "schedule without an end",
        {"schedules": {"audit": f"{'9' * 5000} * * * *"}},
        "schedules.audit",
        "not a schedule",
        "cron expression",
    ),
    (
        "port too large",
        _source(bootstrap__servers="a:65536"),
        "source.client.bootstrap.servers",
        "host:port",
        "65535",
    ),
    (
        "scheme",
        _source(bootstrap__servers="kafka://a:1"),
        "source.client.bootstrap.servers",
        "host:port",
        '"host:port"',
    ),
    (
        "literal password",
        {"source": {"client": {**SASL, "sasl.password": SECRET}}},
        "source.client.sasl.password",
        "such files live in git",
        "${NAME}",
    ),
    (
        "half a literal",
        {"source": {"client": {**SASL, "sasl.password": "x${PASSWORD}"}}},
        "source.client.sasl.password",
        "live in git",
        "${NAME}",
    ),
    (
        "literal key",
        {
            "source": {
                "client": {**SASL, "ssl.certificate.pem": "-----BEGIN C", "ssl.key.pem": "-----BEGIN K"}
            }
        },
        "source.client.ssl.key.pem",
        "live in git",
        "${NAME}",
    ),
    (
        "client key typo",
        _source(securty__protocol=SECRET),
        "source.client.securty.protocol",
        "not a client key",
        '"security.protocol"',
    ),
    ("client key unknown", _source(zzz=SECRET), "source.client.zzz", "not a client key", "docs/flow-file.md"),
    (
        "transactional.id",
        _source(transactional__id="x"),
        "source.client.transactional.id",
        "break exactly-once",
        "remove",
    ),
    ("acks", _source(acks=1), "source.client.acks", "break exactly-once", "remove"),
    ("isolation", _source(isolation__level="x"), "source.client.isolation.level", "read committed", "remove"),
    ("group.id", _source(group__id="x"), "source.client.group.id", "the flow's own group", "remove"),
    (
        "kerberos command",
        _source(sasl__kerberos__kinit__cmd="x"),
        "source.client.sasl.kerberos.kinit.cmd",
        "never by a command",
        ".keytab",
    ),
    (
        "keytab of nobody",
        _source(security__protocol="SASL_SSL", sasl__mechanism="GSSAPI", sasl__kerberos__keytab="/k"),
        "source.client.sasl.kerberos.principal",
        "required with sasl.kerberos.keytab",
        "add",
    ),
    (
        "region of nowhere",
        _source(
            security__protocol="SASL_SSL", sasl__mechanism="OAUTHBEARER", sasl__oauthbearer__method="aws_iam"
        ),
        "source.client.sasl.oauthbearer.aws.region",
        "required with aws_iam",
        "add",
    ),
    (
        "java store",
        _source(ssl__truststore__location="x"),
        "source.client.ssl.truststore.location",
        "Java key stores",
        "PEM",
    ),
    (
        "bad protocol",
        _source(security__protocol="TLS"),
        "source.client.security.protocol",
        "not a valid",
        "SASL_SSL",
    ),
    (
        "no mechanism",
        _source(security__protocol="SASL_SSL"),
        "source.client.sasl.mechanism",
        "is required",
        "PLAIN",
    ),
    (
        "no username",
        _source(security__protocol="SASL_SSL", sasl__mechanism="PLAIN", sasl__password="${PASSWORD}"),
        "source.client.sasl.username",
        "required with sasl.mechanism PLAIN",
        "add sasl.username",
    ),
    (
        "protocol forgotten",
        _source(sasl__username="u"),
        "source.client.sasl.username",
        "no effect with security.protocol PLAINTEXT",
        "SASL_PLAINTEXT or SASL_SSL",
    ),
    (
        "tls forgotten",
        _source(ssl__ca__location="x"),
        "source.client.ssl.ca.location",
        "no effect",
        "SSL or SASL_SSL",
    ),
    (
        "contradiction",
        {"source": {"client": {**SASL, "sasl.mechanisms": "OAUTHBEARER"}}},
        "source.client.sasl.mechanisms",
        "same key",
        "remove one",
    ),
    (
        "unsecured token",
        _source(security__protocol="SASL_SSL", sasl__mechanism="OAUTHBEARER"),
        "source.client.sasl.oauthbearer.method",
        "unsecured",
        "oidc",
    ),
    (
        "token endpoint without TLS",
        _source(**{**OIDC, "sasl__oauthbearer__token__endpoint__url": "HTTP://idp/token"}),
        "source.client.sasl.oauthbearer.token.endpoint.url",
        "without TLS",
        "https://",
    ),
    (
        "extensions of the token",
        _source(**OIDC, sasl__oauthbearer__extensions="auth=x"),
        "source.client.sasl.oauthbearer.extensions",
        "name=value",
        "letters",
    ),
    (
        "two authorities",
        _source(security__protocol="SSL", ssl__ca__location="x", ssl__ca__pem="-----BEGIN X"),
        "source.client.ssl.ca.pem",
        "together with ssl.ca.location",
        "remove one",
    ),
    (
        "key alone",
        _source(security__protocol="SSL", ssl__key__location="x"),
        "source.client.ssl.key.location",
        "without its certificate",
        "add",
    ),
    ("timeout", _source(socket__timeout__ms=0), "source.client.socket.timeout.ms", "out of range", "300000"),
]
