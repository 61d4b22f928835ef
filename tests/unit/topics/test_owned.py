"""What a flow looks after: records that say so, each about what its key names, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast
from uuid import UUID

import pytest
from hypothesis import given, settings

from onceover.acls.kept import acl_key, acl_record, owned_acls, standing_allowances, unread_acls
from onceover.errors import NeedsOperator
from onceover.kafka.admin.acls import Acl
from onceover.kafka.admin.topics import TopicSpec
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.operate.statusread import FlowFacts
from onceover.state import names
from onceover.state.records.managed import Managed, read_managed, unread_managed
from onceover.state.records.value import Illegible
from onceover.topics import own
from onceover.topics.own import STATE_CONFIG, OwnedLog, StateSettings, unread_owned
from tests.support.raw.junk import damaged
from tests.support.session.examples import examples

TOPIC: Final = names.owned_topic("f")
ONE, TWO = (Acl("LITERAL", "t", f"User:{who}", "*", "READ", "ALLOW") for who in ("ann", "bob"))
MANAGED: Final = Managed(frozenset({"retention.ms"}), {"segment.ms": "5"})
OWNED: Final[dict[str, Any]] = {
    names.managed_key("t"): MANAGED.to_json(),
    names.managed_key("u"): MANAGED.to_json(),
    acl_key(ONE): acl_record(ONE, 7),
    acl_key(TWO): acl_record(TWO, 7),
}


def test_what_is_in_order_is_read() -> None:
    """The near miss of everything below."""
    assert read_managed(OWNED) == {"t": MANAGED, "u": MANAGED}
    assert owned_acls(OWNED) == {ONE, TWO}
    assert unread_owned(TOPIC, OWNED) == []


@settings(max_examples=examples(50))
@given(damaged(OWNED))
def test_one_odd_value_makes_nothing_the_flows_that_is_not(values: dict[str, Any]) -> None:
    """Of all that can stand there a part is the flow's, and what cannot be read is said with its key."""
    try:
        acls = owned_acls(values)
    except NeedsOperator as error:
        assert error.code == "STATE_VERSION"  # noqa: PT017 - a newer release's records end it, nothing else
    else:
        assert acls <= {ONE, TWO} and acls & {ONE, TWO}
    managed = read_managed(values)
    assert MANAGED in managed.values()
    standing_allowances(values)
    read = {*map(names.managed_key, managed)} | {*unread_managed(values), *unread_acls(values)}
    assert read <= values.keys()
    facts = FlowFacts()
    facts.read({}, {}, values)
    told = {refusal.object for refusal in unread_owned(TOPIC, values)}
    assert len(facts.problems) == len(told)
    assert {problem["code"] for problem in facts.problems} <= {"STATE_UNREADABLE"}


@pytest.mark.parametrize(
    "value", [[], 5, "x", {}, {"v": 1}, Illegible("no JSON"), acl_record(TWO, 7)], ids=repr
)
def test_a_record_of_an_acl_that_is_none_makes_none_the_flows(value: Any) -> None:
    """Nor does one under another ACL's key: who put it there did not create that."""
    values = {acl_key(ONE): value}
    assert owned_acls(values) == frozenset()
    assert list(unread_acls(values)) == [acl_key(ONE)]
    assert standing_allowances(values) == (1 if isinstance(value, dict) else 0)


class Target:
    """A cluster with its administration, which may lose the topic."""

    def __init__(self) -> None:
        self.number: int | None = 1
        self.values: dict[str, Any] = dict(OWNED)

    def topics(self, wanted: Iterable[str]) -> dict[str, TopicInfo]:
        if self.number is None:
            return {}
        partitions = {0: PartitionInfo(1, 0)}
        return {name: TopicInfo(name, UUID(int=self.number), partitions, False) for name in wanted}

    def retry(self, action: Any) -> Any:
        return action()

    def make_topics(self, specs: Iterable[TopicSpec]) -> None:
        assert list(specs) == [TopicSpec(TOPIC, 1, 2, STATE_CONFIG)]
        self.number, self.values = 9, {}


class Log:
    """Stands in for ``StateLog``: goes on with what it has read, whatever has become of the topic."""

    def __init__(self, target: Target, topic: str, partition: int) -> None:
        assert (topic, partition) == (TOPIC, 0)
        self._target, self._values = target, None

    def catch_up(self) -> Mapping[str, Any]:
        self._values = self._values or self._target.values  # pyrefly: ignore[bad-assignment]
        return cast(Mapping[str, Any], self._values)

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def owned(monkeypatch: pytest.MonkeyPatch) -> tuple[Target, OwnedLog]:
    monkeypatch.setattr(own, "StateLog", Log)
    monkeypatch.setattr(own, "NoteWriter", lambda target, tp: Log(target, *tp))
    target: Any = Target()
    return target, OwnedLog(target, target, "f", StateSettings(2, 86_400_000))


def test_a_topic_that_was_deleted_is_made_anew_and_what_was_owned_is_not_any_more(
    owned: tuple[Target, OwnedLog], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is changed, or removed, on the word of a topic that is gone."""
    target, log = owned
    assert log.catch_up() == OWNED
    target.number = None
    assert log.catch_up() == {}
    assert "made anew" in caplog.text
    assert log.catch_up() == {}
    target.number, target.values = 4, {"managed/x": MANAGED.to_json()}
    assert log.catch_up() == target.values
    log.close()


def test_what_cannot_be_read_is_said_once(
    owned: tuple[Target, OwnedLog], caplog: pytest.LogCaptureFixture
) -> None:
    """It is asked for at every discovery, and every minute."""
    target, log = owned
    target.values = {"managed/t": 5}
    for _ in range(3):
        assert read_managed(log.catch_up()) == {}
    assert caplog.text.count("managed/t") == 1
    log.close()
