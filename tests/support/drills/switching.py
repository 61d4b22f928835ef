"""What tests of switchovers share: a flow between clusters with authorizers, and a program that it tells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.drills.modes import PROMOTE
from onceover.drills.switching.course import STEP_NAMES
from onceover.kafka.admin.acls import Acl, AclAdmin
from onceover.kafka.cluster import LiveCluster
from tests.support.brokers.guarded import Pair
from tests.support.drills.rehearsing import nobody_alive, rehearsing
from tests.support.flows.groups import commit, offset_of
from tests.support.flows.replica import Replica

_TIMEOUT_S = 90.0
_KILLED, _PERSON = -9, 3


class Switched(Replica):
    """A flow whose switchover is told to a program."""

    program: Path

    def command_does(self, script: str) -> None:
        """Have the program do that, after it has written down what it heard."""
        heard = 'echo "$1 $ONCEOVER_FLOW $(cat "$ONCEOVER_TOPICS")" >> "$(dirname "$0")/heard"'
        self.program.write_text(f"#!/bin/sh\n{heard}\n{script}\n")
        self.program.chmod(0o700)


@contextmanager
def switched(
    pair: Pair, folder: Path, name: str, clients: tuple[dict[str, str], dict[str, str]] | None = None
) -> Iterator[Switched]:
    """Yield a flow of a super user, or of other ``clients``."""
    source, target = pair
    inside = (source.internal_bootstrap, target.internal_bootstrap)
    clients = clients or (source.admin_client, target.admin_client)
    with Switched(folder, name, *clients, unsecured=inside) as replica:
        replica.configure(switchover={"redirect": "command", "command": ["./switch"], "quiet": "500ms"})
        replica.program = folder / "switch"
        replica.command_does("exit 0")
        yield replica


def ran(replica: Replica, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    """Switch over, approved; return the exit code and the document."""
    return replica.command(
        capsys, "drill", "run", str(replica.flow.path), "--mode", "planned", "--approve", *more
    )


def acls_of(replica: Replica) -> frozenset[Acl]:
    """Return the ACLs of the flow's topics on the source."""
    with LiveCluster(ClientConfig("source", replica.source_client)) as cluster:
        return frozenset(a for a in AclAdmin(cluster).topic_acls() if a.name.startswith(replica.name))


def step_of(told: dict[str, Any], name: str) -> dict[str, Any]:
    """Return one step of a report."""
    found: dict[str, Any] = next(step for step in told["steps"] if step["name"] == name)
    return found


def trouble(told: dict[str, Any]) -> str:
    """Return what went wrong in a drill, in few lines: of whole reports a CI shows the ends alone."""
    errors = {step["name"]: step["error"] for step in told["steps"] if step["error"]}
    return json.dumps({"verdict": told["verdict"], "errors": errors, "findings": told["findings"]}, indent=1)


def copied(replica: Replica, records: int = 20) -> str:
    """Return a topic of the flow with records and a group, all of which are copied."""
    topic = replica.topic(partitions=2)
    replica.source.plain(topic, 0, replica.source.records(records))
    commit(replica.source_client, f"{replica.name}-billing", topic, {0: 7, 1: 0})
    replica.copy()
    return topic


def undone_or_gone_on_with(
    replica: Switched, capsys: pytest.CaptureFixture[str], log: Path, step: str, when: str
) -> None:
    """Kill a switchover at a step: it is undone where that is possible, else gone on with; then it passes."""
    topic = copied(replica)
    before = acls_of(replica)
    with rehearsing(replica, log, mode="planned", step=step, when=when) as child:
        assert child.wait(_TIMEOUT_S) == _KILLED, child.tail()
    with nobody_alive():
        code, told = replica.command(capsys, "drill", "abort", str(replica.flow.path))
        at = STEP_NAMES.index(step), when
        if at >= (STEP_NAMES.index(PROMOTE), "behind"):
            assert (code, told["error"]["code"]) == (_PERSON, "PAST_RETURN")
        else:
            assert code == 0, told
            assert acls_of(replica) == before
        code, told = ran(replica, capsys)
        assert (code, told["verdict"]) == (0, "PASS"), trouble(told)
        assert offset_of(replica.target_client, f"{replica.name}-billing", topic) == 7
        replica.assert_same()
        assert len(acls_of(replica)) == 1
