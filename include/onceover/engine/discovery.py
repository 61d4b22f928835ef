"""What to create and enrol, computed from what both clusters look like now. Pure.

Invariant: a partition that has progress never gets a new start offset here; a target topic that
holds records, or belongs to another flow, is refused and not touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onceover.engine.enrolment import Enrolment
from onceover.engine.plan import Refusal
from onceover.engine.topics import config_to_copy
from onceover.kafka.admin import TopicSpec
from onceover.kafka.cluster import TopicInfo
from onceover.model import TopicPartition


@dataclass(frozen=True)
class View:
    """Live state that the plan is computed from.

    Args:
        flow: the flow's name.
        source: source topics in scope, by name.
        overrides: their own configuration.
        target: target topics of the same names that exist.
        target_ends: high watermark of every existing target partition.
        enrolled: what is enrolled already, by target topic.
        elsewhere: target topics that other flows have enrolled, with the flow's name.
        sync_configs: whether configuration is copied at creation.
    """

    flow: str
    source: Mapping[str, TopicInfo]
    overrides: Mapping[str, Mapping[str, str]]
    target: Mapping[str, TopicInfo]
    target_ends: Mapping[TopicPartition, int]
    enrolled: Mapping[str, Enrolment]
    elsewhere: Mapping[str, str]
    sync_configs: bool = True


@dataclass(frozen=True)
class Plan:
    """What to do: create topics, add partitions, then enrol.

    Args:
        create: topics missing on the target.
        grow: target topics with too few partitions, and the count they need.
        enrol: source topics to enrol or to enrol again with more partitions.
        refused: what is left out, and why.
    """

    create: list[TopicSpec] = field(default_factory=list)
    grow: dict[str, int] = field(default_factory=dict)
    enrol: list[str] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)


def plan_topics(view: View) -> Plan:
    """Return what has to be done so that every topic in scope is copied."""
    plan = Plan()
    for name, info in sorted(view.source.items()):
        enrolled = view.enrolled.get(name)
        if enrolled is None:
            _plan_new(view, plan, info)
        else:
            _plan_growth(view, plan, info, enrolled)
    return plan


def _plan_new(view: View, plan: Plan, info: TopicInfo) -> None:
    owner = view.elsewhere.get(info.name)
    existing = view.target.get(info.name)
    if owner is not None:
        plan.refused.append(
            Refusal(
                info.name,
                "ENROLLED_ELSEWHERE",
                f"flow {owner} already writes target topic {info.name}; two flows would mix their records",
                f"exclude {info.name} in one of the two flows, or copy under another name",
            )
        )
    elif existing is None:
        config = config_to_copy(view.overrides.get(info.name, {})) if view.sync_configs else {}
        plan.create.append(TopicSpec(info.name, len(info.partitions), -1, config))
        plan.enrol.append(info.name)
    elif len(existing.partitions) != len(info.partitions):
        plan.refused.append(
            Refusal(
                info.name,
                "PARTITION_COUNT",
                f"target topic {info.name} has {len(existing.partitions)} partitions, "
                f"the source {len(info.partitions)}",
                "delete the empty target topic and let Onceover create it, or give both the same count",
            )
        )
    elif any(view.target_ends[TopicPartition(info.name, p)] for p in existing.partitions):
        plan.refused.append(
            Refusal(
                info.name,
                "TARGET_NOT_EMPTY",
                f"target topic {info.name} holds records already, and what they are is not known",
                f"delete target topic {info.name} if it may go, or exclude it from flow {view.flow}",
            )
        )
    else:
        plan.enrol.append(info.name)


def _plan_growth(view: View, plan: Plan, info: TopicInfo, enrolled: Enrolment) -> None:
    existing = view.target.get(info.name)
    # Recreated, deleted or shrunk topics are the lanes' business: they stop the partitions (G5).
    if len(info.partitions) <= len(enrolled.start) or info.topic_id != enrolled.source_id:
        return
    if existing is None or existing.topic_id != enrolled.target_id:
        return
    if len(existing.partitions) < len(info.partitions):
        plan.grow[info.name] = len(info.partitions)
    plan.enrol.append(info.name)
