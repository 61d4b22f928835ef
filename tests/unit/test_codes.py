"""Every code is listed once, written as a member of its list, and explained on the page that is its own."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from onceover import errors
from onceover.audit.model import FindingKind, Reason
from onceover.codes import Code
from onceover.connectors.codes import ConnectorCode
from onceover.errors import OnceoverError
from onceover.groups.codes import GroupCode
from onceover.kafka.link.connection import ConnectionLost
from onceover.stops.codes import StopCode
from onceover.topics.codes import TopicCode

PROJECT: Final = Path(__file__).parents[2]
PRODUCT: Final = [
    path for name in ("onceover", "onceover_airflow") for path in PROJECT.glob(f"include/{name}")
]
SOURCES: Final = sorted(path for folder in PRODUCT for path in folder.rglob("*.py"))
PAGES: Final = {page.name: page.read_text() for page in sorted((PROJECT / "docs").glob("*.md"))}
# Where the codes of a list are explained; all others are on the page that has no other subject.
EXPLAINED: Final[dict[type[Code], str]] = {
    StopCode: "operations.md",
    TopicCode: "operations.md",
    GroupCode: "groups.md",
    ConnectorCode: "connectors.md",
}
CODE: Final = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
# What is written like a code and is none: words of Kafka and Spark, variables of the environment.
KAFKAS: Final = re.compile(
    r"(ALTER|DESCRIBE)_CONFIGS|IDEMPOTENT_WRITE|BROKER_LOGGER|CONCURRENT_TRANSACTIONS|SASL_(PLAINTEXT|SSL)"
)
VARIABLES: Final = re.compile(
    r"(ONCEOVER|OTEL)_\w+|LC_ALL|NO_COLOR|CONNECT_PASSWORD|PYSPARK_PYTHON|PYTEST_ARGS"
    r"|SPARK_(DAEMON_JAVA_OPTS|HOME|CONF_DIR)"
)
# A flow file's reference to a variable, of any name.
_REFERENCE: Final = re.compile(r"\$\{\w+\}")
# Its codes name the rules of the model, and a test of its own goes over them.
MODEL: Final = "protocol.md"


def lists() -> list[type[Code]]:
    """Return all lists of codes, from where they have to be."""
    modules = [".".join(path.relative_to(PROJECT / "include").with_suffix("").parts) for path in SOURCES]
    for module in modules:
        if module.endswith(".codes"):
            importlib.import_module(module)
    return sorted(Code.__subclasses__(), key=lambda each: each.__module__)


LISTS: Final = lists()
MEMBERS: Final = [member for each in LISTS for member in each]


def rows(text: str, heading: str = "") -> Iterator[list[str]]:
    """Yield the cells of each row of a page's tables whose first column is called ``heading``, or of all."""
    inside = False
    for before, line in zip(["", *text.splitlines()], text.splitlines(), strict=False):
        if line.startswith("|") and not before.startswith("|"):
            inside = line.startswith(f"| {heading} |" if heading else "|")
        elif line.startswith("|") and inside and not line.startswith("|--"):
            yield line.strip("|").split("|")


def told(each: type[Code]) -> set[str]:
    """Return the words of the rows that can explain a list's codes."""
    page = EXPLAINED.get(each, "codes.md")
    # In the table of groups a code is what is decided, not what is seen.
    cells = (
        [cell for row in rows(PAGES[page]) for cell in row]
        if page == "groups.md"
        else [row[0] for row in rows(PAGES[page], "code")]
    )
    return {word for cell in cells for word in re.findall(r"\w+", cell)}


def kinds() -> set[str]:
    """Return the names of errors: of one without a code of its own its name is the code."""
    found = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    return {kind.__name__ for kind in found if issubclass(kind, OnceoverError)} | {ConnectionLost.__name__}


@cache
def trees() -> list[tuple[Path, ast.Module]]:
    """Return the product's code, without the lists themselves."""
    sources = (path for path in SOURCES if path.name != "codes.py")
    return [(path.relative_to(PROJECT), ast.parse(path.read_text())) for path in sources]


def test_there_are_lists_and_every_one_is_found() -> None:
    """Where nobody looks for one, none is."""
    assert len(LISTS) > 20 and len(MEMBERS) > 200
    strays = [
        f"{path}: {node.name}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Code" for base in node.bases)
    ]
    assert not strays


@pytest.mark.parametrize("each", LISTS, ids=lambda each: each.__name__)
def test_every_code_has_a_row_on_its_page(each: type[Code]) -> None:
    """In the table that is looked into when it is met."""
    missing = sorted(set(each) - told(each))
    assert not missing, f"docs/{EXPLAINED.get(each, 'codes.md')} lacks {', '.join(missing)}"


def test_no_page_tells_of_a_code_that_there_is_not() -> None:
    """Neither in a table of codes, nor in a sentence."""
    known = {*MEMBERS, *kinds(), *Reason, *FindingKind}
    named = {
        (page, word)
        for page, text in PAGES.items()
        for word in [
            *(word for row in rows(text, "code") for word in re.findall(r"[\w]+", row[0])),
            *(CODE.findall(_REFERENCE.sub("", text)) if page != MODEL else []),
        ]
        if not (KAFKAS.fullmatch(word) or VARIABLES.fullmatch(word))
    }
    unknown = sorted(f"{page}: {word}" for page, word in named if word not in known)
    assert not unknown, "\n".join(unknown)


def written(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield what a module's errors, refusals and notes are given as their codes."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="Refusal"), args=[_, code, *_]):
                yield code
            case ast.keyword(arg="code", value=code):
                yield code
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                yield from (v for k, v in pairs if isinstance(k, ast.Constant) and k.value == "code")


def test_no_code_is_written_as_a_text() -> None:
    """Where it is given, where it is compared with, nor put together of parts."""
    values = {member.value for member in MEMBERS}
    found = []
    for path, tree in trees():
        given = [part for code in written(tree) for part in ast.walk(code)]
        # Also a part of one, of which the whole is made: keys that a code is taken from are in small letters.
        texts = [part for part in given if isinstance(part, ast.Constant) and is_like_a_code(part.value)]
        # Of the words that are codes those with a line in them mean nothing else, wherever they are.
        texts += [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and node.value in values and CODE.fullmatch(node.value)
        ]
        found += [f"{path}:{text.lineno}: {text.value!r}" for text in texts if not is_reason(path)]
    assert not found, "\n".join(sorted(set(found)))


def is_like_a_code(value: object) -> bool:
    """Tell whether a constant is a code, or the beginning or end of one."""
    return isinstance(value, str) and (value in MEMBERS or re.fullmatch(r"[A-Z0-9_]+", value) is not None)


def is_reason(path: Path) -> bool:
    """Tell whether a module lists the words of an audit, some of which are codes elsewhere."""
    return path == Path("include/onceover/audit/model.py")


def test_every_code_is_given_somewhere() -> None:
    """One that nothing leads to any more goes, with its row. A stop may come as the error that it is of."""
    names = {each.__name__ for each in LISTS}
    given = {
        node.attr
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names
    }
    assert [member.name for member in MEMBERS if member.name not in given] == []
