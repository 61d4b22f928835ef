"""The parsers of the command line, one after the other."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from onceover.cli.parser import Parser


def walk(parser: argparse.ArgumentParser) -> Iterator[Parser]:
    """Yield ``parser`` and every one below it."""
    assert isinstance(parser, Parser)
    yield parser
    for below in parser.below().values():
        yield from walk(below)


def leaves(parser: argparse.ArgumentParser) -> Iterator[Parser]:
    """Yield those that a command ends with."""
    return (each for each in walk(parser) if not each.below())
