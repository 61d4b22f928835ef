"""Every code that somebody who moves connectors can meet has a row that says what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from onceover import errors
from onceover.errors import OnceoverError
from onceover.kafka.link.connection import ConnectionLost

PROJECT = Path(__file__).parents[3]
CODE: Final = "include/onceover"
# What a command of connectors goes through.
SOURCES: Final = (
    "connectors/**/*.py",
    "wiring/connectors.py",
    "cli/commands/connectors.py",
    "config/connect*.py",
    "config/connect/workerfile.py",
    "kafka/cluster.py",
    "kafka/link/connection.py",
    "kafka/link/security.py",
    "kafka/admin/topics.py",
    "kafka/produce/deliveries.py",
    "kafka/groups/members.py",
    "kafka/admin/topicfacts.py",
    "planning/journal.py",
    "planning/approval.py",
    "state/log.py",
    "kafka/logs/between.py",
    "cli/terminal/output.py",
    "errors.py",
)
_RAISED: Final = {"code"}
_REFUSAL_CODE: Final = 1


@cache
def trees() -> list[ast.Module]:
    """Return the code that is meant."""
    paths = [path for pattern in SOURCES for path in sorted((PROJECT / CODE).glob(pattern))]
    return [ast.parse(path.read_text()) for path in paths]


def codes_in(tree: ast.Module) -> Iterator[str]:
    """Yield the codes that a module's errors and refusals are made with."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        given = [each.value for each in call.keywords if each.arg in _RAISED]
        if isinstance(call.func, ast.Name) and call.func.id == "Refusal":
            given += call.args[_REFUSAL_CODE : _REFUSAL_CODE + 1]
        for value in given:
            for each in ast.walk(value):
                match each:
                    case ast.Attribute(value=ast.Name(id=name), attr=code) if name.endswith("Code"):
                        yield code


def kinds() -> set[str]:
    """Return the names of errors: of one without a code of its own its name is the code."""
    found = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    return {kind.__name__ for kind in found if issubclass(kind, OnceoverError)} | {ConnectionLost.__name__}


def test_every_code_has_a_row() -> None:
    """In the first column of a table."""
    pages = [(PROJECT / "docs" / page).read_text() for page in ("connectors.md", "operations.md")]
    rows = {
        word
        for page in pages
        for line in page.splitlines()
        if line.startswith("| ")
        for word in re.findall(r"\w+", line.split("|")[1])
    }
    met = {code for tree in trees() for code in codes_in(tree)}
    assert len(met) > 50
    missing = sorted((met | kinds()) - rows - {"OnceoverError"})
    assert not missing, " ".join(missing)
