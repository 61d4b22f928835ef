"""Who plans, checks and shows loads a flow's handler in a process that has nothing to tell it."""

from __future__ import annotations

import ast
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onceover.cli.commands.flow import check
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import load_flow
from onceover.errors import OnceoverError, UsageError
from onceover.wiring.apart import partitions_apart

PACKAGE = Path(__file__).parents[3] / "include"
FLOW = """
flow: f
source: {{alias: a, connection: own}}
target: {{alias: b, client: {{bootstrap.servers: "127.0.0.1:2"}}}}
topics: {{include: ["x"]}}
handler: {module}:H
handler_args: {{to: "${{TO}}"}}
"""
BODY = """
class H:
    def __init__(self, to): self.to = to
    def __call__(self, record: Record) -> Record: return record
    def target_partitions(self, count): return count + len(self.to)
"""
# What a handler finds that looks around.
NOSY = """
import json, os, sys
fds = [os.readlink(path) for path in map("/proc/self/fd/{}".format, range(3, 999)) if os.path.lexists(path)]
seen = {"environ": dict(os.environ), "stdin": sys.stdin.read(), "fds": fds, "pid": os.getpid()}
open(os.environ["TOLD"], "w").write(json.dumps(seen))
print("a line of the handler")
"""
Written = Callable[[str], Flow]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Write the module of a handler, with ``text`` above it; return its flow."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TO", "xy")
    monkeypatch.setenv("TOLD", str(tmp_path / "told.json"))
    monkeypatch.setenv(
        "AIRFLOW_CONN_OWN", json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": "b:1"}})
    )

    def write(text: str, body: str = BODY) -> Flow:
        (tmp_path / "foreign.py").write_text(f"from onceover.handlers import Record\n{text}\n{body}")
        path = tmp_path / "f.yaml"
        path.write_text(FLOW.format(module="foreign"))
        return load_flow(path)

    return write


def test_a_handler_finds_nothing_of_airflows(
    written: Written, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No key, no Connection but its flow's own, no line to Airflow; what it prints is said."""
    for name in (
        "AIRFLOW__CORE__FERNET_KEY",
        "_AIRFLOW_X",
        "__AIRFLOW_SUPERVISOR_FD",
        "AIRFLOW_CONN_OTHER",
        "ONCEOVER_SPARK_SECRET",
    ):
        monkeypatch.setenv(name, "secret")
    line, other = os.pipe()
    for fd in (line, other):
        os.set_inheritable(fd, True)
    flow = written(NOSY)
    with caplog.at_level(logging.INFO), partitions_apart(flow) as counts:
        assert [counts(3), counts(7), counts(3)] == [5, 9, 5]
    seen = json.loads((tmp_path / "told.json").read_text())
    assert "secret" not in seen["environ"].values()
    assert {name for name in seen["environ"] if "AIRFLOW" in name} == {"AIRFLOW_HOME", "AIRFLOW_CONN_OWN"}
    assert seen["stdin"] == ""
    mine = {os.readlink(f"/proc/self/fd/{fd}") for fd in (line, other)}
    assert not mine & set(seen["fds"])
    assert "handler: a line of the handler" in caplog.messages
    assert "foreign" not in sys.modules
    with pytest.raises(ProcessLookupError):
        os.kill(seen["pid"], 0)
    for fd in (line, other):
        os.close(fd)


def test_flow_check_loads_it_there_too(written: Written) -> None:
    flow = written("")
    assert check(str(flow.path))["handler"] == "foreign:H"
    assert "foreign" not in sys.modules


@pytest.mark.parametrize(
    ("text", "body", "said"),
    [
        ("import nowhere_to_be_found", BODY, "nowhere_to_be_found, which is not there"),
        ("raise ValueError('secret')", BODY, "foreign cannot be imported"),
        ("import os; os._exit(7)", BODY, "exit code 7"),
        ("import os; os.write(2, b'gone'); os._exit(1)", BODY, "exit code 1: gone"),
        ("raise SystemExit('secret')", BODY, "SystemExit at foreign.py"),
        ("", BODY.replace("count + len(self.to)", "count - 1"), "fewer target partitions"),
        (
            "",
            BODY.replace("return count + len(self.to)", "raise KeyError('secret')"),
            "KeyError at foreign.py",
        ),
        ("", "", "foreign has no H"),
    ],
)
def test_what_is_wrong_with_it_is_said_as_ever(written: Written, text: str, body: str, said: str) -> None:
    flow = written(text, body)  # pyrefly: ignore[bad-argument-count]
    with pytest.raises(UsageError, match=said) as caught, partitions_apart(flow) as counts:
        counts(2)
    assert caught.value.code == "HANDLER"
    assert "secret" not in str(caught.value)


# Writes into every descriptor that it finds, as its parent would be answered.
ANSWERS = """
import os
for fd in range(3, 20):
    try:
        os.write(fd, b'{answer}\\n')
    except OSError:
        pass
"""


@pytest.mark.parametrize(
    "answer",
    [
        "[]",
        "5",
        "nonsense",
        '{"error": 1}',
        '{"error": {"kind": "open", "fields": {}}}',
        '{"value": "x"}',
        "[" * 99999,
    ],
)
def test_a_handler_that_answers_itself_is_not_believed(written: Written, answer: str) -> None:
    """Nothing of it is run, and every end is an error of ours."""
    flow = written(ANSWERS.replace("{answer}", answer.replace("\\", "")))
    with pytest.raises(OnceoverError), partitions_apart(flow) as counts:
        counts(2)


def test_nobody_else_loads_a_handler() -> None:
    """Those who do run in the flow's own driver and workers, or in the child."""
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "onceover.wiring.handlers" in (text := path.read_text()) or "onceover.handlers.load" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        and node.module in ("onceover.wiring.handlers", "onceover.handlers.load")
        and {alias.name for alias in node.names}
        & {"load_handler", "handler_of", "target_partitions", "lane_handler_of", "sample_handling"}
    }
    assert users == {
        "onceover/wiring/handlers.py",
        "onceover/wiring/runs.py",
        "onceover/spark/auditing/auditwork.py",
        "onceover/wiring/sampling.py",
    }
