"""Properties files are read as java.util.Properties reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.config.faults import Invalid
from onceover.config.properties import parse_properties

# Surrogates have no place in UTF-8 files.
_TEXT = st.text(st.characters(codec="utf-8"))


def _store(text: str, *, key: bool) -> str:
    """Escape as java.util.Properties.store does: an independent writer for the parser to read."""
    out = []
    for index, char in enumerate(text):
        if char in "\t\n\r\f":
            out.append({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[char])
        elif char in "\\=:#!" or (char == " " and (key or index == 0)):
            out.append("\\" + char)
        else:
            out.append(char)
    return "".join(out)


@given(st.lists(st.tuples(_TEXT.filter(bool), _TEXT)), st.sampled_from(["=", ":", " = ", "\t:  "]))
def test_what_java_stores_is_read_back(entries: list[tuple[str, str]], separator: str) -> None:
    """Keys and values round trip, in order, with every separator."""
    text = "\n".join(_store(key, key=True) + separator + _store(value, key=False) for key, value in entries)
    assert [(entry.key, entry.value) for entry in parse_properties(text)] == entries


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# comment\n ! comment\n\n  a = b", [("a", "b")]),
        ("a=b\\\n   c\\\n   d", [("a", "bcd")]),
        ("a=b\\\\\nc=d", [("a", "b\\"), ("c", "d")]),
        ("a=1\\\n# not a comment", [("a", "1# not a comment")]),
        ("a=b # not a comment", [("a", "b # not a comment")]),
        ("a\\=b=c=d", [("a=b", "c=d")]),
        ("a b c", [("a", "b c")]),
        ("alone", [("alone", "")]),
        ("a=\\u0041\\q", [("a", "Aq")]),
        ("a=1\r\nb=2\rc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a=end\\", [("a", "end")]),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
    ],
)
def test_the_corners_of_the_format(text: str, expected: list[tuple[str, str]]) -> None:
    """Comments, continuations, separators and escapes."""
    assert [(entry.key, entry.value) for entry in parse_properties(text)] == expected


def test_an_entry_knows_its_first_line() -> None:
    """A continued entry is reported where it begins."""
    assert [entry.line for entry in parse_properties("a=1\n\nb=\\\n2\nc=3")] == [1, 3, 5]


def test_a_broken_unicode_escape_names_the_line_and_no_value() -> None:
    """The value may be a password."""
    with pytest.raises(Invalid, match=r"^line 2: \\u without four hexadecimal digits$") as raised:
        parse_properties("a=1\npassword=hunter2\\u12")
    assert "hunter2" not in raised.value.fix
