"""`onceover receipts rebuild`: of a flow that nobody has started there is nothing to write anew."""

from __future__ import annotations

import pytest

from onceover.cli.commands.receipts import _check_idle
from onceover.errors import UsageError
from onceover.state.codes import StateCode
from tests.support.fakes.fakecluster import FakeCluster


def test_a_flow_that_was_never_started_has_no_table() -> None:
    """It said that there were no records, as if that were all of them."""
    with pytest.raises(UsageError, match="has never been started on west") as caught:
        _check_idle(FakeCluster("west"), "orders-dr")
    assert caught.value.code is StateCode.NOT_STARTED
    assert "onceover replicate orders-dr" in str(caught.value.resolve)
