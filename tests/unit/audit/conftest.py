"""What tests of an audit share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from onceover.audit.records import outlines


@pytest.fixture(scope="module", params=["compiled", "python"])
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test of the module twice: with the compiled code, and on a machine that has none."""
    with _read_by(request.param):
        yield


@pytest.fixture(scope="module", params=["compiled", pytest.param("python", marks=pytest.mark.soak)])
def either_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Likewise, the second in soak: of whole audits, whose comparisons are tried both ways in each run."""
    with _read_by(request.param):
        yield


@contextmanager
def _read_by(code: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if code == "python":
            patch.setattr(outlines, "kernel", lambda: None)
        yield
