"""What a person may ask for: names of source connectors that are there."""

from __future__ import annotations

import json

import pytest

from onceover.connectors.model import ConnectorState, TaskState
from onceover.connectors.workers.listing import ConnectorListing
from onceover.errors import UsageError

SECRET = "hunter2-planted"
TRACE = "Exception: it ended\n\tat x\nCaused by: the database is gone"
TASKS = (TaskState(0, "RUNNING", "w"), TaskState(1, "FAILED", "w", TRACE))
OWN = {"offsets.storage.topic": "mine", "password": SECRET}
LISTING = ConnectorListing(
    "flights",
    "4.3.0",
    "connect-offsets",
    True,
    (
        ConnectorState("archive", "sink", "RUNNING"),
        ConnectorState("orders", "source", "RUNNING", TASKS),
        ConnectorState("users", "source", "STOPPED", (), OWN),
    ),
)


def test_sources_that_are_there_may_be_named() -> None:
    """In any order."""
    assert (LISTING.sources, LISTING.migrated) == (["orders", "users"], ["users"])
    LISTING.check(["users", "orders"])
    LISTING.check([])


def test_an_unknown_name_is_answered_with_the_nearest_and_with_all() -> None:
    """Nothing was touched: exit code 2."""
    with pytest.raises(UsageError, match="there is no connector order;") as raised:
        LISTING.check(["users", "order"])
    assert raised.value.expected == "one of: orders, users"
    assert raised.value.resolve == 'did you mean "orders"?'
    with pytest.raises(UsageError) as raised:
        ConnectorListing("flights", "4.3.0", "connect-offsets", True, ()).check(["x"])
    assert "it runs no source connector" in str(raised.value)


def test_a_sink_is_refused_with_where_its_position_is() -> None:
    """Its position is a consumer group's."""
    with pytest.raises(UsageError, match="archive is a sink connector") as raised:
        LISTING.check(["archive"])
    assert "connect-archive" in raised.value.message


def test_what_may_be_a_source_is_not_left_out() -> None:
    """With exactly-once switched off and one connector unsettled, records would be lost."""
    lost = ConnectorState("lost", "unknown", "FAILED", (), OWN)
    listing = ConnectorListing("flights", "4.3.0", "connect-offsets", True, (*LISTING.connectors, lost))
    assert (listing.sources, listing.migrated) == (["orders", "users", "lost"], ["users", "lost"])
    listing.check(["lost"])


def test_a_name_is_given_once() -> None:
    """Twice would stop and move it twice."""
    with pytest.raises(UsageError, match="named twice: orders"):
        LISTING.check(["orders", "users", "orders"])


def test_the_listing_shows_no_configuration() -> None:
    """It may hold secrets."""
    assert SECRET not in json.dumps(LISTING.document()) + LISTING.describe() + repr(LISTING)


def test_the_listing_says_where_offsets_are() -> None:
    """As a table for people, and as a document."""
    lines = LISTING.describe().splitlines()
    assert lines[0] == "Connect cluster flights: version 4.3.0, exactly-once for sources on"
    assert lines[2].split() == ["archive", "sink", "RUNNING", "none", "-"]
    assert lines[3].split() == [
        *("orders", "source", "RUNNING", "1/2", "running,", "1", "failed", "connect-offsets")
    ]
    rows = {row["name"]: row for row in LISTING.document()["connectors"]}
    assert (rows["users"]["offsets_topic"], rows["users"]["own_topic"]) == ("mine", True)
    assert (rows["orders"]["offsets_topic"], rows["orders"]["own_topic"]) == ("connect-offsets", False)
    assert rows["archive"]["offsets_topic"] is None


def test_the_listing_says_why_something_has_failed() -> None:
    """In the workers' words, below the table: the state alone looks as if all were well."""
    told = "Exception: it ended; Caused by: the database is gone"
    assert LISTING.describe().splitlines()[-1] == f"  orders has failed: {told}"
    rows = {row["name"]: row for row in LISTING.document()["connectors"]}
    assert (rows["orders"]["failure"], rows["users"]["failure"]) == (told, None)
