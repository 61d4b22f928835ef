"""Whether MirrorMaker runs: what is not known is never taken for "no"."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.groups.admin import GroupListing
from onceover.seeding import adopt
from onceover.seeding.adopt import MirrorMakerNames, MirrorMakerOrigin
from onceover.seeding.origins import FlowClusters

MIRROR = MirrorMakerNames.dedicated("east", "west")


class FakeGroups:
    """The target's groups: those that are listed, and what asking for one answers."""

    def __init__(self, listing: GroupListing, problem: OnceoverError | None = None) -> None:
        self._listing, self._problem = listing, problem

    def groups(self) -> GroupListing:
        return self._listing

    def committed(self, group: str) -> dict[str, int]:
        assert group == MIRROR.group
        if self._problem is not None:
            raise self._problem
        return {}


def read(monkeypatch: pytest.MonkeyPatch, groups: FakeGroups) -> Any:
    """Ask for the offsets, on a target without any of MirrorMaker's topics."""
    monkeypatch.setattr(adopt, "GroupAdmin", lambda _: groups)
    target: Any = SimpleNamespace(alias="west", topics=lambda _: {})
    return MirrorMakerOrigin(MIRROR).read(FlowClusters("f", target, target), [])


def listed(state: str) -> GroupListing:
    group: Any = SimpleNamespace(group_id=MIRROR.group, state=state)
    return GroupListing({MIRROR.group: group})


def test_a_group_with_members_is_a_mirrormaker_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    (remark,) = read(monkeypatch, FakeGroups(listed("stable"))).remarks
    assert (remark.code, remark.blocks) == ("MM2_RUNNING", True)


@pytest.mark.parametrize("listing", [GroupListing({}), listed("empty"), listed("dead")])
def test_without_workers_its_topics_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, listing: GroupListing
) -> None:
    with pytest.raises(NeedsOperator, match=f"there is no topic {MIRROR.offsets_topic}"):
        read(monkeypatch, FakeGroups(listing))


def test_a_broker_that_does_not_answer_may_coordinate_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Retriable("broker 2 is away")
    with pytest.raises(Retriable, match="broker 2 is away"):
        read(monkeypatch, FakeGroups(GroupListing({}, (away,))))


def test_a_group_that_may_not_be_seen_may_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = UsageError("west refuses offset fetch", code="NOT_AUTHORIZED")
    with pytest.raises(UsageError, match="whether MirrorMaker runs cannot be seen") as refused:
        read(monkeypatch, FakeGroups(GroupListing({}), hidden))
    assert refused.value.where == "group east-mm2 on west"
    assert "DESCRIBE" in str(refused.value.resolve)


def test_an_alias_may_be_called_like_a_topic() -> None:
    """What names the configuration topic is the mode, not a word that an alias may hold, too."""
    mirror = MirrorMakerNames.dedicated("offsets-east", "west")
    assert mirror.offsets_topic == "mm2-offsets.offsets-east.internal"
    assert mirror.configs_topic == "mm2-configs.offsets-east.internal"


def test_in_a_connect_cluster_the_workers_group_is_named() -> None:
    """A group that does not exist looks exactly like one whose workers have stopped."""
    with pytest.raises(UsageError, match="whose offsets connect-offsets holds is not known") as refused:
        MIRROR.elsewhere("connect-offsets", None, None)
    assert "--connect-group" in str(refused.value.resolve)
    found = MIRROR.elsewhere("connect-offsets", None, "connect")
    assert (found.group, found.configs_topic) == ("connect", "connect-configs")


@pytest.mark.parametrize("offsets_topic", ["connect-positions", "offsets-of-offsets"])
def test_a_configuration_topic_is_not_guessed(offsets_topic: str) -> None:
    """The offsets topic itself would be read for it, or none, and nobody would be fenced."""
    with pytest.raises(UsageError, match="how the configuration topic"):
        MIRROR.elsewhere(offsets_topic, None, "connect")
    assert MIRROR.elsewhere(offsets_topic, "theirs", "connect").configs_topic == "theirs"


def test_without_the_configuration_topic_nobody_knows_whom_to_fence() -> None:
    target: Any = SimpleNamespace(alias="west", topics=lambda _: {})
    with pytest.raises(NeedsOperator, match=r"there is no topic mm2-configs\.east\.internal") as refused:
        adopt.read_tasks(target, MIRROR, {adopt.CONNECTOR})
    assert refused.value.code == "MM2_UNKNOWN"
