"""Reading what a topic plan is computed from: both clusters' topics, configuration and flows.

Used by a running flow and by ``onceover topics``, so both plan from the same picture. Reads, never writes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

from onceover.errors import OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.admin.topics import Admin, TopicConfigs
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.managed import Managed
from onceover.state.records.ownership import Rival
from onceover.stops.aside import TroubleSide
from onceover.topics.configs import COMPACTION, ONLY_WIDENED
from onceover.topics.hops import Way
from onceover.topics.namingpolicy import NamingPolicy
from onceover.topics.otherflows import (
    OtherFlows,
    former_loops,
    loops,
    rivals_here,
    rivals_there,
    ways_to,
    writers,
)
from onceover.topics.plan import Loop, View
from onceover.topics.scope import Rules, ScopeDecision

# Describing 1000 topics takes a broker 0.6 to 0.9 s and us 0.2 s of CPU (measured, one node): at most this
# share of the time goes into it, so small flows follow at every discovery and large ones within a minute.
_CONFIG_SHARE: Final = 0.02
_NOTHING: Final = TopicConfigs({}, frozenset(), {})


@dataclass
class TopicReader:
    """Reads views of one flow. Not thread-safe.

    Args:
        flow: name of the flow.
        source: source cluster; ``target`` likewise. The caller closes them.
    """

    flow: str
    source: Cluster
    target: Cluster
    _configs: tuple[TopicConfigs, TopicConfigs] = field(default=(_NOTHING, _NOTHING), init=False)
    _next_configs_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._source_admin = Admin(self.source)
        self._target_admin = Admin(self.target)
        self._here = OtherFlows(self.source)
        self._there = OtherFlows(self.target, without=self.flow)

    def close(self) -> None:
        """Close what was opened here; the clusters belong to the caller."""
        self._here.close()
        self._there.close()

    def changed(self) -> None:
        """Read all configuration again next time: something was changed."""
        self._next_configs_s = 0.0

    def read(
        self,
        rules: Rules,
        enrolled: Mapping[str, Enrolment],
        managed: Mapping[str, Managed],
        *,
        sync_configs: bool,
        adopt: bool = False,
    ) -> View:
        """Return the situation as it is now.

        Configuration may be up to a minute older where there are very many topics.

        Args:
            rules: from the flow file.
            enrolled: from the flow's state, by target topic; ``managed`` likewise.
            sync_configs: whether configuration is copied.
            adopt: whether topics that are not managed are to be taken over.

        Raises:
            Retriable: a cluster is away.
            UsageError: not authorized to look.
        """
        source, target = self.source.topics(), self.target.topics()
        elsewhere = writers(self._there.read(target))
        looping, former, ways = self._loops(rules, source)
        view = View(
            flow=self.flow,
            rules=rules,
            source=source,
            target=target,
            enrolled=enrolled,
            managed=managed,
            elsewhere=elsewhere,
            loops=looping,
            former_loops=former,
            upstream=ways,
            unreadable={f: e.message for f, e in {**self._here.unreadable, **self._there.unreadable}.items()},
            hidden=self._hidden(enrolled.values(), source, target),
            sync_configs=sync_configs,
            adopt=adopt,
        )
        view = replace(view, target_ends=self._ends(view), unseen=self._unseen(view))
        return self._with_configs(view)

    def rivals(self, naming: NamingPolicy, wanted: Mapping[str, str]) -> dict[str, list[Rival]]:
        """Return who else has or claims topics, by source topic, read anew.

        Args:
            naming: of this flow.
            wanted: source topics with their targets.

        Raises:
            Retriable: a cluster is away, or the state of a flow cannot be read now.
        """
        there = self._there.read(self.target.topics())
        here = self._here.read(self.source.topics())
        for flow, error in {**self._here.unreadable, **self._there.unreadable}.items():
            raise Retriable(f"the state of flow {flow} cannot be read now: {error.message}")
        ids = self.source.cluster_id(), self.target.cluster_id()
        return {
            source: [*rivals_there(there, target), *rivals_here(here, naming, *ids, source)]
            for source, target in wanted.items()
        }

    def _loops(
        self, rules: Rules, source: Mapping[str, TopicInfo]
    ) -> tuple[dict[str, Loop], dict[str, Loop], dict[str, Way]]:
        """Return what other flows copy back, what they have, and the ways of what they write on the source.

        Under ``prefix``, too: names tell the same only where all flow files call the clusters alike.
        """
        ids = self.source.cluster_id(), self.target.cluster_id()
        flows = self._here.read(source)
        ways = ways_to(flows, ids[0])
        return loops(flows, rules.naming, *ids, ways), former_loops(flows, rules.naming, *ids), ways

    def _hidden(
        self,
        enrolled: Iterable[Enrolment],
        source: Mapping[str, TopicInfo],
        target: Mapping[str, TopicInfo],
    ) -> dict[str, tuple[TroubleSide, OnceoverError]]:
        """Return which of the topics that are enrolled may not be described, instead of being gone."""
        found: dict[str, tuple[TroubleSide, OnceoverError]] = {}
        records = [record for record in enrolled if record.active]
        for side, cluster, shown, name in (
            (TroubleSide.TARGET, self.target, target, attrgetter("target")),
            (TroubleSide.SOURCE, self.source, source, attrgetter("source")),
        ):
            absent = {name(record): record.source for record in records if name(record) not in shown}
            found |= {absent[t]: (side, error) for t, error in cluster.hidden_topics(absent).items()}
        return found

    def _unseen(self, view: View) -> dict[str, OnceoverError]:
        """Return which copies that are yet to be made may not be described: they may be there."""
        known = view.enrolled_by_source
        wanted = {v.target_topic for v in _inside(view) if v.topic not in known} - view.target.keys()
        return self.target.hidden_topics(wanted)

    def _ends(self, view: View) -> dict[TopicPartition, int]:
        """Return the ends of target topics that a plan takes as they are only while they are empty."""
        known = view.enrolled_by_source
        existing = [
            view.target[v.target_topic]
            for v in _inside(view)
            if v.target_topic in view.target and (v.topic not in known or known[v.topic].waits_to_be_placed)
        ]
        wanted = [TopicPartition(t.name, p) for t in existing if t.is_led for p in t.partitions]
        return self.target.list_offsets(wanted, calls.LATEST, calls.READ_UNCOMMITTED)

    def _with_configs(self, view: View) -> View:
        known = view.enrolled_by_source
        everything = time.monotonic() >= self._next_configs_s
        wanted = [v for v in _inside(view) if everything or v.topic not in known]
        if not everything and not wanted:
            here, there = self._configs
        else:
            here, there = self._read_configs(view, wanted, everything=everything)
        return replace(
            view,
            overrides=here.overrides,
            target_overrides=there.overrides,
            keys=there.keys,
            unread=here.failures,
            target_unread=there.failures,
            standing=there.standing,
            defaults=there.defaults,
            restamped=there.append_time,
        )

    def _read_configs(
        self, view: View, wanted: list[ScopeDecision], *, everything: bool
    ) -> tuple[TopicConfigs, TopicConfigs]:
        began_s = time.monotonic()
        copies = [v.target_topic for v in wanted if v.target_topic in view.target]
        # Any topic tells which keys the target knows, and its defaults; the flow's own is there from the
        # first start on.
        own = names.state_topic(self.flow)
        others = view.target.keys() - set(copies)
        asked = [own] if own in others else sorted(others)[:1]
        # Of the source's only what is copied; of the target also how it stamps records.
        here = self._source_admin.topic_configs(v.topic for v in wanted if view.sync_configs)
        standing = (*ONLY_WIDENED, *COMPACTION)
        there = _without(asked, self._target_admin.topic_configs(asked + copies, standing=standing))
        if not everything:
            here, there = (_merged(old, new) for old, new in zip(self._configs, (here, there), strict=True))
        else:
            now_s = time.monotonic()
            self._next_configs_s = now_s + (now_s - began_s) / _CONFIG_SHARE
        self._configs = here, there
        return here, there


def _inside(view: View) -> Iterator[ScopeDecision]:
    """Yield the decisions on topics that are in scope and on the source."""
    return (v for v in view.decisions() if v.inside and v.topic in view.source)


def _merged(old: TopicConfigs, new: TopicConfigs) -> TopicConfigs:
    failed = {topic: error for topic, error in old.failures.items() if topic not in new.overrides}
    return TopicConfigs(
        {**old.overrides, **new.overrides},
        new.keys or old.keys,
        {**failed, **new.failures},
        (old.append_time - new.overrides.keys()) | new.append_time,
        {**old.standing, **new.standing},
        {**old.defaults, **new.defaults},
    )


def _without(asked: Collection[str], configs: TopicConfigs) -> TopicConfigs:
    """Leave out topics that are no copies: asked for the sake of the keys, where that is allowed."""
    failures = {topic: error for topic, error in configs.failures.items() if topic not in asked}
    return replace(configs, failures=failures)
