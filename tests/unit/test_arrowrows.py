"""Rows as Arrow, against what Arrow makes of them itself."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.arrowrows import record_batch, texts

SCHEMA = pa.schema([("name", pa.string()), ("lane", pa.int32()), ("offset", pa.int64())])

rows = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.text(),
            "lane": st.integers(-(1 << 31), (1 << 31) - 1),
            "offset": st.integers(-(1 << 63), (1 << 63) - 1),
        }
    ),
    max_size=20,
)


@given(listed=rows)
def test_rows_are_what_arrow_makes_of_them(listed: list[dict[str, str | int]]) -> None:
    """Texts of any characters, both ends of each kind of integer, and no row at all."""
    batch = record_batch(listed, SCHEMA)
    batch.validate(full=True)
    assert batch.equals(pa.RecordBatch.from_pylist(listed, schema=SCHEMA))


def test_an_integer_that_does_not_fit_is_refused() -> None:
    """It would be another one."""
    with pytest.raises(OverflowError):
        record_batch([{"name": "", "lane": 1 << 31, "offset": 0}], SCHEMA)


def test_half_a_character_is_refused() -> None:
    """There is no UTF-8 for it."""
    with pytest.raises(UnicodeError):
        texts(["\ud800"])


def test_pandas_is_not_loaded_for_them() -> None:
    """It is what they are made by hand for."""
    code = (
        "import sys, pyarrow as pa; from onceover.arrowrows import record_batch;"
        "record_batch([{'a': 'x', 'b': 1}], pa.schema([('a', pa.string()), ('b', pa.int64())]));"
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
