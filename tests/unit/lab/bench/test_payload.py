"""The records of the benchmark are the same everywhere, of the right size, neither noise nor constant."""

from __future__ import annotations

import zlib

import pytest

from onceover_lab.bench.clients.payload import make_pool


@pytest.mark.parametrize("record_bytes", [100, 1024, 16_384])
def test_record_has_exactly_the_wanted_size(record_bytes: int) -> None:
    pool = make_pool(record_bytes, pool_bytes=100_000)
    assert {len(p.key) + len(p.value) for p in pool} == {record_bytes}
    assert len(pool) == 100_000 // record_bytes


def test_pool_is_the_same_every_time() -> None:
    assert make_pool(1024, pool_bytes=20_000) == make_pool(1024, pool_bytes=20_000)


def test_records_compress_like_events() -> None:
    """A constant would compress a hundredfold, noise not at all: neither would say much about a copier."""
    values = b"".join(p.value for p in make_pool(1024, pool_bytes=1_000_000))
    assert 1.5 < len(values) / len(zlib.compress(values)) < 6


def test_records_differ_from_each_other() -> None:
    pool = make_pool(100, pool_bytes=100_000)
    assert len({p.value for p in pool}) > 0.99 * len(pool)
