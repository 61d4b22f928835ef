"""One Connect cluster, opened: its workers, its Kafka cluster, and those of connectors with overrides.

Invariant: the workers that answer are those of the group, and they and our client mean the same Kafka
cluster. A worker that cannot be heard may still run tasks.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from onceover.backoff import Backoff, Deadline
from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import Isolation, WorkerFacts
from onceover.connectors.offsets.scan import PATIENCE_S, Scan, scan_topic
from onceover.connectors.record.runrecords import RunRecords, copy_ids
from onceover.connectors.rights import needing
from onceover.connectors.settings import ConnectSettings
from onceover.connectors.workers.membership import Endpoints, endpoints, membership_of
from onceover.connectors.workers.reaching import known_cluster_id
from onceover.connectors.workers.rest import ConnectRest, WorkerAnswer
from onceover.errors import NeedsOperator, Retriable, UsageError
from onceover.hosts import is_http_address
from onceover.kafka.codes import KafkaCode
from onceover.kafka.groups.members import DescribedGroup, describe_group
from onceover.kafka.ports import ClientSettings, Cluster

_GROUP: Final = "group.id"
_OFFSETS: Final = "offset.storage.topic"
_CONFIGS: Final = "config.storage.topic"
_SUPPORT: Final = "exactly.once.source.support"
_MODES: Final = ("disabled", "preparing", "enabled")
FLUSH_INTERVAL_KEY: Final = "offset.flush.interval.ms"
_DEFAULT_FLUSH_MS: Final = "60000"
_STABLE: Final = ("stable",)
# A rebalance after a worker has come or gone.
_REBALANCE_S: Final = 60.0
_JOIN_S: Final = 20.0
_LENGTH: Final = struct.Struct(">hh")
_NO_ADDRESS: Final = "no address"
_PLATFORM: Final = ("ccs", "ce")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_PLATFORM_OF_KAFKA_3: Final = 7


class _NotYet(NeedsOperator):
    """Workers are missing, or have not gone yet: seconds may change it."""


@dataclass(frozen=True)
class OffsetsTopic:
    """An offsets topic, and how the workers read it."""

    cluster: Cluster
    topic: str
    isolation: Isolation

    def __str__(self) -> str:
        return f"{self.topic} on {self.cluster.alias}"


class ConnectAccess:
    """A context manager that closes every client. Not thread-safe.

    Args:
        settings: of the Connect cluster.
        rest: replaces the REST client in tests.

    Attributes:
        has_waited: workers have told another configuration of a connector than the topic holds, and not for
            a moment: the next one is not waited for as long.

    Raises:
        UsageError: the workers' configuration lacks something.
    """

    def __init__(self, settings: ConnectSettings, rest: ConnectRest | None = None) -> None:
        self.settings = settings
        lacking = [key for key in (_GROUP, _OFFSETS, _CONFIGS) if not settings.worker.get(key)]
        if lacking:
            raise UsageError(
                f"the workers' configuration of {settings.name} does not say {', '.join(lacking)}",
                code=ConnectorCode.WORKER_CONFIG,
                where=settings.name,
                resolve="name the workers' own file under `worker_config`, or the keys under `worker`",
            )
        self.exactly_once = _support(settings) == "enabled"
        self.rest = rest or ConnectRest(settings.rest)
        self.has_waited = False
        self._doubtful: tuple[str, ...] = ()
        self._clusters: dict[tuple[tuple[str, str], ...], Cluster] = {}
        self.silent_logins: dict[tuple[tuple[str, str], ...], str] = {}
        self._scans: dict[tuple[int, str, Isolation], Scan] = {}
        self.worker_cluster = self._open(settings.clients.worker())
        self.records = RunRecords(self.worker_cluster, self.group_id, like=self.global_topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every client."""
        self.rest.close()
        self.records.close()
        for cluster in self._clusters.values():
            cluster.close()

    # ---- names

    @property
    def group_id(self) -> str:
        return self.settings.worker[_GROUP]

    @property
    def global_topic(self) -> str:
        """The topic that the offsets of all connectors are in by default."""
        return self.settings.worker[_OFFSETS]

    @property
    def config_topic(self) -> str:
        return self.settings.worker[_CONFIGS]

    @property
    def flush_interval_s(self) -> float:
        """How often a task commits its offsets."""
        text = self.settings.worker.get(FLUSH_INTERVAL_KEY, _DEFAULT_FLUSH_MS)
        if not re.fullmatch(r"[0-9]{1,15}", text):
            raise UsageError(f"{FLUSH_INTERVAL_KEY} {text} is no number", where=self.settings.name)
        return int(text) / 1000

    def task_id(self, connector: str, task: int) -> str:
        """Return the transactional.id of a task."""
        return f"{self.group_id}-{connector}-{task}"

    def own_id(self, connector: str) -> str:
        """Return the transactional.id under which we write a connector's offsets; a second run fences the
        first."""
        return f"{copy_ids(self.group_id)}{connector}"

    # ---- where offsets are

    def home(self, config: Mapping[str, str]) -> Cluster:
        """Return the Kafka cluster that a connector writes to (KIP-458)."""
        override = self.settings.clients.connector(config)
        if override is None:
            return self.worker_cluster
        cluster = self._open(override)
        same = known_cluster_id(cluster) == self.worker_cluster.cluster_id()
        return self.worker_cluster if same else cluster

    def own_site(self, config: Mapping[str, str], topic: str) -> OffsetsTopic:
        """Return a connector's topic of its own; workers always read it read_committed (measured)."""
        return OffsetsTopic(self.home(config), topic, Isolation.READ_COMMITTED)

    def base_site(self, config: Mapping[str, str]) -> OffsetsTopic:
        """Return where a connector's offsets are without a topic of its own.

        Under exactly-once a task's offsets are in the transaction of its records, so they are in a topic of
        the shared one's name on the cluster that the connector writes to.
        """
        if self.exactly_once:
            return OffsetsTopic(self.home(config), self.global_topic, Isolation.READ_COMMITTED)
        return OffsetsTopic(self.worker_cluster, self.global_topic, Isolation.READ_UNCOMMITTED)

    def return_sites(self, config: Mapping[str, str]) -> list[OffsetsTopic]:
        """Return every place that is asked for offsets once the topic of its own is gone."""
        base = self.base_site(config)
        if base.cluster is self.worker_cluster:
            return [base]
        return [base, OffsetsTopic(self.worker_cluster, self.global_topic, base.isolation)]

    def scan(self, site: OffsetsTopic, patience_s: float | None = PATIENCE_S) -> Scan:
        """Read an offsets topic; of one that was read before, only what has come since.

        Raises:
            As ``scan_topic``.
        """
        key = (id(site.cluster), site.topic, site.isolation)
        found = scan_topic(site.cluster, site.topic, site.isolation, patience_s, self._scans.get(key))
        self._scans[key] = found
        return found

    # ---- the workers

    def facts(self) -> WorkerFacts:
        """Ask every worker, and see to it that they are all there and are who they should be.

        Raises:
            NeedsOperator: a worker cannot be heard, or belongs to another cluster.
            UsageError: a right is missing, or the Kafka cluster's name is not known.
            Retriable: the Kafka cluster is away.
        """
        cluster = self.worker_cluster
        own = cluster.retry(lambda: known_cluster_id(cluster), Deadline(_REBALANCE_S))
        answers = self._all_answers()
        ids = sorted({answer.kafka_cluster_id for answer in answers})
        if ids != [own]:
            raise NeedsOperator(
                f"the workers of {self.settings.name} use another Kafka cluster than our client",
                code=KafkaCode.FOREIGN_CLUSTER,
                where=", ".join(answer.url for answer in answers),
                expected=f"cluster id {own}",
                seen=f"cluster id {', '.join(ids)}",
                resolve="correct `rest`, or `kafka`: the client must reach the workers' bootstrap.servers",
            )
        return WorkerFacts(
            version=min((answer.version for answer in answers), key=version_of),
            kafka_cluster_id=own,
            group_id=self.group_id,
            offsets_topic=self.global_topic,
            config_topic=self.config_topic,
            exactly_once=self.exactly_once,
            workers=tuple(answer.url for answer in answers),
            doubtful=self._doubtful,
            says_mode=_SUPPORT in self.settings.worker,
            connect=self.settings.name,
        )

    def _all_answers(self) -> list[WorkerAnswer]:
        """Ask until all are there: one that has just been restarted joins within seconds."""
        backoff, deadline = Backoff(0.5, 2.0), Deadline(_JOIN_S)
        while True:
            try:
                return self._answers()
            except _NotYet as error:
                if deadline.passed:
                    raise
                backoff.pause(deadline, error)

    def _answers(self) -> list[WorkerAnswer]:
        named = [(url, endpoints(url, _resolved)) for url in self.rest.urls]
        for one, other in membership_of(named, []).twice:
            raise self._differ(f"{one} and {other} lead to the same worker", "each worker named once")
        answers = [self._ask(url) for url in self.rest.urls]
        with needing(self.worker_cluster.config, "DESCRIBE", f"group {self.group_id}"):
            group = self.worker_cluster.retry(self._group, Deadline(_REBALANCE_S))
        members = [advertised_url(member.metadata) for member in group.members]
        seen = membership_of(named, [(url, _places(url)) for url in members])
        told = f"{len(members)} members: {', '.join(members) or 'none'}"
        expected = f"{len(answers)}, each answering: {', '.join(self.rest.urls)}"
        if seen.differs or seen.doubtful:
            for url in seen.unnamed:
                # It lives, and can be reached from here under its own name.
                if self._answers_as(url, answers[0].kafka_cluster_id):
                    raise self._differ(f"{told}; nobody named {url}", expected)
        if seen.differs:
            raise self._differ(told, expected, kind=_NotYet)
        self._doubtful = seen.doubtful
        return answers

    def _answers_as(self, url: str, kafka_cluster_id: str) -> bool:
        if not is_http_address(url):
            return False
        try:
            return self.rest.worker(url, login=False).kafka_cluster_id == kafka_cluster_id
        except UsageError as error:
            # Something is there, and wants to know who asks: whether it is a worker, nobody can tell then.
            return error.code == ConnectorCode.REST_LOGIN
        except Retriable:
            return False

    def _differ(self, seen: str, expected: str, kind: type[NeedsOperator] = NeedsOperator) -> NeedsOperator:
        return kind(
            f"the named workers of {self.settings.name} are not the members of its group",
            code=ConnectorCode.WORKERS_DIFFER,
            where=f"group {self.group_id} on {self.worker_cluster.alias}",
            expected=expected,
            seen=seen,
            resolve="name every worker once under `rest`, by the address that it advertises if possible; see "
            "to it that each has joined, then run again",
        )

    def _ask(self, url: str) -> WorkerAnswer:
        try:
            return self.rest.worker(url)
        except Retriable as error:
            if error.code == ConnectorCode.WORKER_STARTING:
                raise _NotYet(
                    error.message,
                    code=error.code,
                    where=error.where,
                    expected="an answer of every worker",
                    seen=error.seen,
                    resolve=error.resolve,
                ) from error
            raise NeedsOperator(
                f"{error.message}: it may be frozen, and still run tasks",
                code=error.code,
                where=error.where,
                expected="an answer of every worker",
                seen=error.seen,
                resolve="start it, end it for good and remove it from `rest`, or correct its address",
            ) from error

    def _group(self) -> DescribedGroup:
        group = describe_group(self.worker_cluster, self.group_id)
        if group.members and group.state not in _STABLE:
            # The broker tells what members said of themselves in this state only.
            raise Retriable(
                f"the workers' group {self.group_id} is {group.state}", code=ConnectorCode.REBALANCE
            )
        return group

    def _open(self, client: ClientSettings) -> Cluster:
        key = tuple(sorted(client.properties.items()))
        if key not in self._clusters:
            self._clusters[key] = self.settings.clients.open(client)
        return self._clusters[key]


def advertised_url(metadata: bytes) -> str:
    """Return the REST address in what a worker tells its group: after a version, in every protocol.

    Without the slash that it ends with: an address with two of them is refused (measured). Whoever may join
    the group may tell it anything, also what is no address.
    """
    size = _LENGTH.unpack_from(metadata)[1] if len(metadata) >= _LENGTH.size else 0
    told = metadata[_LENGTH.size : _LENGTH.size + max(0, size)].decode("utf-8", "replace")
    return told.rstrip("/") or _NO_ADDRESS


def _places(url: str) -> Endpoints:
    return endpoints(url, _resolved) if is_http_address(url) else frozenset()


def version_of(text: str) -> tuple[int, ...]:
    """Return a version of Kafka as numbers: ``4.3.0-SNAPSHOT`` is 4, 3, 0.

    Confluent's workers say the platform's version instead: ``7.5.0-ccs`` is Kafka 3.5.
    """
    number, _, suffix = text.partition("-")
    found = tuple(int(part) for part in number.split(".") if _NUMBER.fullmatch(part))
    if len(found) > 1 and suffix.startswith(_PLATFORM):
        return _kafka_of(*found)
    return found


def _kafka_of(major: int, minor: int, *rest: int) -> tuple[int, ...]:
    """Return the version of Kafka in a release of Confluent Platform: 5.5 has 2.5, 6.0 2.6, 7.5 3.5."""
    if major < _PLATFORM_OF_KAFKA_3:
        return 2, minor + (6 if major == _PLATFORM_OF_KAFKA_3 - 1 else 0), *rest
    return major - 4, minor, *rest


def _resolved(host: str, port: int) -> list[str]:
    """Return the network addresses of a host; none where it is not known here."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [str(address[0]) for *_, address in found]


def _support(settings: ConnectSettings) -> str:
    mode = settings.worker.get(_SUPPORT, "disabled").strip().lower()
    if mode not in _MODES:
        raise UsageError(f"{_SUPPORT} {mode} is unknown", where=settings.name, expected=", ".join(_MODES))
    return mode
