"""Looking at a connector: its configuration, its offsets where they are and where they go, and our rights.

Reads only. What cannot be read is a refusal of that connector, with its reason; a cluster that is away is an
error of the run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from onceover.backoff import Backoff, Deadline
from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import (
    PAUSED,
    RUNNING,
    SOURCE,
    STOPPED,
    ConnectorOffsets,
    ConnectorState,
    Isolation,
    WorkerFacts,
)
from onceover.connectors.offsets.configtopic import ConfigRecords, read_config_topic
from onceover.connectors.offsets.scan import PATIENCE_S, Scan, scan_topic
from onceover.connectors.planning.access import ConnectAccess, OffsetsTopic
from onceover.connectors.planning.principals import connector_rights
from onceover.connectors.record.commands import rollback_command
from onceover.connectors.rights import (
    check_new_topic,
    check_topic,
    check_transactional_ids,
    missing,
    needing,
)
from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka import calls
from onceover.kafka.admin.topicfacts import topic_facts
from onceover.kafka.admin.topics import Admin, TopicSpec
from onceover.kafka.codes import KafkaCode
from onceover.planning.plan import Refusal

T = TypeVar("T")
# Of what workers object to, as much as a person reads at once.
_WORDS: Final = 3
_POLICY: Final = "cleanup.policy"
_STORAGE: Final = "offset.storage."
_PARTITIONS: Final = "partitions"
_REPLICATION: Final = "replication.factor"
# Whoever writes to a topic that no running connector uses yet has no business there: no need to wait long.
OWN_PATIENCE_S: Final = 15.0
# Until workers that follow a changed configuration have fenced its former tasks: a rebalance and a few
# requests, seen to take about a second.
_TAKEN_UP_S: Final = 10.0
# Of one that differs behind another that did all the time: with the wrong Connect file all of them do.
_AGAIN_S: Final = 1.0
# Of one connector: each of them is asked about, and fenced, alone.
_MOST_TASKS: Final = 10_000
COPY_RIGHTS: Final = ("DESCRIBE", "READ", "WRITE")
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True)
class TopicView:
    """An offsets topic: what it holds, and its own ``cleanup.policy`` (None: the broker's)."""

    scan: Scan
    policy: str | None


@dataclass(frozen=True)
class ConnectorView:
    """Everything that a plan for one connector is made of.

    Args:
        state: as the workers report it.
        facts: the Connect cluster.
        topic: of its own, as asked for.
        base: where its offsets are without one; None where that could not be read.
        own: its topic, None where it does not exist.
        spec: what the topic is created as.
        fence_ids: transactional ids of its tasks; none without exactly-once.
        records: the workers' configuration topic.
        interrupted: what the connector did before a run stopped it that did not come to its end; None
            without one.
        connectors: every connector of the cluster.
        shown: what GET offsets says, None where it says nothing.
        problems: what stands in the way of looking, or a right that is missing.
        doubts: rights of the connector's own clients that nobody can tell here.
        owed: that an interrupted run has left it STOPPED, and the commands on and back.
        standing: who made it stand still since a run had it run, or would have, and how to let it run.
        newest_ms: when the newest run for it began, by the clock of that one's machine; 0 without one.
    """

    state: ConnectorState
    facts: WorkerFacts
    topic: str
    base: TopicView | None = None
    own: TopicView | None = None
    spec: TopicSpec | None = None
    fence_ids: tuple[str, ...] = ()
    records: ConfigRecords = field(default_factory=ConfigRecords)
    interrupted: str | None = None
    connectors: frozenset[str] = frozenset()
    shown: list[tuple[Any, Any]] | None = None
    problems: tuple[Refusal, ...] = ()
    doubts: tuple[str, ...] = ()
    standing: str = ""
    owed: str = ""
    newest_ms: int = 0

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def initial_state(self) -> str:
        """What the connector does when nobody moves its offsets.

        An interrupted run has stopped it; one that failed or is being moved is meant to run.
        """
        # The status says UNASSIGNED for a while after every change of the configuration.
        wanted = self.state.state if self.state.state in (STOPPED, PAUSED) else self.records.target(self.name)
        if self.interrupted is not None and wanted == STOPPED:
            return self.interrupted
        return wanted if wanted in (STOPPED, PAUSED) else RUNNING

    @property
    def configured(self) -> str | None:
        """The topic of its own that it has now; the shared one by name is none."""
        return self.state.own_topic(self.facts.offsets_topic)

    def base_offsets(self) -> ConnectorOffsets | None:
        """What the place without a topic of its own holds of it."""
        return None if self.base is None else self.base.scan.snapshot(self.name)

    def own_offsets(self) -> ConnectorOffsets | None:
        """What its own topic holds of it."""
        return None if self.own is None else self.own.scan.snapshot(self.name)


class Observer:
    """Looks at connectors of one Connect cluster. Used for one operation.

    Args:
        access: belongs to the caller.
        facts: as just read.
        patience_s: how long an open transaction is waited for.
    """

    def __init__(self, access: ConnectAccess, facts: WorkerFacts, patience_s: float = PATIENCE_S) -> None:
        self._access = access
        self._facts = facts
        self._patience_s = patience_s

    def look(self, name: str, topic: str, *, for_plan: bool = True, back: bool = False) -> ConnectorView:
        """Return a connector as it is now.

        Args:
            topic: of its own that it has or gets.
            back: the shared topic is to be written, not the connector's own.
            for_plan: also ask whether we may do what is needed, and do not wait for open transactions: one
                may be a frozen task's, which only the fence ends. Otherwise they are waited for.

        Raises:
            UsageError: NO_CONNECTOR.
            Retriable: a cluster is away.
        """
        access, problems = self._access, _Problems(name)
        state, records = self._settled(problems)
        if state.type != SOURCE:
            return ConnectorView(state, self._facts, topic)
        # First: what it shows is in the topic by the time that this is read.
        shown = self._shown(name)
        own_site = problems.attempt(lambda: access.own_site(state.config, topic), None)
        patience_s = None if for_plan else self._patience_s
        base = problems.attempt(lambda: self.topic_view(access.base_site(state.config), patience_s), None)
        used = state.offsets_topic == topic
        own = None
        if own_site is not None and is_topic_name(topic):
            own = problems.attempt(lambda: self._own(own_site, patience_s, used=used), None)
        ids: list[str] = []
        if self._facts.exactly_once:
            tasks = records.fence_count(name, state.config)
            ids = problems.attempt(lambda: fence_ids(tasks, partial(access.task_id, name)), [])
        view = ConnectorView(
            state=state,
            facts=self._facts,
            topic=topic,
            base=base,
            own=own,
            spec=self._spec(topic, base),
            fence_ids=tuple(ids),
            records=records,
            connectors=frozenset(each.name for each in access.rest.connectors()),
            shown=shown,
        )
        if for_plan and own_site is not None and is_topic_name(topic) and not problems.found:
            problems.attempt(lambda: self._check_ids(view, own_site), None)
            problems.attempt(lambda: access.records.check(name), None)
            check = self._check_return if back else self._check_own
            problems.attempt(lambda: check(view, own_site), None)
            return self._with_rights(replace(view, problems=tuple(problems.found)), own_site, back=back)
        return replace(view, problems=tuple(problems.found))

    def _settled(self, problems: _Problems) -> tuple[ConnectorState, ConfigRecords]:
        """Return what the workers report and what they wrote down, of one and the same configuration.

        Exactly-once workers that take up a changed one report the former tasks until the leader has fenced
        them: seen at that moment, they would be taken for workers that do not fence at all.
        """
        backoff, deadline = Backoff(0.1, 1.0), Deadline(_TAKEN_UP_S)
        until = Deadline(_AGAIN_S) if self._access.has_waited else deadline
        while True:
            state = self._access.rest.state(problems.name)
            if state.type != SOURCE:
                return state, ConfigRecords()
            records = problems.attempt(self.config_records, ConfigRecords())
            differs = not problems.found and not self._holds(records, state)
            unfenced = self._facts.exactly_once and records.runs_unfenced(state)
            if not (differs or unfenced) or (deadline if unfenced else until).passed:
                break
            backoff.wait(deadline)
        if differs:
            self._access.has_waited = True
            problems.found.append(refusal_of(state.name, self._told_otherwise(state.name)))
        return state, records

    def _holds(self, records: ConfigRecords, state: ConnectorState) -> bool:
        """Tell whether the configuration topic holds what the workers tell, for its readers."""
        if records.config(state.name) == state.config:
            return True
        if not self._facts.exactly_once:
            return False
        committed = read_config_topic(
            self._access.worker_cluster, self._access.config_topic, calls.READ_COMMITTED
        )
        return committed.config(state.name) == state.config

    def _told_otherwise(self, name: str) -> NeedsOperator:
        """Return the error where who is asked over REST may not be who writes the configuration topic.

        Of two Connect clusters with a connector of the same name one would be stopped, and go on from what
        the other one has read. And a configuration that was changed on its way here is not to be put.
        """
        return NeedsOperator(
            "the workers tell another configuration of it than their configuration topic holds",
            code=ConnectorCode.WORKERS_DIFFER,
            where=name,
            expected=f"what {self._access.config_topic} on {self._access.worker_cluster.alias} holds",
            seen=f"something else from {', '.join(self._facts.workers)}",
            resolve="see to it that `rest` and the workers' configuration are of the same Connect cluster, "
            "and that nothing before the workers changes what they tell, secrets among it",
        )

    def _with_rights(self, view: ConnectorView, own: OffsetsTopic, *, back: bool) -> ConnectorView:
        """Return a view that also tells what the connector's own clients lack where its offsets go."""
        config = view.state.config
        if view.configured == (None if back else view.topic):
            return view
        # Without exactly-once the workers themselves write the shared topic, as ever.
        site = self._access.base_site(config) if back else own
        clients = self._access.settings.clients.roles(config) if not back or view.facts.exactly_once else []
        rights = connector_rights(
            view.name, site, clients, self._access.silent_logins, self._access.settings.clients.open
        )
        return replace(view, problems=(*view.problems, *rights.refusals), doubts=rights.doubts)

    def checked(self, view: ConnectorView, topic: str | None) -> ConnectorView:
        """Return a view that also tells whether the workers will take the configuration that is to be put.

        Asked before anything is stopped: a plugin checks its configuration against the system it reads from,
        which may be away while tasks that run only wait for it.

        Args:
            topic: of its own that it gets; None for the shared one.
        """
        if view.problems or view.state.type != SOURCE or view.state.offsets_topic == topic:
            return view
        problems = _Problems(view.name)
        problems.attempt(lambda: self._check_config(view, topic), None)
        return replace(view, problems=tuple(problems.found))

    def _check_config(self, view: ConnectorView, topic: str | None) -> None:
        rest, config = self._access.rest, view.state.config_with(topic)
        try:
            words = rest.objections(config)
        except Retriable as error:
            raise NeedsOperator(
                "the workers do not say whether they will take its configuration",
                code=ConnectorCode.CONFIG_UNCHECKED,
                where=view.name,
                expected="an answer of its plugin, which may ask the system that it reads from",
                seen=error.seen or error.message,
                resolve=self._way_on(view),
            ) from error
        except UsageError as error:
            if error.code != ConnectorCode.NO_CONNECTOR:
                raise
            words = [f"no worker has its plugin {config.get('connector.class')}"]
        if words:
            raise NeedsOperator(
                f"the workers would refuse its configuration with offsets in {topic or 'the shared topic'}",
                code=ConnectorCode.CONFIG_REFUSED,
                where=view.name,
                expected="a configuration that its plugin takes, and whatever it asks for that is there",
                seen="; ".join(words[:_WORDS]),
                resolve=self._way_on(view),
            )

    def _way_on(self, view: ConnectorView) -> str:
        if view.interrupted is None or view.state.state != STOPPED:
            return f"it is {view.state.state} as before: resolve what the workers say, then run again"
        back = rollback_command(self._access.settings.name, view.name)
        return (
            f"an interrupted run has stopped it: resolve that, then run again, or take it back with `{back}`"
        )

    def topic_view(self, site: OffsetsTopic, patience_s: float | None) -> TopicView:
        """Read an offsets topic as the workers do; an open transaction is waited for, unless it is None."""
        with needing(site.cluster.config, "READ", f"topic {site.topic}"):
            scan = self._access.scan(site, patience_s)
        return TopicView(scan, self._policy(site))

    def uncommitted(self, site: OffsetsTopic) -> Scan:
        """Read a topic without waiting for open transactions, aborted records included."""
        with needing(site.cluster.config, "READ", f"topic {site.topic}"):
            return scan_topic(site.cluster, site.topic, Isolation.READ_UNCOMMITTED)

    def _own(self, site: OffsetsTopic, patience_s: float | None, *, used: bool) -> TopicView | None:
        """Read a connector's own topic, None when there is none of that name.

        One that is not in use yet is read without waiting: what is open there is a killed run's own.
        """
        with needing(site.cluster.config, "DESCRIBE", f"topic {site.topic}"):
            found = site.cluster.retry(lambda: site.cluster.topics([site.topic]))
        if site.topic not in found:
            return None
        if used:
            return self.topic_view(site, patience_s)
        return TopicView(self.uncommitted(site), self._policy(site))

    def _policy(self, site: OffsetsTopic) -> str | None:
        configs = Admin(site.cluster).topic_configs([site.topic])
        for error in configs.failures.values():
            if error.code == KafkaCode.NOT_AUTHORIZED:
                raise missing(site.cluster.config, "DESCRIBE_CONFIGS", f"topic {site.topic}") from error
            raise error
        return configs.overrides.get(site.topic, {}).get(_POLICY)

    def config_records(self) -> ConfigRecords:
        """Read the workers' configuration topic.

        Raises:
            As ``read_config_topic``.
        """
        cluster, topic = self._access.worker_cluster, self._access.config_topic
        with needing(cluster.config, "READ", f"topic {topic}"):
            return read_config_topic(cluster, topic)

    def _shown(self, name: str) -> list[tuple[Any, Any]] | None:
        try:
            return self._access.rest.offsets(name)
        except (Retriable, NeedsOperator, UsageError):
            # Workers before 3.6 lack it, and some connectors' offsets break it.
            return None

    def _spec(self, topic: str, base: TopicView | None) -> TopicSpec | None:
        """Return the topic as a worker itself would create it."""
        if base is None:
            return None
        worker = self._access.settings.worker
        own = {k.removeprefix(_STORAGE): v for k, v in worker.items() if k.startswith(_STORAGE)}
        partitions = int(own.pop(_PARTITIONS, base.scan.partitions))
        replication = own.pop(_REPLICATION, None)
        own.pop("topic", None)
        factor = self._replication() if replication is None else int(replication)
        return TopicSpec(topic, partitions, factor, {**own, _POLICY: "compact"})

    def _replication(self) -> int:
        """Return the replication factor of the shared topic: the worker's configuration does not say."""
        cluster, topic = self._access.worker_cluster, self._access.global_topic
        return cluster.retry(lambda: topic_facts(cluster, topic)).replication_factor

    def _check_ids(self, view: ConnectorView, site: OffsetsTopic) -> None:
        check_transactional_ids(site.cluster, [*view.fence_ids, self._access.own_id(view.name)])

    def _check_return(self, view: ConnectorView, _own: OffsetsTopic) -> None:
        sites = self._access.return_sites(view.state.config)
        for site in sites:
            check_topic(site.cluster, site.topic, COPY_RIGHTS)
        self._check_shared(view, sites)

    def _check_shared(self, view: ConnectorView, sites: list[OffsetsTopic]) -> None:
        """See to it that what a connector goes back to is the topic that the workers share.

        They write each offset there, too. From another one nobody would read what is brought back, and the
        connector would go on from the shared one as it is.
        """
        own = view.own_offsets()
        if view.configured is None or own is None or not own.offsets:
            return
        if any(own.offsets.keys() & self._places(view.name, site) for site in sites):
            return
        raise NeedsOperator(
            f"the shared topic holds none of the offsets that {view.configured} holds, and the workers write "
            "them to both",
            code=ConnectorCode.WORKER_CONFIG,
            where=", ".join(map(str, sites)),
            expected="the topic that the workers have as offset.storage.topic",
            seen=f"no record of {len(own.offsets)} keys",
            resolve="correct offset.storage.topic in the Connect file; if it is right, it was emptied, "
            "and the connector can go back once it has written an offset again",
        )

    def _places(self, name: str, site: OffsetsTopic) -> Set[bytes]:
        return self.topic_view(site, None).scan.snapshot(name).places.keys()

    def _check_own(self, view: ConnectorView, site: OffsetsTopic) -> None:
        if view.own is not None:
            check_topic(site.cluster, site.topic, COPY_RIGHTS)
        elif view.spec is not None and view.configured is None:
            check_new_topic(site.cluster, view.spec)


def fence_ids(tasks: int, task_id: Callable[[int], str]) -> list[str]:
    """Return the transactional ids that tasks may hold. Pure.

    Args:
        tasks: how many there may be; ``tasks.max`` says so, and whoever writes a connector.
        task_id: returns one, by the task's number.

    Raises:
        NeedsOperator: TOO_MANY_TASKS.
    """
    if tasks > _MOST_TASKS:
        raise NeedsOperator(
            "the connector may have more tasks than anybody can fence",
            code=ConnectorCode.TOO_MANY_TASKS,
            expected=f"at most {_MOST_TASKS}",
            seen=f"{tasks}, by its tasks.max or what its workers wrote down",
            resolve="lower its tasks.max to what it runs, then plan again",
        )
    return [task_id(number) for number in range(tasks)]


class _Problems:
    """Turns errors that concern one connector into refusals."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: list[Refusal] = []

    def attempt(self, step: Callable[[], T], otherwise: T) -> T:
        try:
            return step()
        except (UsageError, NeedsOperator) as error:
            self.found.append(refusal_of(self.name, error))
        except Retriable as error:
            if error.code != ConnectorCode.OPEN_TRANSACTION:
                raise
            # Of this connector's topic: the others can be moved.
            self.found.append(refusal_of(self.name, error))
        return otherwise


def is_topic_name(text: str) -> bool:
    """Tell whether Kafka takes a name for a topic; it does not say much about others."""
    return _TOPIC_NAME.fullmatch(text) is not None and text not in (".", "..")


def refusal_of(name: str, error: OnceoverError) -> Refusal:
    """Return an error as what a plan refuses."""
    seen = f" (expected: {error.expected}; seen: {error.seen})" if error.expected and error.seen else ""
    return Refusal(name, error.code, error.message + seen, error.resolve or "see docs/connectors.md")
