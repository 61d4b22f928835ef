"""What tests of an audit share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onceover.audit.records import outlines


@pytest.fixture(scope="module", params=["compiled", "python"])
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test of the module twice: with the compiled code, and on a machine that has none."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setattr(outlines, "kernel", lambda: None)
        yield
