"""Each way to get a flow file wrong is answered by one line with file, key and fix, and no secret."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from onceover.config.faults import BadConfig
from onceover.config.flow.load import load_flow
from tests.unit.config.bad_flows import ONE_FAULT
from tests.unit.config.conftest import ENVIRON, SECRET, FlowWriter


@pytest.mark.parametrize(
    ("changes", "key", "problem", "fix"), [c[1:] for c in ONE_FAULT], ids=[c[0] for c in ONE_FAULT]
)
def test_one_fault_gives_one_line_with_file_key_and_fix(
    write_flow: FlowWriter, changes: dict[str, Any], key: str, problem: str, fix: str
) -> None:
    """One mistake, one line: where, which key, what is wrong, what to do; exit code 2."""
    path = write_flow(changes)
    error = _error(path)
    assert [fault.key for fault in error.faults] == [key]
    line = str(error)
    assert line.startswith(f"{path}:{error.faults[0].line}: {key}: ")
    assert problem in line
    assert fix in error.faults[0].fix
    assert "\n" not in line
    assert error.exit_code == 2
    assert SECRET not in repr((error, error.args, error.as_dict(), error.__cause__, error.__context__))


@pytest.mark.parametrize("key", ["flow", "source", "target", "topics"])
def test_a_missing_key_is_named_with_an_example(write_flow: FlowWriter, key: str) -> None:
    """Required keys are the four of the smallest file."""
    text = write_flow().read_text()
    keep, skip = [], False
    for line in text.splitlines():
        skip = line.startswith(f"{key}:") if not line.startswith((" ", "-")) else skip
        keep += [] if skip else [line]
    error = _error(write_flow("\n".join(keep)))
    assert [str(fault) for fault in error.faults] == [str(error)]
    assert f": {key}: is required; e.g. {key}:" in str(error)


# Each lets another of Python's own errors out of PyYAML.
MISFITS = [
    ("!!int", ""),
    ("!!int", SECRET),
    ("!!float", ""),
    ("!!bool", SECRET),
    ("!!timestamp", SECRET),
    ("!!binary", "\u00e4"),
]
TEXTS = [
    ("not YAML", f"flow: [{SECRET}", "not valid YAML"),
    ("braces", "a: {b: ${EAST}}", "not valid YAML"),
    ("tab", f"a:\n\t{SECRET}: 1", "; indent it with blanks, not with tabs"),
    ("tab behind blanks", f"a:\n  b: 1\n \t{SECRET}: 1", "; indent it with blanks, not with tabs"),
    ("two documents", f"a: 1\n---\na: {SECRET}", "; keep one document in the file, without ---"),
    ("unquoted star", f"password: *{SECRET}", "anchors and aliases"),
    ("unknown tag", f"flow: !{SECRET} x", "cannot be read"),
    ("escape beyond Unicode", f'a: "{SECRET}\\U00110000"', "not valid YAML"),
    ("escape beyond any number", f'a: "{SECRET}\\UFFFFFFFF"', "not valid YAML"),
    *((f"tag {tag}", f'flow: {tag} "{value}"', "cannot be read") for tag, value in MISFITS),
    ("list", f"- {SECRET}", "expected keys"),
    ("nothing", "", "expected keys"),
    ("control character", f"flow: {SECRET}\x00", "not valid YAML"),
    ("list as key", f"[{SECRET}]: 1", "a key is not a text"),
    ("nested too deeply", "[" * 5000, "nested too deeply"),
    (
        "no blank after the colon",
        f"source: {{client: {{sasl.password:{SECRET}}}}}",
        "sasl.password…: not a client",
    ),
    (
        "no blank, twice",
        f"{{password:{SECRET}: 1, password:{SECRET}: 2}}",
        "password…: the key is given twice",
    ),
    ("twice", f"lanes: 1\nlanes: {SECRET}", "given twice"),
]


@pytest.mark.parametrize(("text", "problem"), [t[1:] for t in TEXTS], ids=[t[0] for t in TEXTS])
def test_text_that_is_no_flow_file_is_refused_without_repeating_it(
    write_flow: FlowWriter, text: str, problem: str
) -> None:
    """The parser's own words would quote the text, which may hold a password."""
    error = _error(write_flow(text))
    assert problem in str(error)
    assert SECRET not in repr((str(error), error.as_dict(), error.__cause__, error.__context__))


def test_a_file_that_is_no_text_goes_along_with_no_error(tmp_path: Path) -> None:
    """Python's own error holds all of it."""
    path = tmp_path / "orders.yaml"
    path.write_bytes(SECRET.encode() + b"\xff")
    error = _error(path)
    assert "is not UTF-8 text" in str(error)
    assert SECRET not in repr((error.__cause__, error.__context__))


def test_of_a_value_that_cannot_be_read_nothing_else_is_told(write_flow: FlowWriter) -> None:
    """It was null to what looked at it next, which said so."""
    error = _error(write_flow("flow: f\nlanes: 010"))
    assert ["base 8" in fault.problem for fault in error.faults if fault.key == "lanes"] == [True]


def test_a_key_with_line_breaks_stays_in_one_line(write_flow: FlowWriter) -> None:
    """One fault, one line: also on a terminal that obeys control characters."""
    error = _error(write_flow('{"a\\nb": 1, flow: "x\\n\\e[2J"}'))
    assert len(str(error).splitlines()) == len(error.faults)
    assert "\x1b" not in str(error)


def test_all_faults_come_at_once_in_the_order_of_the_file(write_flow: FlowWriter) -> None:
    """Mistakes of every layer are found in one run, one line each, none of them twice."""
    text = f"""flow: Bad_Name
source: {{alias: east, client: {{bootstrap.servers: "a", sasl.password: {SECRET}, acks: 1}}}}
target: {{alias: east, client: {{bootstrap.servers: "${{NOPE}}"}}, connection: kafka_target}}
topics: {{include: [], start: "timestamp:2026-01-01"}}
lane: 3
lanes: 0
handler: no-function
state: 5
"""
    error = _error(write_flow(text))
    assert [(fault.line, fault.key) for fault in error.faults] == [
        (1, "flow"),
        (2, "source.client.acks"),
        (2, "source.client.bootstrap.servers"),
        (2, "source.client.sasl.password"),
        (3, "target.alias"),
        (3, "target.client.bootstrap.servers"),
        (3, "target.connection"),
        (4, "topics.include"),
        (4, "topics.start"),
        (5, "lane"),
        (6, "lanes"),
        (7, "handler"),
        (8, "state"),
    ]
    assert str(error).count("\n") == 12
    assert SECRET not in str(error)


def test_values_from_the_environment_are_never_repeated(write_flow: FlowWriter) -> None:
    """A message shows what the file says, ${PASSWORD}, not what the variable holds."""
    error = _error(
        write_flow({"lanes": "${PASSWORD}", "flow": "${PASSWORD} x", "topics": {"start": "${PASSWORD}"}})
    )
    assert len(error.faults) == 3
    assert "seen ${PASSWORD}" in str(error)
    assert SECRET not in str(error)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"topics": {"include": ["${PASSWORD} "]}}, "begins or ends with spaces"),
        ({"topics": {"exclude": ["(?P=${PASSWORD_NAME})"]}}, "unknown group name at position"),
        ({"topics": {"exclude": ["(?P<${PASSWORD_NAME}>a)(?P<${PASSWORD_NAME}>b)"]}}, "redefinition of"),
        ({"topics": {"include": [".*"]}, "on_bad_record": "dead_letter:${PASSWORD}"}, "seen dead_letter:${"),
        ({"canary": {"interval": "5s", "topic": "${PASSWORD}"}}, "no topic that the flow copies, seen ${"),
    ],
)
def test_nor_are_they_where_only_a_part_of_them_is_wrong(
    write_flow: FlowWriter, changes: dict[str, Any], words: str
) -> None:
    """Whoever mistakes one variable for another."""
    name = SECRET.replace("-", "_")
    with pytest.raises(BadConfig) as raised:
        load_flow(write_flow(changes), environ={**ENVIRON, "PASSWORD_NAME": name})
    shown = repr((str(raised.value), raised.value.as_dict(), raised.value.__context__))
    assert words in shown
    assert SECRET not in shown and name not in shown


def test_no_words_of_the_library_reach_the_user(write_flow: FlowWriter) -> None:
    """Wrong types everywhere are still answered in our words."""
    wrong = dict.fromkeys(
        ("transaction", "limits", "groups", "state", "spark", "schedules", "objectives", "source"), 7
    )
    error = _error(write_flow({**wrong, "handler_args": 7, "delivery": ["x"], "handler": {}}))
    assert len(error.faults) == 11
    assert not [
        word for word in ("pydantic", "Input should", "model", "dictionary", "type=") if word in str(error)
    ]


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    """The path is part of the message."""
    with pytest.raises(BadConfig, match=r"no\.yaml: cannot be read: No such file"):
        load_flow(tmp_path / "no.yaml")
    with pytest.raises(BadConfig, match=r"cannot be read: Is a directory"):
        load_flow(tmp_path)


def test_the_error_survives_pickling(write_flow: FlowWriter) -> None:
    """Spark carries errors between processes."""
    error = _error(write_flow({"lanes": 0}))
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (str(copy), copy.faults, copy.as_dict()) == (str(error), error.faults, error.as_dict())


def _error(path: Path) -> BadConfig:
    with pytest.raises(BadConfig) as raised:
        load_flow(path, environ=ENVIRON)
    return raised.value
