"""The house as a whole: no module imports itself in a circle, and what texts point at is there."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

PROJECT: Final = Path(__file__).parents[2]
CODE: Final = PROJECT / "include"
_CITED: Final = re.compile(r"\b((?:tests|docs|dags|plugins|spark_jobs|include)/[\w/.-]+\.(?:py|md))\b")
# A module of ours, from its room on, and perhaps something in it.
_DOTTED: Final = re.compile(r"``((?:onceover\.)?[a-z_]+(?:\.[A-Za-z_]+)+)``")
_A_USERS_OWN: Final = ("include/flows/", "include/connect/", "include/my_")
# Rare abbreviations of a document that a reader does not have.
_FOREIGN: Final = re.compile(r"\b(?:DESIGN|FACTS) \d|\b[Mm]odel:? M[0-9a-z]\b")


def modules() -> dict[str, Path]:
    """Return all modules of the product and what is beside it, by name."""
    found = {}
    for path in sorted(CODE.rglob("*.py")):
        parts = path.relative_to(CODE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def parsed(path: Path) -> ast.Module:
    """Return what a module says; several look at all of them."""
    return ast.parse(path.read_text())


def imported(tree: ast.Module, known: dict[str, Path]) -> Iterator[str]:
    """Yield what a module imports, when it is loaded or later, in a function: both are needed to read it."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.expr) or _for_types_only(node):
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.ImportFrom) and node.module in known:
            below = [f"{node.module}.{each.name}" for each in node.names]
            yield from (each if each in known else node.module for each in below)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)


def _for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def test_no_module_imports_itself_in_a_circle() -> None:
    """import-linter knows the layers of packages; inside a room nothing else would notice."""
    known = modules()
    graph = {name: set(imported(parsed(path), known)) - {name} for name, path in known.items()}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from error
    assert len(order) >= len(known) > 500


def test_the_picture_of_the_house_is_of_this_house() -> None:
    """Drawn anew from the imports it is what docs/ shows; if not: .venv/bin/python scripts/draw_house.py"""
    drawn = runpy.run_path(str(PROJECT / "scripts" / "draw_house.py"))["picture"]()
    assert (PROJECT / "docs" / "house.svg").read_text() == drawn


def test_the_picture_of_a_records_way_is_of_this_code() -> None:
    """Each step is there and called; if not: .venv/bin/python scripts/draw_way.py"""
    script = runpy.run_path(str(PROJECT / "scripts" / "draw_way.py"))
    assert (PROJECT / "docs" / "way.svg").read_text() == script["picture"]()
    step, told = script["Step"], script["told"]
    for gone, why in (
        (step("copy/loop.py", "CopyLoop.fly", 0), "has no"),
        (step("clock.py", "now_ms", 1), "call"),
    ):
        with pytest.raises(LookupError, match=why):
            list(told((step("spark/query.py", "start_query", 0), gone)))


def texts() -> Iterator[tuple[Path, str]]:
    """Yield what people read: code, tests and documents."""
    for folder in ("include", "tests", "dags", "plugins", "spark_jobs", "docs"):
        for pattern in ("*.py", "*.md", "*.yaml"):
            for path in sorted((PROJECT / folder).rglob(pattern)):
                yield path.relative_to(PROJECT), path.read_text()


def test_what_texts_point_at_is_there() -> None:
    """Files move; who is sent to one should find it."""
    missing = {
        f"{path}: {cited}"
        for path, text in texts()
        for cited in _CITED.findall(text)
        if not (PROJECT / cited).exists() and not cited.startswith(_A_USERS_OWN)
    }
    assert missing == set()


def test_what_code_names_of_our_modules_is_there() -> None:
    """What begins with a room within a room, or a module of a room, is one, or stands in one."""
    known = {name.removeprefix("onceover."): path for name, path in modules().items()}
    found, missing = 0, set()
    for path in modules().values():
        for cited in _DOTTED.findall(path.read_text()):
            name = cited.removeprefix("onceover.")
            if ".".join(name.split(".")[:2]) not in known:
                continue
            found += 1
            module, _, inside = name.rpartition(".")
            if name not in known and not re.search(rf"\b{inside}\b", text_of(known.get(module))):
                missing.add(f"{path.relative_to(PROJECT)}: {cited}")
    assert missing == set()
    assert found > 20


def text_of(path: Path | None) -> str:
    """Return what is in a file, nothing where there is none."""
    return "" if path is None else path.read_text()


def test_nothing_cites_what_a_stranger_does_not_have() -> None:
    """Guarantees, facts and the protocol are in docs/."""
    this = Path(__file__).relative_to(PROJECT)
    found = {f"{path}: {match}" for path, text in texts() if path != this for match in _FOREIGN.findall(text)}
    assert found == set()


def public_classes() -> Iterator[tuple[str, str]]:
    """Yield every public class of a module by its name, and the module."""
    for module, path in modules().items():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, module


def test_a_public_class_name_stands_for_one_thing() -> None:
    """Who reads a name has not to look which of several is meant, nor who searches for it."""
    found: dict[str, list[str]] = {}
    for name, module in public_classes():
        found.setdefault(name, []).append(module)
    assert len(found) > 500
    assert {name: where for name, where in found.items() if len(where) > 1} == {}


def _threads(tree: ast.AST) -> Iterator[str]:
    """Yield the names, and those of attributes, that threads of our own are given."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not ast.unparse(node.value).startswith("threading.Thread("):
            continue
        yield from (ast.unparse(target) for target in node.targets)


def test_threads_are_begun_where_it_is_told_that_none_is_to_be_had() -> None:
    """By ``planning.background.begin``: Thread.start raises what nobody takes for passing."""
    started = {
        f"{name}:{node.lineno}"
        for name, path in modules().items()
        if name.startswith("onceover.") and "threading.Thread(" in path.read_text()
        for tree in [parsed(path)]
        for threads in [{"threading.Thread(", *_threads(tree)}]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(".start")
        and any(ast.unparse(node.func).removesuffix(".start").startswith(each) for each in threads)
    }
    assert started == set()
