"""A good file becomes a flow, found by stem or path; its text holds no secret."""

from __future__ import annotations

import hashlib
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from onceover.config import files, values
from onceover.config.connect.connectfile import find_connect_files
from onceover.config.document import EMBEDDED_VARIABLES, substitute
from onceover.config.faults import BadConfig, Invalid
from onceover.config.flow.advice import advise
from onceover.config.flow.load import (
    find_flow_files,
    flows_dir,
    listed_clash,
    listed_flow_files,
    load_flow,
    load_listed,
    locate_flow,
    run_dir,
)
from onceover.config.flow.sides import resolve_clients
from onceover.config.home import ENVIRONMENT_FILE, onceover_home, render_environment, variables
from onceover.config.values import Rpo
from onceover.errors import UsageError
from onceover.wiring.groups import GroupRequest
from tests.support.raw.hostilenames import HOSTILE
from tests.unit.config.conftest import ENVIRON, SECRET, FlowWriter

EVERY_KEY = """
flow: all-keys
source: {alias: east, client: {bootstrap.servers: "a:1, b:2", client.id: "${NAME}", socket.timeout.ms: 15000}}
target: {alias: west, connection: kafka_target}
topics:
  include: ["flights.*"]
  exclude: ["flights\\\\.tmp"]
  naming: identity
  start: timestamp:2026-01-01T01:00:00+01:00
  discovery_interval: 10s
  sync_configs: false
  sync_acls: false
delivery: exactly_once
lanes: ${LANES}
transaction: {max_interval: 50ms, max_bytes: 1MiB}
limits: {memory_per_lane: 8MiB, bytes_per_second: 10MiB}
on_bad_record: stop
handler: null
handler_args: {}
groups: {include: ["app-.*"], exclude: []}
state: {replication_factor: 3, map_retention: 7d}
spark: {master: "spark://host:7077", task_length: 1m}
schedules: {replicate: "@continuous", sync_group_offsets: "*/5 * * * *", audit: null}
objectives: {rto: 5m, rpo: 30s}
"""


def test_defaults_are_those_of_the_reference(write_flow: FlowWriter) -> None:
    """A file with only the required keys has every documented default."""
    flow = load_flow(write_flow(), environ=ENVIRON)
    assert (flow.delivery, flow.lanes, flow.on_bad_record, flow.handler, flow.handler_args) == (
        "exactly_once", 2, "stop", None, {},
    )  # fmt: skip
    assert (flow.transaction.max_interval_ms, flow.transaction.max_bytes) == (500, 256 << 20)
    assert (flow.limits.memory_per_lane_bytes, flow.limits.bytes_per_second) == (128 << 20, None)
    assert (flow.topics.naming, flow.topics.start, flow.topics.discovery_interval_ms) == (
        "identity",
        "earliest",
        30_000,
    )
    assert (flow.topics.sync_configs, flow.topics.sync_acls) == (True, False)
    assert (flow.state.replication_factor, flow.state.map_retention_ms) == (-1, 14 * 86_400_000)
    assert (flow.spark.master, flow.spark.task_length_ms) == ("local", 300_000)
    assert flow.schedules.model_dump() == {
        "replicate": None,
        "sync_group_offsets": None,
        "audit": "@daily",
        "rehearse": "@weekly",
    }
    assert (flow.objectives.rto_ms, flow.objectives.rpo) == (900_000, Rpo(records=0))


def test_every_key_is_read(write_flow: FlowWriter) -> None:
    """Each key of the reference reaches its attribute; the environment may give numbers, too."""
    flow = load_flow(write_flow(EVERY_KEY), environ={"NAME": "me", "LANES": "4"})
    assert flow.lanes == 4
    assert flow.source.origin == "client"
    assert flow.target.connection == "kafka_target"
    assert flow.topics.start_timestamp_ms == 1_767_225_600_000
    assert (flow.transaction.max_interval_ms, flow.transaction.max_bytes) == (50, 1 << 20)
    assert (flow.limits.memory_per_lane_bytes, flow.limits.bytes_per_second) == (8 << 20, 10 << 20)
    assert (flow.spark.master, flow.spark.task_length_ms) == ("spark://host:7077", 60_000)
    assert flow.schedules.sync_group_offsets == "*/5 * * * *"
    assert flow.objectives.rpo == Rpo(age_ms=30_000)


def test_the_hash_is_that_of_the_file_not_of_the_environment(write_flow: FlowWriter) -> None:
    """Two machines with other addresses agree on the hash of one file."""
    path = write_flow()
    flow = load_flow(path, environ=ENVIRON)
    other = load_flow(path, environ={**ENVIRON, "EAST": "elsewhere:1"})
    assert flow.sha256 == other.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert flow.path == path


def test_filters_match_whole_names(write_flow: FlowWriter) -> None:
    """Expressions are anchored, exclusion wins, and Onceover's own groups never match."""
    flow = load_flow(
        write_flow({"groups": {"include": ["app.*", "onceover.*"], "exclude": ["app-tmp"]}}), environ=ENVIRON
    )
    groups = (
        "app",
        "app-tmp",
        "my-app",
        "onceover.orders-dr",
        "onceover-lag.x",
        "onceover-shop",
        "onceovers.x",
    )
    assert [group for group in groups if flow.groups.selects(group)] == [
        "app",
        "onceover-shop",
        "onceovers.x",
    ]


def test_everything_is_everything_whatever_a_group_is_called(write_flow: FlowWriter) -> None:
    """Also with a line break, after which a dot would end: in what is moved, left out and asked for."""
    everything = load_flow(write_flow(), environ=ENVIRON).groups
    nothing = load_flow(write_flow({"groups": {"exclude": [".*"]}}), environ=ENVIRON).groups
    assert [name for name in HOSTILE if not everything.selects(name)] == []
    assert [name for name in HOSTILE if nothing.selects(name)] == []
    assert [name for name in HOSTILE if not GroupRequest(patterns=(".*",)).selects()(name)] == []


def test_a_loaded_flow_shows_and_carries_no_secret(write_flow: FlowWriter) -> None:
    """Printing, dumping and pickling a flow give ${PASSWORD}, not what it stands for."""
    client = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    path = write_flow({"source": {"client": {**client, "sasl.password": "${PASSWORD}"}}})
    flow = load_flow(path, environ=ENVIRON)
    shown = (repr(flow), str(flow), flow.model_dump_json(), repr(pickle.dumps(flow)))
    assert not [text for text in shown if SECRET in text]


def test_client_files_are_relative_to_the_flow_file(write_flow: FlowWriter, tmp_path: Path) -> None:
    """Wherever the command runs, the same file is meant."""
    flow = load_flow(
        write_flow({"source": {"client": None, "client_file": "east.properties"}}), environ=ENVIRON
    )
    assert flow.source.client_file == tmp_path / "east.properties"


def test_a_stem_is_looked_for_in_the_flows_directory(write_flow: FlowWriter, tmp_path: Path) -> None:
    """FLOW on the command line is a stem; another name in the file does not matter."""
    write_flow({"flow": "another-name"})
    (tmp_path / "README.md").write_text("no flow")
    environ = {**ENVIRON, "ONCEOVER_FLOWS": str(tmp_path)}
    assert find_flow_files(environ) == [tmp_path / "orders-dr.yaml"]
    assert load_flow("orders-dr", environ=environ).flow == "another-name"
    with pytest.raises(UsageError, match=r'holds no flow file "order-dr"; did you mean "orders-dr"\?$'):
        load_flow("order-dr", environ=environ)


def test_a_flow_is_found_by_its_own_name_where_no_file_is_called_so(
    write_flow: FlowWriter, tmp_path: Path
) -> None:
    """Messages, alerts and pages know no file, and the commands that they name have to work."""
    for name in ("orders", "payments"):
        write_flow({"flow": f"{name}-dr"}, name=name)
    environ = {**ENVIRON, "ONCEOVER_FLOWS": str(tmp_path)}
    assert load_flow("orders-dr", environ=environ).path == tmp_path / "orders.yaml"
    assert locate_flow("orders-dr", environ) == tmp_path / "orders.yaml"
    # A file that is called so comes first, and of two nobody could tell which one is meant.
    write_flow({"flow": "payments-dr"}, name="payments-too")
    with pytest.raises(BadConfig, match='holds no flow file "payments-dr"'):
        load_flow("payments-dr", environ=environ)
    write_flow({"flow": "another"}, name="orders-dr")
    assert load_flow("orders-dr", environ=environ).flow == "another"


def test_a_copy_that_was_left_in_the_directory_is_taken_for_no_flow(
    write_flow: FlowWriter, tmp_path: Path
) -> None:
    """The file that is called after the flow is the flow's; the message about the other one names both."""
    write_flow()
    write_flow(name="orders-dr-old")
    write_flow({"flow": "other"}, name="other")
    environ = {**ENVIRON, "ONCEOVER_FLOWS": str(tmp_path)}
    assert load_flow("orders-dr", environ=environ).path.name == "orders-dr.yaml"
    assert load_flow("other", environ=environ).flow == "other"
    with pytest.raises(BadConfig, match=r"orders-dr-old.yaml: flow: is orders-dr, as in orders-dr.yaml; "):
        load_flow("orders-dr-old", environ=environ)
    # A path is meant as it was typed.
    assert load_flow(tmp_path / "orders-dr-old.yaml", environ=environ).flow == "orders-dr"


def test_of_two_files_for_one_flow_neither_is_taken_where_none_is_called_after_it(
    write_flow: FlowWriter, tmp_path: Path
) -> None:
    """Nobody could tell which one is meant."""
    for name in ("a", "b"):
        write_flow(name=name)
    environ = {**ENVIRON, "ONCEOVER_FLOWS": str(tmp_path)}
    for name, other in (("a", "b"), ("b", "a")):
        with pytest.raises(BadConfig, match=rf"{name}.yaml: flow: is orders-dr, as in {other}.yaml"):
            load_flow(name, environ=environ)


def test_a_file_that_nobody_can_read_stands_for_the_flow_it_is_called_after(
    write_flow: FlowWriter, tmp_path: Path
) -> None:
    """A copy does not take its place while it is broken; others' broken files are nobody's business."""
    write_flow("flow: [", name="orders-dr")
    write_flow(name="orders-dr-old")
    write_flow({"flow": "other"}, name="other")
    environ = {**ENVIRON, "ONCEOVER_FLOWS": str(tmp_path)}
    with pytest.raises(BadConfig, match=r"orders-dr-old.yaml: flow: is orders-dr, as in orders-dr.yaml"):
        load_flow("orders-dr-old", environ=environ)
    assert load_flow("other", environ=environ).flow == "other"


def test_a_file_that_is_named_by_its_path_needs_no_flows_directory(write_flow: FlowWriter) -> None:
    """One that nobody can read holds no other file of the flow, as far as anybody knows."""
    flow = load_flow(write_flow(), environ=ENVIRON)
    for folder in ("/no/such", "x" * 300):
        assert listed_clash(flow.path, {"ONCEOVER_FLOWS": folder}) is None


@pytest.mark.parametrize("fault", [RecursionError, MemoryError, KeyError])
def test_what_nobody_foresaw_in_another_file_keeps_no_flow_from_being_read(
    write_flow: FlowWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
) -> None:
    """Its own reader tells what it is."""
    write_flow()
    odd = write_flow({"flow": "odd"}, name="odd")
    inner = files.ConfigKind.read

    def read(kind: files.ConfigKind, path: Path) -> Any:
        if path == odd:
            raise fault
        return inner(kind, path)

    monkeypatch.setattr(files.ConfigKind, "read", read)
    assert load_flow("orders-dr", environ={**ENVIRON, "ONCEOVER_FLOWS": str(tmp_path)}).flow == "orders-dr"


def test_files_without_a_valid_name_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They could not be typed: who lists all flows names them as broken, all but those that are hidden."""
    for name in (b"good.yaml", b"broken.yml", b"caf\xe9.yaml", b"._x.yaml", b"x.yaml.yaml", b"A b.yaml"):
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).write_text("flow: [")
    environ = {**ENVIRON, "ONCEOVER_FLOWS": str(tmp_path), "ONCEOVER_CONNECT": str(tmp_path)}
    expected = [tmp_path / "broken.yml", tmp_path / "good.yaml"]
    assert find_flow_files(environ) == expected
    assert not caplog.text, "a log about one flow is not flooded with other files"
    odd = {path.name for path in listed_flow_files(environ)} - {path.name for path in expected}
    assert odd == {"caf\udce9.yaml", "x.yaml.yaml", "A b.yaml"}
    with pytest.raises(UsageError, match=r"its name cannot be a flow's; rename it"):
        load_listed(tmp_path / "A b.yaml", environ)
    assert find_connect_files(environ) == expected
    assert len(caplog.records) == 1, "one line names all of them"
    assert r"'caf\udce9.yaml'" in caplog.text
    assert "'x.yaml.yaml'" in caplog.text
    assert "good" not in caplog.text
    assert caplog.text.isascii()
    with pytest.raises(UsageError, match='holds no flow file "A b"'):
        load_flow("A b", environ=environ)


def test_other_files_of_the_directory_are_looked_at_as_carefully(
    write_flow: FlowWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one of them holds, however deep, keeps nobody from checking another."""
    monkeypatch.setattr("os.environ", {**ENVIRON, "ONCEOVER_FLOWS": str(tmp_path)})
    flow = load_flow(write_flow())
    for number, text in enumerate(("x: " + "[" * 5_000, "x: &a [*a]", "- " * 5_000, "x: !!int ''", "[")):
        write_flow(text, name=f"odd-{number}")
    assert advise(flow, *resolve_clients(flow)) == []


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        ("@daily", 0),
        ("@weekly", 1),
        ("@monthly", 1),
        ("0 3 * * 1", 1),
        ("0 3 1,8,15,22 * *", 1),
        ("0 3 * * 1,4", 0),
        ("@continuous", 0),
        ("@once", 0),
        (None, 0),
    ],
)
def test_a_schedule_that_outlasts_positions_is_told(
    write_flow: FlowWriter, tmp_path: Path, schedule: str | None, told: int
) -> None:
    """Brokers forget a group that commits nothing for a week: each run would stop everywhere."""
    flow = load_flow(write_flow({"schedules": {"replicate": schedule}}), environ=ENVIRON)
    sentences = advise(flow, *resolve_clients(flow, environ=ENVIRON), {"ONCEOVER_FLOWS": str(tmp_path)})
    assert ["PROGRESS_MISSING" in each for each in sentences] == [True] * told


def test_a_directory_that_cannot_be_read_is_said_to_be_that(tmp_path: Path) -> None:
    """And not taken for an empty one; in Airflow it shows as an import error with this text."""
    unreadable = str(tmp_path / ("x" * 300))
    environ = {"ONCEOVER_FLOWS": unreadable, "ONCEOVER_CONNECT": unreadable}
    for variable, look in (
        ("ONCEOVER_FLOWS", lambda: find_flow_files(environ)),
        ("ONCEOVER_FLOWS", lambda: load_flow("x", environ=environ)),
        ("ONCEOVER_CONNECT", lambda: find_connect_files(environ)),
    ):
        with pytest.raises(UsageError, match=rf"cannot be read \(.*set {variable} to another one"):
            look()


@pytest.mark.parametrize("name", ["gone", "file"])
def test_a_directory_that_is_named_and_is_none_is_not_taken_for_an_empty_one(
    tmp_path: Path, name: str
) -> None:
    """A name that was mistyped, a mount that is gone: without files ``status`` would say that all is well."""
    (tmp_path / "file").write_text("")
    environ = {variable: str(tmp_path / name) for variable in ("ONCEOVER_FLOWS", "ONCEOVER_CONNECT")}
    for variable, look in (
        ("ONCEOVER_FLOWS", lambda: find_flow_files(environ)),
        ("ONCEOVER_FLOWS", lambda: listed_flow_files(environ)),
        ("ONCEOVER_FLOWS", lambda: load_flow("x", environ=environ)),
        ("ONCEOVER_CONNECT", lambda: find_connect_files(environ)),
    ):
        with pytest.raises(UsageError, match=rf"{name}: {variable} names it, and it is no directory"):
            look()


def test_a_flow_that_is_named_by_its_path_is_checked_without_the_directory(
    write_flow: FlowWriter, tmp_path: Path
) -> None:
    """Who has it nowhere else needs none; that nothing was compared is told."""
    environ = {**ENVIRON, "ONCEOVER_FLOWS": str(tmp_path / "gone")}
    flow = load_flow(write_flow(), environ=environ)
    (told,) = advise(flow, *resolve_clients(flow, environ=environ), environ)
    assert told.startswith(
        f"it is compared with no other flow file: {tmp_path}/gone: ONCEOVER_FLOWS names it"
    )


def test_an_absent_directory_that_nobody_named_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As beside an installed wheel; the way out is not to put files into that."""
    monkeypatch.setattr("onceover.__file__", str(tmp_path / "onceover" / "__init__.py"))
    assert find_flow_files({}) == []
    with pytest.raises(
        UsageError, match=r'holds no flow file "x"; name .* by its path, or set ONCEOVER_FLOWS'
    ):
        load_flow("x", environ={})


def test_a_stem_of_a_file_where_one_stands_names_its_path(
    write_flow: FlowWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stems are those of the flows directory, which the folder of the shell mostly is not."""
    monkeypatch.chdir(write_flow(name="mine").parent)
    (tmp_path / "flows").mkdir()
    with pytest.raises(UsageError, match=r"name it by its path: \./mine\.yaml"):
        load_flow("mine", environ={"ONCEOVER_FLOWS": str(tmp_path / "flows")})


def test_the_shipped_flow_is_in_order() -> None:
    """The demo's flow loads with its two variables."""
    flow = load_flow("flights-dr", environ={"ONCEOVER_EAST": "h:1", "ONCEOVER_WEST": "h:2"})
    assert (flow.flow, flow.source.alias, flow.target.alias) == ("flights-dr", "east", "west")
    assert flow.path.parent == flows_dir({})


def test_homes_do_not_depend_on_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers run in other directories than the driver, and people in several shells."""
    monkeypatch.chdir(tmp_path)
    assert onceover_home({}) == Path(__file__).parents[3] / "var"
    assert onceover_home({"ONCEOVER_HOME": "here"}) == tmp_path / "here"
    assert run_dir("orders-dr", {"ONCEOVER_HOME": str(tmp_path)}) == tmp_path / "orders-dr"


@pytest.fixture
def embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that `clusters up` leaves, in a process that has none of its variables."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path))
    for name in EMBEDDED_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / ENVIRONMENT_FILE
    path.parent.mkdir()
    path.write_text(render_environment({"ONCEOVER_EAST": "h:1", "ONCEOVER_WEST": "h:2"}))
    return path


def test_embedded_clusters_are_found_from_any_shell(embedded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file says what the environment does not; what is set there wins."""
    client = load_flow("flights-dr").target.client
    assert client is not None
    assert substitute(client, variables()) == {"bootstrap.servers": "h:2"}
    monkeypatch.setenv("ONCEOVER_WEST", "mine:9")
    assert substitute(client, variables()) == {"bootstrap.servers": "mine:9"}
    assert "ONCEOVER_EAST" not in variables({})
    embedded.unlink()
    with pytest.raises(UsageError, match=r"ONCEOVER_EAST is not set; .*make up.*export ONCEOVER_EAST="):
        load_flow("flights-dr")


def test_unreadable_variables_are_an_error_that_shows_nothing_of_them(embedded: Path) -> None:
    """Going on without them would only say that they are not set."""
    embedded.write_bytes(b"ONCEOVER_EAST=secret\xff")
    with pytest.raises(UsageError, match="cannot be read") as caught:
        load_flow("flights-dr")
    assert caught.value.where == str(embedded)
    assert "secret" not in repr(caught.value.as_dict())


@pytest.mark.parametrize("kind", ["damaged", "folder"])
def test_unreadable_variables_fail_only_who_needs_one(
    embedded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Other flows, and the lists that DAG files are made of, go on."""
    if kind == "folder":
        embedded.unlink()
        embedded.mkdir()
    else:
        embedded.write_bytes(b"ONCEOVER_EAST=\xff")
    for variable in ("ONCEOVER_FLOWS", "ONCEOVER_CONNECT"):
        monkeypatch.delenv(variable, raising=False)
    assert "flights-dr" in [path.stem for path in find_flow_files()]
    assert "AIRFLOW_CONN_EAST" not in variables()
    other = tmp_path / "environment.yaml"
    other.write_text((flows_dir() / "flights-dr.yaml").read_text())
    for name, address in (
        ("flights-dr", "environment"),
        ("${ONCEOVER_EAST}", "h:1"),
        ("${ONCEOVER_WEST}", "h:2"),
    ):
        other.write_text(other.read_text().replace(name, address))
    assert load_flow(other).flow == "environment"
    with pytest.raises(UsageError, match="cannot be read"):
        load_flow("flights-dr")


def test_run_folder_of_any_flow_leaves_the_variables_alone(embedded: Path) -> None:
    """A flow may be called like the file."""
    run_dir("environment").mkdir()
    assert variables()["ONCEOVER_EAST"] == "h:1"


@pytest.mark.parametrize("value", [0, -2, 16, True, "x"])
def test_replication_factor_is_a_number_of_brokers_or_the_clusters_own(value: object) -> None:
    """And nothing else that looks like one."""
    assert values.replication_factor(-1) == values.replication_factor("-1") == -1
    with pytest.raises(Invalid):
        values.replication_factor(value)
