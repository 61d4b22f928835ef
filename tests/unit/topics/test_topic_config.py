"""Which configuration is copied, and that the documentation says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onceover.topics.changes import ConfigDiff, may_delete
from onceover.topics.configs import NOT_COPIED, ONLY_WIDENED, config_to_copy, not_copied

_TABLE = Path(__file__).parents[3] / "docs" / "topics.md"


def test_the_documented_table_is_the_code() -> None:
    """Every key with its reason, in the same order, and no other."""
    section = _TABLE.read_text().split("Never copied:")[1].split("\n\n")[1]
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", section, re.MULTILINE)
    assert rows == list(NOT_COPIED.items())


def test_the_documented_effects_are_of_keys_that_follow() -> None:
    """None of them is said not to be copied; those that are only widened are said to be so, and no others."""
    section = _TABLE.read_text().split("What the other keys can do to copies:")[1].split("\n\n")[1]
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \| .* \|$", section, re.MULTILINE)
    found = {key: effect for keys, effect in rows for key in re.findall(r"`([^`]+)`", keys)}
    assert not [key for key in found if not_copied(key)]
    assert {key for key, effect in found.items() if "only widened" in effect} == ONLY_WIDENED.keys()
    marked = {key for key, effect in found.items() if "`destructive`" in effect}
    everything = [ConfigDiff(key, old, new) for key in found for old, new in (("9", "8"), ("8", "9"))]
    assert marked == {one.key for one in everything if may_delete(one)}


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
    assert config_to_copy({key: "1", "retention.ms": "5"}, {}) == {"retention.ms": "5"}


@pytest.mark.parametrize(
    "key", ["retention.ms", "message.timestamp.after.max.ms", "remotely", "compression.type"]
)
def test_keys_that_the_copy_needs(key: str) -> None:
    """The near misses."""
    assert config_to_copy({key: "1"}, dict.fromkeys(ONLY_WIDENED, "0")) == {key: "1"}


@pytest.mark.parametrize("key", ONLY_WIDENED)
def test_limits_are_widened_and_never_narrowed(key: str) -> None:
    """Below what holds there, or is Kafka's default where that is not known, nothing is set."""
    assert config_to_copy({key: "9"}, {key: "8"}) == {key: "9"}
    assert config_to_copy({key: "8"}, {key: "8"}) == config_to_copy({key: "7"}, {key: "8"}) == {}
    wider = str(ONLY_WIDENED[key] + 1)
    assert config_to_copy({key: str(ONLY_WIDENED[key])}, {}) == {}
    assert config_to_copy({key: wider}, {}) == {key: wider}


def test_segments_of_a_copy_hold_the_largest_batch_that_it_takes() -> None:
    """Whether the limit stands there already or is widened now."""
    limit, segment = "max.message.bytes", "segment.bytes"
    assert config_to_copy({segment: "5"}, {limit: "8"}) == {segment: "8"}
    assert config_to_copy({segment: "5", limit: "9"}, {limit: "8"}) == {segment: "9", limit: "9"}
    assert config_to_copy({segment: "10", limit: "7"}, {limit: "8"}) == {segment: "10"}
