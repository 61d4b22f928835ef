"""Live Connect workers for tests: clusters shared by the session, a counting connector, and its judge.

Nothing here uses Onceover's own code for Connect: what it finds is evidence.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from confluent_kafka.admin import AdminClient, NewTopic

from onceover.private import privately
from onceover.process.java import find_java
from onceover_lab.embed.connect import ConnectCluster
from onceover_lab.embed.jars import DEFAULT_VERSION, classpath, kafka_jars, refuse_open_cache
from tests.support.flows.feeds import Held, held
from tests.support.session.wait import wait_until

COUNTING = "CountingSource"
# A rebalance after a lost worker, and the start of tasks, beside other work.
TIMEOUT_S = 90.0
OFFSET_PARTITIONS = 3
_SOURCE = Path(__file__).parents[1] / "java" / "CountingSource.java"
_SERVICES = "META-INF/services/org.apache.kafka.connect.source.SourceConnector"
_LEADER = re.compile(r"Joined group at generation .*leaderUrl='http://([^/']+)/?'")
EXACTLY_ONCE = {
    "exactly.once.source.support": "enabled",
    # What a killed or frozen task leaves open holds up readers so long (a minute by default).
    "producer.transaction.timeout.ms": "15000",
    # ${file:<path>:<key>} in a configuration is what stands there.
    "config.providers": "file",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
}


def counting_plugin(version: str = DEFAULT_VERSION) -> Path:
    """Return the directory of the counting connector's classes: compiled once, and kept beside the jars.

    Another source, Java or Kafka has another directory. It appears in one step, whoever else compiles.
    """
    java, jars = find_java(), kafka_jars(version, "connect")
    made_of = f"{java.version} {version}\n".encode() + _SOURCE.read_bytes()
    path = jars.parent / f"counting-{hashlib.sha256(made_of).hexdigest()[:12]}"
    if not path.exists():
        with privately(), tempfile.TemporaryDirectory(prefix=".counting-", dir=path.parent) as work:
            made = Path(work) / "classes"
            _compile(java.home / "bin" / "javac", classpath(jars), made)
            try:
                made.rename(path)
            except OSError:
                # Somebody else may have been quicker, with the same.
                if not path.exists():
                    raise
    refuse_open_cache(path, *path.rglob("*"))
    return path


def _compile(javac: Path, jars: str, directory: Path) -> None:
    directory.mkdir()
    command = [str(javac), "-Xlint:all", "-Werror", "-proc:none", "-cp", jars, "-d", str(directory)]
    command.append(str(_SOURCE))
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"javac: {done.stderr}")
    service = directory / _SERVICES
    service.parent.mkdir(parents=True)
    service.write_text(f"{COUNTING}\n")


class Workers(NamedTuple):
    """Connect clusters on the same Kafka cluster, with the counting connector among their plugins."""

    exactly_once: ConnectCluster
    plain: ConnectCluster


@contextmanager
def connect_workers(
    home: Path, bootstrap: str, name: str, version: str = DEFAULT_VERSION
) -> Iterator[Workers]:
    """Run two exactly-once workers, and one without, started at the same time."""
    plugin = counting_plugin(version)

    def start(kind: str, workers: int, properties: Mapping[str, str]) -> ConnectCluster:
        return ConnectCluster.start(
            home / kind,
            bootstrap,
            f"{name}-{kind}",
            workers=workers,
            properties=properties,
            plugins=[plugin],
            version=version,
        )

    with ThreadPoolExecutor(max_workers=2) as executor:
        futures = [executor.submit(start, "eos", 2, EXACTLY_ONCE), executor.submit(start, "plain", 1, {})]
    started = [future.result() for future in futures if future.exception() is None]
    try:
        yield Workers(*(future.result() for future in futures))
    finally:
        for cluster in started:
            cluster.close()


class Offsets(NamedTuple):
    """What an offsets topic holds of one connector, by key: every value in order, and its partitions."""

    history: dict[bytes, list[bytes | None]]
    partitions: dict[bytes, set[int]]

    @property
    def values(self) -> dict[bytes, bytes | None]:
        """The last value of each key."""
        return {key: values[-1] for key, values in self.history.items()}


class Connect:
    """A tester's hand on one Connect cluster: REST, raw offsets, and the counting connector's records.

    Args:
        cluster: the workers; ``client`` reaches their Kafka cluster.
        url: of the worker that is asked; the first one unless it is about to be frozen.
    """

    def __init__(self, cluster: ConnectCluster, client: Mapping[str, str], url: str | None = None) -> None:
        self.cluster = cluster
        self.client = client
        self._http = httpx.Client(base_url=url or cluster.urls[0], timeout=TIMEOUT_S)

    def close(self) -> None:
        """Drop the connection."""
        self._http.close()

    def create_topic(self, topic: str, partitions: int = 2) -> None:
        """Create the topic that the counting connector writes."""
        admin = AdminClient(dict(self.client))
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1)
        admin.create_topics([new])[topic].result(TIMEOUT_S)

    def topics(self) -> set[str]:
        """Return every topic of the Kafka cluster."""
        return set(AdminClient(dict(self.client)).list_topics(timeout=TIMEOUT_S).topics)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Call the REST API; a rebalance (409) is waited for.

        Raises:
            RuntimeError: the worker refuses; the text carries its words.
        """

        def answer() -> httpx.Response | None:
            response = self._http.request(method, path, json=body)
            return None if response.status_code == httpx.codes.CONFLICT else response

        response = wait_until(answer, TIMEOUT_S, f"{method} {path} outside a rebalance", poll_s=0.2)
        if response.is_error:
            raise RuntimeError(f"{method} {path}: {response.status_code} {response.text}")
        return response.json() if response.content else None

    def configure(self, connector: str, **config: object) -> None:
        """Create the connector or change its configuration; ``a__b`` stands for ``a.b``."""
        settings = {name.replace("__", "."): str(value) for name, value in config.items()}
        self.call("PUT", f"/connectors/{connector}/config", {"name": connector, **settings})

    def count(self, connector: str, topic: str, **config: object) -> None:
        """Create a counting connector (or change its configuration)."""
        counting = {"connector__class": COUNTING, "topic": topic, "partitions": 2, "tasks__max": 2}
        self.configure(connector, **{**counting, **config})

    def config(self, connector: str) -> dict[str, str]:
        """Return the connector's configuration."""
        return dict(self.call("GET", f"/connectors/{connector}/config"))

    def update(self, connector: str, *without: str, **config: object) -> None:
        """Change some keys of the configuration, and leave out others."""
        kept = {key: value for key, value in self.config(connector).items() if key not in without}
        changed = {name.replace("__", "."): str(value) for name, value in config.items()}
        self.call("PUT", f"/connectors/{connector}/config", {**kept, **changed})

    def status(self, connector: str) -> dict[str, Any]:
        """Return the status document."""
        return dict(self.call("GET", f"/connectors/{connector}/status"))

    def states(self, connector: str) -> tuple[str, ...]:
        """Return the connector's state, then its tasks'."""
        status = self.status(connector)
        return status["connector"]["state"], *(task["state"] for task in status["tasks"])

    def await_running(self, connector: str) -> None:
        """Wait until the connector and at least one task run, and none has failed."""

        def running() -> bool:
            states = self.states(connector)
            if "FAILED" in states:
                raise RuntimeError(f"{connector}: {self.status(connector)}")
            return len(states) > 1 and set(states) == {"RUNNING"}

        wait_until(running, TIMEOUT_S, f"{connector} runs", poll_s=0.1)

    def stop(self, connector: str) -> None:
        """Stop it and wait until no task is left."""
        self.call("PUT", f"/connectors/{connector}/stop")
        self.await_stopped(connector)

    def await_stopped(self, connector: str) -> None:
        """Wait until it is stopped and has no task."""

        def stopped() -> bool:
            state, *tasks = self.states(connector)
            # A status that its worker wrote behind the removal of the task stays.
            return state == "STOPPED" and set(tasks) <= {"UNASSIGNED", "FAILED"}

        wait_until(stopped, TIMEOUT_S, f"{connector} is stopped", poll_s=0.1)

    def resume(self, connector: str) -> None:
        """Let it run."""
        self.call("PUT", f"/connectors/{connector}/resume")

    def restart(self, connector: str) -> None:
        """Restart the connector and every task."""
        self.call("POST", f"/connectors/{connector}/restart?includeTasks=true")

    def delete(self, connector: str) -> None:
        """Remove the connector; its offsets stay."""
        self.call("DELETE", f"/connectors/{connector}")

    def owner(self, connector: str) -> str:
        """Return the worker that runs the connector itself."""
        return str(self.status(connector)["connector"]["worker_id"])

    def leader(self) -> str:
        """Return the worker that the workers took for their leader when they last came together."""
        joined = [
            (line.partition("]")[0], found[1])
            for worker in self.cluster.workers
            for line in worker.log_path.read_text(errors="replace").splitlines()
            if (found := _LEADER.search(line))
        ]
        return max(joined)[1]

    def offsets(self, connector: str, topic: str | None = None) -> Offsets:
        """Read an offsets topic, the global one unless told otherwise, as a read_committed reader does."""
        found = Offsets({}, {})
        records: list[tuple[Held, int]] = [
            (record, number)
            for number, some in held(
                self.client, topic or self.cluster.offsets_topic, OFFSET_PARTITIONS
            ).items()
            for record in some
        ]
        for record, number in sorted(records, key=lambda pair: (pair[0].timestamp_ms, pair[0].offset)):
            if record.key is None or json.loads(record.key)[0] != connector:
                continue
            found.history.setdefault(record.key, []).append(record.value)
            found.partitions.setdefault(record.key, set()).add(number)
        return found

    def numbers(self, topic: str, partitions: int = 2) -> dict[int, list[int]]:
        """Return what the counting connector has committed, by partition."""
        return {
            number: [int(record.value or b"-1") for record in some]
            for number, some in held(self.client, topic, partitions).items()
        }

    def await_numbers(self, topic: str, least: int, partitions: int = 2) -> dict[int, list[int]]:
        """Wait until every partition holds ``least`` records or more; return them."""

        def enough() -> dict[int, list[int]] | None:
            numbers = self.numbers(topic, partitions)
            return numbers if all(len(some) >= least for some in numbers.values()) else None

        return wait_until(enough, TIMEOUT_S, f"{least} records in each partition of {topic}", poll_s=0.3)

    def await_offsets(self, connector: str, partitions: int = 2) -> Offsets:
        """Wait until every partition has an offset in the global topic: without exactly-once they are
        written behind the records, once an ``offset.flush.interval.ms``."""

        def flushed() -> Offsets | None:
            offsets = self.offsets(connector)
            return offsets if len(offsets.values) >= partitions else None

        return wait_until(flushed, TIMEOUT_S, f"{partitions} offsets of {connector}", poll_s=0.3)

    def await_more(self, topic: str, more: int = 20, partitions: int = 2) -> dict[int, list[int]]:
        """Wait until every partition holds ``more`` records than now."""
        now = self.numbers(topic, partitions)
        return self.await_numbers(topic, max(map(len, now.values())) + more, partitions)


def assert_counted(numbers: Mapping[int, Sequence[int]]) -> None:
    """Fail unless every partition holds 0, 1, 2, ...: no gap and no repeat."""
    for partition, some in numbers.items():
        for position, number in enumerate(some):
            if number != position:
                around = list(some[max(0, position - 3) : position + 3])
                raise AssertionError(f"partition {partition}: {number} at position {position}, in {around}")


def last_counts(offsets: Offsets) -> dict[int, int]:
    """Return the number in each of the counting connector's offsets, by source partition."""
    return {
        source_partition(key): count_of(value) for key, value in offsets.values.items() if value is not None
    }


def rewound(offsets: Offsets) -> set[int]:
    """Return the source partitions whose offset was lower than one before it."""
    return {
        source_partition(key)
        for key, values in offsets.history.items()
        if any(count_of(after) < count_of(before) for before, after in pairwise(filter(None, values)))
    }


def source_partition(key: bytes) -> int:
    """Return the number in a counting connector's key: its first field."""
    return int(next(iter(json.loads(key)[1].values())))


def count_of(value: bytes) -> int:
    """Return the number in a counting connector's offset."""
    return int(json.loads(value)["count"])
