"""The compiled half of the record codec (kernel.c), called by ctypes."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Final

from onceover.compiled import library

SOURCE: Final = Path(__file__).with_name("kernel.c")
# Of what is passed and given back: kernel.c says the same number.
ABI: Final = 1


@cache
def kernel() -> ctypes.CDLL | None:
    """Return the library; None where this machine has none."""
    found = library(SOURCE, ABI, "records are copied by Python alone, which is slower")
    if found is not None:
        found.onceover_crc32c.argtypes = (ctypes.c_char_p, ctypes.c_int64)
        found.onceover_crc32c.restype = ctypes.c_uint32
    return found
