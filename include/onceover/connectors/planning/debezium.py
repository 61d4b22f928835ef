"""What Debezium's configuration says of a stop and a start: its slot, snapshots, heartbeats. Pure.

Seen with Debezium 3.7 for PostgreSQL on live workers, or taken from Debezium's documentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

_DEBEZIUM: Final = "io.debezium."
_HEARTBEAT: Final = "heartbeat.interval.ms"
_DROPS_SLOT: Final = "slot.drop.on.stop"
_SNAPSHOT: Final = "snapshot.mode"
# It ends with its snapshot: nothing is streamed, no slot is made, no heartbeat is sent.
_SNAPSHOT_ALONE: Final = "initial_only"
_SNAPSHOT_EACH_TIME: Final = "always"
_POSTGRES: Final = ("PostgresConnector", "PostgreSqlConnector")
# What a database keeps for a reader that is away, by the last word of the plugin's name.
_KEPT: Final = {
    "MySqlConnector": "binlogs for binlog_expire_logs_seconds",
    "MariaDbConnector": "binlogs for binlog_expire_logs_seconds",
    "SqlServerConnector": "change tables for the retention of their cleanup job (three days by default)",
    "MongoDbConnector": "what fits into the oplog",
    "OracleConnector": "archived redo logs as long as its administrator does",
}


def is_debezium(config: Mapping[str, str]) -> bool:
    """Tell whether a connector is one of Debezium's."""
    return config.get("connector.class", "").startswith(_DEBEZIUM)


def loses_its_slot(config: Mapping[str, str]) -> bool:
    """Tell whether the database forgets at the stop up to where it was read: what is written then is lost."""
    return _kind(config) in _POSTGRES and config.get(_DROPS_SLOT, "").strip().lower() == "true"


def start_warnings(config: Mapping[str, str]) -> Iterator[str]:
    """Yield what its next start does beside going on."""
    if is_debezium(config) and _mode(config) == _SNAPSHOT_EACH_TIME:
        yield (
            f"{_SNAPSHOT}={_SNAPSHOT_EACH_TIME}: each start begins with a snapshot, so that every row of its "
            "tables is written once more when it is resumed; set another mode before where that must not be"
        )


def standing_warnings(config: Mapping[str, str], *, stops: bool, stands: bool) -> Iterator[str]:
    """Yield what its database does meanwhile.

    Args:
        stops: it stands still for a moment; ``stands``: until somebody resumes it.
    """
    kind = _kind(config)
    until = "until it is resumed" if stands else "while it stands still"
    if kind in _POSTGRES and (stops or stands) and _mode(config) != _SNAPSHOT_ALONE:
        slot = config.get("slot.name", "debezium")
        yield (
            f"{until}, its replication slot {slot} holds back the database's WAL, which grows with every "
            "change: watch the disk, and max_slot_wal_keep_size, beyond which the slot is lost"
        )
    if kind in _KEPT and stands:
        yield f"its database keeps {_KEPT[kind]}: resume it before, or it has to begin anew"


def silence(config: Mapping[str, str]) -> str | None:
    """Return why it may write no offset although all is well; None where it beats, or is not Debezium's."""
    if not is_debezium(config):
        return None
    if _mode(config) == _SNAPSHOT_ALONE:
        return (
            f"{_SNAPSHOT}={_SNAPSHOT_ALONE}: after its snapshot it never writes an offset again, and nothing "
            "shows that it goes on (unverifiable, exit code 3)"
        )
    if config.get(_HEARTBEAT, "0").strip() not in ("", "0"):
        return None
    return (
        f"it has no {_HEARTBEAT}: while no row of its tables changes it writes no offset, and nothing shows "
        "that it goes on (unverifiable, exit code 3); with 10000 it writes one every 10 s, the same one too"
    )


def _kind(config: Mapping[str, str]) -> str:
    return config.get("connector.class", "").rpartition(".")[2]


def _mode(config: Mapping[str, str]) -> str:
    return config.get(_SNAPSHOT, "initial").strip().lower()
