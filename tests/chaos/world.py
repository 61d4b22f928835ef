"""Two clusters, their clients and the processes of one flow: what nemeses act on."""

from __future__ import annotations

import itertools
import random
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from onceover.errors import OnceoverError
from onceover.state import names
from onceover.stops.requests import request_stop
from onceover.wiring.flows import open_clusters
from onceover_lab.embed.kafka import KafkaCluster, start_all
from onceover_lab.embed.security import Mechanism, Security
from tests.chaos.checker import Entry, Place, Positions
from tests.chaos.clients import Steady, Transactional
from tests.chaos.history import History
from tests.chaos.reading import committed, ends
from tests.chaos.sparkrun import SparkRun
from tests.support.brokers.clusters import ClusterFactory
from tests.support.brokers.proxy import Proxy, Temper
from tests.support.flows.feeds import SMALL
from tests.support.flows.flows import FlowProcess, InlineFlow, write_flow
from tests.support.raw.adversary import Traffic
from tests.support.session.background import Background
from tests.support.session.wait import wait_until

FLOW: Final = "chaos"
BUSY: Final = ("orders", "events")
PRIVATE: Final = "private"
# Created by nemeses that end in a stop, each time another.
DOOMED: Final = "doomed"
TIMEOUT_S: Final = 90.0
KILLED, FENCED, TEMPORARY = -9, 4, 5
_PARTITIONS: Final = 2
_LOOK_S: Final = 0.4
# Raw requests, and every kind of batch: a broker that is lost breaks all of its transactions.
_TRAFFIC: Final[Mapping[str, Any]] = {"pause_s": 0.05, "batch": 10, "timeout_ms": 3000}
_TOKEN_S: Final = 6
_SOURCE_SETTLES_S: Final = 60.0
_FACTS: Final = {"retention.ms": "-1"}


@dataclass(frozen=True)
class Shape:
    """What the clusters are like.

    Args:
        brokers: of each cluster; with one, everything but the clients of the flow goes past the proxies.
        mechanism: by which clients of the flow log in, again every few seconds.
        spark: the flow runs as ``onceover replicate``; otherwise its lanes are threads of one process.
        between_s: how long it runs between two faults, at least and at most.
        patience_s: how long a run may need to end when it is asked to, from any moment of its start.
    """

    name: str
    brokers: int = 1
    mechanism: Mechanism | None = None
    spark: bool = False
    between_s: tuple[float, float] = (0.2, 2.0)
    patience_s: float = TIMEOUT_S

    @property
    def proxied(self) -> bool:
        """True when the flow reaches either side through a proxy."""
        return self.brokers == 1


SHAPES: Final = {
    shape.name: shape
    for shape in (
        Shape("single"),
        Shape("three", 3),
        Shape("secured", mechanism="SCRAM-SHA-512"),
        Shape("tokens", mechanism="OAUTHBEARER"),
        # A start takes ten seconds and more.
        Shape("spark", spark=True, between_s=(1.0, 15.0), patience_s=300.0),
    )
}


class Side:
    """One cluster, as nemeses see it."""

    def __init__(self, cluster: KafkaCluster, proxy: Proxy | None) -> None:
        self.cluster, self.proxy = cluster, proxy
        self.name = cluster.name
        self.inside = cluster.internal_bootstrap
        self.admin = AdminClient({"bootstrap.servers": self.inside, "log_level": 0})

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic that keeps everything, and wait until it is known."""
        new = NewTopic(topic, partitions, len(self.cluster.nodes), config=_FACTS)

        def made() -> bool:
            # Its name may still be taken by the one that was just deleted.
            try:
                self.admin.create_topics([new])[topic].result(TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
            return True

        wait_until(made, TIMEOUT_S, f"{topic} is created")
        wait_until(lambda: self._leads(topic), TIMEOUT_S, f"{topic} has leaders")

    def heal(self) -> None:
        """Undo whatever was done to the network and to the brokers."""
        if self.proxy is not None:
            self.proxy.refusing = False
            self.proxy.delay_s = 0.0
            self.proxy.tear(None)
            self.proxy.treat(Temper.FORWARD)
        for node in self.cluster.nodes:
            if node.alive:
                node.resume()
            else:
                node.kill()
                node.launch()
        for node in self.cluster.nodes:
            node.await_ready(TIMEOUT_S)

    def _leads(self, topic: str) -> bool:
        found = self.admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
        return found.error is None and all(p.leader >= 0 for p in found.partitions.values())


class World:
    """A flow under chaos.

    Args:
        folder: for its files; ``home`` for those of the flow's runs.
        seed: of everything that is left to chance.
        delivery: ``exactly_once`` or ``at_least_once``.
    """

    def __init__(
        self, folder: Path, home: Path, start: ClusterFactory, shape: Shape, seed: int, delivery: str
    ) -> None:
        self.shape, self.delivery, self.home = shape, delivery, home
        self.rng = random.Random(seed)
        self.history = History(folder / "history.jsonl")
        self._folder = folder
        self.source, self.target = _sides(start, shape, f"{shape.name}-{seed}")
        self.partitions = dict.fromkeys(BUSY, _PARTITIONS)
        for topic in (*BUSY, PRIVATE):
            self.source.create(topic, _PARTITIONS)
        self.clock = folder / "clock"
        self.clock.write_text("0")
        clients = [_patient(side.cluster.client) for side in (self.source, self.target)]
        include = [*BUSY, f"{DOOMED}.*"]
        self.path = write_flow(folder, FLOW, clients[0], clients[1], include, delivery=delivery, **SMALL)
        self.processes: list[FlowProcess | SparkRun] = []
        self.looks: list[Positions] = []
        self._looking = threading.Lock()
        self.gone: dict[Place, list[Entry]] = {}
        # Topics that end in a stop: what is to be read of them, which were made anew, and which nemesis was
        # interrupted before it had done all of it.
        self.doomed: set[Place] = set()
        self.anew: set[Place] = set()
        self.half_done: set[Place] = set()
        self.expected_stops: dict[str, str] = {}
        self.hanging: set[Place] = set()
        self.serial = itertools.count(1)
        self._clients: list[Background] = []

    # --- the flow

    def start(self) -> None:
        """Start one more run of the flow."""
        if self.shape.spark:
            self.processes.append(SparkRun(self.path, self.home))
        else:
            self.start_lanes()

    def start_lanes(self, **options: Any) -> FlowProcess:
        """Start one more run without Spark; ``options`` as ``FlowProcess`` takes them."""
        log = self._folder / "flow.log"
        process = FlowProcess(self.path, log, seconds=900, forever=True, clock=self.clock, **options)
        self.processes.append(process)
        return process

    def alive(self) -> list[FlowProcess | SparkRun]:
        """Return the processes that run."""
        return [process for process in self.processes if process.child.alive]

    def pause_flow(self, least_s: float, most_s: float) -> None:
        """Let every process stand still for a while."""
        frozen = self.alive()
        for process in frozen:
            process.child.pause()
        self.let_it_run(least_s, most_s)
        for process in frozen:
            process.child.resume()

    def end_flow(self) -> None:
        """Ask the flow to stop until nothing of it runs.

        Raises:
            AssertionError: a process does not end, or as it should not.
        """
        deadline_s = time.monotonic() + self.shape.patience_s
        while self.alive() and time.monotonic() < deadline_s:
            for process in self.alive():
                # It may have come to the step at which it stands still only now.
                process.child.resume()
            # Whichever is the newest now; one that is still starting becomes the newest later.
            _, target = open_clusters(InlineFlow(self.path).watch.flow)
            with target, suppress(OnceoverError):
                request_stop(target, FLOW, wait_s=2.0)
        for process in self.processes:
            assert not process.child.alive, f"does not end:\n{process.child.tail(60)}"
            code = process.wait(TIMEOUT_S)
            assert code in (0, FENCED, TEMPORARY, KILLED), f"ended with {code}:\n{process.child.tail(60)}"
        self.processes.clear()

    # --- the clients

    def begin(self) -> None:
        """Let clients send, and look at the progress now and then."""
        inside = self.source.inside
        private = {PRIVATE: _PARTITIONS}
        number, seed = next(self.serial), self.rng.randrange(1 << 30)
        self._clients = [
            Looker(self),
            Steady(f"s{number}", inside, self.history, self.partitions, seed),
            Transactional(f"t{number}", inside, self.history, self.partitions, seed + 1),
            Transactional(f"u{number}", inside, self.history, self.partitions, seed + 2),
            Steady(f"p{number}", inside, self.history, private, seed + 3, 0.3),
        ]
        if self.shape.brokers == 1:
            self._clients.append(Traffic(inside, self.partitions, seed=seed + 4, **_TRAFFIC))
        for client in self._clients:
            client.start()

    def end(self) -> None:
        """Let the clients finish; wait until everything is decided on the source."""
        self._end_clients()
        with suppress(TimeoutError):
            wait_until(lambda: not self._open(), _SOURCE_SETTLES_S, "all is decided", poll_s=0.3)
        # Long after its time-out: a transaction that its coordinator has forgotten (KIP-890) hides for ever
        # what is behind it, and this world comes to its end with the round.
        self.hanging = self._open()
        self.history.note("decided", hanging=[str(place) for place in self.hanging])

    def _open(self) -> set[Place]:
        """Return the partitions whose readers do not see everything."""
        there = [Place(topic, n) for topic, count in self.partitions.items() for n in range(count)]
        stable = ends(self.source.inside, there, committed_only=True)
        written = ends(self.source.inside, there, committed_only=False)
        return {place for place in there if stable[place] < written[place]}

    def await_copying(self) -> None:
        """Wait until something is copied that was not before."""

        def done() -> int:
            # Of a group that nobody has written to yet, nobody knows.
            with suppress(OSError):
                return sum(self.look().values())
            return 0

        before = sum(self.looks[-1].values()) if self.looks else 0
        wait_until(lambda: done() > before, self.shape.patience_s, "it copies", poll_s=0.3)

    def let_it_run(self, least_s: float, most_s: float) -> None:
        """Let a random time pass: the moment is what chaos is about."""
        threading.Event().wait(self.rng.uniform(least_s, most_s))

    def look(self) -> Positions:
        """Note the committed progress; in the order in which it was asked for, whoever asks."""
        with self._looking:
            found = committed(self.target.inside, names.progress_group(FLOW))
            self.looks.append(found)
        return found

    def keep(self, name: str) -> None:
        """Keep what the brokers hold and have said, in a folder of this name: it is gone with the world."""
        # Indexes are large, and made anew from the logs.
        without = shutil.ignore_patterns("*index")
        for side in (self.source, self.target):
            for node in side.cluster.nodes:
                kept = self._folder / name / side.name / node.home.name
                shutil.copytree(node.home, kept, ignore=without)

    def close(self) -> None:
        """Leave nothing running; the clusters are their factory's."""
        try:
            self._end_clients()
        finally:
            for process in self.processes:
                process.kill()
            for side in (self.source, self.target):
                if side.proxy is not None:
                    side.proxy.close()
            self.history.close()

    def _end_clients(self) -> None:
        for client in self._clients:
            client.ask_to_end()
        while self._clients:
            self._clients.pop().end()


class Looker(Background):
    """Notes the committed progress now and then."""

    def __init__(self, world: World) -> None:
        super().__init__("looker", _LOOK_S)
        self._world = world

    def step(self) -> None:
        """Look."""
        # A cluster that is away says nothing.
        with suppress(OSError):
            self._world.look()


def _sides(start: ClusterFactory, shape: Shape, name: str) -> Sequence[Side]:
    settings: dict[str, object] = {"brokers": shape.brokers, "heap_mb": 320}
    if shape.mechanism:
        settings["config"] = {"connections.max.reauth.ms": "3000"}
    proxies = [Proxy() if shape.proxied else None for _ in range(2)]

    def starter(side: str, proxy: Proxy | None) -> Callable[[], KafkaCluster]:
        own: Mapping[str, object] = {} if proxy is None else {"advertised": [proxy.port]}
        safe: Mapping[str, object] = {"security": Security(shape.mechanism)} if shape.mechanism else {}
        return lambda: start(f"{side}-{name}", **settings, **own, **safe)

    clusters = start_all(
        [starter(side, proxy) for side, proxy in zip(("source", "target"), proxies, strict=True)]
    )
    for cluster, proxy in zip(clusters, proxies, strict=True):
        if proxy is not None:
            proxy.upstream = cluster.nodes[0].ports.client
    return [Side(cluster, proxy) for cluster, proxy in zip(clusters, proxies, strict=True)]


def _patient(client: Mapping[str, str]) -> Mapping[str, str]:
    # The least that is allowed: a round need not wait longer for what never comes.
    patient = {**client, "socket.timeout.ms": "10000"}
    if token := client.get("sasl.oauthbearer.config"):
        patient["sasl.oauthbearer.config"] = f"{token} lifeSeconds={_TOKEN_S}"
    return patient
