"""What a record holds, as a person is shown it."""

from __future__ import annotations

import pytest

from onceover.shown import content


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "null"),
        (b"", '""'),
        (b"a" * 8, '"aaaaaaaa"'),
        (b"a" * 9, '"aaaaaaa…"'),
        ("😀".encode() * 8, '"' + "😀" * 8 + '"'),
        ("😀".encode() * 9, '"' + "😀" * 7 + '…"'),
        (b"a\x1b[2Jb\n", '"a.[2Jb."'),
        ("a\u3164b".encode(), '"a.b"'),
    ],
)
def test_contents_are_short_do_nothing_and_are_cut_where_it_is_seen(data: bytes | None, text: str) -> None:
    assert content(data, 8) == text
