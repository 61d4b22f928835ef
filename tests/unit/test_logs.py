"""What our processes log of what libraries say."""

from __future__ import annotations

import logging

import pytest

from onceover.logs import quiet_libraries


@pytest.mark.parametrize(
    "talker", ["kafka.net.sasl", "httpcore.http11", "urllib3.connectionpool", "botocore.auth"]
)
def test_libraries_that_tell_payloads_or_signatures_are_quiet_at_any_level(talker: str) -> None:
    """Of a root logger that takes everything, as ``ONCEOVER_LOG=DEBUG`` makes it."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.DEBUG)
    try:
        quiet_libraries()
        assert not logging.getLogger(talker).isEnabledFor(logging.INFO)
    finally:
        root.setLevel(before)
