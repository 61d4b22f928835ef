"""``onceover drill orphans --rebuild``: what keeps a topic of the old source from being deleted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace as changed
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from onceover.config.clients.resolve import ClientConfig
from onceover.config.flow.load import load_flow
from onceover.drills.orphans import export, view
from onceover.drills.orphans import promoted as promotions
from onceover.drills.orphans.rebuild import TopicRebuild
from onceover.errors import NeedsOperator
from onceover.kafka.admin.topics import Admin
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.logs.reading import OffsetGone
from onceover.kafka.ports import TopicInfo
from onceover.lead import leader
from onceover.model import TopicPartition
from onceover.planning.operation import Caller, wait
from onceover.state.codes import StateCode
from onceover.topics.otherflows import OtherFlow, OtherFlows
from onceover.wire.progress import ProgressMeta
from onceover.wiring.failovers import failback
from onceover.wiring.failovers.orphans import OrphanOptions, orphan_export
from onceover.wiring.flows import opened
from tests.support.drills.orphaned import DECIDE, DONE, Capture, Orphaned
from tests.support.flows.groups import commit, offset_of
from tests.support.flows.handled import handler_keys
from tests.support.flows.replica import alter_config, delete_before, delete_topics

_TIMEOUT_S = 30.0


def refused(replica: Orphaned, capsys: Capture, topic: str, code: str, *, written: int) -> str:
    """Ask for a rebuild that is refused; return why. What was never copied is exported all the same."""
    before = replica.behind(topic, 0)
    exit_code, done = replica.orphans(capsys, "apply", "--rebuild")
    codes = {each["code"] for each in done["refused"]}
    assert (exit_code, codes, done["written"], done["rebuilt"]) == (DECIDE, {code}, written, [])
    assert replica.behind(topic, 0) == before
    messages: list[str] = [each["message"] for each in done["refused"]]
    return "; ".join(messages)


def kept_after(replica: Orphaned, change: Callable[[], object], match: str) -> NeedsOperator:
    """Change something between a plan that deletes topics and the deletion; return why they stay."""

    def act(_: float) -> bool:
        change()
        return False

    rebuild = partial(orphan_export, options=OrphanOptions(rebuild=True), pause=wait)
    with opened(load_flow(str(replica.flow.path)), rebuild) as operation:
        assert operation.plan().refused == ()
        with pytest.raises(NeedsOperator, match=match) as told:
            operation.apply(Caller(lambda _: None, pause=act))
    return told.value


def seeded_from(flow: Path, promoted: Path) -> list[str]:
    """Return the words that have a flow go on behind what another one has promoted."""
    return ["seed", "apply", str(flow), "--from", f"promoted:{promoted}", "--replace"]


def promoted(replica: Orphaned, capsys: Capture) -> str:
    """Return a topic all of which was copied when it was switched over."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    replica.switch_over(capsys)
    return topic


def test_a_topic_that_was_led_back_and_promoted_is_a_primary(replica: Orphaned, capsys: Capture) -> None:
    """Over, and back: what stands behind the old cut came that way, or was written by clients since.

    Nothing places the flow that has led it back in it once more: the first flow goes on instead.
    """
    topic = promoted(replica, capsys)
    back = replica.fail_back(capsys, topic)
    replica.source.plain(topic, 0, replica.source.records(7))
    code, plan = replica.orphans(capsys, "plan")
    assert (code, plan["orphans"], plan["partitions"]) == (DECIDE, 0, [])
    assert "a switchover has promoted it" in refused(replica, capsys, topic, "LED_BACK", written=0)
    code, plan = replica.seed_back(capsys, back)
    assert (code, [each["code"] for each in plan["refused"]], plan["written"]) == (DECIDE, ["PROMOTED"], 0)
    over, led = load_flow(str(replica.flow.path)), load_flow(str(back.path))
    with failback.way_back_seeder(over, led, [topic]) as again:
        assert (again.plan().items, again.plan().refused) == ((), ())
    assert failback.went_back(over, led, [topic])
    assert replica.command(capsys, *seeded_from(replica.flow.path, back.path))[0] == DONE
    replica.copy()
    replica.assert_same()


@pytest.mark.soak
def test_a_topic_that_was_led_back_for_a_while_is_no_old_one(replica: Orphaned, capsys: Capture) -> None:
    topic = promoted(replica, capsys)
    back = replica.back()
    assert replica.seed_back(capsys, back)[0] == DONE
    replica.target.plain(topic, 0, replica.target.records(4))
    back.copy()
    away = replica.back(topics={"include": [f"{replica.name}[.]other"], "naming": "identity"})
    away.copy()
    assert "has copied to it since" in refused(replica, capsys, topic, "LED_BACK", written=0)


@pytest.mark.soak
@pytest.mark.parametrize(
    "evidence",
    [
        pytest.param(
            lambda meta: changed(meta, batch=meta.batch._replace(crc=meta.batch.crc ^ 1)), id="batch"
        ),
        pytest.param(lambda meta: changed(meta, leader_epoch=meta.leader_epoch + 1), id="epoch"),
    ],
)
def test_another_life_of_the_source_is_not_exported_as_if_it_were_the_tail(
    replica: Orphaned, capsys: Capture, evidence: Callable[[ProgressMeta], ProgressMeta]
) -> None:
    """What the log holds below the cut is not what was copied, however far it goes."""
    topic = replica.orphaned_topic(capsys)
    group, tp = f"onceover.{replica.name}", TopicPartition(topic, 0)
    with LiveCluster(ClientConfig("west", replica.target_client)) as target:
        at = target.committed(group, [tp])[tp]
    meta = ProgressMeta.decode(at.metadata)
    assert meta is not None
    other = Place(topic, 0, at.offset, metadata=evidence(meta).encode())
    admin = AdminClient(replica.target_client)
    altered = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [other])])
    altered[group].result(_TIMEOUT_S)
    assert "the source has lost records" in refused(replica, capsys, topic, "LOG_CHANGED", written=0)


@pytest.mark.soak
def test_what_was_written_to_a_topic_that_was_made_anew_is_named(replica: Orphaned, capsys: Capture) -> None:
    topic = replica.orphaned_topic(capsys)
    delete_topics(replica.source_client, [topic])
    replica.source.create_topic(topic, 1, {})
    replica.source.plain(topic, 0, replica.source.records(3))
    why = refused(replica, capsys, topic, "MADE_ANEW", written=0)
    assert "3 records were never copied" in why


def test_what_the_copy_has_lost_stands_on_the_source_alone(replica: Orphaned, capsys: Capture) -> None:
    """Its retention was shorter; where both have lost the same, nothing is lost by the deletion."""
    topic = replica.orphaned_topic(capsys)
    delete_before(replica.target_client, topic, 6)
    assert "begins at offset 6" in refused(replica, capsys, topic, "NOT_COPIED", written=5)
    delete_before(replica.source_client, topic, 6)
    code, done = replica.orphans(capsys, "apply", "--rebuild")
    assert (code, done["rebuilt"]) == (DONE, [topic])


@pytest.mark.soak
def test_a_copy_that_is_compacted_where_the_topic_is_not_is_not_known_to_be_whole(
    replica: Orphaned, capsys: Capture
) -> None:
    """Its log still begins at 0, whatever was removed from it."""
    topic = replica.orphaned_topic(capsys)
    alter_config(replica.target_client, topic, {"cleanup.policy": "compact"})
    assert "is compacted, unlike it" in refused(replica, capsys, topic, "NOT_COPIED", written=5)
    alter_config(replica.source_client, topic, {"cleanup.policy": "compact"})
    code, done = replica.orphans(capsys, "apply", "--rebuild")
    assert (code, done["rebuilt"]) == (DONE, [topic])


GROUP = "billing"


def left_alone(replica: Orphaned, capsys: Capture) -> str:
    """Return a topic with orphans, and a position of a group in it that stands nowhere else."""
    topic = replica.orphaned_topic(capsys)
    commit(replica.source_client, f"{replica.name}-{GROUP}", topic, {0: 7})
    return topic


def test_a_position_that_stands_nowhere_else_keeps_its_topic_until_it_is_placed(
    replica: Orphaned, capsys: Capture
) -> None:
    """Deleted with it the group would begin anew; placed, it goes on in the copy, and nothing is asked."""
    topic, group = left_alone(replica, capsys), f"{replica.name}-{GROUP}"
    code, plan = replica.orphans(capsys, "plan", "--rebuild")
    assert (code, plan["rebuild"]) == (DECIDE, [])
    assert {"group": group, "topic": topic, "positions": {"0": 7}, "forgotten": False, "error": None} in plan[
        "positions_only_here"
    ]
    assert f"{group} (0 at 7)" in refused(replica, capsys, topic, "GROUPS_LEFT", written=5)
    assert replica.command(capsys, "groups", "apply", str(replica.flow.path))[0] == DONE
    code, done = replica.orphans(capsys, "apply", "--rebuild")
    assert (code, done["rebuilt"], done["positions_only_here"]) == (DONE, [topic], [])
    assert offset_of(replica.target_client, group, topic) == 7


def test_a_position_that_somebody_gives_up_goes_with_its_topic(replica: Orphaned, capsys: Capture) -> None:
    """By the group's whole name, and shown as what is changed for good."""
    topic, group = left_alone(replica, capsys), f"{replica.name}-{GROUP}"
    forget = "--rebuild", "--forget-group"
    assert replica.orphans(capsys, "apply", *forget, GROUP)[1]["rebuilt"] == []
    code, done = replica.orphans(capsys, "apply", *forget, f".*-{GROUP}")
    assert (code, done["rebuilt"]) == (DONE, [topic])
    assert [c["object"] for c in done["changes"] if c["what"] == "forget"] == [
        f"topic {topic} on east, group {group}"
    ]


@pytest.mark.soak
def test_a_position_that_has_come_since_keeps_its_topic(replica: Orphaned, capsys: Capture) -> None:
    """Asked again right before the deletion."""
    topic = replica.orphaned_topic(capsys)
    late = f"{replica.name}-late"
    committed = partial(commit, replica.source_client, late, topic, {0: 3})
    assert kept_after(replica, committed, rf"stays: .*{late} \(0 at 3\)").code == "GROUPS_LEFT"
    assert len(replica.behind(topic, 0)) == 15


@pytest.mark.soak
def test_a_copy_that_was_made_anew_is_none(replica: Orphaned, capsys: Capture) -> None:
    """Brokers forget the progress with it; the export goes by what the switchover has kept."""
    topic = replica.orphaned_topic(capsys)
    delete_topics(replica.target_client, [topic])
    replica.target.create_topic(topic, 1, {})
    assert "forgotten the flow's progress" in refused(replica, capsys, topic, "NOT_COPIED", written=5)


@pytest.mark.parametrize(
    "config",
    [
        {"retention.ms": "604800000"},
        pytest.param({"retention.ms": "-1", "cleanup.policy": "compact"}, marks=pytest.mark.soak),
        pytest.param(
            {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}, marks=pytest.mark.soak
        ),
    ],
)
def test_an_export_that_would_not_last_is_none(
    replica: Orphaned, capsys: Capture, config: dict[str, str]
) -> None:
    """Brokers make topics that somebody asks for, with their defaults."""
    replica.orphaned_topic(capsys)
    made = f"__onceover.{replica.name}.orphans"
    replica.target_topic(made, config={"retention.bytes": "-1", **config})
    for words in (["plan"], ["apply", "--rebuild"]):
        code, told = replica.orphans(capsys, *words)
        assert (code, told["error"]["code"]) == (DECIDE, "EXPORT_UNFIT")
    assert replica.target_records(made) == {}


@pytest.mark.soak
def test_a_handler_that_was_there_once_is_remembered(replica: Orphaned, capsys: Capture) -> None:
    """Its records are other ones, whatever the flow file says by now."""
    replica.configure(**handler_keys("Doubled"))
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    replica.configure(handler=None, handler_args={})
    replica.write_flow()
    replica.source.plain(topic, 0, replica.source.records(5))
    replica.switch_over(capsys)
    assert "has, or had, a handler" in refused(replica, capsys, topic, "NOT_COPIED", written=5)


@pytest.mark.soak
def test_what_an_older_release_has_not_kept_is_said(
    replica: Orphaned, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "ever_handled", lambda *_, **__: None)
    replica.orphaned_topic(capsys)
    code, plan = replica.orphans(capsys, "plan")
    assert code == DONE
    assert "today's flow file alone, which names none" in json.dumps(plan)


@pytest.mark.soak
def test_nobody_would_copy_it_anew(replica: Orphaned, capsys: Capture) -> None:
    """Without a flow the other way, or with one that leaves the topic out."""
    topic = replica.orphaned_topic(capsys)
    replica.back(topics={"include": [f"{replica.name}[.]other"], "naming": "identity"})
    assert "would not copy it anew" in refused(replica, capsys, topic, "SWITCHOVER_UNSET", written=5)
    replica.configure(switchover={"redirect": "command", "command": ["./switch"], "quiet": "500ms"})
    replica.write_flow()
    assert "names no flow" in refused(replica, capsys, topic, "SWITCHOVER_UNSET", written=0)


@pytest.mark.soak
def test_a_flow_whose_state_cannot_be_read_may_write_anything(
    replica: Orphaned, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is exported is exported; nothing is deleted."""

    class Unreadable(OtherFlows):
        """One of the flows is written by another version."""

        def read(self, topics: Mapping[str, TopicInfo]) -> list[OtherFlow]:
            found = super().read(topics)
            self.unreadable["other"] = NeedsOperator("of another version", code=StateCode.STATE_VERSION)
            return found

    topic = replica.orphaned_topic(capsys)
    with monkeypatch.context() as other:
        other.setattr(promotions, "OtherFlows", Unreadable)
        assert "is not known" in refused(replica, capsys, topic, "NOT_READ", written=5)
    assert replica.orphans(capsys, "apply", "--rebuild")[1]["rebuilt"] == [topic]


@pytest.mark.soak
def test_a_partition_that_cannot_be_read_keeps_its_topic_alone(
    replica: Orphaned, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it is looked at, or exported; the others are exported, and theirs are deleted."""
    bad, good = replica.topic("bad"), replica.topic("good")
    for topic in (bad, good):
        replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    for topic in (bad, good):
        replica.source.plain(topic, 0, replica.source.records(5))
    replica.switch_over(capsys)

    def unread(of: Callable[..., Any], _: object, tp: TopicPartition, *more: Any, **how: Any) -> Any:
        if tp.topic == bad:
            raise OffsetGone(f"{tp} is gone")
        return of(_, tp, *more, **how)

    for module, name in ((export, "records_between"), (view, "batches_between")):
        with monkeypatch.context() as broken:
            broken.setattr(module, name, partial(unread, getattr(module, name)))
            code, done = replica.orphans(capsys, "apply")
        assert (code, {(r["object"], r["code"]) for r in done["refused"]}) == (
            DECIDE,
            {(f"{bad}:0", "NOT_READ")},
        )
        assert {each.topic for each in replica.exported()} == {good}
    code, done = replica.orphans(capsys, "apply", "--rebuild")
    assert (code, sorted(done["rebuilt"]), len(replica.exported())) == (DONE, [bad, good], 10)


@pytest.mark.soak
def test_a_topic_that_was_never_taken_in_is_named(replica: Orphaned, capsys: Capture) -> None:
    replica.orphaned_topic(capsys)
    late = replica.topic("late")
    replica.source.plain(late, 0, replica.source.records(4))
    code, plan = replica.orphans(capsys, "plan")
    (only,) = plan["refused"]
    assert (code, only["object"], only["code"]) == (DECIDE, late, "NOT_COPIED")
    assert "up to 4 records" in only["message"]


def test_everything_is_asked_again_right_before_the_deletion(replica: Orphaned, capsys: Capture) -> None:
    topic = replica.orphaned_topic(capsys)
    expired = partial(delete_before, replica.target_client, topic, 6)
    assert kept_after(replica, expired, r"stays: .* may hold what is nowhere else").code == "NOT_COPIED"
    assert len(replica.behind(topic, 0)) == 15


@pytest.mark.parametrize(
    "anew", [pytest.param(False, marks=pytest.mark.soak), True], ids=["deleted", "made anew"]
)
def test_an_export_that_is_gone_by_the_deletion_is_no_export(
    replica: Orphaned, capsys: Capture, monkeypatch: pytest.MonkeyPatch, *, anew: bool
) -> None:
    """Behind all else that is asked again: nothing of the source is lost, and it is exported anew."""
    topic = replica.orphaned_topic(capsys)
    export_topic = f"__onceover.{replica.name}.orphans"
    asked = TopicRebuild._check_again

    def and_lost(work: TopicRebuild, *of: Any) -> None:
        asked(work, *of)
        delete_topics(replica.target_client, [export_topic])
        if anew:
            replica.target_topic(export_topic)
            replica.target.plain(export_topic, 0, replica.target.records(9))

    with monkeypatch.context() as other:
        other.setattr(TopicRebuild, "_check_again", and_lost)
        code, told = replica.orphans(capsys, "apply", "--rebuild")
    assert (code, told["error"]["code"]) == (DECIDE, "EXPORT_DIFFERS")
    assert len(replica.behind(topic, 0)) == 15
    if anew:
        delete_topics(replica.target_client, [export_topic])
    code, done = replica.orphans(capsys, "apply", "--rebuild")
    assert (code, done["written"], done["rebuilt"], len(replica.exported())) == (DONE, 5, [topic], 5)


@pytest.mark.soak
def test_who_makes_the_topic_anew_at_once_is_told(
    replica: Orphaned, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer that goes on, where brokers make topics: that is not the topic as it was."""
    topic = replica.orphaned_topic(capsys)
    real = Admin.delete_topic

    def and_made(admin: Admin, name: str, topic_id: UUID) -> None:
        real(admin, name, topic_id)
        replica.source.create_topic(name, 1, {})

    with monkeypatch.context() as other:
        other.setattr(Admin, "delete_topic", and_made)
        code, told = replica.orphans(capsys, "apply", "--rebuild")
    assert (code, told["error"]["code"]) == (DECIDE, "LOG_CHANGED")
    assert "somebody else has made it anew" in told["error"]["message"]
    delete_topics(replica.source_client, [topic])
    code, done = replica.orphans(capsys, "apply", "--rebuild")
    assert (code, done["rebuilt"], replica.made_again(topic)) == (DONE, [topic], True)


def test_a_namesake_is_not_deleted(replica: Orphaned, capsys: Capture) -> None:
    """Whatever was made under the name since it was looked at."""
    topic = replica.topic()
    with LiveCluster(ClientConfig("east", replica.source_client)) as source:
        before = source.topics([topic])[topic].topic_id
        delete_topics(replica.source_client, [topic])
        replica.source.create_topic(topic, 1, {})
        with pytest.raises(NeedsOperator) as refused:
            Admin(source).delete_topic(topic, before)
        assert refused.value.code == "TOPIC_MISSING"
        assert topic in source.topics([topic])


@pytest.mark.soak
def test_the_flow_back_is_asked_as_it_is_by_now(replica: Orphaned, capsys: Capture) -> None:
    """Its file is another one, and it is a while until somebody has said yes to a deletion."""
    topic = replica.orphaned_topic(capsys)
    handled = partial(replica.back, **handler_keys("Doubled"))
    assert kept_after(replica, handled, "its handler would change").where == topic
    assert replica.behind(topic, 0)


@pytest.mark.soak
def test_a_persons_group_may_be_called_after_us(replica: Orphaned, capsys: Capture) -> None:
    """Ours are those that we make: names that merely begin alike are people's."""
    topic = replica.orphaned_topic(capsys)
    commit(replica.source_client, f"onceover-shop-{replica.name}", topic, {0: 7})
    code, done = replica.orphans(capsys, "apply", "--rebuild")
    assert (code, done["rebuilt"]) == (DECIDE, [])
    assert {each["code"] for each in done["refused"]} == {"GROUPS_LEFT"}
