"""``flow check`` and ``flow import`` as the command line calls them."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from onceover.cli.commands import flow as command
from onceover.cli.parsing import build_parser
from onceover.cli.terminal.output import CommandResult
from onceover.config.faults import BadConfig
from onceover.errors import UsageError
from onceover.wiring import flows
from tests.unit.config.conftest import ENVIRON, SECRET, FlowWriter
from tests.unit.config.test_mm2 import FULL


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The commands read the process's environment."""
    for name, value in {**ENVIRON, "ONCEOVER_FLOWS": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)


def _run(*arguments: str) -> CommandResult:
    args = build_parser().parse_args(["flow", *arguments])
    result = args.work.load()(args)
    assert isinstance(result, CommandResult)
    assert SECRET not in result.text + json.dumps(result.document)
    return result


def test_check_makes_the_handler_as_the_workers_do(write_flow: FlowWriter) -> None:
    """A handler that cannot be loaded is found before anything runs; arguments are resolved, not shown."""
    args = {"fields": ["card"], "replacement": "${PASSWORD}"}
    write_flow({"handler": "onceover.handlers.mask:MaskFields", "handler_args": args})
    assert _run("check", "orders-dr").document["handler"] == "onceover.handlers.mask:MaskFields"
    write_flow({"handler": "onceover.handlers.mask:MaskField"})
    with pytest.raises(UsageError, match=r"has no MaskField.*one of .*MaskFields"):
        _run("check", "orders-dr")
    write_flow()
    with pytest.raises(UsageError, match="a sample needs a handler"):
        _run("check", "orders-dr", "--sample", "3")


def test_check_warns_of_secrets_among_the_arguments(write_flow: FlowWriter) -> None:
    """A reference is resolved where it is used; a literal would travel as a Spark option."""
    name = "tests.unit.handlers.samples:Keyed"
    write_flow({"handler": name, "handler_args": {"api_key": "${PASSWORD}"}})
    assert not [w for w in _run("check", "orders-dr").document["warnings"] if "handler_args" in w]
    write_flow({"handler": name, "handler_args": {"api_key": "literal"}})
    [warning] = [w for w in _run("check", "orders-dr").document["warnings"] if "handler_args" in w]
    assert warning.startswith("handler_args.api_key looks like a secret") and "literal" not in warning


def test_check_reports_the_flow_and_what_deserves_a_second_look(write_flow: FlowWriter) -> None:
    """Clusters, lanes and warnings, secrets as ***."""
    client = {
        "bootstrap.servers": "k1:1,k2:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "${PASSWORD}",
    }
    write_flow({}, "another")
    spark = {"master": "spark://h:7077"}
    path = write_flow({"target": {"client": client}, "spark": spark, "state": {"replication_factor": 1}})
    result = _run("check", "orders-dr")
    document = result.document
    assert (document["flow"], document["path"], document["lanes"]) == ("orders-dr", str(path), 2)
    assert document["source"] == {
        "alias": "east",
        "from": "client",
        "client": {"bootstrap.servers": ENVIRON["EAST"]},
    }
    assert document["target"]["client"]["sasl.password"] == "***"
    expected = (
        "executors of spark://h:7077",
        "unencrypted",
        "executors of",
        "replication_factor is 1",
        "is called orders-dr",
    )
    assert [words in text for words, text in zip(expected, document["warnings"], strict=True)] == [True] * 5
    assert result.exit_code == 0
    assert f"orders-dr: in order ({path})" in result.text


def test_a_file_of_any_kind_costs_no_other_its_check(write_flow: FlowWriter, tmp_path: Path) -> None:
    """Each is answered for by its own check."""
    write_flow()
    (tmp_path / "deep.yaml").write_text(f"x: {'[' * 5_000}")
    (tmp_path / "odd.yaml").write_bytes(b"\xff")
    (tmp_path / "beyond.yaml").write_text('x: "\\Uffffffff"')
    (tmp_path / "tagged.yaml").write_text("flow: !!timestamp soon\nx: !!bool maybe")
    assert _run("check", "orders-dr").document["flow"] == "orders-dr"


def test_check_of_an_ordinary_flow_has_no_warning(write_flow: FlowWriter) -> None:
    """The near miss: nothing to say about a flow that is in order."""
    write_flow()
    assert _run("check", "orders-dr").document["warnings"] == []


@pytest.mark.parametrize(("naming", "warned"), [("identity", True), ("prefix", False)])
def test_check_warns_of_a_flow_in_the_other_direction(
    write_flow: FlowWriter, naming: str, warned: bool
) -> None:
    """With identity naming on both sides records would go round."""
    back = {
        "flow": "back",
        "source": {"alias": "west", "client": {"bootstrap.servers": "${WEST}"}},
        "target": {"alias": "east", "client": {"bootstrap.servers": "${EAST}"}},
        "topics": {"naming": naming},
    }
    other = write_flow(back, "back")
    write_flow()
    warnings = _run("check", "orders-dr").document["warnings"]
    assert [str(other) in w and "naming: prefix in both" in w for w in warnings] == [True] * warned


@pytest.mark.parametrize("naming", ["identity", "prefix"])
@pytest.mark.parametrize(
    ("aliases", "servers", "warned"),
    [
        (("west", "east"), ("${WEST}", "${EAST}"), []),
        (
            ("w1", "e1"),
            ("${WEST}", "${EAST}"),
            ["w1, this file calls it west", "e1, this file calls it east"],
        ),
        (("west", "e1"), ("${WEST}", "other:1,${EAST}"), ["e1, this file calls it east"]),
        (("w1", "e1"), ("other:1", "other:2"), []),
        (("w1", "e1"), ("${WEST}", "${NO_SUCH_VARIABLE}"), []),
    ],
    ids=["alike", "differently", "one of its servers", "other clusters", "not in order"],
)
def test_check_warns_of_files_that_call_a_cluster_differently(
    write_flow: FlowWriter, naming: str, aliases: tuple[str, str], servers: tuple[str, str], warned: list[str]
) -> None:
    """By the servers that both files name, whatever their variables are called."""
    source, target = (
        {"alias": alias, "client": {"bootstrap.servers": named}}
        for alias, named in zip(aliases, servers, strict=True)
    )
    back = {"flow": "back", "source": source, "target": target, "topics": {"naming": naming}}
    other = write_flow(back, "back")
    write_flow({"topics": {"naming": "prefix"}})
    warnings = _run("check", "orders-dr").document["warnings"]
    assert [str(other) in w and words in w for w, words in zip(warnings, warned, strict=True)] == (
        [True] * len(warned)
    )


@pytest.mark.parametrize(
    ("naming", "end", "warned"),
    [("identity", "east", True), ("prefix", "east", False), ("identity", "south", False)],
)
def test_check_warns_of_flows_that_make_a_ring(
    write_flow: FlowWriter, naming: str, end: str, warned: bool
) -> None:
    """Whose files are named in their order; one that renames, or leads elsewhere, closes none."""
    servers = "127.0.0.1:9"
    on, home = (
        write_flow(
            {
                "flow": name,
                "source": {"alias": source, "client": {"bootstrap.servers": servers}},
                "target": {"alias": target, "client": {"bootstrap.servers": servers}},
                "topics": {"naming": naming if name == "home" else "identity"},
            },
            name,
        )
        for name, source, target in (("on", "west", "north"), ("home", "north", end))
    )
    write_flow()
    warnings = _run("check", "orders-dr").document["warnings"]
    assert [w.startswith(f"{on}, {home} copy back") for w in warnings] == [True] * warned


def test_check_explains_topics(write_flow: FlowWriter) -> None:
    """In or out, the pattern that decides, and the name on the target."""
    write_flow({"topics": {"include": ["orders.*"], "exclude": [".*-tmp"]}})
    result = _run("check", "orders-dr", "--explain", "orders", "--explain", "orders-tmp", "--explain", "x")
    assert [(t["topic"], t["in"], t["reason"]) for t in result.document["topics"]] == [
        ("orders", True, "include: orders.*"),
        ("orders-tmp", False, "exclude: .*-tmp"),
        ("x", False, "no include pattern matches"),
    ]
    assert "topic orders: in, as orders (include: orders.*)" in result.text
    assert "topic orders-tmp: out (exclude: .*-tmp)" in result.text


def test_check_that_is_asked_about_one_topic_connects_to_nothing(
    write_flow: FlowWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only ``--explain`` without a topic reads the source."""
    monkeypatch.setattr(flows, "open_clusters", lambda _: pytest.fail("it connects"))
    write_flow()
    assert [t["topic"] for t in _run("check", "orders-dr", "--explain", "x").document["topics"]] == ["x"]


def test_check_refuses_a_connection_that_cannot_be_read(write_flow: FlowWriter) -> None:
    """Loading a flow does not open Connections; checking it does."""
    write_flow({"target": {"client": None, "connection": "nowhere"}})
    with pytest.raises(BadConfig, match="AIRFLOW_CONN_NOWHERE is not set"):
        command.check("orders-dr")


def test_import_writes_the_files_and_says_what_is_left(tmp_path: Path) -> None:
    """Files, notes, untranslated settings and what the check still wants."""
    source = tmp_path / "mm2.properties"
    source.write_text(FULL)
    result = _run("import", str(source), "--out", str(tmp_path / "new"))
    written = tmp_path / "new" / "east-to-west.yaml"
    assert [path.name for path in written.parent.iterdir()] == ["east-to-west.yaml"]
    assert result.document["files"] == [str(written)]
    assert SECRET not in written.read_text()
    assert "ONCEOVER_EAST_SASL_PASSWORD is not set" in result.document["left_to_do"][0]
    assert f"wrote {written}" in result.text
    assert "without counterpart:" in result.text


def test_import_replaces_nothing_unless_told_to(tmp_path: Path) -> None:
    """A flow file may have been edited since."""
    source = tmp_path / "mm2.properties"
    source.write_text(FULL)
    edited = tmp_path / "east-to-west.yaml"
    edited.write_text("edited")
    with pytest.raises(BadConfig, match=r"exists already; .*--force"):
        _run("import", str(source))
    assert edited.read_text() == "edited"
    _run("import", str(source), "--force")
    assert "flow: east-to-west" in edited.read_text()


@pytest.mark.parametrize("fault", ["a directory", "a full disk"])
def test_import_writes_all_files_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Also with --force: of two flows one would be new and the other missing."""
    source, out = tmp_path / "mm2.properties", tmp_path / "new"
    source.write_text(f"{FULL}west->east.enabled = true\n")
    out.mkdir()
    (out / "east-to-west.yaml").write_text("edited")
    if fault == "a directory":
        (out / "west-to-east.yaml").mkdir()
    else:
        room = iter([True])

        def write(path: Path, text: str, **_: str) -> int:
            if not next(room, False):
                raise OSError(errno.ENOSPC, "No space left on device")
            return path.write_bytes(text.encode())

        monkeypatch.setattr(Path, "write_text", write)
    with pytest.raises(BadConfig, match=r"is a directory|No space left"):
        _run("import", str(source), "--out", str(out), "--force")
    assert [each.read_text() for each in out.iterdir() if each.is_file()] == ["edited"]


def test_import_of_an_unreadable_file_names_it(tmp_path: Path) -> None:
    """Missing, no text at all, or without an end: the machine's memory was what ended a device's reading."""
    (tmp_path / "bytes").write_bytes(b"\xff")
    with (tmp_path / "large").open("wb") as large:
        large.truncate(2**20 + 1)
    for name, words in (
        ("gone", "No such file"),
        ("bytes", "is not UTF-8 text"),
        ("large", "is larger than 1 MiB"),
    ):
        with pytest.raises(BadConfig, match=f"{name}: .*{words}"):
            command.import_(tmp_path / name, tmp_path)
