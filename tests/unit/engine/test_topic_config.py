"""Which configuration is copied, and that the documentation says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onceover.engine.topics import NOT_COPIED, config_to_copy, not_copied

_TABLE = Path(__file__).parents[3] / "docs" / "topics.md"


def test_the_documented_table_is_the_code() -> None:
    """Every key with its reason, in the same order, and no other."""
    section = _TABLE.read_text().split("Never copied:")[1].split("\n\n")[1]
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", section, re.MULTILINE)
    assert rows == list(NOT_COPIED.items())


@pytest.mark.parametrize(
    "key",
    [
        "message.timestamp.type",
        "message.timestamp.before.max.ms",
        "min.insync.replicas",
        "remote.storage.enable",
        "remote.log.copy.disable",
        "local.retention.ms",
        "leader.replication.throttled.replicas",
        "confluent.placement.constraints",
    ],
)
def test_keys_that_would_harm_the_copy(key: str) -> None:
    """By name or by beginning."""
    assert not_copied(key)
    assert config_to_copy({key: "1", "retention.ms": "5"}) == {"retention.ms": "5"}


@pytest.mark.parametrize(
    "key", ["retention.ms", "message.timestamp.after.max.ms", "remotely", "compression.type"]
)
def test_keys_that_the_copy_needs(key: str) -> None:
    """The near misses."""
    assert config_to_copy({key: "1"}) == {key: "1"}
