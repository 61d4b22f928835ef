"""The workers' REST API: errors say what to do next, and commands reach a worker that lives."""

from __future__ import annotations

import base64
import gzip
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from httpx import Response

from onceover.connectors.model import ConnectorState, TaskState
from onceover.connectors.settings import RestSettings
from onceover.connectors.workers.lifecycle import ConnectorFailed, Lifecycle, failure_of
from onceover.connectors.workers.rest import ConnectRest
from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from tests.unit.connectors.fake_workers import URLS, Answer, FakeWorkers, times


def lifecycle(workers: FakeWorkers, *, exactly_once: bool = True) -> Lifecycle:
    """Return what commands the connector, without waiting long."""
    return Lifecycle(workers.rest(), URLS, exactly_once=exactly_once, patience_s=0.0, stable_s=0.0)


def test_state_is_what_the_workers_say() -> None:
    """Type, state, tasks, configuration."""
    state = FakeWorkers(config={"name": "c", "offsets.storage.topic": "own"}).rest().state("c")
    assert (state.type, state.state, [t.state for t in state.tasks]) == ("source", "RUNNING", ["RUNNING"])
    assert (state.offsets_topic, state.is_stopped) == ("own", False)


def test_configuration_is_in_no_repr() -> None:
    """It may hold secrets."""
    assert "hunter2" not in repr(FakeWorkers(config={"password": "hunter2"}).rest().state("c"))


def test_password_is_in_no_repr() -> None:
    """Of the workers' own login neither."""
    assert "hunter2" not in repr(RestSettings(URLS, "me", "hunter2"))


def test_login_is_sent_as_basic_authentication() -> None:
    """When there is one."""
    seen: list[str | None] = []
    workers = FakeWorkers()
    workers.faults.append(lambda request: seen.append(request.headers.get("authorization")))
    workers.rest(username="me", password="secret").worker(URLS[0])
    assert seen == ["Basic bWU6c2VjcmV0"]


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, NeedsOperator, "REQUEST_REFUSED"),
        (401, UsageError, "REST_LOGIN"),
        (403, UsageError, "REST_LOGIN"),
        (404, UsageError, "NO_CONNECTOR"),
        (500, Retriable, "WORKER_ERROR"),
    ],
)
def test_errors_are_grouped_by_what_to_do(status: int, kind: type[OnceoverError], code: str) -> None:
    """Each by its status."""
    workers = FakeWorkers(faults=[times(1, status, "GET")])
    with pytest.raises(kind) as caught:
        workers.rest().state("c")
    assert caught.value.code == code


@pytest.mark.parametrize("status", [401, 403])
def test_worker_that_refuses_a_login_is_a_worker(status: int) -> None:
    """It refuses whoever asks what it is, too: the address is right."""
    with pytest.raises(UsageError) as caught:
        FakeWorkers(faults=[lambda _: Response(status, json={})]).rest().connectors()
    assert caught.value.code == "REST_LOGIN"


@pytest.mark.parametrize("status", [400, 404, 409, 500, 503])
def test_login_is_not_repeated_to_whoever_sends_it_back(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy before the workers may show what it was asked."""
    monkeypatch.setattr("onceover.connectors.workers.rest._REBALANCE_S", 0.0)
    secret = "hunter2-r\u00e9st"

    def echo(request: httpx.Request) -> httpx.Response:
        sent = request.headers["authorization"]
        typed = base64.b64decode(sent.removeprefix("Basic ")).decode()
        message = f"asked by {sent}, which is {typed}"
        return Response(status, json={"error_code": status, "message": message})

    rest = FakeWorkers(faults=[echo]).rest(username="me", password=secret)
    for ask in (lambda: rest.worker(URLS[0]), lambda: rest.state("c", URLS[0]), lambda: rest.stop("c")):
        with pytest.raises(OnceoverError) as caught:
            ask()
        said = f"{caught.value} {caught.value!r}"
        assert secret not in said and base64.b64encode(f"me:{secret}".encode()).decode() not in said


def test_connector_without_status_yet_is_unassigned() -> None:
    """It has just been created: 404 of its status is not 404 of the connector."""
    workers = FakeWorkers()
    workers.faults.append(
        lambda request: httpx.Response(404, json={}) if request.url.path.endswith("/status") else None
    )
    assert workers.rest().state("c").state == "UNASSIGNED"


def test_unknown_connector_is_a_usage_error() -> None:
    """The name is wrong."""
    with pytest.raises(UsageError, match="no such connector"):
        FakeWorkers().rest().state("x")


def test_what_is_no_worker_is_named() -> None:
    """Another service listens there."""
    workers = FakeWorkers(faults=[lambda _: httpx.Response(200, text="<html>")])
    with pytest.raises(UsageError) as caught:
        workers.rest().worker(URLS[0])
    assert caught.value.code == "NO_WORKER"


def test_command_that_workers_do_not_know_is_no_missing_connector() -> None:
    """Before 3.5 they answer 404 to a stop, of a connector that runs."""
    workers = FakeWorkers(faults=[times(1, 404)])
    with pytest.raises(NeedsOperator) as caught:
        workers.rest().stop("c")
    assert (caught.value.code, workers.state) == ("WORKER_VERSION", "RUNNING")
    with pytest.raises(UsageError, match="no such connector"):
        FakeWorkers(faults=[times(1, 404)]).rest().stop("x")


def test_path_that_a_worker_does_not_have_is_no_worker_that_is_starting() -> None:
    """It answers in Connect's own words, and will do so for ever."""
    words = {"error_code": 404, "message": "HTTP 404 Not Found"}
    workers = FakeWorkers(faults=[lambda _: Response(404, json=words)])
    with pytest.raises(UsageError) as caught:
        workers.rest().worker(f"{URLS[0]}/foo")
    assert (caught.value.code, caught.value.where) == ("NO_WORKER", f"{URLS[0]}/foo")


@pytest.mark.parametrize("status", [404, 503])
def test_worker_behind_a_path_is_named_with_it(status: int) -> None:
    """Of a proxy's paths one may be wrong."""
    workers = FakeWorkers(faults=[lambda _: Response(status, text="")])
    with pytest.raises(Retriable) as caught:
        workers.rest().worker(f"{URLS[0]}/foo")
    assert (caught.value.code, caught.value.where) == ("WORKER_STARTING", f"{URLS[0]}/foo")


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe\x00"])
def test_answer_that_nobody_can_parse_is_no_workers(content: bytes) -> None:
    """A program that answers anything to anybody."""
    workers = FakeWorkers(faults=[lambda _: Response(200, content=content)])
    with pytest.raises(UsageError) as caught:
        workers.rest().worker(URLS[0])
    assert caught.value.code == "NO_WORKER"
    workers = FakeWorkers(faults=[times_of(400, content)])
    with pytest.raises(NeedsOperator) as refused:
        workers.rest().state("c")
    assert refused.value.code == "REQUEST_REFUSED"


def times_of(status: int, content: bytes) -> Answer:
    """Return a fault that answers everything but who a worker is."""
    return lambda request: None if request.url.path == "/" else Response(status, content=content)


@pytest.mark.parametrize("status", [404, 502, 503, 504])
def test_worker_that_is_just_starting_is_passed_over(status: int) -> None:
    """It answers before it has anything to say, or a proxy answers for it: the others are asked."""
    starting = FakeWorkers(
        faults=[lambda request: Response(status, text="") if request.url.host == "w1" else None]
    )
    assert starting.rest().state("c").name == "c"
    with pytest.raises(Retriable) as caught:
        FakeWorkers(faults=[lambda _: Response(status, text="")]).rest().state("c")
    assert caught.value.code == "WORKER_STARTING"


@pytest.mark.parametrize("status", [404, 502, 503, 504])
def test_worker_that_is_just_starting_is_waited_for(status: int) -> None:
    """In the middle of a run, with the connector stopped: it is neither gone nor unknown."""
    workers = FakeWorkers(state="STOPPED", tasks=[])
    left = [3]

    def starting(request: httpx.Request) -> httpx.Response | None:
        if request.url.host != "w2" or not left[0]:
            return None
        left[0] -= 1
        return Response(status, text="")

    workers.faults.append(starting)
    patient = Lifecycle(workers.rest(), URLS, exactly_once=False, patience_s=30.0, stable_s=0.0)
    assert len(patient.states("c")) == 2
    assert not left[0]


def test_connector_that_was_deleted_meanwhile_is_told() -> None:
    """No worker knows it any more."""
    with pytest.raises(UsageError, match="no such connector"):
        lifecycle(FakeWorkers()).states("x")


def test_a_connector_that_is_deleted_while_it_is_listed_keeps_nobody_from_the_others() -> None:
    """Created a moment ago it is in no worker's long answer; asked about by its name it is gone again."""

    def listed(request: httpx.Request) -> httpx.Response | None:
        if request.url.path != "/connectors":
            return None
        return Response(200, json={} if request.url.query else ["gone"])

    assert FakeWorkers(faults=[listed]).rest().connectors() == ()


def test_worker_that_does_not_know_a_connector_for_long_is_as_good_as_silent() -> None:
    """The others do, so it is there; without exactly-once nothing would fence tasks of that worker."""
    faults: list[Answer] = [lambda request: Response(404) if request.url.host == "w1" else None]
    assert len(lifecycle(FakeWorkers(faults=faults)).states("c")) == 1
    with pytest.raises(NeedsOperator, match="nothing can fence"):
        lifecycle(FakeWorkers(faults=faults), exactly_once=False).states("c")


def test_worker_that_has_not_read_its_status_yet_does_not_say_resumed() -> None:
    """It says UNASSIGNED until it has."""
    workers, left = FakeWorkers(state="STOPPED", tasks=[]), [2]

    def unread(request: httpx.Request) -> httpx.Response | None:
        if not request.url.path.endswith("/status") or not left[0]:
            return None
        left[0] -= 1
        return Response(404, json={})

    workers.faults.append(unread)
    Lifecycle(workers.rest(), URLS, exactly_once=True, patience_s=30.0).check_alive("c")
    assert not left[0]


@pytest.mark.parametrize("status", [409, 500, 503])
def test_command_is_repeated_until_the_workers_take_it(status: int) -> None:
    """A rebalance, or a leader that is being replaced."""
    workers = FakeWorkers(faults=[times(2, status)])
    workers.rest().stop("c")
    assert (workers.state, len(workers.sent("PUT"))) == ("STOPPED", 3)


def test_refused_configuration_is_not_repeated() -> None:
    """It would be refused again."""
    workers = FakeWorkers(faults=[times(1, 400)])
    with pytest.raises(NeedsOperator):
        workers.rest().put_config("c", {})
    assert len(workers.sent("PUT")) == 1


def test_rebalance_is_waited_for_by_questions_too() -> None:
    """GET answers 409 as well, or 500 with words of its own (seen with 4.3.0)."""
    assert FakeWorkers(faults=[times(2, 409, "GET")]).rest().config("c") == {"name": "c"}
    words = "Request cannot be completed because a rebalance is expected"
    assert FakeWorkers(faults=[times(2, 500, "GET", words)]).rest().config("c") == {"name": "c"}


def test_command_goes_to_a_worker_that_lives() -> None:
    """A frozen one would take it and leave it lying."""
    workers = FakeWorkers(silent={"w1"})
    workers.rest().resume("c")
    assert workers.sent("PUT") == [("w2", "/connectors/c/resume")]


def test_no_worker_at_all_is_worth_trying_again() -> None:
    """They may be restarted."""
    with pytest.raises(Retriable) as caught:
        FakeWorkers(silent={"w1", "w2"}).rest().stop("c")
    assert caught.value.code == "WORKER_UNREACHABLE"


def test_unreadable_authority_is_a_usage_error(tmp_path: Path) -> None:
    """Before anything is asked."""
    with pytest.raises(UsageError, match="authority"):
        FakeWorkers().rest(ca_file=tmp_path / "none.pem")


def test_name_of_a_connector_is_quoted() -> None:
    """``a/b`` is one connector, not a path."""
    workers = FakeWorkers()
    with pytest.raises(UsageError):
        workers.rest().state("a/b c")
    assert workers.sent("GET")[-1][1] == "/connectors/a/b c"


# ---- stopping, configuring, resuming


def test_stop_returns_when_every_worker_sees_it_stopped() -> None:
    """Each is asked."""
    workers = FakeWorkers()
    lifecycle(workers).stop("c")
    asked = {host for host, path in workers.sent("GET") if path.endswith("/status")}
    assert (workers.state, asked) == ("STOPPED", {"w1", "w2"})


def test_stop_is_not_done_while_a_task_is_left() -> None:
    """Its status says so."""
    workers = FakeWorkers()
    workers.faults.append(lambda _: workers.tasks.append("RUNNING") if not workers.tasks else None)
    with pytest.raises(Retriable, match="0 RUNNING"):
        lifecycle(workers).stop("c")


def test_silent_worker_is_passed_over_under_exactly_once() -> None:
    """Its tasks are fenced."""
    workers = FakeWorkers(silent={"w1"})
    lifecycle(workers).stop("c")
    assert workers.state == "STOPPED"


def test_silence_of_all_workers_is_no_answer_however_often_they_are_asked() -> None:
    """They are restarted while a stop is awaited, and fenced because of that: nobody has said "stopped"."""
    workers, fenced = FakeWorkers(), []

    def restart(request: httpx.Request) -> None:
        if (request.url.host, request.url.path) == ("w2", "/connectors/c/status"):
            workers.silent.update(("w1", "w2"))

    workers.faults.append(restart)
    commanded = lifecycle(workers)
    with pytest.raises(Retriable) as caught:
        commanded.stop("c", lambda: fenced.append(True))
    assert (caught.value.code, fenced) == ("WORKER_UNREACHABLE", [True])
    with pytest.raises(Retriable):
        commanded.check_alive("c")


def test_workers_that_were_silent_are_asked_again_once_nobody_else_answers() -> None:
    """A connector that has failed meanwhile is not one that runs."""
    workers = FakeWorkers(silent={"w1"})
    commanded = lifecycle(workers)
    assert len(commanded.states("c")) == 1
    workers.silent = {"w1", "w2"}
    with pytest.raises(Retriable):
        commanded.states("c")
    workers.silent, workers.tasks = set(), ["FAILED"]
    assert [state.has_failed for state in commanded.states("c")] == [True, True]
    workers.silent = {"w2"}
    assert [state.has_failed for state in commanded.states("c")] == [True]


def test_worker_that_was_silent_is_not_waited_for_again_while_another_answers() -> None:
    """Its tasks are fenced, and the connector stands still meanwhile."""
    workers = FakeWorkers(silent={"w1"})
    commanded = lifecycle(workers)
    commanded.states("c")
    commanded.stop("c")
    assert workers.sent("GET").count(("w1", "/connectors/c")) == 1


def test_a_cluster_without_workers_says_nothing() -> None:
    """To wait until none of them says otherwise would end at once."""
    nobody = Lifecycle(FakeWorkers().rest(), (), exactly_once=True)
    with pytest.raises(Retriable, match="no worker"):
        nobody.states("c")


def test_silent_worker_ends_the_run_without_exactly_once() -> None:
    """Nothing would fence its tasks."""
    workers = FakeWorkers(silent={"w2"})
    with pytest.raises(NeedsOperator, match="nothing can fence"):
        lifecycle(workers, exactly_once=False).stop("c")


def test_configuration_is_awaited_on_every_worker() -> None:
    """One that still shows the old one would start tasks with it."""
    workers = FakeWorkers(state="STOPPED", tasks=[])
    lifecycle(workers).configure("c", {"name": "c", "offsets.storage.topic": "own"})
    asked = {host for host, path in workers.sent("GET") if path == "/connectors/c"}
    assert (workers.config["offsets.storage.topic"], asked) == ("own", {"w1", "w2"})


@pytest.mark.parametrize(("initial", "state"), [("RUNNING", "RUNNING"), ("PAUSED", "PAUSED")])
def test_connector_gets_back_to_what_it_did(initial: str, state: str) -> None:
    """Running or paused."""
    workers = FakeWorkers(state="STOPPED", tasks=[])
    lifecycle(workers).resume("c", initial)
    assert workers.state == state


def test_connector_that_has_nothing_to_do_runs_without_tasks() -> None:
    """MirrorMaker's checkpoints without a group: it never gets one, so nobody waits for it for ever."""
    workers = FakeWorkers(state="STOPPED", tasks=[])
    workers.faults.append(lambda _: workers.tasks.clear())
    idle = Lifecycle(workers.rest(), URLS, exactly_once=True, patience_s=60.0, idle_s=0.5)
    idle.resume("c", "RUNNING")
    assert workers.state == "RUNNING"


def test_connector_without_tasks_yet_is_waited_for() -> None:
    """They come in a rebalance of their own."""
    workers = FakeWorkers(state="STOPPED", tasks=[])
    workers.faults.append(lambda _: workers.tasks.clear())
    with pytest.raises(Retriable, match="tasks: none"):
        lifecycle(workers).resume("c", "RUNNING")


def test_failed_task_is_told_with_its_cause() -> None:
    """The trace's first line and last cause name topic and right."""
    workers = FakeWorkers(state="STOPPED", tasks=[])
    workers.faults.append(lambda _: setattr(workers, "tasks", ["FAILED"]) if workers.tasks else None)
    with pytest.raises(ConnectorFailed, match="Trace; Caused by: Denied"):
        lifecycle(workers).resume("c", "RUNNING")


def test_resumed_connector_is_noticed() -> None:
    """Somebody else resumed it while its offsets were copied."""
    with pytest.raises(NeedsOperator) as caught:
        lifecycle(FakeWorkers()).check_alive("c")
    assert caught.value.code == "NOT_STOPPED"


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), UsageError),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), UsageError),
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), Retriable),
        (ConnectionRefusedError(111, "Connection refused"), Retriable),
    ],
)
def test_refused_tls_is_no_outage(cause: OSError, kind: type[OnceoverError]) -> None:
    """A certificate stays what it is; a worker that hangs up may be restarting."""

    def fail(_request: httpx.Request) -> None:
        raise httpx.ConnectError(str(cause)) from cause

    with pytest.raises(kind):
        FakeWorkers(faults=[fail]).rest().worker(URLS[0])


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx.RemoteProtocolError("illegal status line: bytearray(b'\\x15\\x03\\x03')"), UsageError),
        (httpx.RemoteProtocolError("Server disconnected without sending a response."), Retriable),
    ],
)
def test_http_to_a_port_of_https_is_no_outage(error: httpx.HTTPError, kind: type[OnceoverError]) -> None:
    """Who hangs up in the middle may be restarting."""

    def fail(_request: httpx.Request) -> None:
        raise error

    with pytest.raises(kind):
        FakeWorkers(faults=[fail]).rest().worker(URLS[0])


def unresolved(*hosts: str, errno: int = socket.EAI_NONAME) -> Answer:
    """Return a fault: the names of these hosts do not resolve."""

    def fail(request: httpx.Request) -> None:
        if request.url.host in hosts:
            cause = socket.gaierror(errno, "the resolver's words")
            raise httpx.ConnectError(str(cause)) from cause

    return fail


def test_names_that_do_not_resolve_are_no_outage() -> None:
    """They stay unknown however often it is run again."""
    with pytest.raises(UsageError) as caught:
        FakeWorkers(faults=[unresolved("w1", "w2")]).rest().connectors()
    assert caught.value.code == "NAME_UNKNOWN"
    assert caught.value.where == URLS[0] and "the resolver's words" in str(caught.value.seen)


def test_name_of_a_worker_that_is_gone_keeps_nobody_from_asking_the_others() -> None:
    """Where names come and go with machines."""
    workers = FakeWorkers(faults=[unresolved("w1")])
    assert workers.rest().state("c").name == "c"
    assert [state.name for state in lifecycle(workers).states("c")] == ["c"]


def test_resolver_that_does_not_answer_is_an_outage() -> None:
    """Nobody has said that the name is wrong."""
    with pytest.raises(Retriable):
        FakeWorkers(faults=[unresolved("w1", "w2", errno=socket.EAI_AGAIN)]).rest().connectors()


@pytest.mark.parametrize("name", ["a/b", "a%b", "a\\b"])
def test_name_that_the_http_server_refuses_is_explained(name: str) -> None:
    """Jetty answers in place of Connect (as 4.3.0 does): with a page of its own."""
    page = "<html><head><title>Error 400 Ambiguous URI path separator</title></head><body>URI</body></html>"
    workers = FakeWorkers(
        faults=[lambda request: None if request.url.path == "/" else Response(400, text=page)]
    )
    with pytest.raises(NeedsOperator) as caught:
        workers.rest().state(name)
    assert caught.value.code == "NAME_UNSERVED"
    assert caught.value.seen == "Error 400 Ambiguous URI path separator"
    assert "'/'" in str(caught.value.expected)


PROXY = "<html><head><title>{} Of A Proxy</title></head><body><hr>nginx</body></html>"


@pytest.mark.parametrize("status", [400, 405, 413])
def test_page_of_a_proxy_says_nothing_about_a_name(status: int) -> None:
    """Whoever created the connector anew under another name would lose its position."""
    workers = FakeWorkers(
        faults=[
            lambda request: None if request.url.path == "/" else Response(status, text=PROXY.format(status))
        ]
    )
    with pytest.raises(NeedsOperator) as caught:
        workers.rest().state("c")
    assert caught.value.code == "REQUEST_REFUSED"
    assert caught.value.seen == f"HTTP {status}: {status} Of A Proxy"
    with pytest.raises(NeedsOperator) as caught:
        workers.rest().put_config("c", {})
    assert caught.value.code == "CONFIG_REFUSED"


@pytest.mark.parametrize("status", [408, 425, 429])
def test_busy_is_waited_for(status: int) -> None:
    """A proxy that limits requests says so of this moment."""
    assert FakeWorkers(faults=[times(2, status, "GET")]).rest().config("c") == {"name": "c"}
    workers = FakeWorkers(faults=[times(2, status)])
    workers.rest().stop("c")
    assert workers.state == "STOPPED"


def test_question_that_is_refused_is_no_refused_configuration() -> None:
    """Once the workers have taken it, nobody may say that the connector has its former one."""
    workers = FakeWorkers(state="STOPPED", tasks=[])
    workers.faults.append(
        lambda request: (
            Response(400, json={}) if request.url.path == "/connectors/c" and workers.sent("PUT") else None
        )
    )
    with pytest.raises(NeedsOperator) as caught:
        lifecycle(workers).configure("c", {"name": "c", "offsets.storage.topic": "own"})
    assert (caught.value.code, workers.config.get("offsets.storage.topic")) == ("REQUEST_REFUSED", "own")


@pytest.mark.parametrize("name", ["c;x", ".", ".."])
def test_name_that_would_become_another_is_never_sent(name: str) -> None:
    """A leader takes ``orders;x`` for ``orders``, and would stop that one; a dot is a folder."""
    workers = FakeWorkers()
    for command in (ConnectRest.state, ConnectRest.stop, ConnectRest.resume):
        with pytest.raises(NeedsOperator, match="of this name") as caught:
            command(workers.rest(), name)
        assert (caught.value.code, caught.value.where) == ("NAME_UNSERVED", name)
    assert workers.requests == []


@pytest.mark.parametrize("told", [True, False], ids=["status", "no status"])
def test_name_that_cannot_be_asked_about_hides_no_other_connector(told: bool) -> None:
    """Workers create it, and tell of it in lists only."""
    named = {"info": {"name": "..", "config": {}, "type": "unknown"}, "status": {}}

    def lists(request: httpx.Request) -> httpx.Response | None:
        if request.url.path != "/connectors":
            return None
        return (
            Response(200, json={"..": named} if told else {})
            if request.url.query
            else Response(200, json=["c", ".."])
        )

    found = FakeWorkers(faults=[lists]).rest().connectors()
    assert [(state.name, state.type) for state in found] == [("..", "unknown"), ("c", "source")]


def test_objections_are_the_workers_words_and_no_values() -> None:
    """Of each field what it objects to; its value may be a password."""
    fields = [
        {"value": {"name": "topic", "value": "hunter2", "errors": []}},
        {"value": {"name": "password", "value": "hunter2", "errors": ["the database is away"]}},
    ]
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response | None:
        if not request.url.path.startswith("/connector-plugins/"):
            return None
        asked.append(f"{request.method} {request.url.raw_path.decode()}")
        return httpx.Response(200, json={"error_count": 1, "configs": fields})

    rest = FakeWorkers(faults=[answer]).rest()
    assert rest.objections({"connector.class": "a/b", "password": "hunter2"}) == [
        "password: the database is away"
    ]
    assert asked == ["PUT /connector-plugins/a%2Fb/config/validate"]


SECRET = "hunter2-of-the-database"


def test_objections_quote_no_value_that_workers_alone_know() -> None:
    """Kafka's errors quote what they object to, as it was resolved; a plugin's quote any setting's."""
    given = {
        "connector.class": "c",
        "password": "${file:/s:p}",
        "until": "${file:/s:u}",
        "url": f"x://{SECRET}",
    }
    fields = [
        {"value": {"name": "password", "value": SECRET, "errors": [f"no database takes {SECRET}"]}},
        {
            "value": {
                "name": "until",
                "value": None,
                "errors": ["Invalid value 4711x for configuration until: Not a number of type LONG"],
            }
        },
        {"value": {"name": "url", "value": "x", "errors": [f"{SECRET} and x://{SECRET} are no address"]}},
    ]

    def answer(request: httpx.Request) -> httpx.Response | None:
        asks = request.url.path.startswith("/connector-plugins/")
        return httpx.Response(200, json={"configs": fields}) if asks else None

    assert FakeWorkers(faults=[answer]).rest().objections(given) == [
        "password: no database takes ***",
        "until: Invalid value *** for configuration until: Not a number of type LONG",
        "url: *** and *** are no address",
    ]


def test_configuration_that_is_refused_is_told_without_its_values() -> None:
    """By the workers, or a proxy that repeats what it was sent."""
    said = f"Invalid value 4711x for configuration until: no LONG; {SECRET}"

    def answer(request: httpx.Request) -> httpx.Response | None:
        return httpx.Response(400, json={"message": said}) if request.method == "PUT" else None

    with pytest.raises(NeedsOperator) as caught:
        FakeWorkers(faults=[answer]).rest().put_config("c", {"password": SECRET})
    assert caught.value.seen == "HTTP 400: Invalid value *** for configuration until: no LONG; ***"


def test_failed_connector_is_begun_anew_to_be_stopped_or_resumed() -> None:
    """It takes no other state by itself."""
    workers = FakeWorkers(state="FAILED", tasks=[])

    def failed(request: httpx.Request) -> httpx.Response | None:
        if request.method == "PUT":
            return httpx.Response(202)
        if request.method == "POST":
            workers.state, workers.faults = "STOPPED", []
            return httpx.Response(202)
        return None

    workers.faults.append(failed)
    lifecycle(workers).stop("c")
    assert workers.sent("POST") == [("w1", "/connectors/c/restart")]


def test_status_of_before_a_restart_is_not_taken_for_a_failure_after_it() -> None:
    """Workers learn of a restart from a topic: for a moment they tell of the old failure."""
    workers = FakeWorkers(state="FAILED", tasks=["FAILED"])
    old = [3]

    def late(request: httpx.Request) -> httpx.Response | None:
        if request.method == "PUT":
            return httpx.Response(202)
        if workers.sent("POST") and request.url.path.endswith("/status"):
            old[0] -= 1
            if not old[0]:
                workers.state, workers.tasks, workers.faults = "RUNNING", ["RUNNING"], []
        return None

    workers.faults.append(late)
    workers.faults.append(lambda request: httpx.Response(202) if request.method == "POST" else None)
    patient = Lifecycle(workers.rest(), URLS, exactly_once=True, patience_s=5.0, stable_s=0.0)
    patient.resume("c", "RUNNING")
    assert not old[0]


def test_connector_that_no_worker_has_reported_about_is_listed() -> None:
    """Workers leave it out of the long answer when the status topic is new."""
    workers = FakeWorkers(
        faults=[lambda request: Response(200, json={}) if request.url.query else None],
    )
    assert [(state.name, state.type) for state in workers.rest().connectors()] == [("c", "source")]


def without_plugin(*hosts: str) -> Answer:
    """Return a fault: these workers do not have the connector's plugin."""

    def answer(request: httpx.Request) -> httpx.Response | None:
        info = {"name": "c", "config": {"name": "c"}, "type": "unknown"}
        status = {"name": "c", "connector": {"state": "RUNNING"}, "tasks": [], "type": "unknown"}
        if request.url.host not in hosts or request.url.path == "/":
            return None
        if request.url.query:
            return Response(200, json={"c": {"info": info, "status": status}})
        kinds = {"/connectors/c": info, "/connectors/c/status": status}
        found = kinds.get(request.url.path)
        return None if found is None else Response(200, json=found)

    return answer


def test_type_is_asked_of_every_worker() -> None:
    """A plugin that is being installed on one after the other is not there on the first that answers."""
    rest = FakeWorkers(faults=[without_plugin("w1")]).rest()
    assert [state.type for state in (*rest.connectors(), rest.state("c"))] == ["source"] * 2
    rest = FakeWorkers(faults=[without_plugin("w1", "w2")]).rest()
    assert [state.type for state in (*rest.connectors(), rest.state("c"))] == ["unknown"] * 2


def test_what_is_wrong_is_told_where_it_stands_at_the_end_of_a_long_line() -> None:
    """Debezium's first line begins with its whole state."""
    trace = (
        f"DebeziumException: PostgresOffsetContext [{'x' * 5000}] but it has no slot\n\tat a\nCaused by: why"
    )
    found = failure_of(ConnectorState("c", "source", "RUNNING", (TaskState(0, "FAILED", "w", trace),)))
    assert found.startswith("DebeziumException: PostgresOffsetContext [") and found.endswith(
        "; Caused by: why"
    )
    assert "but it has no slot" in found and len(found) < 500


@pytest.mark.parametrize(
    ("status", "words", "sent"),
    [
        # A proxy has given up on it, or a worker whose leader has it: it may be taken yet.
        (504, "", 2),
        (502, "", 2),
        (500, "", 2),
        (408, "", 2),
        (409, "", 1),
        (429, "", 1),
        (500, "Cannot complete request because a rebalance is expected", 1),
    ],
)
def test_command_counts_as_often_as_the_workers_may_have_taken_it(
    status: int, words: str, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may write a record that nobody else has asked for."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    rest = FakeWorkers(faults=[times(1, status, words=words)]).rest()
    rest.stop("c")
    assert rest.sent == sent


def test_command_without_an_answer_counts_and_a_question_does_not() -> None:
    """It may have arrived."""

    def silent(request: httpx.Request) -> Response | None:
        if request.method == "PUT":
            raise httpx.ReadTimeout("silent", request=request)
        return None

    rest = FakeWorkers(faults=[silent]).rest()
    rest.state("c")
    assert rest.sent == 0
    with pytest.raises(Retriable):
        rest.stop("c")
    assert rest.sent == 1


def served(path: str, answer: Callable[[httpx.Request], httpx.Response]) -> ConnectRest:
    """Return a client of workers that answer otherwise at one path."""
    return FakeWorkers(faults=[lambda r: answer(r) if r.url.path.endswith(path) else None]).rest()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/status", {"connector": None}),
        ("/status", {"connector": "RUNNING"}),
        ("/status", {"tasks": None}),
        ("/status", {"tasks": [{"id": 1}]}),
        ("/status", {"tasks": [{"id": "one", "state": "RUNNING"}]}),
        ("/status", {"tasks": ["RUNNING"]}),
        ("/c", {"config": ["name", "c"]}),
        ("/connectors", {"c": None, "d": 7}),
        ("/connectors", {"c": {"info": 7, "status": {}}}),
        ("/offsets", {"offsets": None}),
        ("/offsets", {"offsets": ["x"]}),
        ("/validate", {"configs": None}),
        ("/validate", {"configs": [{"value": None}]}),
        ("/validate", {"configs": [{"value": {"errors": None}}]}),
    ],
)
def test_an_answer_of_another_shape_is_no_workers(path: str, body: object) -> None:
    """Something else listens there, or a proxy has made it: one message, and no traceback."""
    rest = served(path, lambda _: Response(200, json=body))
    asked: dict[str, Callable[[], object]] = {
        "/connectors": rest.connectors,
        "/offsets": lambda: rest.offsets("c"),
        "/validate": lambda: rest.objections({"connector.class": "x"}),
    }
    with pytest.raises(UsageError) as caught:
        asked.get(path, lambda: rest.state("c"))()
    assert caught.value.code in ("NO_WORKER", "NO_CONNECTOR")


def test_an_answer_is_no_longer_than_any_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much comes: it is not gathered."""
    monkeypatch.setattr("onceover.connectors.workers.answers._LONGEST_ANSWER_BYTES", 1000)
    rest = served("/config", lambda _: Response(200, content=iter([b'{"a": "'] + [b"x" * 100] * 1000)))
    with pytest.raises(Retriable, match="does not answer"):
        rest.config("c")


def test_an_answer_that_trickles_is_given_up() -> None:
    """A byte now and then keeps every single wait short."""

    def forever() -> Iterator[bytes]:
        while True:
            yield b" "
            time.sleep(0.001)

    rest = FakeWorkers(
        faults=[lambda r: Response(200, content=forever()) if r.url.path.endswith("/config") else None]
    ).rest(timeout_s=0.1)
    with pytest.raises(Retriable, match="does not answer"):
        rest.config("c")


def test_nothing_that_is_compressed_is_expanded() -> None:
    """A few kilobytes can stand for gigabytes; none are asked for so."""
    seen: list[str] = []

    def compressed(request: httpx.Request) -> Response:
        seen.append(request.headers["accept-encoding"])
        return Response(200, headers={"content-encoding": "gzip"}, content=iter([gzip.compress(b"{}")]))

    with pytest.raises(Retriable, match="does not answer"):
        served("/config", compressed).config("c")
    assert seen == ["identity"]
