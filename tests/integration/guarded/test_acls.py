"""ACLs between two clusters with Kafka's own authorizer, and the rights that a flow needs on both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from onceover.acls import sync as aclsync
from onceover.acls.kept import owned_acls
from onceover.config.clients.resolve import ClientConfig
from onceover.errors import Fenced, OnceoverError, UsageError
from onceover.groups.apply import AppliedGroups
from onceover.groups.decide import Allowed
from onceover.kafka.admin.acls import Acl, AclAdmin, NoAuthorizer
from onceover.kafka.admin.topics import Admin, TopicSpec
from onceover.kafka.cluster import LiveCluster
from onceover.lead.supervisor import Supervisor
from onceover.state import names
from onceover.state.log import StateLog
from onceover.wiring.flows import open_clusters
from onceover.wiring.groups import GroupRequest
from onceover_lab.embed.security import Security
from tests.support.brokers.authorizer import TOPIC_OPERATIONS, Question, allows
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.brokers.guarded import Pair, guarded_replica
from tests.support.flows.grants import (
    CLUSTER,
    CLUSTER_NAME,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    adoption_rights,
    grant,
    mirror_rights,
    target_rights,
)
from tests.support.flows.groups import commit, offset_of
from tests.support.flows.operations import apply_groups, apply_topics
from tests.support.flows.replica import Replica, read_records
from tests.support.raw.adversary import Adversary
from tests.support.raw.rawacls import DENIED, DESCRIBE, TWO_PHASE_COMMIT, WRITE, RawAcl, create_raw
from tests.support.raw.rawkafka import Codec, RawRecord
from tests.support.session.wait import wait_until

OWN, FOREIGN = "User:onceover", "User:foreign"
_TIMEOUT_S = 60.0


class ShownAcls(AclAdmin):
    """Returns from a change once the broker shows it: the controller answers before."""

    def create(self, acls: Iterable[Acl]) -> None:
        made = frozenset(acls)
        super().create(made)
        wait_until(lambda: made <= self.topic_acls(), _TIMEOUT_S, "the broker shows them")

    def delete(self, acls: Iterable[Acl]) -> None:
        gone = frozenset(acls)
        super().delete(gone)
        wait_until(lambda: not gone & self.topic_acls(), _TIMEOUT_S, "the broker shows them no more")


@pytest.fixture(scope="module")
def superusers(guarded: Pair) -> Iterator[tuple[AclAdmin, AclAdmin]]:
    """The ACLs of both clusters, as the superuser sees them."""
    source, target = (LiveCluster(ClientConfig(side.name, side.admin_client)) for side in guarded)
    with source, target:
        yield ShownAcls(source), ShownAcls(target)


@pytest.fixture
def replica(guarded: Pair, tmp_path: Path, unique_name: str) -> Iterator[Replica]:
    """A flow with exactly the rights of docs/operations.md."""
    with guarded_replica(guarded, tmp_path, unique_name) as replica:
        replica.configure(topics={"sync_acls": True})
        yield replica


def acl(
    topic: str, operation: str, *, who: str = "User:ann", deny: bool = False, prefix: bool = False
) -> Acl:
    """Return an ACL for ``topic``."""
    return Acl("PREFIXED" if prefix else "LITERAL", topic, who, "*", operation, "DENY" if deny else "ALLOW")


def others(acls: frozenset[Acl]) -> set[tuple[str, str, str]]:
    """Return who may or may not do what, without the flow's own user, who has rights on the source, too."""
    return {(a.principal, a.operation, a.permission) for a in acls if a.principal != OWN}


def with_nul(acls: frozenset[Acl], topic: str) -> set[tuple[str, str, str, str]]:
    """Return who and from where, with a NUL in the name, may or may not do what with a topic."""
    return {
        (a.principal, a.host, a.operation, a.permission)
        for a in acls
        if a.name == topic and "\0" in a.principal + a.host
    }


def state_of(replica: Replica) -> dict[str, Any]:
    """Return what is kept of what the flow looks after."""
    source, target = open_clusters(replica.flow.watch.flow)
    state = StateLog(target, names.owned_topic(replica.name), 0)
    with source, target:
        try:
            return state.catch_up()
        finally:
            state.close()


def owned(replica: Replica) -> frozenset[Acl]:
    """Return what the flow says it created."""
    return owned_acls(state_of(replica))


def look_again(lead: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the leader look at the ACLs now, although it did so a moment ago."""
    with monkeypatch.context() as patch:
        patch.setattr(aclsync, "INTERVAL_S", 0.0)
        lead.tick()


def test_a_cluster_that_may_not_say_its_acls_is_an_error_and_not_an_empty_list(
    guarded: Pair, source_cluster: SharedCluster
) -> None:
    """Nothing may be deleted on the target because of it. (confluent-kafka 2.16.1 returns an empty list.)"""
    with LiveCluster(ClientConfig("open", source_cluster.client)) as cluster:
        admin = AclAdmin(cluster)
        with pytest.raises(NoAuthorizer, match="open runs without an authorizer"):
            admin.topic_acls()
        with pytest.raises(NoAuthorizer, match="open runs without an authorizer"):
            admin.create([acl("any", "READ")])
    with LiveCluster(ClientConfig("shut", guarded[1].client)) as cluster:
        # Granted nothing yet: this test comes before the ones that grant.
        admin = AclAdmin(cluster)
        with pytest.raises(UsageError, match=r"^shut did not list its ACLs .* DESCRIBE on the cluster\);"):
            admin.topic_acls()
        with pytest.raises(UsageError, match=r"^shut did not create ACLs .* ALTER on the cluster\);"):
            admin.create([acl("any", "READ")])


def test_each_right_that_a_change_of_topics_takes_is_named(guarded: Pair, unique_name: str) -> None:
    """Brokers say that it failed, and not what for."""
    with Adversary(guarded[1].internal_bootstrap) as adversary:
        adversary.create_topic(unique_name)
    with LiveCluster(ClientConfig("shut", guarded[1].client)) as cluster:
        admin = Admin(cluster)
        changes: dict[str, Callable[[], object]] = {
            "CREATE": lambda: admin.create_topics([TopicSpec(f"{unique_name}.new", 1)]),
            "DELETE": lambda: admin.delete_topics([unique_name]),
            "ALTER": lambda: admin.grow_topic(unique_name, 2),
        }
        failures: dict[str, Callable[[], Mapping[str, OnceoverError]]] = {
            "DESCRIBE_CONFIGS": lambda: admin.topic_configs([unique_name]).failures,
            "ALTER_CONFIGS": lambda: admin.alter_configs({unique_name: {"retention.ms": "1"}}),
        }
        for right, change in changes.items():
            with pytest.raises(UsageError, match=rf"not authorized, it takes {right} on the topic\);"):
                change()
        for right, failed in failures.items():
            (error,) = failed().values()
            assert f"it takes {right} on the topic" in error.message


def test_acls_go_round_with_no_more_rights_than_documented(
    replica: Replica, superusers: tuple[AclAdmin, AclAdmin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Created, cut down to reading, followed when they go; foreign ones and other topics are left alone."""
    source, target = superusers
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(20), Codec.LZ4)
    reads, everything = acl(topic, "READ"), acl(topic[:-1], "ALL", who="User:bob", prefix=True)
    denied, outside = acl(topic, "READ", who="User:eve", deny=True), acl("elsewhere", "READ")
    not_copied = [acl(topic, "WRITE"), acl(topic, "WRITE", who="User:*", deny=True)]
    source.create([reads, everything, denied, outside, *not_copied])
    foreign = acl(topic, "WRITE", who=FOREIGN)
    target.create([foreign])
    before = target.topic_acls()
    monkeypatch.setattr(aclsync, "INTERVAL_S", 3600.0)

    with replica.flow.running() as (lead, layout):
        created = target.topic_acls() - before
        assert others(created) == {
            ("User:ann", "READ", "ALLOW"),
            ("User:bob", "READ", "ALLOW"),
            ("User:bob", "DESCRIBE", "ALLOW"),
            ("User:eve", "READ", "DENY"),
        }
        assert {(a.pattern, a.name) for a in created} == {("LITERAL", topic)}
        assert owned(replica) == created
        source.delete([everything, reads])
        # Nobody asked yet.
        assert target.topic_acls() == before | created
        look_again(lead, monkeypatch)
        assert others(target.topic_acls() - before) == {("User:eve", "READ", "DENY")}
        assert foreign in target.topic_acls()
        assert others(owned(replica)) == {("User:eve", "READ", "DENY")}
        replica.flow.finish(lead, layout)
    replica.assert_same()


def test_what_the_source_forbids_is_not_allowed_on_the_target(
    replica: Replica, superusers: tuple[AclAdmin, AclAdmin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DENY that would cut off the flow is not carried over: the ALLOWs that it limits go, and come back."""
    source, target = superusers
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(20), Codec.LZ4)
    # From one host only: the flow's own user reads on, here and there.
    forbidden = acl(topic, "READ", who="User:*", deny=True)._replace(host="192.0.2.7")
    source.create([acl(topic, "READ"), acl(topic, "DESCRIBE", who="User:bob")])
    both = {("User:ann", "READ", "ALLOW"), ("User:bob", "DESCRIBE", "ALLOW")}

    with replica.flow.running() as (lead, layout):

        def follows(expected: set[tuple[str, str, str]]) -> None:
            def seen() -> bool:
                look_again(lead, monkeypatch)
                return others(frozenset(a for a in target.topic_acls() if a.name == topic)) == expected

            wait_until(seen, 30.0, f"the target has {expected}")

        def notes() -> set[str]:
            lead.tick()
            return {note["code"] for note in replica.flow.status()["notes"] if note["object"] == topic}

        follows(both)
        assert notes() == set()
        source.create([forbidden])
        follows(both - {("User:ann", "READ", "ALLOW")})
        wait_until(lambda: notes() == {"ACL_DENIES_ONCEOVER", "ACL_WITHHELD"}, 30.0, "both are told")
        source.delete([forbidden])
        follows(both)
        replica.flow.finish(lead, layout)
    replica.assert_same()


def test_names_with_a_nul_are_carried_over_as_they_are_and_go_as_they_are(
    replica: Replica, superusers: tuple[AclAdmin, AclAdmin], guarded: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    """Brokers take them, list them, and delete them; what a name is up to the NUL is somebody else's."""
    source, target = superusers
    topic = replica.topic()
    odd = [
        RawAcl(topic, "User:*\0x"),
        RawAcl(topic, "User:x\0y"),
        RawAcl(topic, "User:ann", host="*\0x", operation=DESCRIBE),
        RawAcl(topic, f"{OWN}\0", operation=WRITE, permission=DENIED),
    ]
    expected = {
        ("User:*\0x", "*", "READ", "ALLOW"),
        ("User:x\0y", "*", "READ", "ALLOW"),
        ("User:ann", "*\0x", "DESCRIBE", "ALLOW"),
        (f"{OWN}\0", "*", "WRITE", "DENY"),
    }
    with LiveCluster(ClientConfig("source", guarded[0].admin_client)) as cluster:
        create_raw(cluster, odd)
    wait_until(lambda: with_nul(source.topic_acls(), topic) == expected, 30.0, "the source lists them")
    cut = acl(topic, "READ", who="User:x")
    target.create([cut])
    wait_until(lambda: cut in target.topic_acls(), 30.0, "the target has one that is called so up to the NUL")

    def follow() -> frozenset[Acl]:
        code, document = replica.command(capsys, "topics", "apply", str(replica.flow.path))
        assert (code, document["refused"]) == (0, []), document
        return frozenset(a for a in target.topic_acls() if a.name == topic)

    there = follow()
    assert with_nul(there, topic) == expected
    assert others(there) == {(who, operation, may) for who, _, operation, may in expected} | {
        ("User:x", "READ", "ALLOW")
    }
    source.delete([a for a in source.topic_acls() if a.name == topic and "\0" in a.principal + a.host])
    wait_until(lambda: not with_nul(source.topic_acls(), topic), 30.0, "the source has none of them")
    assert others(follow()) == {("User:x", "READ", "ALLOW")}


def test_operations_of_a_later_kafka_are_told_and_the_rest_is_followed(
    replica: Replica, superusers: tuple[AclAdmin, AclAdmin], guarded: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    """Brokers take them, also on topics that no flow has."""
    source, target = superusers
    topic = replica.topic()
    source.create([acl(topic, "READ")])
    with LiveCluster(ClientConfig("source", guarded[0].admin_client)) as cluster:
        create_raw(
            cluster,
            [
                RawAcl(topic, "User:ann", operation=TWO_PHASE_COMMIT, permission=DENIED),
                RawAcl("elsewhere", "User:ann", operation=TWO_PHASE_COMMIT),
            ],
        )

    def copied() -> set[tuple[str, str, str]]:
        code, document = replica.command(capsys, "topics", "apply", str(replica.flow.path))
        assert (code, {refusal["code"] for refusal in document["refused"]}) == (3, {"ACL_UNKNOWN"}), document
        return others(frozenset(a for a in target.topic_acls() if a.name == topic))

    wait_until(lambda: any(a.is_unknown for a in source.topic_acls()), 30.0, "the source lists them")
    assert copied() == {("User:ann", "READ", "ALLOW")}
    source.create([acl(topic, "READ", deny=True)])
    wait_until(lambda: acl(topic, "READ", deny=True) in source.topic_acls(), 30.0, "the source forbids it")
    assert copied() == {("User:ann", "READ", "ALLOW"), ("User:ann", "READ", "DENY")}


def test_the_authorizer_that_the_unit_tests_go_by_answers_as_the_brokers_own(
    guarded: Pair, replica: Replica, superusers: tuple[AclAdmin, AclAdmin]
) -> None:
    """Implied operations, ALL, hosts, prefixes, and a DENY over everything."""
    elsewhere = {"host": "192.0.2.7"}
    rules: list[list[tuple[str, dict[str, Any]]]] = [
        [("READ", {"deny": True})],
        [("READ", {"deny": True, "who": "User:*"}), ("ALL", {})],
        [("DESCRIBE_CONFIGS", {"deny": True}), ("ALTER_CONFIGS", {})],
        [("ALTER_CONFIGS", {"deny": True}), ("ALTER", {"who": "User:*"})],
        [("ALL", {"deny": True, **elsewhere}), ("WRITE", elsewhere), ("DELETE", {})],
        [
            ("ALL", {"prefix": True}),
            ("WRITE", {"deny": True, "prefix": True}),
            ("CREATE", {"who": "User:ann"}),
        ],
        [("DESCRIBE", {"deny": True}), ("ALL", {})],
    ]
    topics = [replica.topic(f"rule{number}") for number in range(len(rules))]
    bound = []
    for topic, some in zip(topics, rules, strict=True):
        for operation, options in some:
            changed = {key: value for key, value in options.items() if key == "host"}
            kept: dict[str, Any] = {
                "who": OWN,
                **{key: value for key, value in options.items() if key != "host"},
            }
            bound.append(acl(topic, operation, **kept)._replace(**changed))
    superusers[0].create(bound)
    wait_until(lambda: superusers[0].topic_acls() >= set(bound), 30.0, "the broker goes by them")
    acls = superusers[0].topic_acls()

    admin = AdminClient(guarded[0].client)
    asked = admin.describe_topics(
        TopicCollection(topics), include_authorized_operations=True, request_timeout=30.0
    )
    for topic in topics:
        expected = {o for o in TOPIC_OPERATIONS if allows(acls, Question(OWN, "127.0.0.1", o, topic))}
        if "DESCRIBE" in expected:
            assert {each.name for each in asked[topic].result().authorized_operations} == expected, topic
        else:
            with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
                asked[topic].result()


@pytest.mark.soak
def test_a_cluster_that_is_open_without_acls_is_told_from_a_closed_one(
    session_home: Path, guarded: Pair, unique_name: str
) -> None:
    """By a flow's user with the documented rights; whom a superuser is told nothing."""
    factory = ClusterFactory(session_home)
    setting = {"allow.everyone.if.no.acl.found": "true"}
    security = Security("PLAIN", authorizer=True)
    try:
        opened = factory("open-target", security=security, config=setting)
        for cluster, expected in ((opened, True), (guarded[1], False)):
            grant(cluster, target_rights(unique_name))
            for properties, found in ((cluster.client, expected), (cluster.admin_client, False)):
                with LiveCluster(ClientConfig("west", properties)) as asked:
                    side = AclAdmin(asked)
                    assert aclsync.is_open(side, side.topic_acls()) is found
    finally:
        factory.close()


@pytest.mark.soak
def test_a_copy_that_nothing_closes_is_told_where_both_clusters_are_open(
    session_home: Path,
    tmp_path: Path,
    unique_name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that the source allows is withheld: closed there by its ACLs, everybody's on the target."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "home"))
    factory, security = ClusterFactory(session_home), Security("PLAIN", authorizer=True)
    setting = {"allow.everyone.if.no.acl.found": "true"}
    try:
        here, there = (
            factory(name, security=security, config=setting) for name in ("open-here", "open-there")
        )
        bootstraps = (here.internal_bootstrap, there.internal_bootstrap)
        with Replica(tmp_path, unique_name, here.client, there.client, unsecured=bootstraps) as replica:
            replica.configure(topics={"sync_acls": True})
            for cluster, operations in ((here, "DESCRIBE"), (there, "DESCRIBE ALTER")):
                prefix = (TOPIC, "somebody-elses", True, "READ")
                grant(cluster, [(CLUSTER, CLUSTER_NAME, False, operations), prefix])
            topic = replica.topic()
            with LiveCluster(ClientConfig("east", here.admin_client)) as source:
                rules = [acl(topic, "READ", who=OWN), acl(topic, "DESCRIBE_CONFIGS", who=OWN)]
                denied = acl(topic, "ALL", who=OWN)._replace(permission="DENY", host="192.0.2.9")
                bound = {*rules, denied, acl(topic, "WRITE")}
                AclAdmin(source).create(bound)
                wait_until(lambda: AclAdmin(source).topic_acls() >= bound, 30.0, "the broker goes by them")
            code, document = replica.command(capsys, "topics", "plan", str(replica.flow.path))
    finally:
        factory.close()
    told = {(each["object"], each["code"]) for each in document["refused"]}
    assert (code, (topic, "ACLS_OPEN") in told) == (3, True), document


def test_the_command_brings_acls_in_line_without_a_running_flow(
    replica: Replica,
    superusers: tuple[AclAdmin, AclAdmin],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Created once, left alone, followed when the source's goes; the same records as a running flow's."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "home"))
    source, target = superusers
    topic = replica.topic()
    reads = acl(topic, "READ")
    source.create([reads])

    def topics(action: str) -> list[tuple[str, str]]:
        code, document = replica.command(capsys, "topics", action, str(replica.flow.path))
        assert code == 0, document
        seen = [(c["what"], c["object"], str(c["from"] or c["to"])) for c in document["changes"]]
        return [(what, of) for what, of, rule in seen if OWN not in rule]

    assert topics("plan") == [("create topic", topic), ("create acl", topic)]
    assert reads not in target.topic_acls()
    topics("apply")
    assert reads in target.topic_acls()
    assert reads in owned(replica)
    assert topics("apply") == []
    source.delete([reads])
    assert topics("apply") == [("delete acl", topic)]
    assert reads not in target.topic_acls()
    assert topics("plan") == []


def test_a_command_that_was_frozen_allows_nothing_for_good_that_the_source_has_taken_back(
    replica: Replica,
    superusers: tuple[AclAdmin, AclAdmin],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Between its record of an ACL and the ACL: meanwhile the source takes it back, and another command runs,
    which finds a record without an ACL."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "home"))
    source, target = superusers
    topic, flow = replica.topic(), replica.flow.watch.flow
    reads = acl(topic, "READ")
    source.create([reads])
    frozen, woken, creates = threading.Event(), threading.Event(), AclAdmin.create

    def create(admin: AclAdmin, acls: Iterable[Acl]) -> None:
        wanted = list(acls)
        if reads in wanted and not frozen.is_set():
            frozen.set()
            assert woken.wait(_TIMEOUT_S)
        creates(admin, wanted)

    monkeypatch.setattr(AclAdmin, "create", create)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(apply_topics, flow)
        assert frozen.wait(_TIMEOUT_S)
        source.delete([reads])
        apply_topics(flow)
        assert reads not in owned(replica)
        woken.set()
        late.result(_TIMEOUT_S)
    assert reads not in target.topic_acls()
    assert reads not in owned(replica)


@pytest.mark.soak
def test_a_run_that_was_frozen_and_taken_over_from_allows_nothing_for_good(
    replica: Replica, superusers: tuple[AclAdmin, AclAdmin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like the command; but when it wakes it is fenced, and the run that would look again has ended."""
    source, target = superusers
    topic = replica.topic()
    reads = acl(topic, "READ")
    replica.copy()
    source.create([reads])
    frozen, woken, creates = threading.Event(), threading.Event(), AclAdmin.create

    def create(admin: AclAdmin, acls: Iterable[Acl]) -> None:
        wanted = list(acls)
        if reads in wanted and not frozen.is_set():
            frozen.set()
            assert woken.wait(_TIMEOUT_S)
        creates(admin, wanted)

    def late() -> None:
        with replica.flow.running() as (lead, _):
            lead.tick()

    monkeypatch.setattr(AclAdmin, "create", create)
    with ThreadPoolExecutor(1) as pool:
        frozen_run = pool.submit(late)
        try:
            assert frozen.wait(_TIMEOUT_S)
            source.delete([reads])
            with replica.flow.running() as (lead, _):
                lead.end()
        finally:
            woken.set()
        with pytest.raises(Fenced):
            frozen_run.result(_TIMEOUT_S)
    assert reads not in target.topic_acls()
    assert reads not in owned(replica)


def test_without_authorizer_the_copy_goes_on_and_says_so(
    tmp_path: Path, unique_name: str, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> None:
    """A remark, no stop: status stays in order."""
    with Replica(tmp_path, unique_name, source_cluster.client, target_cluster.client) as replica:
        replica.configure(topics={"sync_acls": True})
        topic = replica.topic()
        replica.source.plain(topic, 0, replica.source.records(20), Codec.LZ4)
        with replica.flow.running() as (lead, layout):
            status = replica.flow.status()
            assert [(note["code"], note["object"]) for note in status["notes"]] == [("NO_AUTHORIZER", "acls")]
            assert {p["state"] for p in status["partitions"]} <= {"copying", "caught_up"}
            replica.flow.finish(lead, layout)
        replica.assert_same()


def test_groups_move_with_the_rights_of_their_page_and_are_unknown_without(
    guarded: Pair, replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/groups.md: DESCRIBE here, READ there; a right that is missing never leads to a write."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    source, target = guarded
    name, topic = f"{replica.name}-group", replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    commit(source.admin_client, name, topic, {0: 7})

    def apply(**allowed: bool) -> AppliedGroups:
        request = GroupRequest(patterns=[name], allowed=Allowed(**allowed))
        return apply_groups(replica.flow.watch.flow, request)

    unknown = [("UNKNOWN", 3)]
    assert [(r.code, apply().exit_code) for r in apply().plan.refused] == unknown
    grant(source, [(GROUP, replica.name, True, "DESCRIBE")])
    assert [(r.code, apply().exit_code) for r in apply().plan.refused] == unknown
    assert offset_of(target.admin_client, name, topic) is None
    grant(target, [(GROUP, replica.name, True, "READ")])
    assert apply().exit_code == 0
    assert offset_of(target.admin_client, name, topic) == 7
    commit(source.admin_client, name, topic, {0: 3})
    writes = (TRANSACTIONAL_ID, names.groups_id(replica.name), False, "WRITE DESCRIBE")
    for right in ((GROUP, replica.name, True, "READ"), writes):
        assert [r.code for r in apply(follow_rewinds=True).refused] == ["NOT_AUTHORIZED"]
        assert offset_of(target.admin_client, name, topic) == 7
        grant(source, [right])
    assert apply(follow_rewinds=True).exit_code == 0
    assert offset_of(target.admin_client, name, topic) == 3


def test_mirrormakers_records_take_the_rights_of_their_page_and_the_copy_none_of_them(
    guarded: Pair, replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/mirrormaker-output.md: without them status names each kind, and the copy goes on."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    source, target = guarded
    kinds, alias = ("checkpoints", "heartbeats", "offset_syncs"), f"e-{replica.name}"
    replica.configure(source={"alias": alias}, mirrormaker=dict.fromkeys(kinds, True))
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    commit(source.admin_client, f"{replica.name}-group", topic, {0: 7})

    def notes() -> list[str]:
        objects = [note["object"] for note in replica.flow.status()["notes"]]
        return sorted(each for each in objects if each.startswith("mirrormaker."))

    replica.copy()
    assert notes() == [f"mirrormaker.{kind}" for kind in kinds]
    replica.assert_same(topic)
    topics = [f"{alias}.checkpoints.internal", f"mm2-offset-syncs.{alias}.internal", f"{alias}.heartbeats"]
    assert not set(topics) & set(AdminClient(target.admin_client).list_topics(timeout=30.0).topics)

    for cluster, rights in zip(guarded, mirror_rights(replica.name, alias), strict=True):
        grant(cluster, rights)
    # Created, then met as they are.
    for _ in range(2):
        replica.copy()
        assert notes() == []
    for each in [*topics, "heartbeats"]:
        assert read_records(target.admin_client, each), each


def test_a_mirrormaker_is_adopted_with_the_rights_of_the_page_and_not_before(
    guarded: Pair,
    replica: Replica,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/adopting-mirrormaker.md: what may not be looked at is never taken for not being there."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    source, target = guarded
    alias, topic = f"e-{replica.name}", replica.topic()
    replica.configure(source={"alias": alias})
    replica.target_topic(topic)
    records = replica.source.records(10)
    replica.source.plain(topic, 0, records)
    replica.target.plain(topic, 0, records[:6])
    for kind, key, value in (
        ("offsets", f'["MirrorSourceConnector",{{"cluster":"{alias}","partition":0,"topic":"{topic}"}}]', 3),
        ("configs", "task-MirrorSourceConnector-0", 0),
    ):
        own = replica.target.create_topic(f"mm2-{kind}.{alias}.internal")
        replica.target.plain(own, 0, [RawRecord(key.encode(), b'{"offset":%d}' % value)])
    syncs, rights = adoption_rights(alias, "west")
    grant(source, syncs)

    for right in rights:
        code, document = replica.command(capsys, "adopt", "apply", str(replica.flow.path))
        assert code in (2, 3), document
        assert offset_of(target.admin_client, names.progress_group(replica.name), topic) is None
        grant(target, [right])
    code, document = replica.command(capsys, "adopt", "apply", str(replica.flow.path))
    assert (code, document["written"]) == (0, 1), document
    replica.copy()
    replica.assert_same()
