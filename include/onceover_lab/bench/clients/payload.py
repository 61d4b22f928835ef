"""Deterministic records that look like events: compressible, but not constant.

The same arguments give the same bytes on every machine, so that runs can be compared.
"""

from __future__ import annotations

import json
import random
from typing import Final, NamedTuple

# Records repeat only after this many bytes: farther apart than lz4's window (64 KiB) and than a batch
# (1 MiB), so that no codec gains from the repetition.
POOL_BYTES: Final = 8 * 1024 * 1024
_SEED: Final = 20_130_101

_CARRIERS: Final = ("9E", "AA", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV")
_AIRPORTS: Final = ("EWR", "JFK", "LGA", "ATL", "BOS", "CLT", "DEN", "FLL", "LAX", "MCO", "MIA", "ORD", "SFO")
_WORDS: Final = (
    "boarding",
    "closed",
    "gate",
    "changed",
    "crew",
    "arrived",
    "baggage",
    "loaded",
    "fuel",
    "checked",
    "pushback",
    "approved",
    "taxi",
    "runway",
    "departure",
    "delayed",
    "weather",
    "cleared",
    "climb",
    "cruise",
    "descent",
    "approach",
    "landed",
    "stand",
    "doors",
    "opened",
    "cleaning",
    "maintenance",
    "inspection",
    "passed",
    "transfer",
    "passengers",
    "connection",
    "rebooked",
    "slot",
    "assigned",
    "tower",
    "contact",
)


class Payload(NamedTuple):
    """Key and value of one record."""

    key: bytes
    value: bytes


def make_pool(record_bytes: int, *, pool_bytes: int = POOL_BYTES) -> list[Payload]:
    """Return records of exactly ``record_bytes`` (key and value), about ``pool_bytes`` in all."""
    rng = random.Random(_SEED)
    return [_make_payload(rng, record_bytes) for _ in range(max(1, pool_bytes // record_bytes))]


def _make_payload(rng: random.Random, record_bytes: int) -> Payload:
    key = b"N%05d" % rng.randrange(100_000)
    value_bytes = record_bytes - len(key)
    head = json.dumps(
        {
            "carrier": rng.choice(_CARRIERS),
            "flight": rng.randrange(10_000),
            "from": rng.choice(_AIRPORTS),
            "to": rng.choice(_AIRPORTS),
            "delay": rng.randrange(-20, 300),
        },
        separators=(",", ":"),
    )
    parts = [head]
    length = len(head)
    while length < value_bytes:
        # A word and a number: text alone would compress better than events usually do.
        part = f" {rng.choice(_WORDS)} {rng.randrange(1_000_000)}"
        parts.append(part)
        length += len(part)
    return Payload(key, "".join(parts).encode()[:value_bytes])
