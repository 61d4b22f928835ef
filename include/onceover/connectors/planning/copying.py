"""Which records make a topic hold a connector's offsets, and whether it does. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import ConnectorOffsets
from onceover.connectors.offsets.keys import (
    SENTINEL_VALUE,
    differing,
    named,
    parse_key,
    partition_of,
    sentinel_key,
)
from onceover.connectors.offsets.scan import Scan
from onceover.connectors.offsets.write import Entry
from onceover.connectors.planning.plan import COMPACT, misplaced_keys
from onceover.errors import NeedsOperator


def copy_entries(
    values: Mapping[bytes, bytes], own: ConnectorOffsets | None, name: str, partitions: int
) -> list[Entry]:
    """Return what is written to a connector's own topic: its offsets, tombstones for keys that are no more,
    or KIP-618's sentinel where there is no offset."""
    entries = [Entry(partition_of(key, partitions), key, value) for key, value in sorted(values.items())]
    if own is not None:
        gone = own.offsets.keys() - values.keys()
        entries += [Entry(partition_of(key, partitions), key, None) for key in sorted(gone)]
        if values:
            entries += [Entry(partition_of(key, partitions), key, None) for key in sorted(own.sentinels)]
    if not values:
        key = sentinel_key(name)
        entries.append(Entry(partition_of(key, partitions), key, SENTINEL_VALUE))
    return entries


def overwrite_entries(values: Mapping[bytes, bytes], scan: Scan, name: str) -> list[Entry]:
    """Return what makes a shared topic, as its reader sees it, say ``values`` of a connector.

    Wherever a key stands it gets the same value: which partition a worker reads last is left to chance.
    """
    here = scan.snapshot(name)
    entries = []
    for key in sorted(values.keys() | here.places.keys()):
        places = (
            {*here.places.get(key, ()), partition_of(key, scan.partitions)}
            if key in values
            else set(here.places[key])
        )
        for partition in sorted(places):
            record = scan.latest.get((key, partition))
            seen = None if record is None else record.value
            if seen != values.get(key):
                entries.append(Entry(partition, key, values.get(key)))
    return entries


def check_unused(before: Scan | None, now: Scan, name: str) -> None:
    """See to it that nobody has written offsets of a connector of this name since the topic was looked at.

    It uses another topic, so that would be one of another Connect cluster, which would go on from the copy.

    Args:
        before: None where there was no such topic.

    Raises:
        NeedsOperator: STILL_WRITING, somebody has.
    """
    known = {} if before is None else before.latest
    # The same once more counts, too: heartbeats of one that stands at its place.
    fresh = [place for place, record in now.latest.items() if known.get(place) != record]
    keys = {key for key, _ in fresh if (parsed := parse_key(key)) and parsed.connector == name}
    if keys:
        raise NeedsOperator(
            f"somebody writes offsets to {now.topic}, which {name} does not use yet",
            code=ConnectorCode.STILL_WRITING,
            where=now.topic,
            expected="as it was when the run looked at it",
            seen=f"{named(keys)}, written since: by a connector of this name on another Connect cluster, or "
            "by a task of a frozen worker, which is fenced by now",
            resolve="name another topic with --topic where it is in use, run again where it is not; the "
            "connector stays stopped",
        )


def check_copy(values: Mapping[bytes, bytes], scan: Scan, name: str, policy: str | None) -> None:
    """See to it that a connector's own topic holds exactly ``values``, each key where the workers write it.

    Raises:
        NeedsOperator: VERIFY_FAILED, with what is wrong.
    """
    own = scan.snapshot(name)
    wrong = differing(own.offsets, values)
    if wrong:
        raise failed(scan.topic, f"{named(wrong)}: not the bytes that were copied")
    misplaced = misplaced_keys(scan, name)
    if misplaced:
        raise failed(scan.topic, f"{named(misplaced)}: not in the one partition that the workers write")
    if not values and not own.sentinels:
        raise failed(scan.topic, "neither an offset nor the sentinel is there")
    if policy != COMPACT:
        raise failed(scan.topic, f"cleanup.policy is {policy}: offsets would expire")


def check_overwritten(values: Mapping[bytes, bytes], scan: Scan, name: str) -> None:
    """See to it that a shared topic, as its reader sees it, says exactly ``values`` of a connector.

    Raises:
        NeedsOperator: VERIFY_FAILED, with what is wrong.
    """
    wrong = {entry.key for entry in overwrite_entries(values, scan, name)}
    if wrong:
        raise failed(scan.topic, f"{named(wrong)}: not the bytes that were written")


def failed(topic: str, what: str) -> NeedsOperator:
    """Return the error for a topic that does not hold what it should."""
    return NeedsOperator(
        f"{topic} does not hold what it should: {what}",
        code=ConnectorCode.VERIFY_FAILED,
        where=topic,
        resolve="find out who writes there; the connector stays stopped with its old configuration: "
        "run again, or take it back with rollback",
    )
