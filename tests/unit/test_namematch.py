"""Expressions that somebody types: what they match, and that no name makes it take long."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.config.patterns import check_typed, matcher
from onceover.errors import UsageError
from onceover.namematch import names_whole, objection

# Each takes Python's engine longer than anybody waits.
SLOW = [
    "(a+)+",
    "(a|a)*",
    "(a|ab|aa)*b",
    "(.*a){25}",
    "(a?){60}a{60}",
    "(a+)+$",
    ".*.*.*.*.*x",
    "([a-z]+[.]?)+x",
]

pieces = st.sampled_from(
    ["a", "b", "[.]", "[a-c]", ".", "a+", "b*", "[^a]", "a?", "(a|b.)", "(ab)+", "a{2}", r"\.", "^", "$"]
)


@pytest.mark.parametrize("pattern", SLOW)
@pytest.mark.parametrize("length", [40, 32_767])
def test_no_name_makes_an_expression_take_long(pattern: str, length: int) -> None:
    """A group's name may have so many characters; the test ends, or its time limit does."""
    assert objection(pattern) is None
    assert not names_whole(pattern, "a" * length + "!")


@given(st.lists(pieces, max_size=5).map("".join), st.text("abc.\nü", max_size=8))
def test_what_is_matched_is_what_python_matches(pattern: str, name: str) -> None:
    """All of a name, line breaks included; ``$`` is its end, where Python's also stands before a last one."""
    try:
        expected = re.fullmatch(pattern.replace("$", r"\Z"), name, re.DOTALL) is not None
    except re.error:
        assert objection(pattern) is not None
        return
    if objection(pattern) is None:
        assert names_whole(pattern, name) is expected


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("flights[.].*", "flights.jfk", True),
        ("flights[.].*", "my-flights.jfk", False),
        ("a|b", "ab", False),
        ("b", "a\nb", False),
        ("a.b", "a\nb", True),
        (".", "\udcff", True),
        ("ü+", "üü", True),
        ("", "", True),
        ("", "a", False),
        ("a$", "a\n", False),
        ("$[^a]", "\n", False),
    ],
)
def test_all_of_a_name_is_matched(pattern: str, name: str, found: bool) -> None:
    """Near misses: a part of it, a line of it."""
    assert names_whole(pattern, name) is found


@pytest.mark.parametrize(
    "pattern", ["(", "a)(b", "[", "*", "(?<=a)b", "(?=a)a", r"(a)\1", "a{1,2000}", "(" * 5000, "\udcff"]
)
def test_what_is_no_expression_is_said(pattern: str) -> None:
    """Also one that only becomes one within parentheses, and what RE2 has not."""
    assert objection(pattern)
    with pytest.raises(UsageError, match=r"--group .* is no regular expression: ") as caught:
        check_typed("--group", pattern)
    assert "RE2" in str(caught.value.expected)


@given(st.text(string.printable, max_size=12))
def test_whatever_is_typed_is_an_expression_or_refused(pattern: str) -> None:
    """With words, and never by another error."""
    try:
        checked = check_typed("--topic", pattern)
    except UsageError:
        return
    assert names_whole(checked, "flights") in (True, False)


def test_names_that_any_of_several_expressions_matches_are_meant() -> None:
    """Without one nothing is said about names: that is for whoever asks to say."""
    assert matcher("--group", []) is None
    wanted = matcher("--group", ["a.*", "b"])
    assert wanted is not None
    assert [name for name in ("a", "ab", "b", "bc") if wanted(name)] == ["a", "ab", "b"]
    with pytest.raises(UsageError, match="--group 'a\\)\\(b' is no regular expression"):
        matcher("--group", ["b", "a)(b"])
