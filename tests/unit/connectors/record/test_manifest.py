"""Manifests: what is written is what is read, and nothing secret is written."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.connectors.moving import moves
from onceover.connectors.moving.context import HARD, MIGRATE, SOFT, Context
from onceover.connectors.moving.downgrade import downgrade_manifest
from onceover.connectors.moving.migrate import migration_manifest
from onceover.connectors.offsets.configtopic import ConfigRecords
from onceover.connectors.record import manifest
from onceover.connectors.record.manifest import WENT_ON, Manifest, ManifestStore, file_name
from onceover.connectors.settings import ConnectorRequest
from onceover.errors import NeedsOperator, UsageError
from tests.unit.connectors.views import GLOBAL, KEY, OTHER, OWN, facts, placed, scan, view

CONFIG = {"name": "c", "connection.password": "hunter2", "offsets.storage.topic": OWN}


def begun() -> Manifest:
    """Return a manifest that has just begun."""
    return Manifest.begin(
        "migrate", "c", (GLOBAL, OWN), "RUNNING", CONFIG, {"commit-c": 3}, exactly_once=True
    )


@given(st.dictionaries(st.binary(max_size=20), st.one_of(st.none(), st.binary(max_size=20))))
def test_manifest_survives_its_file_byte_for_byte(offsets: dict[bytes, bytes | None]) -> None:
    """Keys and values are bytes, also those that are no text."""
    written = (
        replace(begun(), offsets=offsets, end_offsets={0: 5})
        .with_step("stop")
        .with_destination({1: 7}, UUID(int=3))
    )
    written = (
        written.with_destination({1: 7}, UUID(int=3))
        .with_orders({"target": 9}, "STOPPED")
        .with_given(7)
        .with_given(9)
    )
    assert Manifest.decode(written.encode()) == written


def test_snapshot_goes_into_the_manifest() -> None:
    """With where it ended and how it was read."""
    found = begun().with_snapshot(scan(placed({KEY: b"1", OTHER: None})).snapshot("c"))
    assert (found.values, found.offsets, found.end_offsets, found.isolation) == (
        {KEY: b"1"},
        {KEY: b"1", OTHER: None},
        {0: 9},
        "read_committed",
    )


def test_manifest_holds_no_configuration() -> None:
    """Only a hash that nobody can look up: the salt is new each time."""
    first, second = begun(), begun()
    assert "hunter2" not in first.encode().decode() and first.config_hash != second.config_hash


def test_manifest_knows_its_configuration_whatever_the_offsets_topic() -> None:
    """Everything else must be the same."""
    assert begun().has_config({**CONFIG, "offsets.storage.topic": "other"})
    assert not begun().has_config({**CONFIG, "tasks.max": "2"})


@pytest.mark.parametrize("content", [b"", b"[]", b'{"v":1}', b'{"v":2,"sha256":""}', b"\xff"])
def test_damaged_manifest_is_an_error(content: bytes, tmp_path: Path) -> None:
    """Never an empty one."""
    store = ManifestStore(tmp_path)
    store.path("c", "migrate").write_bytes(content)
    with pytest.raises(NeedsOperator) as caught:
        store.load("c", "migrate")
    assert caught.value.code == "MANIFEST_DAMAGED"


def test_changed_offsets_are_noticed(tmp_path: Path) -> None:
    """The hash over keys and values tells."""
    store = ManifestStore(tmp_path)
    store.save(replace(begun(), offsets={KEY: b"1"}))
    document = json.loads(store.path("c", "migrate").read_text())
    document["offsets"][0][1] = "Mg=="
    store.path("c", "migrate").write_text(json.dumps(document))
    with pytest.raises(NeedsOperator, match="hash"):
        store.load("c", "migrate")


def test_manifest_is_private_and_another_run_is_kept(tmp_path: Path) -> None:
    """The same run replaces its own; the file of an older one gets its time as a name."""
    store, first = ManifestStore(tmp_path), replace(begun(), begun_ms=1)
    store.save(first)
    store.save(first.with_step("stop"))
    assert len(list(tmp_path.iterdir())) == 1
    second = replace(begun(), begun_ms=2)
    store.save(second)
    assert store.load("c", "migrate") == second
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.migrate.1.json", "c.migrate.json"]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_directory_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    """With what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="ONCEOVER_HOME"):
        ManifestStore(tmp_path / "file" / "home").save(begun())


@pytest.mark.parametrize("name", ["a/b", "..", "a b", "ä" * 200, "a_b", ""])
def test_file_names_are_no_paths_and_collide_for_nobody(name: str) -> None:
    """A connector may be called anything."""
    found = file_name(name)
    assert os.sep not in found and found not in ("", ".", "..") and len(found) < 120
    assert (found == name) is (name == "a_b")


def test_names_that_differ_in_odd_characters_only_get_other_files() -> None:
    """``a/b`` and ``a b`` are two connectors."""
    assert len({file_name("a/b"), file_name("a b"), file_name("a_b")}) == 3


class Cluster:
    """What was written down there."""

    def __init__(self, manifest: Manifest | None, place: str = "") -> None:
        self._manifest = manifest
        self._place = place

    def place(self) -> str:
        return self._place

    def load(self, connector: str, operation: str) -> Manifest | None:
        return self._manifest


@pytest.mark.parametrize("lost", [True, False])
def test_what_another_machine_did_last_counts(tmp_path: Path, lost: bool) -> None:
    """Whatever the clocks say; of the same run the file may know a step more."""
    here, there = replace(begun(), begun_ms=9), replace(begun(), begun_ms=5).with_step("stop")
    store = ManifestStore(tmp_path, Cluster(there))
    if not lost:
        store.save(here)
    assert store.load("c", "migrate") == there
    further = there.with_step("configure")
    store.save(further)
    assert store.load("c", "migrate") == further
    assert ManifestStore(tmp_path, Cluster(None)).load("c", "migrate") == further


def test_file_of_a_connect_cluster_says_nothing_of_another_one(tmp_path: Path) -> None:
    """A Connect file that was pointed at another cluster has the same name, and so have its connectors."""
    run = begun().with_step("settled", finished=True)
    ManifestStore(tmp_path, Cluster(None, "kafka/one")).save(run)
    one, other = (ManifestStore(tmp_path, Cluster(None, f"kafka/{name}")) for name in ("one", "other"))
    found = one.load("c", "migrate")
    assert found is not None and found.is_settled
    assert other.load("c", "migrate") is None and not other.owes("c", "migrate")
    other.save(replace(begun(), begun_ms=run.begun_ms + 1))
    # The first one's is kept beside it, and is no longer asked: the cluster has it.
    assert one.load("c", "migrate") is None and len(list(tmp_path.iterdir())) == 2


def test_file_of_an_older_release_counts_wherever_it_is_read(tmp_path: Path) -> None:
    """It does not say whose it is, and alone may know what a connector did before it was stopped."""
    ManifestStore(tmp_path).save(begun())
    path = ManifestStore(tmp_path).path("c", "migrate")
    document = json.loads(path.read_text())
    del document["place"], document["landed_in"]
    path.write_text(json.dumps(document))
    found = ManifestStore(tmp_path, Cluster(None, "kafka/one")).load("c", "migrate")
    assert found is not None and found.config_hash


LEFT = begun().with_step("configure").with_orders({"config": 90, "target": 100})
ASKING = LEFT.with_orders({"config": 90, "target": 100}, "STARTED")
RESUMED = ASKING.with_given(105).with_orders({"config": 90, "target": 105})


@pytest.mark.parametrize(
    ("here", "there", "further"),
    [
        # Another machine went on with the run: it gave an order, noted that it was its own, and was killed.
        (LEFT, RESUMED, "there"),
        (ASKING, RESUMED, "there"),
        # This machine was killed between the cluster's record and the file.
        (LEFT, ASKING, "there"),
        # The cluster was away when the run learnt what became of its order.
        (RESUMED, ASKING, "here"),
        # Somebody else's order came beside its own, of which alone it knows.
        (ASKING.with_given(105), ASKING, "here"),
        # Another machine has gone on from there without having heard of that.
        (RESUMED, ASKING.with_given(107).with_orders({"config": 90, "target": 107}), "there"),
        (RESUMED, LEFT.with_step("settled"), "there"),
        (RESUMED.with_step("resume"), LEFT.with_step("settled"), "there"),
        (LEFT.with_step("resume"), RESUMED, "there"),
        # Written by a release that did not look at orders.
        (replace(LEFT, left=None), RESUMED, "there"),
        (RESUMED, replace(LEFT, left=None), "here"),
    ],
)
def test_the_file_counts_only_where_it_knows_more_of_the_run_than_the_cluster(
    tmp_path: Path, here: Manifest, there: Manifest, further: str
) -> None:
    """Orders are noted without a step: whoever does not know the run's own takes them for somebody else's."""
    store = ManifestStore(tmp_path, Cluster(there))
    store.save(here)
    assert store.load("c", "migrate") == {"here": here, "there": there}[further]


def test_full_disk_loses_no_earlier_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It alone may know what the connector did before it was stopped."""
    store, first = ManifestStore(tmp_path), begun().with_step("stop")
    store.save(first)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(manifest, "_write_durably", full)
    with pytest.raises(UsageError) as refused:
        store.save(replace(begun(), begun_ms=first.begun_ms + 1))
    assert refused.value.code == "MANIFEST"
    assert store.load("c", "migrate") == first


def orders(target: int, asked: str = "STOPPED") -> ConfigRecords:
    """Return what the workers' configuration topic says of the state that is asked for."""
    return ConfigRecords({"target-state-c": {"state.v2": asked}}, {"target-state-c": target})


@pytest.mark.parametrize(
    ("found", "records", "over"),
    [
        # Written by a release that did not look.
        (begun(), orders(9), False),
        (begun().with_orders({"target": 9}), orders(9), False),
        (begun().with_orders({"target": 9}), orders(11), True),
        (begun().with_orders({}), orders(11), True),
        # Killed before it knew what became of its own command: it may be a person's.
        (begun().with_orders({"target": 9}, "STOPPED"), orders(9), False),
        (begun().with_orders({"target": 9}, "STOPPED"), orders(11), True),
        (begun().with_orders({"target": 9}, "STOPPED"), orders(11, "STARTED"), True),
        # It has asked a person to write offsets and to resume the connector.
        (begun().with_orders({"target": 9}).with_step(WENT_ON), orders(11, "STARTED"), False),
    ],
)
def test_run_is_over_once_another_has_commanded_the_connector(
    found: Manifest, records: ConfigRecords, over: bool
) -> None:
    """A person, or a run of which nothing is known here."""
    assert found.overtaken(records) is over


@pytest.mark.parametrize("ahead_ms", [-300_000, 0, 300_000])
def test_run_is_newer_than_the_one_before_it_whatever_its_machines_clock_says(ahead_ms: int) -> None:
    """A migration, and the downgrade that took it back two minutes later from another machine."""
    ran = replace(begun(), begun_ms=begun().begun_ms + ahead_ms)
    found = view([], [], newest_ms=ran.begun_ms)
    for later in (migration_manifest(found, None), downgrade_manifest(found, None, HARD)):
        assert later.begun_ms > ran.begun_ms


@pytest.mark.parametrize("operation", [MIGRATE, HARD, SOFT])
def test_newest_run_of_whichever_kind_is_what_the_next_one_begins_behind(
    operation: str, tmp_path: Path
) -> None:
    """Also one that has come to its end."""
    ran = replace(begun(), operation=operation, begun_ms=begun().begun_ms + 300_000)
    records = SimpleNamespace(load=lambda _, kind: ran if kind == operation else None)
    access: Any = SimpleNamespace(settings=SimpleNamespace(home=tmp_path), records=records)
    context = Context(access, facts(), ConnectorRequest(("c",)), lambda _: None)
    for newest in (ran, replace(ran, finished=True)):
        ran = newest
        assert moves.with_standing(context, view([])).newest_ms == ran.begun_ms
