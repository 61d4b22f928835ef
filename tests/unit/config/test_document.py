"""Configuration files are read alike with and without libyaml."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from onceover.config import document
from onceover.config.document import parse_yaml
from onceover.config.faults import Fault

# No tab, which libyaml takes before a value, as YAML 1.2 says; and no tags that nobody knows (`!:`).
_LINES = (
    "flow: f\n",
    "source:\n",
    "  alias: east\n",
    "  a: {b: 1, c: [2, ]}\n",
    "- x\n",
    "? y\n",
    "---\n",
    "...\n",
)
_WORDS = (": ", "|\n", ">-\n", "  ", "\r\n", "&a", "*a", "!!int ", "<<: ", "\\x41", "0x1f", "012", "text")
_PIECES = (*_LINES, *_WORDS, *"\n:#'\"[]{},%~@`\\é\x00\ud800\u2028\x85\U0001f600")
_TEXTS = st.lists(st.sampled_from(_PIECES), max_size=12).map("".join)

Read = tuple[dict[str, Any] | None, dict[tuple[str, ...], int], list[Fault]]


def _read(text: str, loader: type[Any]) -> Read:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "_FAST", loader)
        found, faults = parse_yaml(text, "here")
    return (None, {}, faults) if found is None else (found.data, dict(found.lines), faults)


@given(_TEXTS)
def test_the_fast_reader_says_what_the_other_one_says(text: str) -> None:
    """Values, lines, and what is wrong where: a machine without libyaml has the same flows."""
    assert repr(_read(text, yaml.CSafeLoader)) == repr(_read(text, yaml.SafeLoader))


def test_what_is_wrong_is_named_with_the_nearest_line() -> None:
    """libyaml itself would name the line behind it."""
    _, _, (fault,) = _read('flow: f\ntopics:\n  include: ["flights.*"\n\n\nlanes: 2\n', yaml.CSafeLoader)
    assert fault.line == 6
    _, _, (fault,) = _read('flow: f\n  include: ["flights.*"', yaml.CSafeLoader)
    assert fault.line == 2


@pytest.mark.parametrize("text", ["010", "-010", "0_7", "1:30", "-1:30", "1:30.5", "!!int 010"])
def test_a_number_that_is_another_one_to_yaml_is_refused(text: str) -> None:
    """Eight lanes were started for 010, and 90 taken for 1:30."""
    data, _, (fault,) = _read(f"flow: f\nlanes: {text}\n", yaml.CSafeLoader)
    assert (data, fault.key, fault.line) == ({"flow": "f", "lanes": None}, "lanes", 2)
    assert "base 8 or 60" in fault.problem and text not in str(fault)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("10", 10), ("0x10", 16), ("0.5", 0.5), ("-1", -1), ("'010'", "010"), ("08", "08")],
)
def test_any_other_number_is_what_it_looks_like(text: str, value: object) -> None:
    """To base 16, too."""
    data, _, faults = _read(f"lanes: {text}\n", yaml.CSafeLoader)
    assert (data, faults) == ({"lanes": value}, [])
