"""What Kafka's own Java classes find on a target: MirrorClient, RemoteClusterUtils, OffsetSyncStore."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from onceover.process.children import run_to_end
from onceover.process.java import find_java
from onceover_lab.embed.archive import archive_flags
from onceover_lab.embed.jars import DEFAULT_VERSION, classpath, kafka_jars

UNKNOWN = "never-heard-of"
_SOURCE = Path(__file__).parents[1] / "java" / "MirrorQuestions.java"
_POLICIES = {
    "prefix": "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
    "identity": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
}
# A JVM, a compiler and five clients, beside other work.
_TIMEOUT_S = 90.0


@dataclass
class Answers:
    """What it printed.

    Attributes:
        offsets: translateOffsets: group and target partition to offset and metadata.
        hops: replicationHops of the source's alias, and of one that nobody has.
        upstream: upstreamClusters; ``heartbeats``, ``checkpoints`` and ``remote`` are topics.
        syncs: offset syncs in their order: source topic, partition, upstream, downstream.
        estimates: what MirrorMaker's own checkpoint task makes of the newest syncs: the same four.
        beats: replicated heartbeats: source, target, the time they speak of, the time they were written.
    """

    offsets: dict[tuple[str, str, int], tuple[int, str]] = field(default_factory=dict)
    hops: dict[str, int] = field(default_factory=dict)
    upstream: set[str] = field(default_factory=set)
    heartbeats: set[str] = field(default_factory=set)
    checkpoints: set[str] = field(default_factory=set)
    remote: set[str] = field(default_factory=set)
    syncs: list[tuple[str, int, int, int]] = field(default_factory=list)
    estimates: list[tuple[str, int, int, int]] = field(default_factory=list)
    beats: list[tuple[str, str, int, int]] = field(default_factory=list)

    def add(self, kind: str, *words: str) -> None:
        """Take in one line."""
        match kind, words:
            case "hops", (alias, count):
                self.hops[alias] = int(count)
            case "group", (group, topic, partition, offset, *metadata):
                self.offsets[group, topic, int(partition)] = int(offset), "\t".join(metadata)
            case "sync", (topic, partition, upstream, downstream):
                self.syncs.append((topic, int(partition), int(upstream), int(downstream)))
            case "estimate", (topic, partition, upstream, downstream):
                self.estimates.append((topic, int(partition), int(upstream), int(downstream)))
            case "beat", (source, target, at_ms, written_ms):
                self.beats.append((source, target, int(at_ms), int(written_ms)))
            case (("upstream" | "heartbeats" | "checkpoints" | "remote"), (name,)):
                getattr(self, kind).add(name)
            case _:
                raise ValueError(f"not an answer: {kind} {words}")


def ask(bootstrap: str, naming: str, source_alias: str, log: Path) -> Answers:
    """Ask about a source cluster, under the policy that ``naming`` stands for."""
    jars = classpath(kafka_jars(jar_set="connect"))
    archive = archive_flags(DEFAULT_VERSION, "connect")
    quick = ["-XX:TieredStopAtLevel=1", *archive, "-Dlog4j2.level=ERROR"]
    questions = [str(_SOURCE), bootstrap, _POLICIES[naming], source_alias, UNKNOWN]
    command = [str(find_java().executable), *quick, "-cp", jars, *questions]
    code = run_to_end(command, name="MirrorClient", log_path=log, timeout_s=_TIMEOUT_S)
    lines = log.read_text().splitlines()
    if code != 0:
        said = [line for line in lines if not line.startswith("answer")]
        raise RuntimeError(f"MirrorClient ended with {code}: {said}")
    answers = Answers()
    for line in lines:
        first, *words = line.split("\t")
        if first == "answer":
            answers.add(*words)
    return answers
