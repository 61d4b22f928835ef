"""Reaching a Connect cluster: what its members say, versions, and rights."""

from __future__ import annotations

import struct
from pathlib import Path

import httpx
import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.connectors.offsets.configtopic import ConfigRecords
from onceover.connectors.planning.access import ConnectAccess, advertised_url, version_of
from onceover.connectors.planning.view import fence_ids
from onceover.connectors.rights import missing, named_principal, needing
from onceover.connectors.settings import ConnectSettings, RestSettings, RoleClient
from onceover.connectors.workers.rest import ConnectRest, WorkerAnswer
from onceover.errors import NeedsOperator, UsageError
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.groups.members import DescribedGroup, GroupMember
from onceover.kafka.ports import ClientSettings

CLIENT = ClientConfig("kafka", {"bootstrap.servers": "127.0.0.1:1"})
WORKER = {"group.id": "g", "offset.storage.topic": "o", "config.storage.topic": "c"}


class Clients:
    """One Kafka cluster, and another for connectors that say so."""

    def worker(self) -> ClientConfig:
        return CLIENT

    def connector(self, config: object) -> None:
        return None

    def roles(self, config: object) -> list[RoleClient]:
        return []

    def open(self, client: ClientSettings) -> LiveCluster:
        return LiveCluster(client)


def access(**worker: str) -> ConnectAccess:
    """Open a Connect cluster; nothing is connected."""
    known = {**WORKER, **{key.replace("__", "."): value for key, value in worker.items()}}
    settings = ConnectSettings("t", RestSettings(("http://w:1",)), known, Clients(), Path("unused"))
    return ConnectAccess(settings)


def test_missing_worker_keys_are_named_together() -> None:
    """A person fixes them in one go."""
    settings = ConnectSettings("t", RestSettings(()), {"group.id": "g"}, Clients(), Path("unused"))
    with pytest.raises(UsageError, match=r"offset\.storage\.topic, config\.storage\.topic"):
        ConnectAccess(settings)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("enabled", True), ("ENABLED", True), ("preparing", False), ("disabled", False)],
)
def test_only_enabled_is_exactly_once(mode: str, expected: bool) -> None:
    """Preparing workers write offsets without transactions, and read what was aborted."""
    with access(exactly__once__source__support=mode) as opened:
        assert opened.exactly_once is expected
        assert str(opened.base_site({}).isolation) == ("read_committed" if expected else "read_uncommitted")


def test_unknown_mode_is_refused() -> None:
    """It would be taken for off."""
    with pytest.raises(UsageError, match="on"):
        access(exactly__once__source__support="on")


def test_flush_interval_has_connects_default() -> None:
    """In seconds."""
    with access() as plain, access(offset__flush__interval__ms="1500") as quick:
        assert (plain.flush_interval_s, quick.flush_interval_s) == (60.0, 1.5)


def test_transactional_ids_are_those_of_the_tasks() -> None:
    """``<group.id>-<connector>-<task>`` (KIP-618), and ours is none of them."""
    with access() as opened:
        assert (opened.task_id("c", 3), opened.own_id("c")) == ("g-c-3", "onceover.connect.g.c")


def test_worker_tells_its_group_where_it_is_reached() -> None:
    """Behind the version, whatever follows, and without the slash that would be one too many."""
    url = b"http://10.0.0.1:8083/"
    assert advertised_url(struct.pack(">hh", 2, len(url)) + url + b"\0" * 12) == "http://10.0.0.1:8083"


def member(url: bytes) -> GroupMember:
    return GroupMember("m", "c", "/10.0.0.9", struct.pack(">hh", 1, len(url)) + url)


@pytest.mark.parametrize("status", [200, 401])
def test_nobody_is_told_a_password_because_they_say_that_they_are_a_worker(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Whoever may join the group may give any address, and without TLS; it is asked, and not logged in to."""
    asked: dict[str, bool] = {}

    def answer(request: httpx.Request) -> httpx.Response:
        asked[request.url.host] = "authorization" in request.headers
        strange = request.url.host == "evil"
        return httpx.Response(status if strange else 200, json={"version": "4.3.0", "kafka_cluster_id": "k"})

    settings = RestSettings(("https://w:1",), username="ann", password="hunter2")
    opened = access()
    opened.rest = ConnectRest(settings, httpx.MockTransport(answer))
    group = DescribedGroup("stable", "", (member(b"https://w:1/"), member(b"http://evil:80/")))
    monkeypatch.setattr(opened, "_group", lambda: group)
    with opened, pytest.raises(NeedsOperator, match="are not the members of its group"):
        opened._answers()
    assert asked == {"w": True, "evil": False}


@pytest.mark.parametrize(
    "told", [b"", b"\0", struct.pack(">hh", 1, -7) + b"x", *map(lambda url: member(url).metadata, (
        b"", b"\xff", b"http://[::1", b"http://h:x", b"gopher://h:1", b"http://a:b@h:1", b"http://h h:1"))]
)  # fmt: skip
def test_a_member_that_tells_no_address_is_one_that_nobody_named(
    monkeypatch: pytest.MonkeyPatch, told: bytes
) -> None:
    """Nothing is asked there, and no command ends in an error of Python's own."""
    opened = access()
    monkeypatch.setattr(opened, "_ask", lambda url: WorkerAnswer(url, "4.3.0", "k"))
    monkeypatch.setattr(opened.rest, "worker", _never)
    group = DescribedGroup("stable", "", (GroupMember("m", "c", "/10.0.0.9", told),) * 2)
    monkeypatch.setattr(opened, "_group", lambda: group)
    with opened, pytest.raises(NeedsOperator, match="are not the members of its group"):
        opened._answers()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4.3.0", (4, 3, 0)),
        ("3.10.1-SNAPSHOT", (3, 10, 1)),
        ("3.5.0.redhat-00008", (3, 5, 0)),
        ("5.5.1-ccs", (2, 5, 1)),
        ("6.2.0-ce", (2, 8, 0)),
        ("7.5.0-ccs", (3, 5, 0)),
        ("7.9.1-ccs-SNAPSHOT", (3, 9, 1)),
        ("8.0.0-ccs", (4, 0, 0)),
    ],
)
def test_versions_compare_as_numbers(text: str, expected: tuple[int, ...]) -> None:
    """3.10 is above 3.9, and a platform is as old as its Kafka."""
    assert version_of(text) == expected


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, "User:ANONYMOUS"),
        ({"sasl.username": "ops", "sasl.mechanism": "PLAIN"}, "User:ops"),
        ({"ssl.certificate.location": "x.pem"}, "the principal of the client's certificate"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "the principal of the client's login"),
    ],
)
def test_principal_is_named_as_far_as_it_is_known(properties: dict[str, str], expected: str) -> None:
    """The broker does not tell."""
    assert named_principal(ClientConfig("kafka", properties)) == expected


def test_missing_right_names_principal_operation_and_resource() -> None:
    """In one message, wherever the broker only said no."""
    expected = pytest.raises(UsageError, match="User:ANONYMOUS may not READ topic t on kafka")
    with expected, needing(CLIENT, "READ", "topic t"):
        raise UsageError("no", code="NOT_AUTHORIZED")


def test_other_usage_errors_stay_what_they_are() -> None:
    """A wrong password is no missing right."""
    with pytest.raises(UsageError, match=r"^login$"), needing(CLIENT, "READ", "topic t"):
        raise UsageError("login")


def test_missing_says_what_to_grant() -> None:
    """And where to find all that is needed."""
    found = missing(CLIENT, "WRITE", "topic t")
    assert (found.expected, found.code) == ("ALLOW WRITE on topic t for User:ANONYMOUS", "NOT_AUTHORIZED")


def test_a_connector_that_claims_any_number_of_tasks_is_refused_and_costs_nothing() -> None:
    """Workers take ``tasks.max`` of 31 bits from whoever writes a connector, and begin as many as it has."""
    records = ConfigRecords()
    assert fence_ids(records.fence_count("c", {"tasks.max": "3"}), str) == ["0", "1", "2"]
    with pytest.raises(NeedsOperator) as caught:
        fence_ids(records.fence_count("c", {"tasks.max": str((1 << 31) - 1)}), _never)
    assert caught.value.code == "TOO_MANY_TASKS"


def _never(*asked: object, **_: object) -> str:
    raise AssertionError(asked)
