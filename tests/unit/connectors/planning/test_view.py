"""Looking at a connector: who answers for it, and what is taken for theirs."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from onceover.connectors.model import STOPPED
from onceover.connectors.offsets.configtopic import ConfigRecords
from onceover.connectors.planning import view as looking
from onceover.connectors.planning.access import ConnectAccess
from onceover.connectors.planning.view import Observer
from onceover.connectors.workers.rest import ConnectRest
from onceover.kafka import calls
from tests.unit.connectors.views import connector, facts


@pytest.fixture
def access(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A Connect cluster whose connector ``c`` stands, and whose offsets cannot be read."""
    found = mock.MagicMock(spec=ConnectAccess, rest=mock.MagicMock(spec=ConnectRest))
    found.rest.state.return_value = connector(state=STOPPED)
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
