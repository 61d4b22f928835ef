"""Looking at a connector: who answers for it, and what is taken for theirs."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from onceover.backoff import Deadline
from onceover.connectors.model import STOPPED, ConnectorState, Isolation
from onceover.connectors.offsets.configtopic import ConfigRecords
from onceover.connectors.planning import view as looking
from onceover.connectors.planning.access import ConnectAccess, OffsetsTopic
from onceover.connectors.planning.view import Observer, TopicView
from onceover.connectors.workers.rest import ConnectRest
from onceover.kafka import calls
from tests.unit.connectors.views import GLOBAL, KEY, OTHER, OWN, connector, facts, placed, scan


@pytest.fixture
def access(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A Connect cluster whose connector ``c`` stands, and whose offsets cannot be read."""
    found = mock.MagicMock(spec=ConnectAccess, rest=mock.MagicMock(spec=ConnectRest))
    found.rest.state.return_value = connector(state=STOPPED)
    found.has_waited = False
    found.config_topic, found.worker_cluster = "connect-configs", mock.MagicMock(alias="kafka")
    monkeypatch.setattr(looking, "_TAKEN_UP_S", 0.0)
    monkeypatch.setattr(Observer, "topic_view", mock.Mock(return_value=None))
    return found


@pytest.mark.parametrize(
    ("exactly_once", "committed", "refused"),
    [(True, "theirs", False), (True, "another", True), (False, "theirs", True)],
)
def test_configuration_that_was_never_committed_is_not_what_the_workers_should_tell(
    monkeypatch: pytest.MonkeyPatch, access: Any, committed: str, *, exactly_once: bool, refused: bool
) -> None:
    """A leader that was ended as it wrote one leaves it in the log; exactly-once workers never read it."""
    config = dict(connector().config)
    told = {"theirs": config, "another": {**config, "batch": "7"}}
    read = {calls.READ_UNCOMMITTED: "another", calls.READ_COMMITTED: committed}

    def records(_cluster: Any, _topic: str, isolation: int = calls.READ_UNCOMMITTED) -> ConfigRecords:
        return ConfigRecords({"connector-c": {"properties": told[read[isolation]]}})

    monkeypatch.setattr(looking, "read_config_topic", records)
    seen = Observer(access, facts(exactly_once=exactly_once)).look("c", "not a topic", for_plan=False)
    assert ("WORKERS_DIFFER" in [problem.code for problem in seen.problems]) is refused


def test_only_the_first_one_is_waited_for_long_where_workers_tell_of_others(
    monkeypatch: pytest.MonkeyPatch, access: Any
) -> None:
    """With the wrong Connect file all connectors differ, and a plan of a hundred is to end."""
    waited: list[float] = []
    monkeypatch.setattr(looking, "_TAKEN_UP_S", 9.0)
    monkeypatch.setattr(looking, "Deadline", lambda limit_s: waited.append(limit_s) or Deadline(0.0))
    monkeypatch.setattr(looking, "read_config_topic", mock.Mock(return_value=ConfigRecords()))
    observers = [Observer(access, facts(exactly_once=False)) for _ in range(3)]
    seen = [each.look("c", "not a topic", for_plan=False) for each in observers]
    assert all("WORKERS_DIFFER" in [problem.code for problem in each.problems] for each in seen)
    assert waited == [9.0, 9.0, 1.0, 9.0, 1.0]


@pytest.mark.parametrize(
    ("state", "own", "shared", "refused"),
    [
        (connector(OWN), {KEY: b"5"}, {}, True),
        (connector(OWN), {KEY: b"5"}, {OTHER: b"1"}, True),
        (connector(OWN), {KEY: b"5"}, {KEY: b"7"}, False),
        # One key is enough: it may never have written the others since it was migrated.
        (connector(OWN), {KEY: b"5", OTHER: b"6"}, {KEY: b"7"}, False),
        # A tombstone is of the workers, too; and one that has no offset loses none.
        (connector(OWN), {KEY: b"5"}, {KEY: None}, False),
        (connector(OWN), {}, {}, False),
        (connector(), {KEY: b"5"}, {}, False),
    ],
)
def test_connector_goes_back_to_a_topic_that_its_workers_write(
    monkeypatch: pytest.MonkeyPatch,
    access: Any,
    state: ConnectorState,
    own: dict[bytes, bytes | None],
    shared: dict[bytes, bytes | None],
    *,
    refused: bool,
) -> None:
    """Brought to another one, its offsets would be read by nobody, and it would go on from the real one."""
    topics = {
        OWN: TopicView(scan(placed(own), OWN), "compact"),
        GLOBAL: TopicView(scan(placed(shared)), None),
    }
    monkeypatch.setattr(Observer, "topic_view", lambda _self, site, _patience: topics[site.topic])
    monkeypatch.setattr(Observer, "_own", lambda _self, site, _patience, used: topics[site.topic])
    for check in ("check_topic", "check_transactional_ids", "connector_rights"):
        monkeypatch.setattr(looking, check, mock.Mock(return_value=mock.Mock(refusals=(), doubts=())))
    records = ConfigRecords({"connector-c": {"properties": state.config}})
    monkeypatch.setattr(looking, "read_config_topic", mock.Mock(return_value=records))
    access.rest.state.return_value, access.records, cluster = state, mock.Mock(), mock.Mock(alias="kafka")
    access.own_site.return_value = OffsetsTopic(cluster, OWN, Isolation.READ_COMMITTED)
    access.base_site.return_value = OffsetsTopic(cluster, GLOBAL, Isolation.READ_COMMITTED)
    access.return_sites.return_value = [access.base_site.return_value]
    access.silent_logins = {}
    access.settings = mock.Mock(worker={"offset.storage.replication.factor": "1"})
    seen = Observer(access, facts(exactly_once=False)).look("c", OWN, back=True)
    assert [problem.code for problem in seen.problems] == (["WORKER_CONFIG"] if refused else [])
