"""The pages in docs/: every link leads somewhere, and everything is found from one page."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from onceover.cli.parsing import build_parser, parse
from onceover.errors import UsageError

PROJECT: Final = Path(__file__).parents[2]
DOCS: Final = PROJECT / "docs"
START: Final = DOCS / "README.md"
PAGES: Final = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
COMMANDS: Final = runpy.run_path(str(PROJECT / "scripts" / "make_commands.py"))
PARSER: Final = build_parser()
_FENCED: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#{1,6} (.*)$", re.MULTILINE)
# A command in a shell's example to the end of its line, in a sentence to the end of its code.
_COMMAND: Final = re.compile(r"(?:^|[`\s/(])onceover ((?:[a-z-]+ ?)(?:[^`\n]*))", re.MULTILINE)
_IN_CODE: Final = re.compile(r"^(?:```.*?^```|(?: {4}.*\n)+)|`[^`]+`", re.MULTILINE | re.DOTALL)
_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


@cache
def prose(page: Path) -> str:
    """Return a page without its examples, in which nothing is a link or a heading."""
    return _FENCED.sub("", page.read_text())


@cache
def anchors(page: Path) -> set[str]:
    """Return what GitHub calls a page's headings; one that stands twice is numbered."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        number = 1
        while (unique := name if number == 1 else f"{name}-{number - 1}") in found:
            number += 1
        found.add(unique)
    return found


def links(page: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield every link to a file of ours: as it is written, the file, and the place in it."""
    for link in _LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link) is None:
            file, _, anchor = link.partition("#")
            yield link, (page.parent / file).resolve() if file else page, anchor


def test_every_link_leads_somewhere() -> None:
    """To a file that is there, and to a heading of that name in it."""
    dead = [
        f"{page.relative_to(PROJECT)}: {link}"
        for page in PAGES
        for link, file, anchor in links(page)
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file))
    ]
    assert dead == []
    assert sum(1 for page in PAGES for _ in links(page)) > 300


def test_every_page_is_two_links_from_the_start() -> None:
    """The start itself is linked from the top of README.md: three clicks to anything."""
    first = {file for _, file, _ in links(START)}
    reached = {START, *first} | {file for page in first & set(PAGES) for _, file, _ in links(page)}
    assert [str(page.relative_to(PROJECT)) for page in PAGES if page not in reached] == []
    assert START in {file for _, file, _ in links(PROJECT / "README.md")}
    assert "](docs/README.md" in (PROJECT / "README.md").read_text().partition("\n## ")[0]


def test_the_reference_of_commands_is_what_the_parsers_say() -> None:
    """If not: PYTHONPATH=include .venv/bin/python scripts/make_commands.py"""
    assert COMMANDS["PAGE"].read_text() == COMMANDS["page"]()


def test_the_reference_tells_options_that_are_repeated_from_those_that_take_several_words() -> None:
    """``--group a b`` is refused, ``--connector a b`` is not."""
    page = COMMANDS["page"]()
    assert "[--group REGEX]..." in page and "[--connector NAME...]" in page
    parse(["groups", "plan", "f", "--group", "a", "--group", "b"])
    parse(["connectors", "plan", "f", "--connector", "a", "b"])
    with pytest.raises(UsageError, match="one word too many"):
        parse(["groups", "plan", "f", "--group", "a", "b"])


def commands(page: Path) -> Iterator[str]:
    """Yield what a page has people type behind ``onceover``."""
    for code in _IN_CODE.findall(page.read_text()):
        yield from _COMMAND.findall(code)


def test_every_command_on_a_page_is_one_with_these_options() -> None:
    """Each word that picks a command, and each option behind it; what else is typed is up to the reader."""
    wrong = []
    seen = 0
    for page in PAGES:
        for line in commands(page):
            parser, words = PARSER, line.split()
            while words and (below := parser.below()) and words[0] in below:
                parser, words = below[words[0]], words[1:]
            seen += parser is not PARSER
            typed = line.partition("#")[0]
            known = {
                "--help",
                *parser.options(),
                *(o for each in parser.below().values() for o in each.options()),
            }
            lost = [option for option in _OPTION.findall(typed) if option not in known]
            if lost or (parser is PARSER and not {"--version", "--help"} & set(words)):
                wrong.append(f"{page.relative_to(PROJECT)}: onceover {line}: {lost}")
    assert wrong == []
    assert seen > 300


def test_what_upgrading_says_of_versions_is_so() -> None:
    """Whoever changes one of these has to say there what an older release does with it."""
    modules = (
        *(f"state.records.{name}" for name in ("layout", "enrolment", "ownership", "managed", "verified")),
        *("state.records.verdicts", "groups.entries", "wire.offsetmap", "wire.progress", "drills.chain"),
    )
    versions = {name: import_module(f"onceover.{name}").VERSION for name in modules}
    assert set(versions.values()) == {1}
    assert "one version of each record until now, 1;" in (DOCS / "upgrading.md").read_text()
