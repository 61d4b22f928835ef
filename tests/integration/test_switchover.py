"""``onceover drill run --mode planned`` on real clusters: what it carries over, and how it undoes itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.drills.switching.course import STEP_NAMES
from onceover.kafka.acladmin import Acl, AclAdmin
from onceover.kafka.cluster import Cluster
from tests.support.groups import commit, offset_of
from tests.support.guarded import Pair, guarded_clusters
from tests.support.replica import Replica

DONE, USAGE, PERSON = 0, 2, 3


@pytest.fixture(scope="module")
def guarded(session_home: Path) -> Iterator[Pair]:
    """Two clusters with authorizers."""
    with guarded_clusters(session_home) as pair:
        yield pair


@pytest.fixture
def replica(guarded: Pair, tmp_path: Path, unique_name: str) -> Iterator[Replica]:
    """A flow of a super user, whose switchover is told to a program that writes down what it heard."""
    source, target = guarded
    inside = (source.internal_bootstrap, target.internal_bootstrap)
    program = tmp_path / "switch"
    program.write_text(
        '#!/bin/sh\necho "$1 $ONCEOVER_FLOW $(cat "$ONCEOVER_TOPICS")" >> "$(dirname "$0")/heard"\n'
    )
    program.chmod(0o700)
    with Replica(tmp_path, unique_name, source.admin_client, target.admin_client, unsecured=inside) as replica:
        replica.configure(
            switchover={"redirect": "command", "command": [str(program)], "quiet": "500ms"},
        )
        yield replica


def ran(replica: Replica, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    return replica.command(
        capsys, "drill", "run", str(replica.flow.path), "--mode", "planned", "--approve", *more
    )


def acls_of(replica: Replica) -> frozenset[Acl]:
    """Return the ACLs of the flow's topics on the source."""
    with Cluster(ClientConfig("source", replica.source_client)) as cluster:
        return frozenset(a for a in AclAdmin(cluster).topic_acls() if a.name.startswith(replica.name))


def test_everything_is_carried_over(replica: Replica, capsys: pytest.CaptureFixture[str]) -> None:
    """Records, groups; writers are kept off; the copies are promoted, and the flow copies them no more."""
    topic = replica.topic(partitions=2)
    replica.source.plain(topic, 0, replica.source.records(20))
    commit(replica.source_client, f"{replica.name}-billing", topic, {0: 7, 1: 0})
    with replica.running():
        code, told = ran(replica, capsys)
    assert (code, told["verdict"]) == (DONE, "PASS"), json.dumps(told, indent=1)
    assert [step["name"] for step in told["steps"]] == [n for n in STEP_NAMES if n != "reverse"]
    assert offset_of(replica.target_client, f"{replica.name}-billing", topic) == 7
    replica.assert_same()
    assert {(a.principal, a.operation, a.permission) for a in acls_of(replica)} == {
        ("User:*", "WRITE", "DENY")
    }
    heard = Path(replica.flow.path.parent / "heard").read_text()
    assert heard == f"redirect {replica.name} {topic}\n"
    code, again = ran(replica, capsys)
    assert (code, again["error"]["code"]) == (USAGE, "NOTHING_CHOSEN")
