"""What a partition does with batches, it does with and without the compiled code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onceover.wire.batches import kernel


@pytest.fixture(params=["compiled", "python"])
def codec_path(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test with the compiled code, and once more where a machine has none."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setattr(kernel, "kernel", lambda: None)
        else:
            assert kernel.kernel() is not None
        yield request.param
