"""Taking over from a real MirrorMaker 2 that was killed under load: nothing lost, nothing repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from onceover.config.flow.load import load_flow
from onceover.seeding.adopt import MirrorMakerNames, read_syncs_on
from onceover.wiring.flows import open_clusters
from onceover_lab.embed.mirrormaker import MirrorMaker
from tests.support.brokers.busy import BusyProducer
from tests.support.connect.mirror import IDENTITY, PREFIX, START_S, Load, start_mirror
from tests.support.flows.flows import assert_same
from tests.support.flows.replica import Replica, read_records
from tests.support.raw.rawkafka import RawRecord
from tests.support.session.wait import wait_until

PARTITIONS = 2
_FORGOTTEN_S = 60.0
# Enough that it is in full swing, and has stored an offset or two.
_COPIED = 3000


class Adoption:
    """A flow, and the MirrorMaker that it takes over from."""

    def __init__(
        self, replica: Replica, capsys: pytest.CaptureFixture[str], folder: Path, naming: str, *, eos: bool
    ) -> None:
        self.replica, self.naming, self._folder, self._capsys, self._eos = (
            replica,
            naming,
            folder,
            capsys,
            eos,
        )
        self.alias = replica.name
        replica.configure(source={"alias": self.alias}, topics={"naming": naming})
        self.topic = replica.topic(partitions=PARTITIONS)
        self.copy = self.topic if naming == IDENTITY else f"{self.alias}.{self.topic}"
        self.flow = replica.write_flow()

    def start(self) -> MirrorMaker:
        """Start MirrorMaker."""
        replica, aliases = self.replica, (self.alias, f"{self.alias}w")
        clients = replica.source_client, replica.target_client
        topics = f"{replica.name}[.].*"
        return start_mirror(
            self._folder / "mm2", *clients, aliases, topics, naming=self.naming, exactly_once=self._eos
        )

    def copied(self) -> int:
        """Return how many offsets the copy has."""
        client = AdminClient(self.replica.target_client)
        if self.copy not in client.list_topics(timeout=START_S).topics:
            return 0
        return sum(len(read_records(self.replica.target_client, self.copy, p)) for p in range(PARTITIONS))

    def run(self, mirror: MirrorMaker, count: int = _COPIED) -> None:
        """Wait until MirrorMaker has copied ``count`` records, then kill it in the middle of its work."""
        wait_until(lambda: not mirror.alive or self.copied() >= count, START_S, "it copies", poll_s=0.3)
        assert mirror.alive, mirror.log_path.read_text()[-3000:]
        mirror.kill()

    def command(self, action: str, exit_code: int | None = 0) -> dict[str, Any]:
        """Run ``onceover adopt``."""
        arguments = ("adopt", action, str(self.flow), "--mm2-target", f"{self.alias}w")
        code, document = self.replica.command(self._capsys, *arguments)
        assert exit_code in (None, code), document
        return document

    def refused(self) -> set[str]:
        """Return the codes of what the plan refuses."""
        return {refusal["code"] for refusal in self.command("plan", None)["refused"]}

    def syncs_on(self) -> str | None:
        """Return where MirrorMaker keeps its offset syncs, as its connector was told."""
        source, target = open_clusters(load_flow(str(self.flow)))
        with source, target:
            return read_syncs_on(target, MirrorMakerNames.dedicated(self.alias, f"{self.alias}w"))

    def apply(self) -> dict[str, Any]:
        """Adopt once MirrorMaker's workers are forgotten."""
        wait_until(lambda: "MM2_RUNNING" not in self.refused(), _FORGOTTEN_S, "it is forgotten", poll_s=1.0)
        return self.command("apply")

    def finish(self) -> None:
        """Copy the rest; judge both sides; the target never went back."""
        held = [read_records(self.replica.target_client, self.copy, p) for p in range(PARTITIONS)]
        self.replica.copy()
        for partition, before in enumerate(held):
            after = read_records(self.replica.target_client, self.copy, partition)
            assert {offset: after[offset] for offset in before} == before
        assert_same(self.replica.source_client, self.replica.target_client, {self.topic: self.copy})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.soak
def test_a_killed_mirrormaker_is_adopted(
    replica: Replica, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    """Without exactly-once, under load, with identity naming: the cheapest of the matrix below."""
    check_adoption(Adoption(replica, capsys, home, IDENTITY, eos=False))


@pytest.mark.soak
@pytest.mark.parametrize("eos", [False, True], ids=["at-least-once", "exactly-once"])
@pytest.mark.parametrize("naming", [IDENTITY, PREFIX])
@pytest.mark.parametrize("round_", range(3))
def test_a_killed_mirrormaker_is_adopted_in_every_mode(
    replica: Replica, capsys: pytest.CaptureFixture[str], home: Path, naming: str, eos: bool, round_: int
) -> None:
    """Both naming policies, exactly-once on and off, several times: each kill hits another moment."""
    check_adoption(Adoption(replica, capsys, home, naming, eos=eos), count=_COPIED * (round_ + 1))


@pytest.mark.soak
def test_transactions_on_the_source_are_adopted(
    replica: Replica, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    """Aborted records and markers lie around the seam on the source, MirrorMaker's own on the target."""
    adoption = Adoption(replica, capsys, home, IDENTITY, eos=True)
    with BusyProducer(replica.source_client, adoption.topic, PARTITIONS, seed=1), adoption.start() as mirror:
        adoption.run(mirror, 500)
    adoption.apply()
    adoption.finish()


def check_adoption(adoption: Adoption, count: int = _COPIED) -> None:
    with Load(adoption.replica.source_client, adoption.topic, PARTITIONS), adoption.start() as mirror:
        wait_until(lambda: adoption.copied() > 0, START_S, "it copies", poll_s=0.3)
        assert adoption.refused() == {"MM2_RUNNING"}
        assert adoption.command("apply", 3)["written"] == 0
        adoption.run(mirror, count)
    assert adoption.syncs_on() == "source"
    applied = adoption.apply()
    positions = [c for c in applied["changes"] if c["what"] == "position"]
    assert {c["risk"] for c in positions} == {"none"} and len(positions) == PARTITIONS
    assert all(c["reason"].startswith("proven:") for c in positions)
    assert adoption.command("apply")["written"] == 0
    adoption.finish()


def test_without_a_mirrormaker_there_is_nothing_to_adopt(
    replica: Replica, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    """A mistyped alias is not taken for an empty MirrorMaker."""
    adoption = Adoption(replica, capsys, home, IDENTITY, eos=False)
    assert adoption.command("plan", 3)["error"]["code"] == "MM2_UNKNOWN"


def test_what_an_open_transaction_hides_is_not_copied_a_second_time(
    replica: Replica, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    """Somebody else's transaction keeps readers off what MirrorMaker has written behind it."""
    adoption = Adoption(replica, capsys, home, IDENTITY, eos=False)
    source, target, topic = replica.source, replica.target, adoption.topic
    replica.target_topic(topic, PARTITIONS)
    records = source.records(10)
    source.plain(topic, 0, records)
    target.plain(topic, 0, records[:6])
    key = f'["MirrorSourceConnector",{{"cluster":"{adoption.alias}","partition":0,"topic":"{topic}"}}]'
    for kind, name in (("offsets", key), ("configs", "task-MirrorSourceConnector-0")):
        own = target.create_topic(f"mm2-{kind}.{adoption.alias}.internal")
        target.plain(own, 0, [RawRecord(name.encode(), b'{"offset":3}')])
    held = target.transaction(topic)
    held.send(0, target.records(1))
    target.plain(topic, 0, records[6:8])

    applied = adoption.command("apply", 3)
    assert [(r["object"], r["code"]) for r in applied["refused"]] == [(f"{topic}:0", "MM2_WRITES")]
    assert applied["written"] == 0
    held.abort()
    assert adoption.command("apply")["written"] == PARTITIONS
    adoption.finish()
