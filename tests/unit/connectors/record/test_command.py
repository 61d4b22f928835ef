"""``onceover connectors``: bad input is one message with exit code 2, workers that are away are 5."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from onceover.cli.main import main
from onceover.cli.parsing import build_parser
from onceover.config.connect.connectfile import connect_home, load_connect
from onceover.connectors.model import Report
from onceover.connectors.moving.context import MIGRATE
from onceover.connectors.moving.migration import ConnectorOperation
from onceover.connectors.moving.selection import ConnectorSelection
from onceover.connectors.record.manifest import SETTLED, Manifest, ManifestStore
from onceover.connectors.record.runrecords import RunRecords
from onceover.connectors.settings import RestSettings
from onceover.connectors.workers.rest import ConnectRest
from onceover.planning.operation import Caller
from onceover.wiring import connectors as runs

SECRET = "hunter2-planted"
CONNECTORS = {
    "archive": {"info": {"type": "sink", "config": {}}, "status": {"connector": {"state": "RUNNING"}}},
    "orders": {
        "info": {"type": "source", "config": {"name": "orders", "password": SECRET}},
        "status": {"connector": {"state": "RUNNING"}, "tasks": [{"id": 0, "state": "RUNNING"}]},
    },
    "users": {
        "info": {"type": "source", "config": {"name": "users", "offsets.storage.topic": "mine"}},
        "status": {"connector": {"state": "STOPPED"}, "tasks": []},
    },
}
Answer = Callable[[httpx.Request], httpx.Response]
Workers = Callable[[Answer], list[httpx.Request]]


def workers_answer(request: httpx.Request) -> httpx.Response:
    """Answer as a worker with three connectors."""
    if request.url.path == "/":
        return httpx.Response(200, json={"version": "4.3.0", "kafka_cluster_id": "k"})
    if request.url.path == "/connectors":
        return httpx.Response(200, json=CONNECTORS if request.url.query else list(CONNECTORS))
    return httpx.Response(404, json={"message": "no such thing"})


def nobody_answers(request: httpx.Request) -> httpx.Response:
    """Refuse the connection."""
    raise httpx.ConnectError("connection refused", request=request)


@pytest.fixture(autouse=True)
def connect_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Connect file called ``flights``."""
    document = {
        "connect": "flights",
        "rest": ["http://127.0.0.1:1"],
        "rest_auth": {"username": "u", "password": "${REST_PASSWORD}"},
        "worker": {
            "group.id": "connect",
            "offset.storage.topic": "connect-offsets",
            "config.storage.topic": "connect-configs",
            "exactly.once.source.support": "enabled",
        },
        "kafka": {"client": {"bootstrap.servers": "127.0.0.1:1"}},
    }
    path = tmp_path / "flights.yaml"
    path.write_text(yaml.safe_dump(document))
    monkeypatch.setenv("ONCEOVER_CONNECT", str(tmp_path))
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    monkeypatch.setenv("REST_PASSWORD", SECRET)
    return path


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    """Put somebody behind the address of the worker; return what is asked."""

    def put(answer: Answer) -> list[httpx.Request]:
        asked: list[httpx.Request] = []

        def heard(request: httpx.Request) -> httpx.Response:
            asked.append(request)
            return answer(request)

        def rest(settings: RestSettings) -> ConnectRest:
            return ConnectRest(settings, httpx.MockTransport(heard))

        monkeypatch.setattr(runs, "ConnectRest", rest)
        return asked

    return put


@pytest.fixture
def no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was written down on the cluster."""
    monkeypatch.setattr(RunRecords, "load", lambda *_: None)


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run a command that fails; return its exit code and the error."""
    code = main(["connectors", *arguments, "--json"])
    shown = capsys.readouterr()
    assert SECRET not in shown.out + shown.err
    assert "Traceback" not in shown.err
    document = json.loads(shown.out)
    assert (document["ok"], document["exit"]) == (False, code)
    return code, document["error"]


ACTIONS = ("plan", "apply", "verify", "rollback", "downgrade")


@pytest.mark.parametrize("action", ["list", "acls", *ACTIONS])
def test_a_file_that_is_not_there_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str], action: str
) -> None:
    """Nothing is asked: unit tests cannot open a socket."""
    names = [] if action == "list" else ["--connector", "orders"]
    code, error = failed(capsys, action, "fligths", *names)
    assert code == 2
    assert 'did you mean "flights"?' in error["message"]


@pytest.mark.parametrize("action", ["list", "acls", *ACTIONS])
def test_an_unknown_key_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str], connect_file: Path, action: str
) -> None:
    """With its line."""
    connect_file.write_text(connect_file.read_text().replace("rest_auth", "rest_auht"))
    names = [] if action == "list" else ["--connector", "orders"]
    code, error = failed(capsys, action, "flights", *names)
    assert code == 2
    assert 'rest_auht: unknown key; did you mean "rest_auth"?' in error["message"]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    ("name", "told"),
    [("order", "there is no connector order"), ("archive", "archive is a sink connector")],
)
def test_a_connector_that_cannot_be_meant_is_answered_with_those_that_can(
    capsys: pytest.CaptureFixture[str], workers: Workers, tmp_path: Path, action: str, name: str, told: str
) -> None:
    """Workers were only asked what they have; no file was written."""
    asked = workers(workers_answer)
    code, error = failed(capsys, action, "flights", "--connector", name)
    assert code == 2
    assert told in error["message"]
    assert error["expected"] == "one of: orders, users"
    assert {request.method for request in asked} == {"GET"}
    assert not (tmp_path / "var").exists()


@pytest.mark.parametrize("action", ["list", "acls", *ACTIONS])
def test_workers_that_do_not_answer_are_a_temporary_failure(
    capsys: pytest.CaptureFixture[str], workers: Workers, action: str
) -> None:
    """Exit code 5, with the address: run it again."""
    workers(nobody_answers)
    names = [] if action == "list" else ["--connector", "orders"]
    code, error = failed(capsys, action, "flights", *names)
    assert code == 5
    assert error["where"] == "http://127.0.0.1:1"


@pytest.mark.parametrize("action", ["list", "acls", *ACTIONS])
def test_names_of_workers_that_nobody_knows_are_a_mistake(
    capsys: pytest.CaptureFixture[str], workers: Workers, action: str
) -> None:
    """Exit code 2: to run it again would not make them known."""

    def unresolved(request: httpx.Request) -> httpx.Response:
        cause = socket.gaierror(socket.EAI_NONAME, "not known")
        raise httpx.ConnectError(str(cause), request=request) from cause

    workers(unresolved)
    names = [] if action == "list" else ["--connector", "orders"]
    code, error = failed(capsys, action, "flights", *names)
    assert (code, error["code"], error["where"]) == (2, "NAME_UNKNOWN", "http://127.0.0.1:1")


@pytest.mark.parametrize("action", ["apply", "rollback", "downgrade"])
@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["text", "json"])
def test_progress_is_told_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
    workers: Workers,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
    flags: list[str],
) -> None:
    """In a job's log minutes of silence look like a hang; stdout stays what programs read."""

    def done(_: object, caller: Caller, __: object) -> Report:
        caller.tell("orders: stopping")
        return Report("connectors", "flights", ())

    workers(workers_answer)
    monkeypatch.setattr(ConnectorOperation, "apply", done)
    doing = [] if action == "apply" else ["--apply"]
    assert main(["connectors", action, "flights", "--connector", "orders", *doing, *flags]) == 0
    shown = capsys.readouterr()
    assert "orders: stopping" in shown.err and "stopping" not in shown.out


@pytest.mark.parametrize("action", ACTIONS)
def test_connectors_are_named_or_all_are_meant(capsys: pytest.CaptureFixture[str], action: str) -> None:
    """Neither and both are refused; a migration is never a default."""
    assert failed(capsys, action, "flights")[0] == 2
    assert failed(capsys, action, "flights", "--all", "--connector", "orders")[0] == 2


def test_all_means_those_to_which_the_command_applies(workers: Workers, no_records: None) -> None:
    """Every source connector to migrate; to go back, those with a topic of their own."""
    workers(workers_answer)
    file = load_connect("flights")
    assert runs.pick_connectors(file, [], ConnectorSelection.SOURCES) == ("orders", "users")
    assert runs.pick_connectors(file, [], ConnectorSelection.MIGRATED) == ("users",)
    assert runs.pick_connectors(file, [], ConnectorSelection.RETURNING) == ("users",)
    assert runs.pick_connectors(file, ["users", "orders"], ConnectorSelection.MIGRATED) == ("users", "orders")


@pytest.mark.parametrize("names", [["--all"], ["--connector", "order"]], ids=["all", "named"])
@pytest.mark.parametrize(
    ("second", "code"), [(200, "NO_WORKER"), (503, "NO_CONNECTOR")], ids=["no worker", "away"]
)
def test_address_that_is_wrong_is_told_before_a_connector_that_is_missing(
    workers: Workers,
    connect_file: Path,
    capsys: pytest.CaptureFixture[str],
    names: list[str],
    second: int,
    code: str,
) -> None:
    """Where nothing is found, what was asked may be the reason; a worker that is away is none."""
    document = yaml.safe_load(connect_file.read_text())
    connect_file.write_text(
        yaml.safe_dump({**document, "rest": ["http://127.0.0.1:1", "http://127.0.0.1:2"]})
    )

    def empty(request: httpx.Request) -> httpx.Response:
        if request.url.port != 1:
            return httpx.Response(second, text="<html>")
        if request.url.path == "/":
            return httpx.Response(200, json={"version": "4.3.0", "kafka_cluster_id": "k"})
        return httpx.Response(200, json={} if request.url.query else [])

    workers(empty)
    exit_code, error = failed(capsys, "plan", "flights", *names)
    assert (exit_code, error["code"]) == (2, code)


@pytest.mark.parametrize(
    ("operation", "finished", "expected"),
    [
        ("downgrade-hard", False, ("orders", "users")),
        ("downgrade-hard", True, ("users",)),
        ("migrate", False, ("users",)),
    ],
)
def test_all_go_back_with_those_that_were_interrupted_on_the_way(
    workers: Workers, no_records: None, operation: str, finished: bool, expected: tuple[str, ...]
) -> None:
    """One that has lost its own topic already, and was not resumed, would stay stopped otherwise."""
    workers(workers_answer)
    file = load_connect("flights")
    manifest = Manifest.begin(
        operation, "orders", ("own", "connect-offsets"), "RUNNING", {}, {}, exactly_once=True
    )
    store = ManifestStore(connect_home(file))
    store.save(manifest.with_step("configure", finished=finished))
    assert runs.pick_connectors(file, [], ConnectorSelection.RETURNING) == expected
    assert runs.pick_connectors(file, [], ConnectorSelection.MIGRATED) == ("users",)


def test_all_that_were_migrated_are_verified_also_without_their_topic(
    workers: Workers, no_records: None
) -> None:
    """Whoever manages the configuration elsewhere has taken it out again."""
    workers(workers_answer)
    file = load_connect("flights")
    manifest = Manifest.begin(
        MIGRATE, "orders", ("connect-offsets", "own"), "RUNNING", {}, {}, exactly_once=True
    )
    store = ManifestStore(connect_home(file))
    for step, finished, expected in [
        ("configure", False, ("users",)),
        (SETTLED, True, ("orders", "users")),
        ("finish", True, ("users",)),
    ]:
        store.save(manifest.with_step(step, finished=finished))
        assert runs.pick_connectors(file, [], ConnectorSelection.MIGRATED) == expected
    store.path("orders", MIGRATE).write_text("{")
    assert runs.pick_connectors(file, [], ConnectorSelection.MIGRATED) == ("orders", "users")


def test_all_go_back_with_one_whose_manifest_is_damaged(workers: Workers, no_records: None) -> None:
    """It is refused by itself, and the others are not kept from it."""
    workers(workers_answer)
    file = load_connect("flights")
    path = ManifestStore(connect_home(file)).path("orders", "downgrade-hard")
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert runs.pick_connectors(file, [], ConnectorSelection.RETURNING) == ("orders", "users")


@pytest.mark.parametrize("text", ["soon", "0s", "5"])
def test_a_time_to_watch_has_a_unit(capsys: pytest.CaptureFixture[str], workers: Workers, text: str) -> None:
    """And is more than nothing."""
    workers(workers_answer)
    code, error = failed(capsys, "apply", "flights", "--connector", "orders", "--watch", text)
    assert code == 2
    assert f"--watch '{text}'" in error["message"]


def test_the_list_is_one_document_without_configurations(
    capsys: pytest.CaptureFixture[str], workers: Workers
) -> None:
    """And a table for people."""
    workers(workers_answer)
    assert main(["connectors", "list", "flights", "--json"]) == 0
    shown = capsys.readouterr().out
    document = json.loads(shown)
    assert SECRET not in shown
    assert (document["command"], document["connect"]) == ("connectors list", "flights")
    assert [row["name"] for row in document["connectors"]] == ["archive", "orders", "users"]
    assert main(["connectors", "list", "flights"]) == 0
    assert "users      source  STOPPED  none         mine" in capsys.readouterr().out


def test_rights_are_listed_for_live_connectors(capsys: pytest.CaptureFixture[str], workers: Workers) -> None:
    """All source connectors unless some are named; with the topic each has, or would get."""
    workers(workers_answer)
    assert main(["connectors", "acls", "flights", "--json"]) == 0
    grants = json.loads(capsys.readouterr().out)["grants"]
    assert {"mine", "connect-offsets-orders"} <= {grant["name"] for grant in grants}
    assert main(["connectors", "acls", "flights", "--connector", "users"]) == 0
    shown = capsys.readouterr().out
    assert "TransactionalId connect-users-*" in shown
    assert "connect-orders-" not in shown


@pytest.mark.parametrize("action", ["apply", "rollback", "downgrade"])
def test_ctrl_c_says_what_may_be_left(
    capsys: pytest.CaptureFixture[str], workers: Workers, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """The connector may be stopped; nothing is lost."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    workers(workers_answer)
    monkeypatch.setattr(ConnectorOperation, "apply", interrupted)
    flags = [] if action == "apply" else ["--apply"]
    assert main(["connectors", action, "flights", "--connector", "orders", *flags]) == 130
    assert "a connector may be stopped now" in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """Of every action."""
    for action in ("list", "acls", *ACTIONS):
        assert main(["connectors", action, "--help"]) == 0
        assert "onceover connectors apply     flights" in capsys.readouterr().out


@pytest.mark.parametrize("page", ["docs/connectors.md", "README.md"])
def test_commands_in_the_docs_are_commands(page: str) -> None:
    """Each line of a page that shows one, and each that it quotes."""
    text = (Path(__file__).parents[4] / page).read_text()
    shown = re.findall(r"^(?:\.venv/bin/)?onceover (connectors [a-z]+ +.+?)(?: {2,}.*)?$", text, re.MULTILINE)
    shown += re.findall(r"`onceover (connectors [^`\[]+CONNECT [^`\[]+)`", text)
    assert shown
    for words in shown:
        assert build_parser().parse_args(words.split()).command == "connectors"
