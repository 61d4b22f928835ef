"""``onceover connectors`` against live workers: run to its end, or killed at a step."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from unittest import mock

import yaml
from confluent_kafka import Producer

from onceover.cli import main as command_line
from onceover.connectors import steps
from onceover.connectors.steps import StepName
from onceover.process.children import ChildProcess
from onceover_lab.embed.connect import ConnectCluster, ConnectWorker
from tests.support.connect.connect import TIMEOUT_S, Connect, assert_counted, count_of, rewound
from tests.support.flows.grants import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID, Right

# Of each partition, before a test begins: enough offsets to tell a restart from zero.
FIRST_RECORDS = 40
_PROJECT = Path(__file__).parents[3]
_SCRIPT = Path(__file__).with_name("connect_process.py")
_KILLED = -9
_DOING = {"downgrade": ["--apply"], "rollback": ["--apply"]}
# Stopping, watching and a rebalance or two.
_TOOL_TIMEOUT_S = 180.0


class Result(NamedTuple):
    """How a command ended: exit code and its one JSON document."""

    code: int
    document: dict[str, Any]

    def outcome(self, connector: str) -> str:
        """Return the word for one connector."""
        return str(self.of(connector)["outcome"])

    def of(self, connector: str) -> dict[str, Any]:
        """Return what is said of one connector."""
        if "connectors" not in self.document:
            raise RuntimeError(f"exit code {self.code}: {self.document}")
        return next(each for each in self.document["connectors"] if each["connector"] == connector)

    def codes(self) -> set[str]:
        """Return the codes of a plan's refusals."""
        return {refusal["code"] for refusal in self.document["refused"]}


class Tool:
    """The command line for one Connect cluster, with a home of its own.

    Args:
        folder: for the Connect file, the home and logs.
        keys: more keys of the Connect file.
    """

    def __init__(
        self,
        folder: Path,
        cluster: ConnectCluster,
        *,
        keys: Mapping[str, object] = {},
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = "trial"
        self.home = folder / "home"
        self.log = folder / "tool.log"
        self.path = folder / f"{self.name}.yaml"
        document: dict[str, Any] = {
            "connect": self.name,
            "rest": list(cluster.urls),
            "worker_config": str(cluster.properties_path),
            **keys,
        }
        self._document = document
        self.ask(*document["rest"])

    def ask(self, *urls: str) -> None:
        """Name other workers in the Connect file."""
        self._document["rest"] = list(urls)
        self.path.write_text(yaml.safe_dump(self._document))

    def run(self, action: str, *arguments: str) -> Result:
        """Run a command to its end."""
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, {"ONCEOVER_HOME": str(self.home)}),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = command_line.main(self._words(action, arguments))
        with self.log.open("a") as log:
            log.write(f"{action} {arguments}\n{err.getvalue()}{out.getvalue()}\n")
        return Result(code, json.loads(out.getvalue()))

    def plan(self, *connectors: str, options: Iterable[str] = ()) -> Result:
        """Say what a migration would do."""
        return self.run("plan", *self._chosen(connectors), *options)

    def apply(self, *connectors: str, options: Iterable[str] = ()) -> Result:
        """Migrate."""
        return self.run("apply", *self._chosen(connectors), *options)

    def heard(self, listener: Callable[[StepName], None], action: str, *connectors: str) -> Result:
        """Run a command to its end; somebody does something at its steps."""
        steps.listen(listener)
        try:
            return self.run(action, *self._chosen(connectors), *_DOING.get(action, ()))
        finally:
            steps.listen(lambda _step: None)

    def verify(self, *connectors: str) -> Result:
        """Compare with what was written down."""
        return self.run("verify", *self._chosen(connectors))

    def rollback(self, *connectors: str) -> Result:
        """Undo what was done before a resume."""
        return self.run("rollback", *self._chosen(connectors), "--apply")

    def downgrade(self, *connectors: str, mode: str = "hard") -> Result:
        """Go back to the global topic."""
        return self.run("downgrade", *self._chosen(connectors), "--mode", mode, "--apply")

    def rights(self, connector: str) -> list[Right]:
        """Return what the generated table says that the tool needs."""
        kinds = {"Topic": TOPIC, "Group": GROUP, "TransactionalId": TRANSACTIONAL_ID, "Cluster": CLUSTER}
        return [
            (kinds[grant["kind"]], grant["name"], grant["prefixed"], _operations(grant["operations"]))
            for grant in self.run("acls", *self._chosen([connector])).document["grants"]
            if grant["role"] == "onceover"
        ]

    def killed_at(self, step: StepName, action: str, *connectors: str, count: int = 1) -> None:
        """Run a command that kills itself the ``count``-th time it reaches ``step``."""
        code = self.signalled_at(signal.SIGKILL, step, action, *connectors, count=count)
        assert code == _KILLED, f"{step} not reached, exit code {code}: {self.log.read_text()[-2000:]}"

    def signalled_at(
        self, number: signal.Signals, step: StepName, action: str, *connectors: str, count: int = 1
    ) -> int:
        """Run a command that sends itself a signal the ``count``-th time it reaches ``step``; return its exit
        code. What it says is in the log."""
        words = self._words(action, [*self._chosen(connectors), *_DOING.get(action, ())])
        command = [sys.executable, str(_SCRIPT), number.name, step.name, str(count), *words]
        child = ChildProcess.start(command, name="onceover", log_path=self.log, env=self._env())
        try:
            return child.wait(_TOOL_TIMEOUT_S)
        finally:
            child.kill()

    def _words(self, action: str, arguments: Iterable[str]) -> list[str]:
        return ["connectors", action, str(self.path), *arguments, "--json"]

    def _chosen(self, connectors: Iterable[str]) -> list[str]:
        return [word for name in connectors for word in ("--connector", name)]

    def _env(self) -> dict[str, str]:
        paths = [str(_PROJECT), str(_PROJECT / "include")]
        return {**os.environ, "ONCEOVER_HOME": str(self.home), "PYTHONPATH": os.pathsep.join(paths)}


class Case:
    """Connectors of one test on one Connect cluster, deleted at its end, and the tool for them.

    Args:
        name: of the main connector, and of the topic that it writes; begins the names of all others.
        cluster: the workers; ``client`` reaches their Kafka cluster.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        cluster: ConnectCluster,
        client: Mapping[str, str],
        *,
        keys: Mapping[str, object] = {},
    ) -> None:
        self.name = self.topic = name
        self.cluster = cluster
        self.client = client
        self.connect = self._first = Connect(cluster, client)
        self.tool = Tool(folder / f"tool-{name}", cluster, keys=keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connector in self.connect.call("GET", "/connectors"):
            if connector.startswith(self.name):
                self.connect.delete(connector)
        self.connect.close()
        self._first.close()

    @property
    def own_topic(self) -> str:
        """The topic that the tool gives the connector."""
        return f"{self.cluster.offsets_topic}-{self.name}"

    def ask(self, worker: ConnectWorker) -> None:
        """Speak to this worker only, and let the tool do so."""
        self.connect = Connect(self.cluster, self.client, worker.url)
        self.tool.ask(worker.url)

    def begin(self, **config: object) -> None:
        """Create the counting connector and let it write."""
        self.connect.create_topic(self.topic)
        self.connect.count(self.name, self.topic, **config)
        self.connect.await_numbers(self.topic, FIRST_RECORDS)

    def migrate(self, *, outcome: str = "done") -> Result:
        """Apply; check how it ended, and that the connector uses its own topic."""
        result = self.tool.apply(self.name)
        assert result.outcome(self.name) == outcome, result
        assert self.connect.config(self.name)["offsets.storage.topic"] == self.own_topic
        return result

    def shift_global(self, by: int) -> None:
        """Write global offsets that are higher or lower than the last ones of the connector's own topic."""
        truth = self.connect.offsets(self.name, self.own_topic)
        places = self.connect.offsets(self.name).partitions
        records = [
            (
                min(places[key]),
                key,
                json.dumps({"count": count_of(value) + by}, separators=(",", ":")).encode(),
            )
            for key, value in truth.values.items()
            if value is not None
        ]
        write_raw(self.client, self.cluster.offsets_topic, records)

    def assert_goes_on(self) -> None:
        """Fail unless it writes more, without a gap and without a repeat from the first record on."""
        self.connect.await_more(self.topic)
        assert_counted(self.connect.numbers(self.topic))

    def assert_never_back(self) -> None:
        """Fail if an offset went back in the global topic or in the connector's own."""
        for topic in (None, self.own_topic):
            assert rewound(self.connect.offsets(self.name, topic)) == set(), topic


def write_raw(
    client: Mapping[str, str], topic: str, records: Iterable[tuple[int, bytes, bytes | None]]
) -> None:
    """Write (partition, key, value) without a transaction."""
    producer = Producer({**client, "enable.idempotence": True})
    for partition, key, value in records:
        producer.produce(topic, value, key, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def _operations(names: Iterable[str]) -> str:
    """Return Kafka's names of operations as its clients write them: DescribeConfigs, DESCRIBE_CONFIGS."""
    return " ".join(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper() for name in names)
