"""Every command with the rights of docs/operations.md and no others, and without each single one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient

from onceover.audit.course.content import Content
from onceover.config.clients.resolve import ClientConfig
from onceover.drills import chain as chains
from onceover.drills.journal import DrillJournal
from onceover.errors import UsageError
from onceover.kafka.admin.acls import Acl, AclAdmin
from onceover.kafka.cluster import LiveCluster
from onceover.planning.operation import wait
from onceover.state import names
from tests.support.brokers.guarded import Pair
from tests.support.drills.orphaned import DECIDE, Orphaned, orphaned
from tests.support.flows.grants import (
    CLUSTER,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    Right,
    denied,
    granted,
    source_rights,
    target_rights,
)
from tests.support.flows.groups import commit
from tests.support.flows.replica import Replica, delete_topics
from tests.support.flows.rightstable import command_rights
from tests.support.worlds.contentaudit import audit

Capture = pytest.CaptureFixture[str]
Rights = tuple[list[Right], list[Right]]
ORIGINS: Final = cycle(["earliest", "latest"])
# What a command is called in the table, and how it is run there.
COMMANDS: Final[dict[str, Callable[[str, str], list[str]]]] = {
    "status": lambda flow, _: ["status", flow],
    "translate": lambda flow, topic: ["translate", flow, f"{topic}:0", "3"],
    "stop": lambda flow, _: ["stop", flow],
    "receipts rebuild": lambda flow, _: ["receipts", "rebuild", flow],
    "topics plan": lambda flow, _: ["topics", "plan", flow],
    "topics apply": lambda flow, _: ["topics", "apply", flow],
    "seed plan": lambda flow, _: ["seed", "plan", flow, "--from", "earliest", "--replace"],
    "seed plan --from map": lambda flow, _: ["seed", "plan", flow, "--from", "map", "--replace"],
    "seed plan --from lag-group": lambda flow, _: ["seed", "plan", flow, "--from", "lag-group", "--replace"],
    "seed plan --from group": lambda flow, topic: (
        ["seed", "plan", flow, "--from", f"group:{group_of(topic)}", "--replace"]
    ),
    # To and fro, so that there is always something to write.
    "seed apply": lambda flow, _: ["seed", "apply", flow, "--from", next(ORIGINS), "--replace"],
    "groups plan": lambda flow, _: ["groups", "plan", flow],
    "drill plan": lambda flow, _: ["drill", "plan", flow],
    "drill run": lambda flow, _: ["drill", "run", flow],
    "drill abort": lambda flow, _: ["drill", "abort", flow],
    "drill status": lambda flow, _: ["drill", "status", flow],
    "partition resume": lambda flow, _: ["partition", "resume", flow, "--apply"],
    "partition skip-to": lambda flow, topic: ["partition", "skip-to", flow, f"{topic}:0", "4", "--apply"],
    "partition reseed": lambda flow, topic: ["partition", "reseed", flow, f"{topic}:0", "--apply"],
}
# A drill has to wait for it.
ANSWERS: Final[dict[str, Callable[[str, str], list[str]]]] = {
    "drill confirm": lambda flow, _: ["drill", "confirm", flow, "fence"],
}
# All is there that would be made, and as it should be.
SPARE: Final = {"CREATE", "ALTER", "ALTER_CONFIGS", "DESCRIBE_CONFIGS"}
UNNOTICED: Final = {
    # Both lie in rows that are for another occasion: the target topic is gone, or other flows are there.
    ("partition reseed", TOPIC, "READ"),
    # Brokers do not list groups that may not be described.
    ("groups plan", GROUP, "DESCRIBE"),
    ("drill plan", GROUP, "DESCRIBE"),
    ("drill run", GROUP, "DESCRIBE"),
    # READ brings it along.
    ("seed plan --from map", TOPIC, "DESCRIBE"),
    # There is nothing to write here: nothing runs, is stopped, or is yet to be proven.
    ("stop", TOPIC, "WRITE"),
    ("topics apply", TOPIC, "WRITE"),
    ("audit", TOPIC, "WRITE"),
    ("partition resume", TOPIC, "WRITE"),
    ("partition resume", TOPIC, "READ"),
    ("partition resume", TOPIC, "DESCRIBE"),
    ("partition resume", GROUP, "READ"),
    ("partition resume", TRANSACTIONAL_ID, "WRITE"),
    # It may stand there already; the same writing is that of skip-to.
    ("seed apply", TRANSACTIONAL_ID, "WRITE"),
}


def group_of(topic: str) -> str:
    """Return the group that reads a topic; its name begins with the flow's."""
    return f"{topic}-group"


@dataclass(frozen=True)
class Copied:
    """A flow that has copied five records with all rights, and may do nothing any more."""

    replica: Replica
    topic: str
    pair: Pair

    def run(self, capsys: Capture, command: str, rights: Rights) -> tuple[int, dict[str, Any]]:
        """Run a command with these rights."""
        source, target = self.pair
        with granted(source, rights[0]), granted(target, rights[1]):
            arguments = {**COMMANDS, **ANSWERS}[command](str(self.replica.flow.path), self.topic)
            return self.replica.command(capsys, *arguments)

    def lose_copy(self) -> None:
        """Delete the target topic, if it is there."""
        client = self.pair[1].admin_client
        if self.topic in AdminClient(client).list_topics(timeout=30.0).topics:
            delete_topics(client, [self.topic])

    def audit(self, rights: Rights) -> Content:
        """Audit the flow with these rights, without Spark."""
        source, target = self.pair
        with granted(source, rights[0]), granted(target, rights[1]):
            return audit(self.replica.flow.watch.flow, keep=True)


@pytest.fixture
def copied(
    guarded: Pair, tmp_path: Path, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Copied]:
    """One flow for all commands, with a group that has read three of its records."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    source, target = guarded
    inside = source.internal_bootstrap, target.internal_bootstrap
    with Replica(tmp_path, unique_name, source.client, target.client, unsecured=inside) as replica:
        topic = replica.topic()
        replica.source.plain(topic, 0, replica.source.records(5))
        with granted(source, source_rights(replica.name)), granted(target, target_rights(replica.name)):
            assert replica.copy().records == 5
        commit(source.admin_client, group_of(topic), topic, {0: 3})
        # As the driver's own process does it, which is not here.
        commit(source.admin_client, names.lag_group(replica.name), topic, {0: 5})
        yield Copied(replica, topic, guarded)


def test_every_command_works_with_the_rights_of_its_rows(copied: Copied, capsys: Capture) -> None:
    for command in COMMANDS:
        code, document = copied.run(capsys, command, command_rights(command, copied.replica.name))
        assert (code, document.get("refused", [])) == (0, []), (command, document)
        assert all(answer["covered"] for answer in document.get("answers", [])), command
        # A rehearsal finds something where it may not see all of what a failover would cost.
        assert document.get("findings", []) == [], document["findings"]
        for flow in document.get("flows", []):
            assert (flow["source"]["error"], flow["target"]["error"], flow["needs"]) == (None, None, [])
    copied.audit(command_rights("audit", copied.replica.name))


def test_a_handler_is_tried_with_the_right_of_its_row(copied: Copied, capsys: Capture) -> None:
    """Who may only see the topics is told which it takes."""
    kept = {"action": "keep", "key": ".*"}
    copied.replica.configure(handler="onceover.handlers.filter:FilterRecords", handler_args=kept)
    path = str(copied.replica.write_flow())
    rights = command_rights("flow check --sample", copied.replica.name)
    seen = [(kind, name, is_prefix, "DESCRIBE") for kind, name, is_prefix, _ in rights[0]]
    for given, code in ((rights[0], 0), (seen, 2)):
        with granted(copied.pair[0], given):
            ended, document = copied.replica.command(capsys, "flow", "check", path, "--sample", "5")
        assert (ended, "grant" in str(document)) == (code, code != 0), document
    assert rights[1] == []


@pytest.mark.parametrize("by_name", [True, False])
def test_a_sample_of_what_may_not_be_seen_names_the_right(
    copied: Copied, capsys: Capture, by_name: bool
) -> None:
    """A broker leaves such a topic out, and 0 records would have passed."""
    kept = {"action": "keep", "key": ".*"}
    topics = {"topics": {"include": [copied.topic.replace(".", "[.]")]}} if by_name else {}
    copied.replica.configure(handler="onceover.handlers.filter:FilterRecords", handler_args=kept, **topics)
    path = str(copied.replica.write_flow())
    code, document = copied.replica.command(capsys, "flow", "check", path, "--sample", "5")
    assert (code, document["error"]["code"]) == (2, "NOT_AUTHORIZED" if by_name else "NO_SAMPLE"), document
    assert "DESCRIBE" in document["error"]["message"] and "grant" in document["error"]["resolve"]


def test_a_word_is_given_with_the_rights_of_its_rows(copied: Copied, tmp_path: Path, capsys: Capture) -> None:
    """Beside another one that is alive, and waits for it; without each of them it is not given."""
    replica, (_, target) = copied.replica, copied.pair
    replica.configure(switchover={"fence": "person"})
    replica.write_flow()
    rights = command_rights("drill confirm", replica.name)
    with (
        LiveCluster(ClientConfig("west", target.admin_client)) as cluster,
        DrillJournal(cluster, replica.name, 1, tmp_path, wait) as journal,
        ExitStack() as beats,
    ):
        journal.begin("d1", {"mode": "planned"})
        journal.append("d1", chains.STEP, {"step": "fence", "state": "running"})
        beats.enter_context(journal.heartbeat("d1"))
        for single in _singles(rights):
            side, right = single[0], single[1:]
            code, document = copied.run(capsys, "drill confirm", _without(rights, side, right))
            assert (code, "grant" in str(document)) == (2, True), (single, document)
        assert chains.confirmed(journal.read(), "d1", "fence") is None
        code, document = copied.run(capsys, "drill confirm", rights)
        assert code == 0, document
        assert chains.confirmed(journal.read(), "d1", "fence") is not None


def test_who_may_write_nowhere_is_told_which_topic_it_takes(copied: Copied, capsys: Capture) -> None:
    """Brokers answer with the cluster, on which a wide right would help; the row's is enough."""
    rights = command_rights("stop", copied.replica.name)
    state = names.state_topic(copied.replica.name)
    fewer = _without(rights, 1, (TOPIC, state, False, "WRITE"))
    code, document = copied.run(capsys, "stop", fewer)
    error = document["error"]
    assert (code, error["where"].split(":")[0]) == (2, state)
    assert "it takes WRITE on the topic" in error["message"]


def test_a_copy_that_is_gone_is_made_again_with_the_rights_of_its_rows(
    copied: Copied, capsys: Capture
) -> None:
    """With the source's configuration, and although there is another flow."""
    copied.replica.target.create_topic(f"__onceover.o{copied.replica.name}.state", 2)
    copied.lose_copy()
    rights = command_rights("partition reseed", copied.replica.name)
    code, document = copied.run(capsys, "partition reseed", rights)
    assert (code, document["refused"]) == (0, []), document


def test_acls_are_synced_with_the_rights_of_their_rows(copied: Copied, capsys: Capture) -> None:
    """Without each of them, the one that is missing is named, with its cluster."""
    replica, (source, _) = copied.replica, copied.pair
    replica.configure(topics={"sync_acls": True})
    replica.write_flow()
    with LiveCluster(ClientConfig("east", source.admin_client)) as cluster:
        AclAdmin(cluster).create([Acl("LITERAL", copied.topic, "User:ann", "*", "READ", "ALLOW")])
    for command in ("topics plan", "topics apply"):
        rights = command_rights(command, replica.name, acls=True)
        for side, kind, name, is_prefix, operation in _singles(rights):
            if kind is CLUSTER:
                fewer = _without(rights, side, (kind, name, is_prefix, operation))
                if operation == "ALTER":  # it brings the other one along
                    fewer[side].append((kind, name, is_prefix, "DESCRIBE"))
                code, document = copied.run(capsys, command, fewer)
                wanted = f"{operation} on the cluster {['east', 'west'][side]}"
                assert (code, wanted in str(document["refused"])) == (3, True), document
        code, document = copied.run(capsys, command, rights)
        assert (code, document["refused"]) == (0, []), document


ORPHAN_WORDS: Final = (["plan"], ["apply", "--rebuild"])


@dataclass(frozen=True)
class Exporting:
    """A flow with orphans of one topic on its source, and a user that may do nothing any more."""

    replica: Orphaned
    pair: Pair
    topic: str
    other: str

    def run(self, capsys: Capture, words: list[str], rights: Rights) -> tuple[int, dict[str, Any]]:
        """Run ``drill orphans`` with these rights."""
        source, target = self.pair
        with granted(source, rights[0]), granted(target, rights[1]):
            return self.replica.orphans(capsys, *words)

    def rights(self, words: list[str]) -> Rights:
        """Return those of the command's rows."""
        return command_rights(f"drill orphans {' '.join(words)}", self.replica.name)


@pytest.fixture
def left_alone(
    guarded: Pair, tmp_path: Path, unique_name: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> Iterator[Exporting]:
    """Such a flow, with a group on either side."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    source, target = guarded
    inside = source.internal_bootstrap, target.internal_bootstrap
    clients = source.admin_client, target.admin_client
    with orphaned(tmp_path, unique_name, *clients, unsecured=inside) as replica:
        other = replica.topic("other")
        replica.source.plain(other, 0, replica.source.records(10))
        topic = replica.orphaned_topic(capsys)
        for client in clients:
            commit(client, group_of(topic), topic, {0: 3})
        replica.source_client, replica.target_client = dict(source.client), dict(target.client)
        replica.write_flow()
        yield Exporting(replica, guarded, topic, other)


def test_orphans_are_exported_with_the_rights_of_their_rows(left_alone: Exporting, capsys: Capture) -> None:
    for words in ORPHAN_WORDS:
        code, document = left_alone.run(capsys, words, left_alone.rights(words))
        assert (code, document["refused"]) == (0, []), document


@pytest.mark.soak
def test_a_right_that_is_missing_is_named_where_orphans_are_exported(
    left_alone: Exporting, capsys: Capture
) -> None:
    """Without each of them, the one that is missing is named, and nothing is deleted."""
    silent = set()
    for words in ORPHAN_WORDS:
        rights = left_alone.rights(words)
        # Without DELETE all is exported, and then nothing needs WRITE: what keeps a topic comes last.
        export = list(_singles(left_alone.rights(["apply"])))
        for side, kind, name, is_prefix, operation in sorted(
            _singles(rights), key=lambda single: single not in export
        ):
            code, document = left_alone.run(
                capsys, words, _without(rights, side, (kind, name, is_prefix, operation))
            )
            if code == 0 or "grant" not in str(document):
                silent.add((["source", "target"][side], name, operation))
            if code == 0 and words != ["plan"]:
                pytest.fail(f"done without {operation} on {name}")
        code, document = left_alone.run(capsys, words, rights)
        assert (code, document["refused"]) == (0, []), document
    assert silent == set()


@pytest.mark.parametrize(("side", "operation"), [(0, "READ"), (0, "DESCRIBE"), (1, "DESCRIBE")])
def test_a_right_that_is_missing_on_one_topic_keeps_no_other_from_being_exported(
    left_alone: Exporting, capsys: Capture, side: int, operation: str
) -> None:
    """The one is named as what cannot be told, with the right; all of the other one is exported."""
    shut, fine, words = left_alone.other, left_alone.topic, ["apply"]
    left_alone.replica.source.plain(shut, 0, left_alone.replica.source.records(5))
    with denied(left_alone.pair[side], (TOPIC, shut, False, operation)):
        code, document = left_alone.run(capsys, words, left_alone.rights(words))
    assert (code, document["orphans"], document["exported"]) == (DECIDE, 5, 5), document
    assert {partition["partition"] for partition in document["partitions"]} == {f"{fine}:0"}
    (refused,) = document["refused"]
    assert (refused["object"].partition(":")[0], refused["code"]) == (shut, "NOT_READ")
    assert operation in refused["message"] and "grant" in refused["resolve"]
    code, document = left_alone.run(capsys, words, left_alone.rights(words))
    assert (code, document["orphans"], document["refused"]) == (0, 10, []), document


@pytest.mark.soak
def test_a_right_that_is_missing_is_named_where_the_copy_is_gone(copied: Copied, capsys: Capture) -> None:
    """And no right is in its rows that nothing here takes, but for those that are told apart below."""
    copied.replica.target.create_topic(f"__onceover.o{copied.replica.name}.state", 2)
    rights = command_rights("partition reseed", copied.replica.name)
    silent = set()
    for side, kind, name, is_prefix, operation in _singles(rights):
        copied.lose_copy()
        fewer = _without(rights, side, (kind, name, is_prefix, operation))
        code, document = copied.run(capsys, "partition reseed", fewer)
        if code == 0 or "grant" not in str(document):
            silent.add((["source", "target"][side], name, operation))
    state, others = f"__onceover.{copied.replica.name}.", "__onceover."
    # The flow's own topics are there, and the partitions.
    spare = {(state, "CREATE"), (state, "ALTER_CONFIGS"), (state, "DESCRIBE_CONFIGS")}
    spare.add((copied.replica.name, "ALTER"))
    # That the flow looks after the copy stands there since it has made it the first time.
    spare.add((names.owned_topic(copied.replica.name), "WRITE"))
    # One brings the other along; without both, brokers do not list the other flow's state either.
    spare |= {(state, "READ"), (others, "READ")}
    assert silent == {("target", *each) for each in spare}


@pytest.mark.soak
def test_a_right_that_is_missing_is_named_by_every_command(copied: Copied, capsys: Capture) -> None:
    """What there is to be done about it, too; nobody is told that all is well."""
    silent = []
    for command in [*COMMANDS, "audit"]:
        rights = command_rights(command, copied.replica.name)
        for side, kind, name, is_prefix, operation in _singles(rights):
            fewer = _without(rights, side, (kind, name, is_prefix, operation))
            if command == "audit":
                told = _audit_told(copied, fewer)
            else:
                code, document = copied.run(capsys, command, fewer)
                # What a rehearsal may not see keeps it from nothing, and is among its findings.
                told = (code != 0 or command == "drill run") and "grant" in str(document)
            # Nothing is created here that the flow would look after.
            idle = name == names.owned_topic(copied.replica.name) and operation == "WRITE"
            # A rehearsal is over before anybody looks at the lag of its copy.
            idle |= (name, operation) == (f"onceover-lag.{copied.replica.name}.rehearsal", "READ")
            # No group was moved, whose position would be checked.
            idle |= command == "audit" and (kind, name) == (GROUP, copied.replica.name)
            # To abort is to take away what is left of a drill: nothing is, and only that is read.
            idle |= command == "drill abort" and name != f"__onceover.{copied.replica.name}."
            expected = idle or operation in SPARE or (command, kind, operation) in UNNOTICED
            if not told and not expected:
                silent.append((command, ["source", "target"][side], name, operation))
    assert not silent, "\n".join(map(str, silent))


def _audit_told(copied: Copied, rights: Rights) -> bool:
    try:
        content = copied.audit(rights)
    except UsageError as error:
        return "grant" in (error.resolve or "")
    gaps = [gap for each in (*content.partitions, *content.beside) for gap in each.unverifiable]
    return any("grant" in gap.message for gap in gaps)


def _singles(rights: Rights) -> Iterator[tuple[int, Any, str, bool, str]]:
    for side, rows in enumerate(rights):
        for kind, name, is_prefix, operations in rows:
            for operation in operations.split():
                yield side, kind, name, is_prefix, operation


def _without(rights: Rights, side: int, right: Right) -> Rights:
    """Return the rights without one operation, in every row that gives it."""
    kind, name, is_prefix, operation = right
    left: Rights = ([], [])
    for number, rows in enumerate(rights):
        for row in rows:
            same = number == side and row[:3] == (kind, name, is_prefix)
            kept = [o for o in row[3].split() if not (same and o == operation)]
            if kept:
                left[number].append((*row[:3], " ".join(kept)))
    return left
