"""Spark jobs that cannot start, or must end: one clear message each, and no try again that cannot help."""

from __future__ import annotations

import socket

import pytest

from onceover.errors import Retriable
from onceover.spark.master import reach


def test_master_that_does_not_answer_is_an_outage_at_once() -> None:
    """Spark would try for a minute; one of several that listens is enough."""
    with socket.create_server(("127.0.0.1", 0)) as there, socket.socket() as away:
        away.bind(("127.0.0.1", 0))
        up, down = (f"127.0.0.1:{s.getsockname()[1]}" for s in (there, away))
        reach(f"spark://{down},{up}")
        with pytest.raises(Retriable, match=f"spark://{down}") as caught:
            reach(f"spark://{down}")
    assert "refused" in str(caught.value.seen)
    reach("local[2]")
