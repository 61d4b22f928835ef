"""``onceover.handlers.filter:FilterRecords``: keep or drop records by key or header."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from onceover.errors import UsageError
from onceover.namematch import objection, whole
from onceover.wire.batches.columns import HEADERS, KEY

_FIX = "correct handler_args"
# Bytes that are UTF-8, as RE2 sees bytes: no longer forms, no surrogates, nothing above U+10FFFF (RFC 3629).
_UTF8 = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    r"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    r"|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)


class FilterRecords:
    """Keep the records that match, or all others. A record matches when every given condition holds.

    Args:
        action: ``keep`` or ``drop`` what matches.
        key: regular expression (RE2) for the whole key; a null key never matches.
        header: name of a header that the record has.
        header_value: regular expression (RE2) for the whole value of that header.

    A key or value that is UTF-8 matches as text; one that is not ASCII also as if each of its bytes were the
    character of that number.
    """

    def __init__(
        self, action: str, key: str | None = None, header: str | None = None, header_value: str | None = None
    ) -> None:
        if action not in ("keep", "drop"):
            raise UsageError("action is not known", expected="keep or drop", resolve=_FIX)
        if key is None and header is None:
            raise UsageError("nothing says which records match", expected="key, header or both", resolve=_FIX)
        if header_value is not None and header is None:
            raise UsageError("header_value is given without header", expected="header", resolve=_FIX)
        self._keep = action == "keep"
        self._key = None if key is None else _anchored("key", key)
        self._header = None if header is None else header.encode()
        self._value = None if header_value is None else _anchored("header_value", header_value)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that stay."""
        matches = np.ones(batch.num_rows, bool)
        if self._key is not None:
            matches &= _matches(batch.column(KEY), self._key)
        if self._header is not None:
            matches &= self._with_header(batch.column(HEADERS))
        return batch.filter(pa.array(matches if self._keep else ~matches))

    def _with_header(self, headers: pa.ListArray) -> npt.NDArray[np.bool_]:
        pairs = headers.flatten()
        wanted = _true(pc.equal(pairs.field(0), self._header))
        if self._value is not None:
            wanted &= _matches(pairs.field(1), self._value)
        rows = pc.list_parent_indices(headers).to_numpy()
        found = np.zeros(len(headers), bool)
        found[rows[wanted]] = True
        return found


def _true(mask: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.fill_null(mask, False).to_numpy(zero_copy_only=False), bool)


def _matches(contents: pa.BinaryArray, anchored: str) -> npt.NDArray[np.bool_]:
    """Tell which contents an expression matches: of binary columns RE2 sees bytes, of strings characters."""
    try:
        texts = contents.cast(pa.string())
    except pa.ArrowInvalid:
        # Some are no UTF-8, which is rare.
        is_text = pc.match_substring_regex(contents, _UTF8)
        texts = pc.if_else(is_text, contents, None).cast(pa.string())
    found = _true(pc.match_substring_regex(texts, anchored))
    # Of a number, the bytes may be UTF-8 by chance.
    others = np.flatnonzero(~_true(pc.string_is_ascii(texts)))
    if others.size:
        found[others] |= _true(pc.match_substring_regex(contents.take(pa.array(others)), anchored))
    return found


def _anchored(name: str, given: object) -> str:
    """Return what matches where ``pattern`` matches all."""
    pattern = str(given)  # a flow file may hold a number
    if objection(pattern) is not None:
        raise UsageError(f"{name} is not a regular expression", expected="RE2's syntax", resolve=_FIX)
    anchored = whole(pattern)
    try:
        pc.match_substring_regex(pa.array([b""], pa.binary()), anchored)
    except pa.ArrowInvalid:
        raise UsageError(
            f"{name} is not a regular expression of bytes",
            expected="characters above 255 as themselves, not by their number",
            resolve=_FIX,
        ) from None
    return anchored
